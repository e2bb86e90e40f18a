//! Looking into objects of which nothing is certain: what is absent or of another type is empty.

use crate::timestamp::{Timestamp, human_age};
use serde_json::{Map, Value};

pub const NONE: &str = "<none>";
pub const UNKNOWN: &str = "<unknown>";

/// By a JSON pointer.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn text_or<'a>(object: &'a Value, pointer: &str, other: &'a str) -> &'a str {
    let found = text(object, pointer);
    if found.is_empty() { other } else { found }
}

pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    Timestamp::parse(text(object, pointer))
}

/// The age of a time; of none, that it is unknown.
pub fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| UNKNOWN.to_owned(), |time| human_age(time.age_s(now)))
}

/// Strings in the order given.
pub fn texts<'a>(items: &'a [Value], pointer: &str) -> Vec<&'a str> {
    items.iter().map(|item| text(item, pointer)).filter(|text| !text.is_empty()).collect()
}

/// The status of the condition of that type.
pub fn condition<'a>(object: &'a Value, of_type: &str) -> Option<&'a str> {
    let conditions = list(object, "/status/conditions");
    conditions
        .iter()
        .find(|condition| text(condition, "/type") == of_type)
        .map(|found| text(found, "/status"))
}

/// `a=1,b=2`
pub fn labels(labels: Option<&Map<String, Value>>) -> String {
    let shown: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(",") }
}

/// A label selector in the short form of a query; or a map of labels, as services have it.
pub fn selector(object: &Value, pointer: &str) -> String {
    let Some(given) = object.pointer(pointer) else { return NONE.to_owned() };
    let plain = given.get("matchLabels").is_none() && given.get("matchExpressions").is_none();
    if plain {
        return labels(given.as_object());
    }
    let mut terms: Vec<String> = Vec::new();
    if let Some(equal) = map(given, "/matchLabels").filter(|equal| !equal.is_empty()) {
        terms.push(labels(Some(equal)));
    }
    for term in list(given, "/matchExpressions") {
        let key = text(term, "/key");
        let values: Vec<&str> = list(term, "/values").iter().filter_map(Value::as_str).collect();
        terms.push(match text(term, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if terms.is_empty() { NONE.to_owned() } else { terms.join(",") }
}

/// At most `most` of them, and how many more there are.
pub fn some_of<T: AsRef<str>>(all: &[T], most: usize, empty: &str) -> String {
    let shown: Vec<&str> = all.iter().take(most).map(AsRef::as_ref).collect();
    match all.len() {
        0 => empty.to_owned(),
        count if count > most => format!("{} + {} more...", shown.join(","), count - most),
        _ => shown.join(","),
    }
}
