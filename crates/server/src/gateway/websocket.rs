//! A call of the gateway over a WebSocket, for pages in browsers, which can stream no other way: how it
//! begins. What is said on it is [`socket`]'s.
//!
//! As in etcd: what each message says is a line of the body of a POST to the same path, and each line of the
//! answer is a message. When the answer ends, so does the socket. The gateway behind it is the same; this
//! decides nothing. The method that the query may ask for (`?method=`) makes no difference, as in etcd, where
//! it is a POST in any case.
//!
//! A page cannot set headers, so a token comes as a subprotocol: `Sec-WebSocket-Protocol: Bearer, TOKEN`. Of
//! the client's headers none else is heeded. A cookie is no login here: pages of others send it along, too.

use super::{Gateway, plain, socket};
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use meerkat_raft::tasks::spawn_brief;
use std::sync::Arc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const BEARER: &str = "Bearer";

pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let names = |name: &HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(wanted))
    };
    names(&header::CONNECTION, "upgrade") && names(&header::UPGRADE, "websocket")
}

/// Switches to a WebSocket, and serves it for as long as both sides want.
pub(super) fn answer(gateway: Arc<Gateway>, mut request: Request<Body>) -> Response {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let accept = match accept(&request) {
        Ok(accept) => accept,
        Err(code) => return refused(code),
    };
    let Some(upgrade) = upgrade else { return refused(StatusCode::BAD_REQUEST) };
    // Before anything is read of it.
    if gateway.refuses(request.uri().path()) {
        return refused(StatusCode::SERVICE_UNAVAILABLE);
    }
    let protocols = request.headers().get(header::SEC_WEBSOCKET_PROTOCOL).cloned();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if protocols.as_ref().is_some_and(|protocols| protocols.as_bytes().starts_with(BEARER.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(BEARER));
    }
    let inner = inner(request, protocols.as_ref().and_then(token));
    spawn_brief(async move {
        // Without an upgrade the client has gone.
        if let Ok(upgraded) = upgrade.await {
            socket::serve(TokioIo::new(upgraded), &gateway, inner).await;
        }
    });
    response
}

fn accept(request: &Request<Body>) -> Result<HeaderValue, StatusCode> {
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let is_version = request.headers().get(header::SEC_WEBSOCKET_VERSION).is_some_and(|it| it == "13");
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let accept = key.filter(|_| is_version).map(|key| derive_accept_key(key.as_bytes()));
    accept.and_then(|accept| HeaderValue::from_str(&accept).ok()).ok_or(StatusCode::BAD_REQUEST)
}

fn refused(code: StatusCode) -> Response {
    let mut response = plain(code);
    response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// `Bearer abc` of `Bearer, abc`.
fn token(protocols: &HeaderValue) -> Option<HeaderValue> {
    let (_, token) = protocols.to_str().ok()?.split_once("Bearer,")?;
    HeaderValue::from_str(&format!("{BEARER} {}", token.trim())).ok()
}

/// The call that the socket stands for, without its body.
fn inner(request: Request<Body>, token: Option<HeaderValue>) -> Request<Body> {
    let (parts, _) = request.into_parts();
    let mut inner = Request::new(Body::empty());
    *inner.method_mut() = Method::POST;
    *inner.uri_mut() = parts.uri;
    *inner.extensions_mut() = parts.extensions;
    if let Some(token) = token {
        inner.headers_mut().insert(header::AUTHORIZATION, token);
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pairs: &[(&'static str, &'static str)], method: Method) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        for (name, value) in pairs {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        request
    }

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_handshake_of_the_standard_and_none_with_less() {
        let good = request(&GOOD, Method::GET);
        assert!(is_wanted(good.headers()));
        assert_eq!(accept(&good).expect("a good one"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accept(&request(&GOOD, Method::POST)), Err(StatusCode::METHOD_NOT_ALLOWED));
        for left_out in [2, 3] {
            let rest: Vec<_> = (0..4).filter(|at| *at != left_out).map(|at| GOOD[at]).collect();
            assert_eq!(accept(&request(&rest, Method::GET)), Err(StatusCode::BAD_REQUEST), "{left_out}");
        }
        assert!(!is_wanted(request(&GOOD[1..], Method::GET).headers()));
        assert!(!is_wanted(request(&GOOD[..1], Method::GET).headers()));
    }

    #[test]
    fn a_token_comes_as_a_subprotocol_and_nothing_else_of_the_client_counts() {
        for (protocols, expected) in
            [("Bearer, abc", Some("Bearer abc")), ("Bearer,abc", Some("Bearer abc")), ("foo", None)]
        {
            let found = token(&HeaderValue::from_static(protocols));
            assert_eq!(found, expected.map(HeaderValue::from_static), "{protocols}");
        }
        let mut pairs = GOOD.to_vec();
        pairs.extend([("authorization", "mine"), ("cookie", "token=mine"), ("grpc-metadata-token", "mine")]);
        let call = inner(request(&pairs, Method::GET), None);
        assert_eq!((call.method(), call.headers().len()), (&Method::POST, 0));
    }
}
