//! Who may ask over plain HTTP: the host that is asked for, and pages of other origins.
//!
//! A page that has its own name resolve to this machine could otherwise ask a member in its reader's name
//! (CVE-2018-5702): with `--host-whitelist` only requests for the hosts named there are answered. Over TLS the
//! certificate says as much, and gRPC needs no such care, since no page can send it.

use crate::client_port::{ClientCommonName, OverTls};
use crate::config::HttpOptions;
use crate::gateway::websocket;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use std::sync::Arc;

const NAME_WITHOUT_EFFECT: &str =
    "CommonName of client sending a request against gateway will be ignored and not used as expected\n";

/// Whether clients must say who they are.
type AsksWho = Arc<dyn Fn() -> bool + Send + Sync>;

pub(super) fn guarded(router: Router, options: &HttpOptions, asks_who: AsksWho) -> Router {
    router.layer(from_fn_with_state((Arc::new(options.clone()), asks_who), guard))
}

async fn guard(
    State((options, asks_who)): State<(Arc<HttpOptions>, AsksWho)>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let host = host(&request).unwrap_or_default();
    let over_tls = request.extensions().get::<OverTls>().is_some();
    if !over_tls && !options.allows_host(host) {
        let text = format!(
            "this member is not to be asked for as {host:?}: use TLS, or start it with --host-whitelist {host:?}\n"
        );
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    if options.gateway && is_a_certificate_that_would_not_count(&request) && asks_who() {
        return (StatusCode::BAD_REQUEST, NAME_WITHOUT_EFFECT).into_response();
    }
    let origin = allowed_origin(&options, request.headers());
    // A page reads along on a WebSocket whatever an answer's headers say.
    let is_foreign = origin.is_none() && request.headers().contains_key(header::ORIGIN);
    if is_foreign && websocket::is_wanted(request.headers()) {
        return (StatusCode::FORBIDDEN, "pages of this origin may not ask here: see --cors\n")
            .into_response();
    }
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::OK.into_response(),
        _ => next.run(request).await,
    };
    if let Some(origin) = origin {
        add_cors(response.headers_mut(), origin);
    }
    response
}

/// The gateway's calls reach the services without their caller's certificate: who relies on the name in it
/// is told so, in etcd's words.
fn is_a_certificate_that_would_not_count<B>(request: &Request<B>) -> bool {
    let named = request.extensions().get::<ClientCommonName>().is_some_and(|name| !name.0.is_empty());
    named && ["/v3/", "/v3beta/"].iter().any(|prefix| request.uri().path().starts_with(prefix))
}

/// The name, without a port.
fn host<B>(request: &Request<B>) -> Option<&str> {
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(header::HOST)?.to_str().ok()?,
    };
    Some(without_port(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            name.trim_start_matches('[').trim_end_matches(']')
        }
        _ => host,
    }
}

fn allowed_origin(options: &HttpOptions, headers: &HeaderMap) -> Option<HeaderValue> {
    if options.allows_origin("*") {
        return Some(HeaderValue::from_static("*"));
    }
    let origin = headers.get(header::ORIGIN)?;
    origin.to_str().is_ok_and(|origin| options.allows_origin(origin)).then(|| origin.clone())
}

fn add_cors(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"),
    );
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("accept, content-type, authorization"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_without_its_port() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:2379", "a.example"),
            ("127.0.0.1:2379", "127.0.0.1"),
            ("[::1]:2379", "::1"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }

    #[tokio::test]
    async fn a_name_in_a_certificate_does_not_count_at_the_gateway_and_that_is_said() {
        use tower::ServiceExt;
        let options = HttpOptions::new(true, "*", "*", "basic").expect("options");
        for (asks_who, path, name, expected) in [
            (true, "/v3/kv/range", "anna", StatusCode::BAD_REQUEST),
            (true, "/v3beta/kv/range", "anna", StatusCode::BAD_REQUEST),
            (true, "/v3/kv/range", "", StatusCode::OK),
            (true, "/health", "anna", StatusCode::OK),
            (false, "/v3/kv/range", "anna", StatusCode::OK),
        ] {
            let router = Router::new().route(path, axum::routing::get(async || "here"));
            let router = guarded(router, &options, Arc::new(move || asks_who));
            let mut request = Request::get(path).body(Body::empty()).expect("one");
            request.extensions_mut().insert(ClientCommonName(name.into()));
            let answer = router.oneshot(request).await.expect("an answer");
            assert_eq!(answer.status(), expected, "{asks_who} {path} {name}");
        }
    }

    #[tokio::test]
    async fn only_who_comes_without_tls_must_ask_for_a_name_that_is_listed() {
        use tower::ServiceExt;
        let options = HttpOptions::new(true, "*", "a.example", "basic").expect("options");
        let router = Router::new().route("/", axum::routing::get(async || "here"));
        let router = guarded(router, &options, Arc::new(|| false));
        for (host, over_tls, expected) in [
            ("a.example", false, StatusCode::OK),
            ("b.example", false, StatusCode::MISDIRECTED_REQUEST),
            ("b.example", true, StatusCode::OK),
        ] {
            let mut request = Request::get("/").header(header::HOST, host).body(Body::empty()).expect("one");
            if over_tls {
                request.extensions_mut().insert(OverTls);
            }
            let Ok(answer) = router.clone().oneshot(request).await;
            assert_eq!(answer.status(), expected, "{host} {over_tls}");
        }
    }

    #[test]
    fn an_origin_is_allowed_if_it_is_listed() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://a"));
        let origin = |cors: &str, headers: &HeaderMap| {
            let options = HttpOptions::new(true, cors, "*", "basic").expect("options");
            allowed_origin(&options, headers).map(|origin| origin.to_str().unwrap_or_default().to_owned())
        };
        assert_eq!(origin("*", &HeaderMap::new()).as_deref(), Some("*"));
        assert_eq!(origin("http://a,http://b", &headers).as_deref(), Some("http://a"));
        assert_eq!(origin("http://b", &headers), None);
        assert_eq!(origin("http://b", &HeaderMap::new()), None);
    }
}
