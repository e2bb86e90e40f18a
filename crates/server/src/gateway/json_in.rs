//! JSON to messages, as lenient as etcd's gateways are.
//!
//! Names in either spelling, the one of the proto and camelCase; unknown ones are passed over. Numbers as
//! numbers or texts, bytes in base64 of either alphabet with or without padding, enums by name or number,
//! and `null` for what is left out. Of two members of a oneof the later declared one counts.
//!
//! Pure. Nesting is bounded by whoever parses the JSON.

use super::Malformed;
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, DecodePaddingMode::Indifferent};
use bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value as Field};
use serde_json::{Map, Value};

const fn lenient(padding: DecodePaddingMode) -> GeneralPurposeConfig {
    GeneralPurposeConfig::new().with_decode_padding_mode(padding).with_decode_allow_trailing_bits(true)
}
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, lenient(Indifferent));
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, lenient(Indifferent));

pub(super) fn message(kind: &MessageDescriptor, json: &Value) -> Result<DynamicMessage, Malformed> {
    let mut message = DynamicMessage::new(kind.clone());
    let members = match json {
        Value::Null => return Ok(message),
        Value::Object(members) => members,
        other => return Err(mismatch(other, "an object")),
    };
    for field in kind.fields() {
        match member(members, &field) {
            None | Some(Value::Null) => {}
            Some(json) => {
                let value = value(&field, json).map_err(|error| error.within(field.name()))?;
                message.set_field(&field, value);
            }
        }
    }
    Ok(message)
}

fn member<'a>(members: &'a Map<String, Value>, field: &FieldDescriptor) -> Option<&'a Value> {
    members.get(field.json_name()).or_else(|| members.get(field.name()))
}

fn value(field: &FieldDescriptor, json: &Value) -> Result<Field, Malformed> {
    if !field.is_list() {
        return single(&field.kind(), json);
    }
    let Value::Array(items) = json else { return Err(mismatch(json, "an array")) };
    items.iter().map(|item| single(&field.kind(), item)).collect::<Result<_, _>>().map(Field::List)
}

fn single(kind: &Kind, json: &Value) -> Result<Field, Malformed> {
    // In an array; alone it is left out before.
    if json.is_null() {
        return Ok(Field::default_value(kind));
    }
    match kind {
        Kind::Bool => json.as_bool().map(Field::Bool).ok_or_else(|| mismatch(json, "true or false")),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer(json, "a 32-bit integer").map(Field::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => integer(json, "a 64-bit integer").map(Field::I64),
        Kind::Uint32 | Kind::Fixed32 => integer(json, "a 32-bit integer of no sign").map(Field::U32),
        Kind::Uint64 | Kind::Fixed64 => integer(json, "a 64-bit integer of no sign").map(Field::U64),
        Kind::Float => float(json).map(|number| Field::F32(number as f32)),
        Kind::Double => float(json).map(Field::F64),
        Kind::String => match json {
            Value::String(text) => Ok(Field::String(text.clone())),
            other => Err(mismatch(other, "a text")),
        },
        Kind::Bytes => bytes(json).map(Field::Bytes),
        Kind::Message(kind) => message(kind, json).map(Field::Message),
        Kind::Enum(kind) => match json {
            Value::String(name) => {
                let found = kind.values().find(|value| value.name() == name);
                let unknown =
                    || Malformed::new(format!("unknown value {name:?} for enum {}", kind.full_name()));
                found.map(|value| Field::EnumNumber(value.number())).ok_or_else(unknown)
            }
            other => integer(other, "a name or number").map(Field::EnumNumber),
        },
    }
}

fn integer<T: TryFrom<i128>>(json: &Value, wanted: &'static str) -> Result<T, Malformed> {
    let number = match json {
        Value::Number(number) => whole(number),
        // A number in quotes is a number.
        Value::String(text) => serde_json::from_str(text).ok().and_then(|number| whole(&number)),
        _ => None,
    };
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| mismatch(json, wanted))
}

fn whole(number: &serde_json::Number) -> Option<i128> {
    /// Above it not every integer is a float any more, so one that is written as a float is not exact.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= EXACT_MAX).then_some(float as i128)
}

fn float(json: &Value) -> Result<f64, Malformed> {
    let number = match json {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| mismatch(json, "a number"))
}

fn bytes(json: &Value) -> Result<Bytes, Malformed> {
    let Value::String(text) = json else { return Err(mismatch(json, "a text in base64")) };
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    let decoded = if text.contains(['\r', '\n']) {
        alphabet.decode(text.replace(['\r', '\n'], ""))
    } else {
        alphabet.decode(text)
    };
    decoded.map(Bytes::from).map_err(|error| Malformed::new(format!("illegal base64 data: {error}")))
}

fn mismatch(json: &Value, wanted: &str) -> Malformed {
    let found = match json {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number that does not fit",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Malformed::new(format!("{found} where {wanted} is expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver as pb;

    fn read<M: prost::Message + Default>(name: &str, json: &str) -> Result<M, Malformed> {
        let kind = crate::descriptors::pool().get_message_by_name(name).expect("a message of ours");
        let read = message(&kind, &serde_json::from_str(json).expect("JSON"))?;
        Ok(read.transcode_to::<M>().expect("the message itself"))
    }

    fn range(json: &str) -> Result<pb::RangeRequest, Malformed> {
        read("etcdserverpb.RangeRequest", json)
    }

    #[test]
    fn every_spelling_of_a_field_is_read() {
        let expected = pb::RangeRequest {
            key: Bytes::from_static(b"foo"),
            range_end: Bytes::from_static(b"fop"),
            limit: 5,
            sort_order: pb::range_request::SortOrder::Descend.into(),
            ..Default::default()
        };
        for json in [
            r#"{"key":"Zm9v","range_end":"Zm9w","limit":"5","sort_order":"DESCEND"}"#,
            r#"{"key":"Zm9v","rangeEnd":"Zm9w","limit":5,"sortOrder":2,"nobody":{"knows":[]}}"#,
            r#"{"key":"Zm9v","range_end":"Zm\n9w","limit":5.0,"sort_order":"DESCEND","revision":null}"#,
        ] {
            assert_eq!(range(json).expect(json), expected, "{json}");
        }
    }

    #[test]
    fn base64_is_read_in_both_alphabets_and_without_padding() {
        for (json, key) in
            [("", &b""[..]), ("+/8=", b"\xfb\xff"), ("-_8=", b"\xfb\xff"), ("-_8", b"\xfb\xff")]
        {
            assert_eq!(range(&format!(r#"{{"key":"{json}"}}"#)).expect(json).key, key, "{json}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for json in [
            r#"[]"#,
            r#""text""#,
            r#"{"key":"\u0000"}"#,
            r#"{"key":1}"#,
            r#"{"key":"Zm9v","limit":"x"}"#,
            r#"{"key":"Zm9v","limit":1.5}"#,
            r#"{"key":"Zm9v","limit":9223372036854775808}"#,
            r#"{"key":"Zm9v","sort_order":"NOPE"}"#,
            r#"{"key":"Zm9v","keys_only":"true"}"#,
        ] {
            assert!(range(json).is_err(), "{json}");
        }
    }

    #[test]
    fn of_a_oneof_the_later_declared_member_counts() {
        let json = r#"{"success":[{"request_put":{"key":"YQ=="},"request_range":{"key":"Yg=="}}, null]}"#;
        let txn: pb::TxnRequest = read("etcdserverpb.TxnRequest", json).expect("a transaction");
        assert_eq!(txn.success.len(), 2);
        assert!(matches!(txn.success[0].request, Some(pb::request_op::Request::RequestPut(_))));
    }
}
