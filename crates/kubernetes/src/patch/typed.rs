//! Objects as trees of fields: which fields one has, how two differ, what two make together.
//!
//! What is one field and what is many is told by a [`Place`]: a plain value is one, so is an atomic list or
//! map; a map is its members, a list with keys is its elements by their keys. Where nothing is known a map
//! is its members and a list is one.

use super::field_set::{FieldSet, Step};
use super::lists::{self, ListType};
use super::unprocessable;
use crate::schema::{self, Additional, Schema};
use crate::status::Refusal;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Where in an object a value stands, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In an object of a built-in kind, or in anybody's metadata: by its field and the field that holds it.
    BuiltIn {
        parent: &'a str,
        field: &'a str,
    },
    /// The root of an object of a CRD's kind, and all that its schema knows.
    Root(&'a Schema),
    Known(&'a Schema),
    Unknown,
}

enum Keys<'a> {
    Atomic,
    Set,
    Map(Vec<&'a str>),
}

impl<'a> Place<'a> {
    pub const BUILT_IN: Place<'static> = Place::BuiltIn { parent: "", field: "" };

    fn field(self, name: &'a str) -> Place<'a> {
        match self {
            Place::BuiltIn { field, .. } => Place::BuiltIn { parent: field, field: name },
            Place::Root(_) if name == "metadata" => Place::BuiltIn { parent: "", field: name },
            Place::Root(schema) | Place::Known(schema) => {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => Place::Known(property),
                    (None, Additional::Like(like)) => Place::Known(like),
                    _ => Place::Unknown,
                }
            }
            Place::Unknown => Place::Unknown,
        }
    }

    /// The elements of a list do not count as a step of their own.
    fn item(self) -> Place<'a> {
        match self {
            Place::Known(Schema { items: Some(items), .. }) => Place::Known(items),
            Place::Known(_) => Place::Unknown,
            place => place,
        }
    }

    fn keys(self) -> Keys<'a> {
        match self {
            Place::BuiltIn { parent, field } => match lists::applied(&[parent, field]) {
                ListType::Atomic => Keys::Atomic,
                ListType::Set => Keys::Set,
                ListType::Map(keys) => Keys::Map(keys.to_vec()),
            },
            Place::Known(schema) => match schema.list_type {
                Some(schema::ListType::Set) => Keys::Set,
                Some(schema::ListType::Map) => {
                    Keys::Map(schema.list_map_keys.iter().map(String::as_str).collect())
                }
                _ => Keys::Atomic,
            },
            Place::Root(_) | Place::Unknown => Keys::Atomic,
        }
    }

    /// Whether it is one field by what it is.
    fn is_one(self, value: &Value) -> bool {
        match (value, self) {
            (Value::Object(_), Place::BuiltIn { field, .. }) => lists::is_atomic_map(field),
            (Value::Object(_), Place::Known(schema)) => schema.atomic_map,
            (Value::Object(_), _) => false,
            (Value::Array(_), _) => matches!(self.keys(), Keys::Atomic),
            _ => true,
        }
    }

    /// Whether it is one field, be it because there is nothing in it.
    fn is_leaf(self, value: &Value) -> bool {
        let is_empty = match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => true,
        };
        is_empty || self.is_one(value)
    }

    /// A member of a map is a field of its own, a member of a struct only by what it holds.
    fn is_map_member(self, name: &str) -> bool {
        matches!(self, Place::Known(schema) if !schema.properties.contains_key(name))
    }

    fn key_value(self, item: &Value, key: &str) -> Option<Value> {
        if let Some(value) = item.get(key).filter(|value| !value.is_null()) {
            return Some(value.clone());
        }
        match self.item() {
            Place::Known(schema) => schema.properties.get(key)?.default.clone(),
            _ => lists::key_default(key).map(Value::from),
        }
    }

    /// How an element of this list is called. `None`: it lacks its keys.
    fn step(self, item: &Value) -> Option<Step> {
        match self.keys() {
            Keys::Atomic => None,
            Keys::Set => Some(Step::Value(item.to_string())),
            Keys::Map(keys) => {
                let keys: Option<Map<String, Value>> =
                    keys.into_iter().map(|key| Some((key.to_owned(), self.key_value(item, key)?))).collect();
                Some(Step::Key(Value::Object(keys?).to_string()))
            }
        }
    }
}

/// The members of a map or the elements of a list, by their steps. Elements without keys are nobody's, and
/// of two with the same keys the first counts.
fn parts<'v>(place: Place<'v>, value: &'v Value) -> BTreeMap<Step, (Place<'v>, &'v Value)> {
    let mut parts = BTreeMap::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                parts.insert(Step::Field(name.clone()), (place.field(name), value));
            }
        }
        Value::Array(list) => {
            for item in list {
                if let Some(step) = place.step(item) {
                    parts.entry(step).or_insert((place.item(), item));
                }
            }
        }
        _ => {}
    }
    parts
}

/// The fields that a value has.
pub fn fields_of(place: Place<'_>, value: &Value) -> FieldSet {
    if place.is_leaf(value) {
        return FieldSet::leaf();
    }
    let mut set = FieldSet::default();
    for (step, (part_place, part)) in parts(place, value) {
        let mut part = fields_of(part_place, part);
        // An element is a field of its own: its owner can take it out.
        part.member |= match &step {
            Step::Field(name) => place.is_map_member(name),
            _ => true,
        };
        set.insert(step, part);
    }
    set
}

/// A value and all within it, where there was none.
fn all_of(place: Place<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::leaf();
    if !place.is_leaf(value) {
        for (step, (place, part)) in parts(place, value) {
            set.insert(step, all_of(place, part));
        }
    }
    set
}

/// What is other in `new` than in `old`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New, or of another value.
    pub changed: FieldSet,
    pub removed: FieldSet,
}

impl Difference {
    pub fn between(place: Place<'_>, old: &Value, new: &Value) -> Difference {
        let mut difference = Difference::default();
        if old == new {
            return difference;
        }
        if place.is_leaf(old) && place.is_leaf(new) {
            difference.changed.member = true;
            return difference;
        }
        // One thing became many, or many one.
        difference.changed.member = place.is_one(old) || place.is_one(new);
        let (old, new) = (parts(place, old), parts(place, new));
        for (step, (place, part)) in &old {
            match new.get(step) {
                None => difference.removed.insert(step.clone(), all_of(*place, part)),
                Some((_, now)) => {
                    let inner = Difference::between(*place, part, now);
                    difference.changed.insert(step.clone(), inner.changed);
                    difference.removed.insert(step.clone(), inner.removed);
                }
            }
        }
        for (step, (place, part)) in new {
            if !old.contains_key(&step) {
                difference.changed.insert(step, all_of(place, part));
            }
        }
        difference
    }
}

/// `live` with all that `config` says. Lists with keys come in the order of `config`.
pub fn merge(place: Place<'_>, live: Value, config: Value) -> Result<Value, Refusal> {
    if place.is_one(&config) {
        return Ok(config);
    }
    match (live, config) {
        (Value::Object(mut live), Value::Object(config)) => {
            for (name, value) in config {
                let found = live.remove(&name).unwrap_or_default();
                let merged = merge(place.field(&name), found, value)?;
                live.insert(name, merged);
            }
            Ok(Value::Object(live))
        }
        (live, Value::Array(config)) => {
            let live = if let Value::Array(live) = live { live } else { Vec::new() };
            merge_list(place, live, config)
        }
        (_, config @ Value::Object(_)) => merge(place, Value::Object(Map::new()), config),
        (_, config) => Ok(config),
    }
}

/// The elements of `config` come in its order. One that only `live` has keeps its place between those that
/// both have.
fn merge_list(place: Place<'_>, live: Vec<Value>, config: Vec<Value>) -> Result<Value, Refusal> {
    let mut said = BTreeSet::new();
    let mut named = Vec::with_capacity(config.len());
    for item in config {
        let Some(step) = place.step(&item) else {
            return Err(unprocessable("an element of an applied list lacks the fields that it is known by"));
        };
        if !said.insert(step.clone()) {
            return Err(unprocessable("an applied list has two elements that are known by the same fields"));
        }
        named.push((step, item));
    }
    // Of those that both have, `live` leaves a mark of where they were.
    let (mut shared, mut order) = (BTreeMap::new(), Vec::with_capacity(live.len()));
    for item in live {
        match place.step(&item).filter(|step| said.contains(step)) {
            None => order.push(Err(item)),
            Some(step) if shared.contains_key(&step) => {}
            Some(step) => {
                shared.insert(step.clone(), item);
                order.push(Ok(step));
            }
        }
    }
    let (mut merged, mut order) =
        (Vec::with_capacity(named.len() + order.len()), order.into_iter().peekable());
    for (step, item) in named {
        // Marks of elements that are in place already are passed over, and what only `live` has goes first.
        while let Some(next) =
            order.next_if(|next| !next.as_ref().is_ok_and(|step| shared.contains_key(step)))
        {
            merged.extend(next.err());
        }
        let found = shared.remove(&step).unwrap_or_default();
        merged.push(merge(place.item(), found, item)?);
    }
    merged.extend(order.filter_map(Result::err));
    Ok(Value::Array(merged))
}

/// Takes out what `last` has and `kept` has not, where `kept` has nothing below it either.
pub fn prune(place: Place<'_>, value: &mut Value, last: &FieldSet, kept: &FieldSet) {
    match value {
        Value::Object(map) => map.retain(|name, part| {
            let step = Step::Field(name.clone());
            match (last.child(&step), kept.child(&step)) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(last), Some(kept)) => {
                    prune(place.field(name), part, last, kept);
                    true
                }
            }
        }),
        Value::Array(list) => list.retain_mut(|item| {
            let Some(step) = place.step(item) else { return true };
            match (last.child(&step), kept.child(&step)) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(last), Some(kept)) => {
                    prune(place.item(), item, last, kept);
                    true
                }
            }
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: Value) -> FieldSet {
        fields_of(Place::BUILT_IN, &value)
    }

    #[test]
    fn the_fields_of_an_object() {
        let set = pod(json!({
            "metadata": { "labels": { "a": "b" }, "finalizers": ["x"] },
            "spec": {
                "containers": [{ "name": "c", "args": ["1"], "ports": [{ "containerPort": 80 }] }],
                "selector": { "matchLabels": { "a": "b" } }, "empty": {},
            },
        }));
        let expected = json!({
            "f:metadata": { "f:labels": { "f:a": {} }, "f:finalizers": { "v:\"x\"": {} } },
            "f:spec": {
                "f:containers": { "k:{\"name\":\"c\"}": {
                    ".": {}, "f:name": {}, "f:args": {},
                    "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:containerPort": {} } },
                } },
                "f:selector": {}, "f:empty": {},
            },
        });
        assert_eq!(set.encode(), expected);
    }

    #[test]
    fn a_schema_says_what_is_one_field() {
        let schema = Schema::parse(
            &json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
                "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                "list": { "type": "array", "items": { "type": "string" } },
                "one": { "type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": { "type": "string" } },
                "many": { "type": "object", "additionalProperties": { "type": "object", "properties": { "x": { "type": "string" } } } },
            } } } }),
            "s",
        )
        .expect("a good schema");
        let value = json!({ "metadata": { "finalizers": ["f"] }, "spec": { "set": ["a"], "list": ["a"], "one": { "a": "b" }, "many": { "k": { "x": "y" } } } });
        let expected = json!({
            "f:metadata": { "f:finalizers": { "v:\"f\"": {} } },
            "f:spec": { "f:set": { "v:\"a\"": {} }, "f:list": {}, "f:one": {}, "f:many": { "f:k": { ".": {}, "f:x": {} } } },
        });
        assert_eq!(fields_of(Place::Root(&schema), &value).encode(), expected);
    }

    #[test]
    fn differences_are_told_field_by_field() {
        let old = json!({ "data": { "a": "1", "b": "2" }, "spec": { "containers": [{ "name": "x", "image": "1" }, { "name": "y" }] } });
        let new = json!({ "data": { "a": "1", "b": "3", "c": "4" }, "spec": { "containers": [{ "name": "x", "image": "2" }] } });
        let difference = Difference::between(Place::BUILT_IN, &old, &new);
        assert_eq!(difference.changed.paths(), [".data.b", ".data.c", ".spec.containers[name=\"x\"].image"]);
        assert_eq!(
            difference.removed.paths(),
            [".spec.containers[name=\"y\"]", ".spec.containers[name=\"y\"].name"]
        );
        assert_eq!(Difference::between(Place::BUILT_IN, &new, &new), Difference::default());
    }

    #[test]
    fn merging_follows_the_keys_and_the_order_of_the_config() {
        let live = json!({ "spec": { "containers": [{ "name": "a", "image": "1" }, { "name": "s" }, { "name": "b" }], "args": [1] } });
        let config = json!({ "spec": { "containers": [{ "name": "b", "image": "2" }, { "name": "a" }], "args": [2] } });
        let merged = merge(Place::BUILT_IN, live, config).expect("a good config");
        let expected = json!({ "spec": { "containers": [{ "name": "b", "image": "2" }, { "name": "a", "image": "1" }, { "name": "s" }], "args": [2] } });
        assert_eq!(merged, expected);
        let twice = json!({ "spec": { "containers": [{ "name": "b" }, { "name": "b" }] } });
        assert_eq!(merge(Place::BUILT_IN, json!({}), twice).expect_err("twice").code(), 422);
        let nameless = json!({ "spec": { "containers": [{ "image": "b" }] } });
        assert_eq!(merge(Place::BUILT_IN, json!({}), nameless).expect_err("nameless").code(), 422);
    }

    #[test]
    fn pruning_takes_out_what_nobody_keeps() {
        let mut value = json!({ "data": { "a": "1", "b": "2", "c": "3" }, "spec": { "x": { "y": 1 } } });
        let last = pod(json!({ "data": { "a": "1", "b": "2" }, "spec": { "x": { "y": 1 } } }));
        let kept = pod(json!({ "data": { "b": "2" } }));
        prune(Place::BUILT_IN, &mut value, &last, &kept);
        assert_eq!(value, json!({ "data": { "b": "2", "c": "3" } }));
    }
}
