//! Protobuf bodies of the kinds that typed clients send: to JSON and back.
//!
//! Numbers and names are those of the tables in [`published`](crate::published).
//!
//! A body is `k8s\0` and then an envelope that says what is inside. Fields that are not known are passed
//! over, so a newer client can talk to us; bytes that cannot be right are a bad request. What a table says
//! is never zero is left out when it is, as Kubernetes does in JSON.

mod list;
pub mod wire;

pub use list::ListEncoder;

use crate::object::DEPTH_MAX;
use crate::published::{self, Field, Message, Shape, Type, typed};
use crate::status::{Reason, Refusal};
use crate::timestamp::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use wire::{Allowance, Raw, Reader, Writer, malformed};

pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Whether objects of this kind can be spoken of in protobuf.
pub fn supports(api_version: &str, kind: &str) -> bool {
    published::message(api_version, kind).is_some()
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
    let message = published::message(&api_version, &kind).ok_or_else(|| {
        let what = format!(
            "{api_version}, Kind={kind} cannot be read as {CONTENT_TYPE}; send it as application/json"
        );
        Refusal::new(Reason::UnsupportedMediaType, what)
    })?;
    let mut object = Map::new();
    decode_message(message, raw, &allowance, DEPTH_MAX, &mut object)?;
    object.insert("apiVersion".to_owned(), Value::String(api_version));
    object.insert("kind".to_owned(), Value::String(kind));
    Ok(Value::Object(object))
}

/// The body of an object or a list, if its kind can be spoken of so.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    let message = published::message(api_version, kind)?;
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

/// `depth`: how many messages may still be inside of each other.
fn decode_message(
    message: &Message,
    bytes: &[u8],
    allowance: &Allowance,
    depth: usize,
    object: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    let depth = depth.checked_sub(1).ok_or_else(|| malformed("it is nested too deeply"))?;
    let mut reader = Reader::new(bytes, allowance);
    while let Some((number, raw)) = reader.next_field()? {
        if let Some(field) = message.fields().iter().find(|field| field.number == number) {
            Decoder { field, allowance, depth }.field(raw, object)?;
        }
    }
    Ok(())
}

/// Of one field.
struct Decoder<'a> {
    field: &'a Field,
    allowance: &'a Allowance,
    depth: usize,
}

impl Decoder<'_> {
    fn field(&self, raw: Raw<'_>, object: &mut Map<String, Value>) -> Result<(), Refusal> {
        let field = self.field;
        match (field.shape, field.of, raw) {
            (Shape::One, Type::Inline(inner), Raw::Bytes(bytes)) => {
                decode_message(inner, bytes, self.allowance, self.depth, object)?;
            }
            (Shape::One, Type::Message(inner), Raw::Bytes(bytes)) => {
                // A message that comes in two pieces is one message.
                let mut fields = match object.remove(field.name) {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                decode_message(inner, bytes, self.allowance, self.depth, &mut fields)?;
                if field.keeps_zero || !fields.is_empty() {
                    object.insert(field.name.to_owned(), Value::Object(fields));
                }
            }
            (Shape::One, ..) => {
                let value = self.value(raw)?;
                match value.filter(|value| field.keeps_zero || !is_zero(value)) {
                    Some(value) => object.insert(field.name.to_owned(), value),
                    None => object.remove(field.name),
                };
            }
            (Shape::List, ..) => {
                let items = object.entry(field.name).or_insert_with(|| json!([]));
                let value = match (self.value(raw)?, field.of) {
                    (None, Type::Json) => Some(Value::Null),
                    (value, _) => value,
                };
                if let (Some(items), Some(value)) = (items.as_array_mut(), value) {
                    items.push(value);
                }
            }
            (Shape::Map, _, Raw::Bytes(bytes)) => {
                let (key, value) = self.entry(bytes)?;
                let entries = object.entry(field.name).or_insert_with(|| json!({}));
                if let Some(entries) = entries.as_object_mut() {
                    entries.insert(key, value);
                }
            }
            (Shape::Map, ..) => return Err(self.other_type()),
        }
        Ok(())
    }

    fn other_type(&self) -> Refusal {
        malformed(&format!("field {} is of another type", self.field.name))
    }

    /// Nothing for a time that is not set.
    fn value(&self, raw: Raw<'_>) -> Result<Option<Value>, Refusal> {
        let allowance = self.allowance;
        let time = |bytes| decode_time(bytes, allowance);
        Ok(match (self.field.of, raw) {
            (Type::Text, Raw::Bytes(bytes)) => Some(Value::String(text(bytes)?)),
            (Type::Int32 | Type::Int64, Raw::Varint(value)) => Some(json!(value.cast_signed())),
            (Type::Bool, Raw::Varint(value)) => Some(Value::Bool(value != 0)),
            (Type::Double, Raw::Fixed64(bytes)) => Some(json!(f64::from_le_bytes(bytes))),
            (Type::Bytes, Raw::Bytes(bytes)) => Some(Value::String(STANDARD.encode(bytes))),
            (Type::Time, Raw::Bytes(bytes)) => time(bytes)?.map(|time| json!(time.to_seconds().to_string())),
            (Type::MicroTime, Raw::Bytes(bytes)) => {
                time(bytes)?.map(|time| json!(time.to_micros().to_string()))
            }
            (Type::Json, Raw::Bytes(bytes)) => decode_json(bytes, allowance)?,
            (Type::Quantity, Raw::Bytes(bytes)) => {
                decode_quantity(bytes, allowance)?.map(Value::String).filter(|text| *text != json!(""))
            }
            (Type::IntOrString, Raw::Bytes(bytes)) => Some(decode_int_or_string(bytes, allowance)?),
            (Type::Texts, Raw::Bytes(bytes)) => Some(self.choice(bytes)?.1),
            (Type::SchemaOrList | Type::SchemaOrBool | Type::SchemaOrTexts, Raw::Bytes(bytes)) => {
                Some(self.schema_or_other(bytes)?)
            }
            (Type::Message(inner), Raw::Bytes(bytes)) => {
                let mut fields = Map::new();
                decode_message(inner, bytes, allowance, self.depth, &mut fields)?;
                Some(Value::Object(fields))
            }
            _ => return Err(self.other_type()),
        })
    }

    fn schema_or_other(&self, bytes: &[u8]) -> Result<Value, Refusal> {
        Ok(match (self.field.of, self.choice(bytes)?) {
            (Type::SchemaOrBool, (None, list)) => list.get(0).cloned().unwrap_or(Value::Bool(false)),
            (Type::SchemaOrBool, (Some(schema), _)) => schema,
            (_, (Some(schema), Value::Array(list))) if list.is_empty() => schema,
            (_, (_, list)) => list,
        })
    }

    /// The two fields of a message that is one of two things: a schema, and a list of the other.
    fn choice(&self, bytes: &[u8]) -> Result<(Option<Value>, Value), Refusal> {
        let (mut one, mut list) = (None, Vec::new());
        let schema = |bytes: &[u8]| {
            let mut fields = Map::new();
            decode_message(published::schema(), bytes, self.allowance, self.depth, &mut fields)?;
            Ok(Value::Object(fields))
        };
        let mut reader = Reader::new(bytes, self.allowance);
        while let Some(part) = reader.next_field()? {
            match (self.field.of, part) {
                (Type::Texts, (1, Raw::Bytes(bytes))) | (Type::SchemaOrTexts, (2, Raw::Bytes(bytes))) => {
                    list.push(Value::String(text(bytes)?));
                }
                (Type::SchemaOrBool, (1, Raw::Varint(value))) => list.push(Value::Bool(value != 0)),
                (Type::SchemaOrList, (2, Raw::Bytes(bytes))) => list.push(schema(bytes)?),
                (Type::SchemaOrBool, (2, Raw::Bytes(bytes)))
                | (Type::SchemaOrList | Type::SchemaOrTexts, (1, Raw::Bytes(bytes))) => {
                    one = Some(schema(bytes)?);
                }
                _ => {}
            }
        }
        Ok((one, Value::Array(list)))
    }

    fn entry(&self, bytes: &[u8]) -> Result<(String, Value), Refusal> {
        // An entry without a value has the zero of its type.
        let (mut key, mut value) = (String::new(), Raw::Bytes(&[]));
        let mut reader = Reader::new(bytes, self.allowance);
        while let Some(entry) = reader.next_field()? {
            match entry {
                (1, Raw::Bytes(bytes)) => key = text(bytes)?,
                (2, raw) => value = raw,
                _ => {}
            }
        }
        let value = self.value(value)?.unwrap_or_else(|| match self.field.of {
            Type::Quantity => json!("0"),
            _ => Value::Null,
        });
        Ok((key, value))
    }
}

fn is_zero(value: &Value) -> bool {
    *value == json!("") || *value == json!(0) || *value == json!(false)
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
        // Go writes a null as no bytes.
        if let (1, Raw::Bytes(raw @ [_, ..])) = field {
            let parsed = serde_json::from_slice(raw);
            found = Some(parsed.map_err(|_| malformed("a field that holds JSON does not"))?);
        }
    }
    Ok(found)
}

/// What an object has beyond its table, or in another type, is left out.
fn encode_message(message: &Message, object: &Map<String, Value>) -> Writer {
    let mut writer = Writer::default();
    for field in message.fields() {
        if let Type::Inline(inner) = field.of {
            writer.message(field.number, encode_message(inner, object));
            continue;
        }
        match (object.get(field.name), field.shape) {
            (Some(Value::Array(items)), Shape::List) => {
                items.iter().for_each(|item| encode_value(field.of, field.number, item, &mut writer));
            }
            (Some(Value::Object(entries)), Shape::Map) => {
                for (key, value) in entries {
                    let mut entry = Writer::default();
                    entry.text(1, key);
                    encode_value(field.of, 2, value, &mut entry);
                    writer.message(field.number, entry);
                }
            }
            (None | Some(Value::Null), _) | (_, Shape::List | Shape::Map) => {}
            (Some(value), Shape::One) => encode_value(field.of, field.number, value, &mut writer),
        }
    }
    writer
}

fn encode_value(of: Type, number: u32, value: &Value, writer: &mut Writer) {
    match (of, value) {
        (Type::Text, Value::String(text)) => writer.text(number, text),
        (Type::Int32 | Type::Int64, Value::Number(value)) => {
            writer.varint(number, value.as_i64().unwrap_or_default().cast_unsigned());
        }
        (Type::Bool, Value::Bool(truth)) => writer.varint(number, u64::from(*truth)),
        (Type::Double, Value::Number(value)) => writer.double(number, value.as_f64().unwrap_or_default()),
        // What is not Base64 was stored by somebody who bypassed this door; there are no bytes to tell of.
        (Type::Bytes, Value::String(text)) => {
            writer.bytes(number, &typed::bytes(text).unwrap_or_default());
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => {
            if let Some(time) = time(text) {
                writer.message(number, time);
            }
        }
        (Type::Quantity, value) => writer.message(number, quantity(value)),
        (Type::IntOrString, value) => writer.message(number, int_or_string(value)),
        (Type::Json, value) => {
            let mut inner = Writer::default();
            inner.text(1, &value.to_string());
            writer.message(number, inner);
        }
        (Type::Texts, value) => writer.message(number, texts(1, value)),
        (Type::SchemaOrTexts, value @ Value::Array(_)) => writer.message(number, texts(2, value)),
        (Type::SchemaOrBool, Value::Bool(truth)) => {
            let mut inner = Writer::default();
            inner.varint(1, u64::from(*truth));
            writer.message(number, inner);
        }
        (Type::SchemaOrList, Value::Array(items)) => {
            let mut inner = Writer::default();
            let schema = Type::Message(published::schema());
            items.iter().for_each(|item| encode_value(schema, 2, item, &mut inner));
            writer.message(number, inner);
        }
        (Type::SchemaOrList | Type::SchemaOrBool | Type::SchemaOrTexts, Value::Object(fields)) => {
            let mut inner = Writer::default();
            let is_bool = matches!(of, Type::SchemaOrBool);
            if is_bool {
                inner.varint(1, 1);
            }
            inner.message(if is_bool { 2 } else { 1 }, encode_message(published::schema(), fields));
            writer.message(number, inner);
        }
        (Type::Message(message), Value::Object(fields)) => {
            writer.message(number, encode_message(message, fields));
        }
        _ => {}
    }
}

fn texts(number: u32, value: &Value) -> Writer {
    let mut inner = Writer::default();
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).for_each(|text| inner.text(number, text));
    inner
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

#[cfg(test)]
mod tests;
