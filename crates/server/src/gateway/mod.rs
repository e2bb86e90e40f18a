//! etcd's JSON gateway: each call of the API as a POST of JSON on the client port.
//!
//! One transcoder for all calls, driven by the descriptors of the protos: it turns JSON into the message
//! that a gRPC client would send, makes the call on the very router that serves gRPC clients, and turns what
//! comes back into JSON. So every check that a gRPC call meets, a call through here meets too; there is no
//! second way into the services.
//!
//! Never panics on what a client sends: bodies are bounded in bytes and in nesting, and whatever cannot be
//! read is refused with a JSON error. The first message of a body must come in time, as in gRPC, and is not
//! read at all of a call that is refused while memory is short.

mod answers;
mod deadline;
mod errors;
mod frames;
mod json_in;
mod json_out;
mod requests;
mod routes;
mod socket;
mod split;
pub(crate) mod websocket;

use crate::config::Config;
use crate::grpc::status;
use crate::memory::Pressure;
use crate::punctual;
use answers::Answers;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use meerkat_proto::error_text::EtcdError;
use meerkat_types::limits;
use prost_reflect::DynamicMessage;
use requests::Requests;
use routes::{Call, Routes};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use tower::ServiceExt;

/// What JSON weighs beside the message that it stands for: base64 takes a third more, names some, and
/// somebody may write with spaces.
const JSON_PER_MESSAGE: usize = 2;
const JSON_BYTES_MORE: usize = 64 << 10;

/// Says to whoever checks permissions that the client did not come by gRPC. etcd's own sets it only if the
/// client has sent `Accept`.
const ACCEPT: HeaderName = HeaderName::from_static("grpcgateway-accept");
const AUTHORIZATION: HeaderName = HeaderName::from_static("grpcgateway-authorization");
const USER_AGENT: HeaderName = HeaderName::from_static("grpcgateway-user-agent");
/// Headers that begin so are metadata of the call.
const METADATA_PREFIX: &str = "grpc-metadata-";

/// What a client has sent is not what the call takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    reason: String,
    too_large: Option<(usize, usize)>,
}

impl Malformed {
    fn new(reason: String) -> Malformed {
        Malformed { reason, too_large: None }
    }

    fn too_large(bytes: usize, max: usize) -> Malformed {
        Malformed { reason: String::new(), too_large: Some((bytes, max)) }
    }

    fn within(self, field: &str) -> Malformed {
        Malformed { reason: format!("{field}: {}", self.reason), ..self }
    }

    fn status(&self) -> Status {
        match self.too_large {
            Some((bytes, max)) => status::message_too_large(&bytes.to_string(), max),
            None => status::malformed_json(&self.reason),
        }
    }
}

struct Gateway {
    routes: Routes,
    /// The gRPC services, as clients reach them.
    inner: axum::Router,
    json_bytes_max: usize,
    pressure: Arc<Pressure>,
}

/// The paths of the gateway. `inner` answers gRPC.
pub(crate) fn router(inner: axum::Router, config: &Config, pressure: Arc<Pressure>) -> axum::Router {
    let message_bytes_max = config.max_request_bytes + limits::REQUEST_OVERHEAD_BYTES;
    let gateway = Arc::new(Gateway {
        routes: Routes::new(),
        inner: inner.with_state(()),
        json_bytes_max: JSON_PER_MESSAGE * message_bytes_max + JSON_BYTES_MORE,
        pressure,
    });
    let serve = any(move |request: Request<Body>| {
        let gateway = gateway.clone();
        async move {
            match websocket::is_wanted(request.headers()) {
                true => websocket::answer(gateway, request),
                false => gateway.serve(request).await,
            }
        }
    });
    ["/v3/", "/v3/{*rest}", "/v3beta/", "/v3beta/{*rest}"]
        .into_iter()
        .fold(axum::Router::new(), |router, path| router.route(path, serve.clone()))
}

impl Gateway {
    async fn serve(&self, request: Request<Body>) -> Response {
        let Some(call) = self.routes.find(request.uri().path()) else {
            return plain(StatusCode::NOT_FOUND);
        };
        if request.method() != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let called = match deadline::of(request.headers()) {
            Err(status) => Err(status),
            Ok(None) => self.call(call, request, None).await,
            // Not even begun: what it asks for could be done before anybody looks at the clock again.
            Ok(Some(end)) if end <= Instant::now() => Err(status::out_of_time()),
            Ok(Some(end)) => {
                let call = self.call(call, request, Some(end));
                tokio::time::timeout_at(end, call).await.unwrap_or_else(|_| Err(status::out_of_time()))
            }
        };
        called.unwrap_or_else(|status| errors::answer(&status))
    }

    /// Whether a call of that path would be refused for want of memory.
    fn refuses(&self, of: &str) -> bool {
        self.routes.find(of).is_some_and(|call| self.pressure.refuses(call.method))
    }

    async fn call(
        &self,
        Call { method, uri, descriptor }: &Call,
        request: Request<Body>,
        end: Option<Instant>,
    ) -> Result<Response, Status> {
        if self.pressure.refuses(method) {
            return Err(status::etcd(EtcdError::TooManyRequests));
        }
        let (parts, body) = request.into_parts();
        let mut requests = Requests::new(body, descriptor.input(), self.json_bytes_max);
        let first = punctual::in_time(requests.next()).await.map_err(|late| Malformed::new(late.to_string()));
        let first = first.and_then(|first| first).map_err(|malformed| malformed.status())?;
        let (body, malformed, rest) = if descriptor.is_client_streaming() {
            let (tell, malformed) = oneshot::channel();
            (requests.into_body(first, tell), Some(malformed), None)
        } else {
            let message = first.unwrap_or_else(|| DynamicMessage::new(descriptor.input()));
            (Body::from(frames::frame(&message)), None, Some(requests))
        };
        let mut call = Request::new(body);
        *call.method_mut() = Method::POST;
        *call.uri_mut() = uri.clone();
        *call.headers_mut() = metadata(&parts.headers);
        *call.extensions_mut() = parts.extensions;
        let answer = async {
            let Ok(response) = self.inner.clone().oneshot(call).await;
            let answers = Answers::new(response, descriptor.output());
            match descriptor.is_server_streaming() {
                true => answers.stream(malformed, end).await,
                false => answers.one().await,
            }
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            never = requests::pass_over(rest) => match never {},
        }
    }
}

/// The metadata of a call, from the headers of the request that asks for it.
fn metadata(headers: &HeaderMap) -> HeaderMap {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix(METADATA_PREFIX).and_then(own_name) {
            metadata.append(name, value.clone());
        }
    }
    for (name, as_metadata) in [
        (header::AUTHORIZATION, header::AUTHORIZATION),
        (header::AUTHORIZATION, AUTHORIZATION),
        (header::USER_AGENT, USER_AGENT),
    ] {
        if let Some(value) = headers.get(name) {
            metadata.insert(as_metadata, value.clone());
        }
    }
    let accept = headers.get(header::ACCEPT).cloned();
    metadata.insert(ACCEPT, accept.unwrap_or_else(|| HeaderValue::from_static("*/*")));
    metadata.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    metadata.insert(header::TE, HeaderValue::from_static("trailers"));
    metadata
}

/// The name of metadata that is the client's to choose: not what the protocol itself is spoken with.
fn own_name(name: &str) -> Option<HeaderName> {
    let reserved = name.starts_with("grpc-") || ["content-type", "te", "host", "connection"].contains(&name);
    if reserved { None } else { HeaderName::from_bytes(name.as_bytes()).ok() }
}

fn plain(code: StatusCode) -> Response {
    let nosniff = [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, nosniff, format!("{}\n", code.canonical_reason().unwrap_or_default())).into_response()
}

#[cfg(test)]
mod fuzz_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_what_the_client_says_of_itself_and_never_the_protocol() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "secret"),
            ("user-agent", "curl"),
            ("grpc-metadata-hasleader", "true"),
            ("grpc-metadata-content-type", "text/html"),
            ("grpc-metadata-grpc-timeout", "1n"),
            ("cookie", "c"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let metadata = metadata(&headers);
        let got = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(got("authorization"), Some("secret"));
        assert_eq!(got("grpcgateway-authorization"), Some("secret"));
        assert_eq!(got("grpcgateway-user-agent"), Some("curl"));
        assert_eq!(got("grpcgateway-accept"), Some("*/*"));
        assert_eq!(got("hasleader"), Some("true"));
        assert_eq!(got("content-type"), Some("application/grpc"));
        assert_eq!((got("grpc-timeout"), got("cookie")), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_when_its_client_wants_it_to() {
        let config = Config::from_flags(crate::config::RawFlags::default()).expect("the defaults");
        let never = axum::Router::new().fallback(async || std::future::pending::<()>().await);
        let gateway = router(never, &config, Arc::default());
        for (timeout, code) in [("100m", StatusCode::GATEWAY_TIMEOUT), ("100", StatusCode::BAD_REQUEST)] {
            let request = Request::post("/v3/kv/range").header("Grpc-Timeout", timeout);
            let request = request.body(Body::from("{}")).expect("a request");
            let Ok(answer) = gateway.clone().oneshot(request).await;
            assert_eq!(answer.status(), code, "{timeout}");
        }
    }

    #[tokio::test]
    async fn a_call_that_is_refused_for_want_of_memory_is_not_read() {
        let config = Config::from_flags(crate::config::RawFlags::default()).expect("the defaults");
        let pressure = Arc::new(Pressure::short());
        let gateway = router(axum::Router::new(), &config, pressure.clone());
        let read = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for path in ["/v3/kv/put", "/v3/watch"] {
            let seen = read.clone();
            let body = futures::stream::poll_fn(move |_| {
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
                std::task::Poll::Ready(Some(Ok::<_, std::convert::Infallible>("{}")))
            });
            let request = Request::post(path).body(Body::from_stream(body)).expect("a request");
            let Ok(answer) = gateway.clone().oneshot(request).await;
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
        }
        assert!(!read.load(std::sync::atomic::Ordering::Relaxed), "nothing was read");
        assert_eq!(pressure.refused.load(std::sync::atomic::Ordering::Relaxed), 2);
        // What frees memory is read as ever.
        let request = Request::post("/v3/kv/deleterange").body(Body::from("x")).expect("a request");
        let Ok(answer) = gateway.oneshot(request).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_refused_in_time() {
        let config = Config::from_flags(crate::config::RawFlags::default()).expect("the defaults");
        let gateway = router(axum::Router::new(), &config, Arc::default());
        for path in ["/v3/kv/put", "/v3/watch"] {
            let begun = futures::stream::iter([Ok::<_, std::convert::Infallible>("{")]);
            let body = Body::from_stream(futures::StreamExt::chain(begun, futures::stream::pending()));
            let request = Request::post(path).body(body).expect("a request");
            let answer =
                tokio::time::timeout(std::time::Duration::from_secs(60), gateway.clone().oneshot(request));
            let Ok(answer) = answer.await.expect("it is answered");
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_there_for_the_next_call_after_a_body_whose_end_came_late() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, io) = tokio::io::duplex(4096);
        let config = Config::from_flags(crate::config::RawFlags::default()).expect("the defaults");
        let second = std::time::Duration::from_secs(1);
        let slow = axum::Router::new().fallback(async move || tokio::time::sleep(10 * second).await);
        let gateway = router(slow, &config, Arc::default());
        let (_stop, stopping) = tokio::sync::watch::channel(false);
        let port = crate::client_port::tests::Once(Some(io));
        let serving =
            tokio::spawn(async move { crate::client_port::serve(port, gateway, &config, stopping).await });
        let head = "POST /v3/kv/range HTTP/1.1\r\nHost: member\r\nTransfer-Encoding: chunked\r\n\r\n";
        for call in ["the first", "the next"] {
            client.write_all(format!("{head}2\r\n{{}}\r\n").as_bytes()).await.expect("room");
            tokio::time::sleep(second).await;
            client.write_all(b"0\r\n\r\n").await.expect("room");
            let mut answer = Vec::new();
            while !answer.ends_with(b"}") {
                let read = client.read_buf(&mut answer).await.expect("it is open");
                assert_ne!(read, 0, "{call}: it was closed");
            }
        }
        serving.abort();
    }
}
