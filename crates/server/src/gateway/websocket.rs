//! A call of the gateway over a WebSocket, for pages in browsers, which can stream no other way.
//!
//! As in etcd: what each message says is a line of the body of a POST to the same path, and each line of the
//! answer is a message. When the answer ends, so does the socket. The gateway behind it is the same; this
//! decides nothing. The method that the query may ask for (`?method=`) makes no difference, as in etcd, where
//! it is a POST in any case.
//!
//! A page cannot set headers, so a token comes as a subprotocol: `Sec-WebSocket-Protocol: Bearer, TOKEN`. Of
//! the client's headers none else is heeded. A cookie is no login here: pages of others send it along, too.

use super::{Gateway, plain};
use crate::punctual::IDLE_WITHIN;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

const BEARER: &str = "Bearer";

/// How long one message may take to go out.
const SEND_WITHIN: Duration = Duration::from_secs(60);
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Messages that were read and that the call has not taken yet.
const WAITING_MAX: usize = 4;

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
    tokio::spawn(async move {
        // Without an upgrade the client has gone.
        if let Ok(upgraded) = upgrade.await {
            serve(TokioIo::new(upgraded), &gateway, inner).await;
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

async fn serve(io: impl AsyncRead + AsyncWrite + Unpin + Send, gateway: &Gateway, call: Request<Body>) {
    let bytes_max = Some(gateway.json_bytes_max);
    let config = WebSocketConfig::default().max_message_size(bytes_max).max_frame_size(bytes_max);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    // A page may open a socket before it has anything to ask.
    let Ok(Some(first)) = tokio::time::timeout(IDLE_WITHIN, said(&mut stream)).await else { return };
    let (ask, asked) = mpsc::channel(WAITING_MAX);
    let lines = futures::stream::iter([first]).chain(ReceiverStream::new(asked));
    let body = Body::from_stream(lines.map(Ok::<Bytes, Infallible>));
    let call = call.map(|_| body);
    let hear = async {
        while let Some(line) = said(&mut stream).await {
            // A call that takes no more is still asked whether its client has gone.
            let _ = ask.send(line).await;
        }
    };
    let tell = async { tell(&mut sink, gateway.serve(call).await.into_body()).await };
    tokio::select! {
        () = hear => {}
        () = tell => {}
    }
    let _ = tokio::time::timeout(CLOSE_WITHIN, sink.close()).await;
}

/// The next message with an end of line after it; none if there will be no more.
async fn said(stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin)) -> Option<Bytes> {
    loop {
        let said = match stream.next().await? {
            Ok(Message::Text(text)) => Bytes::from(text),
            Ok(Message::Binary(bytes)) => bytes,
            // Answering pings is the socket's business.
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Close(_) | Message::Frame(_)) | Err(_) => return None,
        };
        return Some([&said[..], b"\n"].concat().into());
    }
}

/// Each line of the answer as a message, until there are no more or the client does not take them.
async fn tell(sink: &mut (impl Sink<Message, Error = Error> + Unpin), mut answer: Body) {
    let mut waiting = BytesMut::new();
    while let Some(Ok(frame)) = answer.frame().await {
        waiting.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let line = waiting.split_to(end + 1);
            if !send(sink, &line[..end]).await {
                return;
            }
        }
    }
    send(sink, &waiting).await;
}

async fn send(sink: &mut (impl Sink<Message, Error = Error> + Unpin), line: &[u8]) -> bool {
    if line.is_empty() {
        return true;
    }
    let message = Message::text(String::from_utf8_lossy(line).into_owned());
    matches!(tokio::time::timeout(SEND_WITHIN, sink.send(message)).await, Ok(Ok(())))
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
