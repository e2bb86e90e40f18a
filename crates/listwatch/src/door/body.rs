//! The body of a request: bounded, whole, and read in the form that it says it has.

use super::document::{self, Document};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use meerkat_kubernetes::negotiation::{Media, body_media};
use meerkat_kubernetes::protobuf;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::schema::FieldValidation;
use meerkat_kubernetes::status::{Reason, Refusal};
use serde_json::Value;
use std::time::Duration;

pub const BODY_BYTES_MAX: usize = 3 << 20;
/// Whoever is still sending then keeps others from a seat.
const BODY_WITHIN: Duration = Duration::from_secs(10);

const TEXTS: &[Media] = &[Media::Json, Media::Yaml];
const ALL: &[Media] = &[Media::Json, Media::Yaml, Media::Protobuf];

/// What bodies of a kind can be read in.
pub fn readable(kind: &Kind) -> &'static [Media] {
    readable_as(&kind.api_version(), &kind.kind)
}

pub fn readable_as(api_version: &str, kind: &str) -> &'static [Media] {
    if protobuf::supports(api_version, kind) { ALL } else { TEXTS }
}

/// What options can be read in, of whatever kind.
pub const OPTIONS: &[Media] = ALL;

pub async fn whole(body: Incoming) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("Request entity too large: limit is {BODY_BYTES_MAX} bytes");
        Refusal::new(Reason::RequestEntityTooLarge, message)
    };
    let body = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let late = || {
        let message = format!("the body did not come within {} seconds", BODY_WITHIN.as_secs());
        Refusal::new(Reason::Timeout, message)
    };
    match body.map_err(|_| late())? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Refusal::bad_request(format!("the body cannot be read: {error}"))),
    }
}

pub fn decode(content_type: &str, readable: &[Media], bytes: &[u8]) -> Result<Document, Refusal> {
    match body_media(content_type, readable)? {
        Media::Yaml => document::yaml(bytes),
        Media::Protobuf => Ok(Document { value: protobuf::decode(bytes)?, duplicates: Vec::new() }),
        _ => document::json(bytes),
    }
}

/// The value of a document. Names that came twice are told or refused, as the client wants it.
pub fn accept(
    document: Document,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Refusal> {
    let told = document.duplicates.iter().map(|name| format!("duplicate field {name:?}"));
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(told),
        FieldValidation::Strict if document.duplicates.is_empty() => {}
        FieldValidation::Strict => {
            let told: Vec<String> = told.collect();
            return Err(Refusal::bad_request(format!("strict decoding error: {}", told.join(", "))));
        }
    }
    Ok(document.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_twice_are_told_refused_or_passed_over() {
        let read = |validation| {
            let mut warnings = Vec::new();
            let document = decode("application/json", TEXTS, br#"{"a":1,"a":2}"#).expect("JSON");
            accept(document, validation, &mut warnings).map(|value| (value["a"].as_i64(), warnings))
        };
        assert_eq!(read(FieldValidation::Ignore), Ok((Some(2), Vec::new())));
        assert_eq!(read(FieldValidation::Warn), Ok((Some(2), vec!["duplicate field \"a\"".to_owned()])));
        assert_eq!(read(FieldValidation::Strict).expect_err("strict").code(), 400);
    }

    #[test]
    fn a_body_in_another_form_is_refused() {
        assert_eq!(decode("text/plain", TEXTS, b"{}").expect_err("unknown").code(), 415);
        assert_eq!(
            decode("application/vnd.kubernetes.protobuf", TEXTS, b"k8s\0").expect_err("no").code(),
            415
        );
        assert_eq!(decode("application/vnd.kubernetes.protobuf", ALL, b"{}").expect_err("no").code(), 400);
        assert!(decode("application/yaml", TEXTS, b"a: b").is_ok());
    }
}
