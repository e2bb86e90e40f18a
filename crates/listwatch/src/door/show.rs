//! Objects in the form that was negotiated.

use bytes::Bytes;
use meerkat_kubernetes::metadata_form;
use meerkat_kubernetes::negotiation::{Answer, Form, Media, Offer, Shape, negotiate};
use meerkat_kubernetes::protobuf;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_kubernetes::stored_form;
use meerkat_kubernetes::table::{IncludeObject, TableForm};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_watchcache::cacher::entry::Entry;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const TEXTS: &[Media] = &[Media::Json, Media::Yaml];
const ALL: &[Media] = &[Media::Json, Media::Yaml, Media::Protobuf];

/// How an answer about objects of a kind is to be given.
pub fn form(kind: &Kind, answer: Answer, accept: &str) -> Result<Form, Refusal> {
    let name = if answer == Answer::List { &kind.list_kind } else { &kind.kind };
    let whole = if protobuf::supports(&kind.api_version(), name) { ALL } else { TEXTS };
    negotiate(accept, &Offer { answer, whole, metadata: ALL })
}

/// How a Status, a Scale or the like is to be given.
pub fn plain_form(accept: &str) -> Result<Form, Refusal> {
    negotiate(accept, &Offer { answer: Answer::Plain, whole: ALL, metadata: &[] })
}

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    Timestamp::new(seconds, since.subsec_nanos()).unwrap_or(Timestamp { seconds: 0, nanos: 0 })
}

/// An object as it is stored, told at `revision`.
pub fn stored(entry: &Entry, revision: u64) -> Value {
    let mut bytes = Vec::with_capacity(entry.json().len() + 20);
    entry.write_json(revision, &mut bytes);
    serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::Object(Map::new()))
}

/// What a client of the kind sees of a stored object.
pub fn served(kind: &Kind, mut stored: Value) -> Value {
    if let Value::Object(fields) = &mut stored {
        stored_form::from_stored(kind, fields);
    }
    stored
}

/// An object as an item of a list. The list says what its items are, unless they are custom ones.
pub fn item(kind: &Kind, mut item: Value) -> Value {
    if let (None, Value::Object(fields)) = (kind.custom(), &mut item) {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    item
}

/// Whether the bytes of an entry are what the client gets of it.
pub fn is_as_stored(kind: &Kind, form: &Form) -> bool {
    form.media == Media::Json && form.shape == Shape::Whole && !stored_form::differs(kind)
}

/// One object, in the shape that was asked for. `columns`: of a table, whether it says what they are.
pub fn shaped(kind: &Kind, shape: Shape, include: IncludeObject, stored: Value, columns: bool) -> Value {
    match shape {
        Shape::Table(version) => TableForm { kind, version, include, now: now() }.of_event(&stored, columns),
        Shape::PartialMetadata(version) | Shape::PartialMetadataList(version) => {
            metadata_form::of_object(&stored, version)
        }
        Shape::Whole | Shape::AggregatedDiscovery(_) => served(kind, stored),
    }
}

/// `None` if the value has no such form.
pub fn encode(media: Media, value: &Value, indent: bool) -> Option<Bytes> {
    match media {
        Media::Protobuf => protobuf::encode(value).map(Bytes::from),
        Media::Yaml => serde_norway::to_string(value).ok().map(Bytes::from),
        _ if indent => Some(Bytes::from(indented(value))),
        _ => Some(Bytes::from(value.to_string())),
    }
}

pub fn unencodable() -> Refusal {
    Refusal::new(Reason::NotAcceptable, "the answer cannot be given in this form")
}

/// With the four blanks that people are used to.
pub fn indented(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut writer = serde_json::Serializer::with_formatter(&mut out, formatter);
    value.serialize(&mut writer).expect("a vector takes all that is written to it");
    out.push(b'\n');
    out
}

/// The metadata of a list.
pub fn list_metadata(revision: u64, next: Option<&str>, remaining: Option<usize>) -> Value {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if let Some(token) = next {
        metadata["continue"] = json!(token);
        if let Some(remaining) = remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    metadata
}
