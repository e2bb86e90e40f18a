//! The Watch service: one bidirectional stream for any number of watchers.
//!
//! Served below the generated code, as a raw gRPC body: events are encoded once for all streams,
//! and a stream copies their bytes into its frames. The hub decides what is told; this room speaks
//! etcd's wire.

mod body;
mod large;
mod message;
mod options;
mod permission;

use super::header::Headers;
use super::status;
use crate::auth::{Credentials, Guard};
use crate::client_port::ClientAddress;
use crate::config::Config;
use axum::body::Body;
use axum::response::IntoResponse;
use body::WatchBody;
use http::{HeaderMap, Request, Response, StatusCode, header};
use meerkat_types::limits;
use meerkat_watch::Hub;
use permission::Reader;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) const PATH: &str = "/etcdserverpb.Watch/Watch";

/// What was sent to watchers since the start.
#[derive(Debug, Default)]
pub(crate) struct WatchCounters {
    pub(crate) events: AtomicU64,
    pub(crate) responses: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

pub(crate) struct WatchService {
    headers: Headers,
    hub: Hub,
    counters: Arc<WatchCounters>,
    guard: Guard,
    progress_interval: Duration,
    /// A request above this is refused; a response above it is cut, if its watcher agreed.
    message_bytes_max: usize,
}

impl WatchService {
    pub(crate) fn new(
        headers: Headers,
        hub: Hub,
        counters: Arc<WatchCounters>,
        guard: Guard,
        config: &Config,
    ) -> WatchService {
        WatchService {
            headers,
            hub,
            counters,
            guard,
            progress_interval: config.watch_progress_notify_interval,
            message_bytes_max: config.max_request_bytes + limits::REQUEST_OVERHEAD_BYTES,
        }
    }

    pub(crate) fn serve(&self, request: Request<Body>) -> Response<Body> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
            return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
        }
        let encoding = request.headers().get("grpc-encoding");
        if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
            return status::unsupported_encoding(encoding).into_http();
        }
        let options = match options::read(request.headers(), self.progress_interval) {
            Ok(options) => options,
            Err(reason) => return status::bad_metadata(&reason).into_http(),
        };
        let client = request.extensions().get::<ClientAddress>();
        let client = client.map_or_else(String::new, |client| client.0.to_string());
        let stream = self.hub.open(options.for_stream(&client));
        let credentials = Credentials::of(request.headers(), request.extensions());
        let body = WatchBody::new(
            request.into_body(),
            stream,
            (self.headers.clone(), self.counters.clone()),
            Reader::new(self.guard.clone(), credentials),
            options.progress_interval,
            self.message_bytes_max,
        );
        let mut response = Response::new(Body::new(body));
        let content_type = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// The end of a stream, as gRPC tells it.
fn trailers(status: &tonic::Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Only a text that is no header value could fail, and ours are escaped; the code remains.
        trailers.insert(tonic::Status::GRPC_STATUS, http::HeaderValue::from(status.code() as i32));
    }
    trailers
}
