//! Messages to JSON, byte for byte as etcd 3.5 writes it: names of the proto, fields in the order of their
//! numbers, zeroes left out, 64-bit integers as texts, bytes in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DynamicMessage, Kind, ReflectMessage, Value};
use std::fmt::Write;

pub(super) fn message(message: &DynamicMessage) -> String {
    let mut json = String::new();
    write_message(&mut json, message);
    json
}

/// A text in quotes. What HTML could take for a tag is escaped, as Go does.
pub(super) fn text(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(letter));
            }
            letter => json.push(letter),
        }
    }
    json.push('"');
}

fn write_message(json: &mut String, message: &DynamicMessage) {
    json.push('{');
    let mut first = true;
    for field in message.descriptor().fields().filter(|field| message.has_field(field)) {
        if !std::mem::take(&mut first) {
            json.push(',');
        }
        text(json, field.name());
        json.push(':');
        write_value(json, &field.kind(), &message.get_field(&field));
    }
    json.push('}');
}

fn write_value(json: &mut String, kind: &Kind, value: &Value) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Bool(value) => write!(json, "{value}"),
        Value::I32(value) => write!(json, "{value}"),
        Value::U32(value) => write!(json, "{value}"),
        Value::F32(value) => write!(json, "{value}"),
        Value::F64(value) => write!(json, "{value}"),
        Value::I64(value) => write!(json, "\"{value}\""),
        Value::U64(value) => write!(json, "\"{value}\""),
        Value::String(value) => {
            text(json, value);
            Ok(())
        }
        Value::Bytes(value) => write!(json, "\"{}\"", STANDARD.encode(value)),
        Value::EnumNumber(number) => match kind.as_enum().and_then(|kind| kind.get_value(*number)) {
            Some(value) => write!(json, "\"{}\"", value.name()),
            None => write!(json, "{number}"),
        },
        Value::Message(message) => {
            write_message(json, message);
            Ok(())
        }
        Value::List(items) => {
            json.push('[');
            for (index, item) in items.iter().enumerate() {
                if index != 0 {
                    json.push(',');
                }
                write_value(json, kind, item);
            }
            json.push(']');
            Ok(())
        }
        // No message of etcd's has one.
        Value::Map(_) => write!(json, "{{}}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver as pb;

    fn written(name: &str, message: &impl prost::Message) -> String {
        let kind = crate::descriptors::pool().get_message_by_name(name).expect("a message of ours");
        let mut dynamic = DynamicMessage::new(kind);
        dynamic.transcode_from(message).expect("the message itself");
        assert_eq!(dynamic.descriptor().full_name(), name);
        super::message(&dynamic)
    }

    #[test]
    fn an_answer_is_written_as_etcd_writes_it() {
        let header = pb::ResponseHeader { cluster_id: u64::MAX, revision: 2, ..Default::default() };
        let alarms = vec![
            pb::AlarmMember { member_id: 7, alarm: pb::AlarmType::Nospace.into() },
            pb::AlarmMember { member_id: 0, alarm: 99 },
            pb::AlarmMember::default(),
        ];
        let answer = pb::AlarmResponse { header: Some(header), alarms };
        let expected = r#"{"header":{"cluster_id":"18446744073709551615","revision":"2"},"alarms":[{"memberID":"7","alarm":"NOSPACE"},{"alarm":99},{}]}"#;
        assert_eq!(written("etcdserverpb.AlarmResponse", &answer), expected);
    }

    #[test]
    fn a_text_can_end_no_quote_and_begin_no_tag() {
        let mut json = String::new();
        text(&mut json, "a\"\\\n\u{1}<&>\u{2028}ü");
        assert_eq!(json, r#""a\"\\\n\u0001\u003c\u0026\u003e\u2028ü""#);
    }
}
