//! Errors that are made below the services, in the codes and texts that etcd's clients know.
//!
//! The gRPC library refuses an oversized message and an unknown method in its own words, before a
//! service sees the request. Both come as headers only, which are rewritten here.

use super::status;
use axum::body::Body;
use http::{HeaderMap, Response};
use tonic::{Code, Status};

/// The answer to a call of that path, in words that clients know.
pub(super) fn translated(response: Response<Body>, path: &str, max: usize) -> Response<Body> {
    match translate(response.headers(), path, max) {
        Some(status) => status.into_http(),
        None => response,
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
