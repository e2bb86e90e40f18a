//! Responses: their headers, and the body of a refusal.

use super::show;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER, WARNING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use meerkat_kubernetes::negotiation::{Form, Media};
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::status::Refusal;
use serde_json::Value;
use std::convert::Infallible;
use std::io;

/// An error cuts the answer off, so that nobody takes it for whole.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// More would only fill the header.
const WARNINGS_MAX: usize = 32;
const WARNING_BYTES_MAX: usize = 512;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A text header, empty if there is none or it is no text.
pub fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// All values of a header that is a list.
pub fn header_list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

/// What the request says of how its answer is to look.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub accept: String,
    /// A person is thought to read it.
    pub pretty: bool,
}

impl Look {
    pub fn of(headers: &HeaderMap, query: &Query) -> Look {
        let accept: Vec<&str> =
            headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let pretty = query.pretty(header(headers, &http::header::USER_AGENT));
        Look { accept: accept.join(","), pretty }
    }
}

pub fn new(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A value in a form that was negotiated for it.
pub fn value(code: StatusCode, form: &Form, look: &Look, value: &Value) -> Result<Response<Body>, Refusal> {
    let bytes = show::encode(form.media, value, form.indents(look.pretty)).ok_or_else(show::unencodable)?;
    Ok(new(code, form.content_type(), full(bytes)))
}

/// A refusal, in the form that the client takes, and in JSON if it takes none of ours.
pub fn refusal(refusal: &Refusal, look: &Look) -> Response<Body> {
    let code = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let status = refusal.to_status();
    let media = show::plain_form(&look.accept).map_or(Media::Json, |form| form.media);
    let mut response = match show::encode(media, &status, media == Media::Json && look.pretty) {
        Some(bytes) => new(code, media.mime(), full(bytes)),
        None => new(code, Media::Json.mime(), full(status.to_string())),
    };
    if let Some(seconds) = refusal.retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds a header for each.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings.iter().take(WARNINGS_MAX) {
        if let Ok(value) = HeaderValue::from_str(&warning_text(warning)) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// A quoted text in what a header can carry.
fn warning_text(warning: &str) -> String {
    let mut text = String::from("299 - \"");
    for c in warning.chars() {
        if WARNING_BYTES_MAX < text.len() {
            break;
        }
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            ' '..='~' => text.push(c),
            _ => text.push('?'),
        }
    }
    text.push('"');
    text
}

/// What is left of an answer to a HEAD.
pub fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_quoted_and_stays_on_its_line() {
        assert_eq!(warning_text("unknown field \"a\\b\""), r#"299 - "unknown field \"a\\b\"""#);
        assert_eq!(warning_text("a\r\nb: ü"), r#"299 - "a??b: ?""#);
        assert!(warning_text(&"x".repeat(5_000)).len() < 600);
        let mut response = new(StatusCode::OK, "text/plain", full(""));
        warn(&mut response, &vec!["w".to_owned(); 100]);
        assert_eq!(response.headers().get_all(WARNING).iter().count(), WARNINGS_MAX);
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let busy = Refusal::too_many_requests("busy", 7);
        let response = refusal(&busy, &Look::default());
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "7");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let look = Look { accept: "application/vnd.kubernetes.protobuf".to_owned(), pretty: false };
        assert_eq!(refusal(&busy, &look).headers()[CONTENT_TYPE], "application/vnd.kubernetes.protobuf");
        let look = Look { accept: "image/png".to_owned(), pretty: false };
        assert_eq!(refusal(&busy, &look).headers()[CONTENT_TYPE], "application/json");
    }
}
