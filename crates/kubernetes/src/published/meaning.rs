//! What values mean to a program in Go, so that two spellings of one meaning are equal: a client in Go sends
//! back `1` for `"1"`, `500m` for `0.5` and nothing for a zero that its type leaves out.
//!
//! Fields that a kind does not have mean nothing.

use super::typed;
use super::{Field, Message, Shape, Type};
use crate::timestamp::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// At a path of names with dots between them. Null if there is nothing that means something.
pub fn at(message: &Message, object: &Map<String, Value>, path: &str) -> Value {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (Some(field), Some(value)) = (message.field(first), object.get(first)) else { return Value::Null };
    match (rest, field.of, value) {
        (None, ..) => of_field(message, field, value),
        (Some(rest), Type::Message(inner), Value::Object(fields)) => at(inner, fields, rest),
        _ => Value::Null,
    }
}

fn of_field(holder: &Message, field: &Field, value: &Value) -> Value {
    let meaning = match (field.shape, value) {
        (Shape::List, Value::Array(items)) => items.iter().map(|item| of_type(field.of, item)).collect(),
        (Shape::Map, Value::Object(entries)) => {
            let entries = entries.iter().map(|(key, entry)| (key.clone(), of_type(field.of, entry)));
            Value::Object(entries.collect())
        }
        (Shape::One, value) => of_type(field.of, value),
        (_, value) => value.clone(),
    };
    let omits_zero = holder.omits_zero(field);
    let is_nothing = match (field.shape, field.of, &meaning) {
        (Shape::List, _, Value::Array(items)) => items.is_empty(),
        (Shape::Map, _, Value::Object(entries)) => entries.is_empty(),
        (Shape::One, Type::Json, _) => false,
        (Shape::One, Type::Message(_), Value::Object(fields)) => !field.keeps_zero && fields.is_empty(),
        (Shape::One, Type::Quantity, meaning) => omits_zero && *meaning == json!("0"),
        (Shape::One, _, Value::String(text)) => omits_zero && text.is_empty(),
        (Shape::One, _, Value::Number(number)) => omits_zero && number.as_f64() == Some(0.0),
        (Shape::One, _, Value::Bool(truth)) => omits_zero && !truth,
        _ => false,
    };
    if is_nothing { Value::Null } else { meaning }
}

/// What is of another type stays as it is.
fn of_type(of: Type, value: &Value) -> Value {
    let meaning = match (of, value) {
        (Type::Message(message), Value::Object(fields)) => {
            let known = fields.iter().filter_map(|(name, value)| Some((name, message.field(name)?, value)));
            let told = known.map(|(name, field, value)| (name.clone(), of_field(message, field, value)));
            Some(Value::Object(told.filter(|(_, value)| !value.is_null()).collect()))
        }
        (Type::Quantity, Value::String(text)) => amount(text).map(Value::String),
        (Type::Quantity, Value::Number(number)) => amount(&number.to_string()).map(Value::String),
        (Type::Double, Value::Number(number)) => number.as_f64().map(|number| json!(number)),
        (Type::Bytes, Value::String(text)) => typed::bytes(text).ok().map(|it| json!(STANDARD.encode(it))),
        (Type::Time, Value::String(text)) => {
            Timestamp::parse(text).map(|time| json!(time.to_seconds().to_string()))
        }
        (Type::MicroTime, Value::String(text)) => {
            Timestamp::parse(text).map(|time| json!(time.to_micros().to_string()))
        }
        _ => None,
    };
    meaning.unwrap_or_else(|| value.clone())
}

/// An amount in thousand-millionths, the finest that Go keeps. Nothing of one that is too large to count so.
fn amount(text: &str) -> Option<String> {
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |unsigned| ("-", unsigned));
    let unsigned = unsigned.strip_prefix('+').unwrap_or(unsigned);
    let end =
        unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (twos, tens) = scale(suffix)?;
    let power = tens.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let ten = 10_u128.checked_pow(power.unsigned_abs())?;
    let scaled = digits.checked_mul(1 << twos)?;
    let count = if power < 0 { scaled.div_ceil(ten) } else { scaled.checked_mul(ten)? };
    Some(if count == 0 { "0".to_owned() } else { format!("{sign}{count}") })
}

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        other => (0, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_equal_by_value() {
        for equal in [
            ["0.5", "500m"],
            ["1Gi", "1024Mi"],
            ["1", "1000m"],
            ["1e3", "1k"],
            ["1E", "1000P"],
            ["+.5", "0.50"],
            ["-0", "0"],
            ["0.1n", "1n"],
        ] {
            assert_eq!(amount(equal[0]), amount(equal[1]), "{equal:?}");
            assert!(amount(equal[0]).is_some(), "{equal:?}");
        }
        assert_ne!(amount("1"), amount("-1"));
        assert_ne!(amount("1M"), amount("1Mi"));
        for strange in ["", "x", "1e99", "1e2147483647", "."] {
            assert_eq!(amount(strange), None, "{strange}");
        }
    }

    #[test]
    fn what_go_leaves_out_means_nothing() {
        let message = super::super::message("v1", "Pod").expect("a kind");
        let meaning = |spec: Value| match json!({ "spec": spec }) {
            Value::Object(object) => at(message, &object, "spec"),
            _ => Value::Null,
        };
        let spec = |extra: Value| {
            let mut spec = json!({ "containers": [{ "name": "c", "env": [{ "name": "e" }] }] });
            for (name, value) in extra.as_object().into_iter().flatten() {
                spec[name] = value.clone();
            }
            meaning(spec)
        };
        let bare = spec(json!({}));
        for zeros in [
            json!({ "hostNetwork": false, "nodeSelector": {}, "tolerations": [], "nodeName": "", "x": 1 }),
            json!({ "containers": [{ "name": "c", "resources": {}, "env": [{ "name": "e", "value": "" }] }] }),
        ] {
            assert_eq!(spec(zeros.clone()), bare, "{zeros}");
        }
        for other in [
            json!({ "hostNetwork": true }),
            json!({ "automountServiceAccountToken": false }),
            json!({ "securityContext": {} }),
        ] {
            assert_ne!(spec(other.clone()), bare, "{other}");
        }
    }
}
