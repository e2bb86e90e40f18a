//! Errors as the gateway tells them: a gRPC status as an HTTP one, with a JSON body that clients of etcd 3.5
//! (`error`) and of later versions (`code`, `message`) both find what they look for in.

use super::json_out::text;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use tonic::{Code, Status};

/// What HTTP calls a gRPC code: the mapping of the library that etcd's gateway is made with.
pub(super) fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The answer to a call that failed before it said anything.
pub(super) fn answer(status: &Status) -> Response {
    let mut body = String::from("{\"error\":");
    text(&mut body, status.message());
    body.push_str(&format!(",\"code\":{},\"message\":", status.code() as i32));
    text(&mut body, status.message());
    body.push('}');
    let mut response = (http_code(status.code()), body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The last line of a stream that failed.
pub(super) fn line(status: &Status) -> String {
    let http = http_code(status.code());
    let (grpc, code) = (status.code() as i32, http.as_u16());
    let mut body = format!("{{\"error\":{{\"grpc_code\":{grpc},\"http_code\":{code},\"message\":");
    text(&mut body, status.message());
    let reason = http.canonical_reason().unwrap_or_default();
    body.push_str(&format!(",\"http_status\":\"{reason}\",\"code\":{grpc}}}}}\n"));
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_mapped_as_etcds_gateway_maps_them() {
        for (code, http) in [
            (Code::InvalidArgument, 400),
            (Code::OutOfRange, 400),
            (Code::FailedPrecondition, 400),
            (Code::NotFound, 404),
            (Code::PermissionDenied, 403),
            (Code::Unauthenticated, 401),
            (Code::ResourceExhausted, 429),
            (Code::Unavailable, 503),
            (Code::Unknown, 500),
            (Code::Internal, 500),
            (Code::DataLoss, 500),
        ] {
            assert_eq!(http_code(code).as_u16(), http, "{code:?}");
        }
    }

    #[test]
    fn the_last_line_of_a_stream_is_an_object() {
        let line = line(&Status::unavailable("a \"b\""));
        let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(json["error"]["message"], "a \"b\"");
        assert_eq!((&json["error"]["grpc_code"], &json["error"]["http_code"]), (&14.into(), &503.into()));
        assert!(line.ends_with('\n'));
    }
}
