//! Protobuf bodies of the kinds that typed clients send: to JSON and back.
//!
//! A body is `k8s\0` and then an envelope that says what is inside. Fields that are not known are passed
//! over, so a newer client can talk to us; bytes that cannot be right are a bad request. What a table says
//! is never zero is left out when it is, as Kubernetes does in JSON.

mod list;
pub mod schemas;
mod tables;
pub mod wire;

pub use list::ListEncoder;

use crate::status::{Reason, Refusal};
use crate::timestamp::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemas::{Field, Message, Type};
use serde_json::{Map, Value, json};
use wire::{Allowance, Raw, Reader, Writer, malformed};

pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// Of a watch: each frame is a length of four bytes, most significant first, and a message.
pub const STREAM_CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

const MAGIC: &[u8] = b"k8s\0";

/// Whether objects of this kind can be spoken of in protobuf.
pub fn supports(api_version: &str, kind: &str) -> bool {
    message_of(api_version, kind).is_some()
}

fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    schemas::message(api_version, kind).or_else(|| tables::message(api_version, kind))
}

/// The object in a body.
pub fn decode(body: &[u8]) -> Result<Value, Refusal> {
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| malformed("it does not begin with k8s\\0"))?;
    let allowance = Allowance::default();
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(envelope, &allowance);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Raw::Bytes(bytes)) => (api_version, kind) = decode_type(bytes, &allowance)?,
            (2, Raw::Bytes(bytes)) => raw = bytes,
            (3, Raw::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(malformed("its content has an encoding"));
            }
            _ => {}
        }
    }
    let message = message_of(&api_version, &kind).ok_or_else(|| {
        let what = format!(
            "{api_version}, Kind={kind} cannot be read as {CONTENT_TYPE}; send it as application/json"
        );
        Refusal::new(Reason::UnsupportedMediaType, what)
    })?;
    let mut object = Map::new();
    decode_message(message, raw, &allowance, &mut object)?;
    object.insert("apiVersion".to_owned(), Value::String(api_version));
    object.insert("kind".to_owned(), Value::String(kind));
    Ok(Value::Object(object))
}

/// The body of an object or a list, if its kind can be spoken of so.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    let message = message_of(api_version, kind)?;
    let mut envelope = Writer::default();
    envelope.message(1, of_type(api_version, kind));
    envelope.message(2, encode_message(message, object.as_object()?));
    envelope.text(3, "");
    envelope.text(4, "");
    Some([MAGIC, &envelope.finish()].concat())
}

fn of_type(api_version: &str, kind: &str) -> Writer {
    let mut of_type = Writer::default();
    of_type.text(1, api_version);
    of_type.text(2, kind);
    of_type
}

/// One event of a watch, as a WebSocket message carries it. See [`frame`] for a stream.
pub fn encode_event(event_type: &str, object: &Value) -> Option<Vec<u8>> {
    let mut raw = Writer::default();
    raw.bytes(1, &encode(object)?);
    let mut event = Writer::default();
    event.text(1, event_type);
    event.message(2, raw);
    Some(event.finish())
}

/// With its length before it. Nothing if four bytes cannot say it.
pub fn frame(message: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

fn decode_type(bytes: &[u8], allowance: &Allowance) -> Result<(String, String), Refusal> {
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut reader = Reader::new(bytes, allowance);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Raw::Bytes(bytes)) => api_version = text(bytes)?,
            (2, Raw::Bytes(bytes)) => kind = text(bytes)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| malformed("a text is not UTF-8"))
}

/// The depth is that of the tables, which is small: no message contains itself.
fn decode_message(
    message: &Message,
    bytes: &[u8],
    allowance: &Allowance,
    object: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    let mut reader = Reader::new(bytes, allowance);
    while let Some((number, raw)) = reader.next_field()? {
        if let Some(field) = message.fields.iter().find(|field| field.number == number) {
            decode_field(field, raw, allowance, object)?;
        }
    }
    Ok(())
}

fn decode_field(
    field: &Field,
    raw: Raw<'_>,
    allowance: &Allowance,
    object: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    if let (Type::Inline(inner), Raw::Bytes(bytes)) = (field.of, raw) {
        return decode_message(inner, bytes, allowance, object);
    }
    if let (Type::TextMap | Type::BytesMap | Type::QuantityMap | Type::TimeMap, Raw::Bytes(bytes)) =
        (field.of, raw)
    {
        let (key, value) = decode_entry(field, bytes, allowance)?;
        if let Some(entries) = object.entry(field.name).or_insert_with(|| json!({})).as_object_mut() {
            entries.insert(key, value);
        }
        return Ok(());
    }
    if let (Type::Message(inner), Raw::Bytes(bytes), false) = (field.of, raw, field.repeated) {
        // A message that comes in two pieces is one message.
        let mut fields = match object.remove(field.name) {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        decode_message(inner, bytes, allowance, &mut fields)?;
        if field.keeps_zero || !fields.is_empty() {
            object.insert(field.name.to_owned(), Value::Object(fields));
        }
        return Ok(());
    }
    let value = decode_value(field, raw, allowance)?;
    if field.repeated {
        let items = object.entry(field.name).or_insert_with(|| json!([]));
        if let (Some(items), Some(value)) = (items.as_array_mut(), value) {
            items.push(value);
        }
        return Ok(());
    }
    match value.filter(|value| field.keeps_zero || !is_zero(value)) {
        Some(value) => object.insert(field.name.to_owned(), value),
        None => object.remove(field.name),
    };
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    *value == json!("") || *value == json!(0) || *value == json!(false)
}

/// Nothing for a time that is not set.
fn decode_value(field: &Field, raw: Raw<'_>, allowance: &Allowance) -> Result<Option<Value>, Refusal> {
    match (field.of, raw) {
        (Type::Text, Raw::Bytes(bytes)) => text(bytes).map(|text| Some(Value::String(text))),
        (Type::Int32 | Type::Int64, Raw::Varint(value)) => Ok(Some(json!(value.cast_signed()))),
        (Type::Bool, Raw::Varint(value)) => Ok(Some(Value::Bool(value != 0))),
        (Type::Time, Raw::Bytes(bytes)) => {
            Ok(decode_time(bytes, allowance)?.map(|time| json!(time.to_seconds().to_string())))
        }
        (Type::MicroTime, Raw::Bytes(bytes)) => {
            Ok(decode_time(bytes, allowance)?.map(|time| json!(time.to_micros().to_string())))
        }
        (Type::Json, Raw::Bytes(bytes)) => decode_json(bytes, allowance),
        (Type::Quantity, Raw::Bytes(bytes)) => {
            Ok(decode_quantity(bytes, allowance)?.map(Value::String).filter(|text| *text != json!("")))
        }
        (Type::IntOrString, Raw::Bytes(bytes)) => decode_int_or_string(bytes, allowance).map(Some),
        (Type::Message(inner), Raw::Bytes(bytes)) => {
            let mut fields = Map::new();
            decode_message(inner, bytes, allowance, &mut fields)?;
            Ok(Some(Value::Object(fields)))
        }
        _ => Err(malformed(&format!("field {} is of another type", field.name))),
    }
}

fn decode_time(bytes: &[u8], allowance: &Allowance) -> Result<Option<Timestamp>, Refusal> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes, allowance);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Raw::Varint(value)) => seconds = value.cast_signed(),
            (2, Raw::Varint(value)) => {
                nanos = u32::try_from(value).map_err(|_| malformed("a time is out of range"))?
            }
            _ => {}
        }
    }
    Timestamp::new(seconds, nanos).map(Some).ok_or_else(|| malformed("a time is out of range"))
}

/// A message around a text.
fn decode_quantity(bytes: &[u8], allowance: &Allowance) -> Result<Option<String>, Refusal> {
    let mut found = None;
    let mut reader = Reader::new(bytes, allowance);
    while let Some(field) = reader.next_field()? {
        if let (1, Raw::Bytes(bytes)) = field {
            found = Some(text(bytes)?);
        }
    }
    Ok(found)
}

/// Which of the two it is, the number, and the text.
fn decode_int_or_string(bytes: &[u8], allowance: &Allowance) -> Result<Value, Refusal> {
    let (mut is_text, mut number, mut words) = (false, 0_i64, String::new());
    let mut reader = Reader::new(bytes, allowance);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Raw::Varint(value)) => is_text = value != 0,
            (2, Raw::Varint(value)) => number = value.cast_signed(),
            (3, Raw::Bytes(bytes)) => words = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(words) } else { json!(number) })
}

fn decode_json(bytes: &[u8], allowance: &Allowance) -> Result<Option<Value>, Refusal> {
    let mut found = None;
    let mut reader = Reader::new(bytes, allowance);
    while let Some(field) = reader.next_field()? {
        if let (1, Raw::Bytes(raw)) = field {
            let parsed = serde_json::from_slice(raw);
            found = Some(parsed.map_err(|_| malformed("a field that holds JSON does not"))?);
        }
    }
    Ok(found)
}

fn decode_entry(field: &Field, bytes: &[u8], allowance: &Allowance) -> Result<(String, Value), Refusal> {
    let (mut key, mut value) = (String::new(), &[][..]);
    let mut reader = Reader::new(bytes, allowance);
    while let Some(entry) = reader.next_field()? {
        match entry {
            (1, Raw::Bytes(bytes)) => key = text(bytes)?,
            (2, Raw::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let value = match field.of {
        Type::BytesMap => STANDARD.encode(value),
        Type::QuantityMap => decode_quantity(value, allowance)?.unwrap_or_else(|| "0".to_owned()),
        Type::TimeMap => {
            decode_time(value, allowance)?.map(|time| time.to_seconds().to_string()).unwrap_or_default()
        }
        _ => text(value)?,
    };
    Ok((key, Value::String(value)))
}

/// What an object has beyond its table, or in another type, is left out.
fn encode_message(message: &Message, object: &Map<String, Value>) -> Writer {
    let mut writer = Writer::default();
    for field in message.fields {
        if let Type::Inline(inner) = field.of {
            writer.message(field.number, encode_message(inner, object));
            continue;
        }
        match (object.get(field.name), field.repeated) {
            (None | Some(Value::Null), _) => {}
            (Some(Value::Array(items)), true) => {
                items.iter().for_each(|item| encode_value(field, item, &mut writer));
            }
            (Some(_), true) => {}
            (Some(value), false) => encode_value(field, value, &mut writer),
        }
    }
    writer
}

fn encode_value(field: &Field, value: &Value, writer: &mut Writer) {
    match (field.of, value) {
        (Type::Text, Value::String(text)) => writer.text(field.number, text),
        (Type::Int32 | Type::Int64, Value::Number(number)) => {
            writer.varint(field.number, number.as_i64().unwrap_or_default().cast_unsigned());
        }
        (Type::Bool, Value::Bool(truth)) => writer.varint(field.number, u64::from(*truth)),
        (Type::Time | Type::MicroTime, Value::String(text)) => {
            if let Some(time) = time(text) {
                writer.message(field.number, time);
            }
        }
        (Type::Quantity, value) => writer.message(field.number, quantity(value)),
        (Type::IntOrString, value) => writer.message(field.number, int_or_string(value)),
        (Type::TextMap | Type::BytesMap | Type::QuantityMap | Type::TimeMap, Value::Object(entries)) => {
            entries.iter().for_each(|(key, value)| encode_entry(field, key, value, writer));
        }
        (Type::Json, value) => {
            let mut inner = Writer::default();
            inner.text(1, &value.to_string());
            writer.message(field.number, inner);
        }
        (Type::Message(message), Value::Object(fields)) => {
            writer.message(field.number, encode_message(message, fields));
        }
        _ => {}
    }
}

fn time(text: &str) -> Option<Writer> {
    let time = Timestamp::parse(text)?;
    let mut inner = Writer::default();
    inner.varint(1, time.seconds.cast_unsigned());
    inner.varint(2, u64::from(time.nanos));
    Some(inner)
}

/// In JSON an amount may be a number.
fn quantity(value: &Value) -> Writer {
    let mut inner = Writer::default();
    match value {
        Value::String(text) => inner.text(1, text),
        Value::Number(number) => inner.text(1, &number.to_string()),
        _ => {}
    }
    inner
}

fn int_or_string(value: &Value) -> Writer {
    let (is_text, number, text) = match value {
        Value::String(text) => (1, 0, text.as_str()),
        other => (0, other.as_i64().unwrap_or_default(), ""),
    };
    let mut inner = Writer::default();
    inner.varint(1, is_text);
    inner.varint(2, number.cast_unsigned());
    inner.text(3, text);
    inner
}

fn encode_entry(field: &Field, key: &str, value: &Value, writer: &mut Writer) {
    let text = match (field.of, value) {
        (Type::QuantityMap, value) => &value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        (_, Value::String(text)) => text,
        _ => return,
    };
    let bytes = match field.of {
        Type::QuantityMap => quantity(&json!(text)).finish(),
        Type::TimeMap => time(text).unwrap_or_default().finish(),
        // What is not Base64 was stored by somebody who bypassed this door; there are no bytes to tell of.
        Type::BytesMap => STANDARD.decode(text).unwrap_or_default(),
        _ => text.as_bytes().to_vec(),
    };
    let mut entry = Writer::default();
    entry.text(1, key);
    entry.bytes(2, &bytes);
    writer.message(field.number, entry);
}

#[cfg(test)]
mod tests;
