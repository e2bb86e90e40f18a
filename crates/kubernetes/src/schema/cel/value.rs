//! The values of expressions. What lies in an object stays there, and is read as its schema has it.

use super::functions::BYTES_PER_STEP;
use crate::schema::{Additional, ListType, Schema, Type};
use crate::timestamp::Timestamp;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Types that an expression can name.
pub const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// The metadata that rules can see.
pub const META_FIELDS: [&str; 2] = ["name", "generateName"];

#[derive(Clone, Debug)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Rc<str>),
    /// Text that lies in an object.
    Str(&'a str),
    /// Bytes in Base64.
    Encoded(&'a str),
    Bytes(Rc<[u8]>),
    Type(&'static str),
    /// In nanoseconds from 1970.
    Time(i128),
    /// In nanoseconds.
    Span(i128),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<BTreeMap<String, Val<'a>>>),
    /// A list or a map that lies in an object.
    Node(&'a Value, Option<&'a Schema>),
}

impl<'a> Val<'a> {
    pub fn of(value: &'a Value, schema: Option<&'a Schema>) -> Val<'a> {
        let known = schema.filter(|schema| !schema.int_or_string).and_then(|schema| schema.value_type);
        match value {
            Value::Null => Val::Null,
            Value::Bool(flag) => Val::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) if known != Some(Type::Number) => Val::Int(whole),
                _ => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => formatted(text, schema).unwrap_or(Val::Str(text)),
            Value::Array(_) | Value::Object(_) => Val::Node(value, schema),
        }
    }

    pub fn text(text: impl Into<Rc<str>>) -> Val<'a> {
        Val::Text(text.into())
    }

    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(Rc::new(items))
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Val::Text(text) => Some(text),
            Val::Str(text) | Val::Encoded(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_list(&self) -> bool {
        matches!(self, Val::List(_) | Val::Node(Value::Array(_), _))
    }

    pub fn is_map(&self) -> bool {
        matches!(self, Val::Map(_) | Val::Node(Value::Object(_), _))
    }

    /// The elements of a list.
    pub fn items(&self) -> Option<Vec<Val<'a>>> {
        match self {
            Val::List(items) => Some(items.as_ref().clone()),
            Val::Node(Value::Array(items), schema) => {
                let of = schema.and_then(|schema| schema.items.as_deref());
                Some(items.iter().map(|item| Val::of(item, of)).collect())
            }
            _ => None,
        }
    }

    /// The names in a map.
    pub fn keys(&self) -> Option<Vec<Val<'a>>> {
        match self {
            Val::Map(map) => Some(map.keys().map(|key| Val::text(key.as_str())).collect()),
            Val::Node(Value::Object(map), _) => Some(map.keys().map(|key| Val::Str(key)).collect()),
            _ => None,
        }
    }

    /// Of the names that [`keys`](Self::keys) copies.
    pub fn key_bytes(&self) -> usize {
        match self {
            Val::Map(map) => map.keys().map(String::len).sum(),
            _ => 0,
        }
    }

    /// What a scalar takes to be copied or compared.
    pub fn byte_len(&self) -> usize {
        match self {
            Val::Bytes(bytes) => bytes.len(),
            other => other.as_text().map_or(0, str::len),
        }
    }

    /// How much there is in it: what going through it costs.
    pub fn size(&self) -> Option<usize> {
        match self {
            Val::Text(text) => Some(text.len()),
            Val::Str(text) | Val::Encoded(text) => Some(text.len()),
            Val::Bytes(bytes) => Some(bytes.len()),
            Val::List(items) => Some(items.len()),
            Val::Map(map) => Some(map.len()),
            Val::Node(Value::Array(items), _) => Some(items.len()),
            Val::Node(Value::Object(map), _) => Some(map.len()),
            _ => None,
        }
    }

    /// A field of an object by its name in rules, or a member of a map.
    pub fn field(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Val::Map(map) => map.get(name).cloned(),
            Val::Node(value @ Value::Object(map), schema) => {
                let Some(schema) = schema else { return map.get(name).map(|value| Val::of(value, None)) };
                if let Additional::Like(like) = &schema.additional {
                    return self.member(name).map(|value| Val::of(value, Some(like)));
                }
                match property(schema, name) {
                    Some((name, schema)) => value.get(name).map(|value| Val::of(value, Some(schema))),
                    None => map.get(name).map(|value| Val::of(value, None)),
                }
            }
            _ => None,
        }
    }

    fn member(&self, name: &str) -> Option<&'a Value> {
        match self {
            Val::Node(value, _) => value.get(name),
            _ => None,
        }
    }

    fn is_unordered(&self) -> bool {
        matches!(self, Val::Node(_, Some(Schema { list_type: Some(ListType::Set | ListType::Map), .. })))
    }

    /// `spend` is told what it costs, and may end it.
    pub fn equals<E>(
        &self,
        other: &Val<'a>,
        spend: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        spend(1)?;
        spend(self.byte_len().min(other.byte_len()) / 16)?;
        if let (Some(one), Some(other)) = (self.as_text(), other.as_text()) {
            return Ok(one == other);
        }
        if let Some(order) = self.compare_numbers(other) {
            return Ok(order == Some(Ordering::Equal));
        }
        if self.is_list() && other.is_list() {
            spend(self.size().unwrap_or(0) + other.size().unwrap_or(0))?;
            let (Some(one), Some(others)) = (self.items(), other.items()) else { return Ok(false) };
            if one.len() != others.len() {
                return Ok(false);
            }
            let mut is_same = true;
            for (one, other) in one.iter().zip(&others) {
                is_same = one.equals(other, spend)?;
                if !is_same {
                    break;
                }
            }
            let is_unordered = self.is_unordered() || other.is_unordered();
            return if is_same || !is_unordered { Ok(is_same) } else { is_permutation(&one, &others, spend) };
        }
        if self.is_map() && other.is_map() {
            if self.size() != other.size() {
                return Ok(false);
            }
            spend(self.size().unwrap_or(0) + self.key_bytes() / BYTES_PER_STEP)?;
            let keys = self.keys().unwrap_or_default();
            for key in keys {
                let key = key.as_text().unwrap_or_default();
                let is_same = match (self.raw(key), other.raw(key)) {
                    (Some(one), Some(other)) => one.equals(&other, spend)?,
                    _ => false,
                };
                if !is_same {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(one), Val::Bool(other)) => one == other,
            (Val::Bytes(one), Val::Bytes(other)) => one == other,
            (Val::Type(one), Val::Type(other)) => one == other,
            (Val::Time(one), Val::Time(other)) | (Val::Span(one), Val::Span(other)) => one == other,
            _ => false,
        })
    }

    /// A member by its name in the object.
    fn raw(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Val::Map(map) => map.get(name).cloned(),
            Val::Node(value, schema) => {
                let of = schema.and_then(|schema| match &schema.additional {
                    Additional::Like(like) => Some(&**like),
                    _ => schema.properties.get(name),
                });
                value.get(name).map(|value| Val::of(value, of))
            }
            _ => None,
        }
    }

    /// `None`: they are not both numbers. `Some(None)`: one of them is no number at all.
    fn compare_numbers(&self, other: &Val<'_>) -> Option<Option<Ordering>> {
        let double = |value: &Val<'_>| match value {
            // Far apart or equal: what a double cannot tell is compared as integers below.
            Val::Int(number) => Some(*number as f64),
            Val::UInt(number) => Some(*number as f64),
            Val::Double(number) => Some(*number),
            _ => None,
        };
        let whole = |value: &Val<'_>| match value {
            Val::Int(number) => Some(i128::from(*number)),
            Val::UInt(number) => Some(i128::from(*number)),
            _ => None,
        };
        if let (Some(one), Some(other)) = (whole(self), whole(other)) {
            return Some(Some(one.cmp(&other)));
        }
        Some(double(self)?.partial_cmp(&double(other)?))
    }

    /// `None`: they have no order.
    pub fn compare(&self, other: &Val<'_>) -> Option<Ordering> {
        if let (Some(one), Some(other)) = (self.as_text(), other.as_text()) {
            return Some(one.cmp(other));
        }
        if let Some(order) = self.compare_numbers(other) {
            return order;
        }
        match (self, other) {
            (Val::Bool(one), Val::Bool(other)) => Some(one.cmp(other)),
            (Val::Bytes(one), Val::Bytes(other)) => Some(one.cmp(other)),
            (Val::Time(one), Val::Time(other)) | (Val::Span(one), Val::Span(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::UInt(_) => "uint",
            Val::Double(_) => "double",
            Val::Text(_) | Val::Str(_) | Val::Encoded(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Type(_) => "type",
            Val::Time(_) => "timestamp",
            Val::Span(_) => "duration",
            Val::List(_) | Val::Node(Value::Array(_), _) => "list",
            Val::Map(_) | Val::Node(..) => "map",
        }
    }

    /// Lists that are sets or maps are added in a way of their own, which is not done here.
    pub fn adds_specially(&self) -> bool {
        self.is_unordered()
    }
}

fn is_permutation<'a, E>(
    one: &[Val<'a>],
    others: &[Val<'a>],
    spend: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<bool, E> {
    let mut left: Vec<&Val<'a>> = others.iter().collect();
    for item in one {
        let mut found = None;
        for (at, other) in left.iter().enumerate() {
            if item.equals(other, spend)? {
                found = Some(at);
                break;
            }
        }
        match found {
            Some(at) => drop(left.swap_remove(at)),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Times and durations are read each time they are asked for.
const FORMATTED_BYTES_MAX: usize = 128;

/// Text of a format that has values of its own. Text that is not as its format says stays text: to tell so is
/// the schema's.
fn formatted<'a>(text: &'a str, schema: Option<&Schema>) -> Option<Val<'a>> {
    let schema = schema.filter(|schema| schema.value_type == Some(Type::String))?;
    let format = schema.limits.format.as_deref()?;
    if FORMATTED_BYTES_MAX < text.len() && format != "byte" {
        return None;
    }
    match format {
        "byte" => Some(Val::Encoded(text)),
        "date-time" => time(text).map(Val::Time),
        "date" => time(&format!("{text}T00:00:00Z")).map(Val::Time),
        "duration" => span(text).map(Val::Span),
        _ => None,
    }
}

pub fn time(text: &str) -> Option<i128> {
    let Timestamp { seconds, nanos } = Timestamp::parse(text)?;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// `1h30m`, `-5s`.
pub fn span(text: &str) -> Option<i128> {
    let nanos = crate::query::duration(text.strip_prefix('-').unwrap_or(text))?.as_nanos();
    let nanos = i128::try_from(nanos).ok()?;
    Some(if text.starts_with('-') { -nanos } else { nanos })
}

/// The property that is called so in rules, by its own name. What no identifier can be is spelt out there.
pub fn property<'s>(schema: &'s Schema, name: &str) -> Option<(&'s str, &'s Schema)> {
    let (own, schema) = match unescaped(name) {
        Some(own) => schema.properties.get_key_value(own.as_str())?,
        None => schema.properties.get_key_value(name)?,
    };
    Some((own, schema))
}

/// `None`: as it is.
fn unescaped(name: &str) -> Option<String> {
    if !name.contains("__") {
        return None;
    }
    let reserved = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    let is_reserved = |word: &&str| {
        matches!(*word, "true" | "false" | "null" | "in") || super::parse::RESERVED.contains(word)
    };
    if let Some(word) = reserved.filter(is_reserved) {
        return Some(word.to_owned());
    }
    let (mut out, mut rest) = (String::new(), name);
    while let Some(at) = rest.find("__") {
        out.push_str(&rest[..at]);
        let escapes = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
        let found = escapes.iter().find(|(escape, _)| rest[at..].starts_with(escape));
        let (skip, sign) = found.map_or((2, "__"), |(escape, sign)| (escape.len(), sign));
        out.push_str(sign);
        rest = &rest[at + skip..];
    }
    out.push_str(rest);
    Some(out)
}
