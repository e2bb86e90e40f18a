//! Errors that are made below the services, in the codes and texts that etcd's clients know.
//!
//! The gRPC library refuses an oversized message and an unknown method in its own words, before a
//! service sees the request. Both reach the client as headers only, which this layer rewrites.

use super::status;
use http::{HeaderMap, Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::{Code, Status};
use tower::Service;

#[derive(Clone)]
pub(crate) struct TransportErrors<S> {
    inner: S,
    message_bytes_max: usize,
}

impl<S> TransportErrors<S> {
    pub(crate) fn new(inner: S, message_bytes_max: usize) -> TransportErrors<S> {
        TransportErrors { inner, message_bytes_max }
    }
}

impl<S, B> Service<Request<B>> for TransportErrors<S>
where
    S: Service<Request<B>, Response = Response<axum::body::Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().clone();
        let max = self.message_bytes_max;
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            match translate(response.headers(), path.path(), max) {
                Some(status) => Ok(status.into_http()),
                None => Ok(response),
            }
        })
    }
}

/// The status to answer with instead, if the headers are one of the library's own refusals.
fn translate(headers: &HeaderMap, path: &str, max: usize) -> Option<Status> {
    // Success carries its status in trailers, so there is nothing here to look at.
    headers.get(Status::GRPC_STATUS)?;
    let status = Status::from_header_map(headers)?;
    match status.code() {
        Code::Unimplemented if status.message().is_empty() => Some(status::unknown_method(path)),
        Code::OutOfRange => {
            let found = status.message().strip_prefix("Error, decoded message length too large: found ")?;
            Some(status::message_too_large(found.split(' ').next().unwrap_or_default(), max))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status, expected: Option<(Code, &str)>) {
        let response = status.into_http::<axum::body::Body>();
        let translated = translate(response.headers(), "/etcdserverpb.KV/Nope", 100);
        let got = translated.as_ref().map(|status| (status.code(), status.message()));
        assert_eq!(got, expected);
    }

    #[test]
    fn an_oversized_message_is_refused_in_grpc_gos_words() {
        let text = "Error, decoded message length too large: found 123 bytes, the limit is: 100 bytes";
        let expected = "grpc: received message larger than max (123 vs. 100)";
        check(Status::out_of_range(text), Some((Code::ResourceExhausted, expected)));
    }

    #[test]
    fn an_unknown_method_is_named() {
        let expected = "unknown method Nope for service etcdserverpb.KV";
        check(Status::new(Code::Unimplemented, ""), Some((Code::Unimplemented, expected)));
    }

    #[test]
    fn our_own_statuses_pass() {
        check(Status::out_of_range("etcdserver: mvcc: required revision has been compacted"), None);
        check(Status::new(Code::Unimplemented, "Snapshot is not supported in this version"), None);
    }
}
