//! Takes out of an object what its schema does not know.

use super::{Additional, Schema, child, element};
use crate::object::Object;
use serde_json::{Map, Value};

/// Unknown fields that are told of; more are taken out silently.
const TOLD_MAX: usize = 100;

impl Schema {
    /// The paths of what was taken out, in order. What every object has, its metadata and the names of its
    /// type, stays.
    pub fn prune(&self, object: &mut Object) -> Vec<String> {
        let mut pruning = Pruning { unknown: Vec::new() };
        pruning.map(object.as_map_mut(), Some(self), true, "");
        pruning.unknown.sort();
        pruning.unknown
    }

    /// The same for a part of an object, at `path`.
    pub(super) fn prune_value(&self, value: &mut Value, path: &str) -> Vec<String> {
        let mut pruning = Pruning { unknown: Vec::new() };
        pruning.value(value, Some(self), path);
        pruning.unknown
    }
}

struct Pruning {
    unknown: Vec<String>,
}

impl Pruning {
    /// `schema`: `None` where nothing is known, and nothing may be.
    fn value(&mut self, value: &mut Value, schema: Option<&Schema>, path: &str) {
        match value {
            Value::Object(map) => {
                self.map(map, schema, schema.is_some_and(|schema| schema.embedded_resource), path)
            }
            Value::Array(list) => {
                for (index, item) in list.iter_mut().enumerate() {
                    let path = element(path, index);
                    match schema {
                        // What is kept is kept all the way down, except where the schema knows better.
                        Some(Schema { preserve_unknown_fields: true, items: None, .. }) => {}
                        Some(schema) => self.value(item, schema.items.as_deref(), &path),
                        None => self.value(item, None, &path),
                    }
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>, schema: Option<&Schema>, is_resource: bool, path: &str) {
        map.retain(|field, value| {
            if is_resource && matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
                return true;
            }
            let place = child(path, field);
            let Some(schema) = schema else { return self.tell(place) };
            match (schema.properties.get(field), &schema.additional) {
                (Some(property), _) => self.value(value, Some(property), &place),
                (None, Additional::Like(like)) => self.value(value, Some(like), &place),
                (None, _) if schema.preserve_unknown_fields => {}
                (None, Additional::Any) => self.value(value, None, &place),
                (None, Additional::None) => return self.tell(place),
            }
            true
        });
    }

    /// Always `false`: the field goes.
    fn tell(&mut self, place: String) -> bool {
        if self.unknown.len() < TOLD_MAX {
            self.unknown.push(place);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, value: Value, kept: Value, unknown: &[&str]) {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let schema = Schema::parse(&schema, "s").expect("a good schema");
        let (mut object, _) = Object::decode(json!({ "spec": value })).expect("a good object");
        let told = schema.prune(&mut object);
        assert_eq!(object.get("spec"), Some(&kept), "{value}");
        assert_eq!(told, unknown, "{value}");
        assert!(schema.prune(&mut object).is_empty(), "once is enough");
    }

    #[test]
    fn unknown_fields_go_and_are_told_by_their_path() {
        let spec = json!({ "type": "object", "properties": {
            "a": { "type": "string" },
            "list": { "type": "array", "items": { "type": "object", "properties": { "b": { "type": "string" } } } },
        } });
        check(
            spec,
            json!({ "a": "1", "x": 1, "list": [{ "b": "2" }, { "c": { "d": 1 } }] }),
            json!({ "a": "1", "list": [{ "b": "2" }, {}] }),
            &["spec.list[1].c", "spec.x"],
        );
    }

    #[test]
    fn maps_keep_their_keys_and_lose_what_their_values_may_not_have() {
        let like = json!({ "type": "object", "additionalProperties": { "type": "object", "properties": { "a": { "type": "string" } } } });
        check(like, json!({ "k": { "a": "1", "b": "2" } }), json!({ "k": { "a": "1" } }), &["spec.k.b"]);
        let any = json!({ "type": "object", "additionalProperties": true });
        check(any, json!({ "k": 1, "m": { "a": 1 } }), json!({ "k": 1, "m": {} }), &["spec.m.a"]);
    }

    #[test]
    fn preserved_fields_stay_but_known_ones_among_them_are_pruned() {
        let spec = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": { "type": "object" },
        } });
        check(
            spec,
            json!({ "x": { "y": [{ "z": 1 }] }, "known": { "gone": 1 } }),
            json!({ "x": { "y": [{ "z": 1 }] }, "known": {} }),
            &["spec.known.gone"],
        );
        let anything = json!({ "x-kubernetes-preserve-unknown-fields": true });
        check(anything, json!([{ "a": 1 }]), json!([{ "a": 1 }]), &[]);
    }

    #[test]
    fn an_embedded_object_keeps_what_every_object_has() {
        let spec = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "spec": { "type": "object" },
        } });
        check(
            spec,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": {}, "x": 1 }),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": {} }),
            &["spec.x"],
        );
    }

    #[test]
    fn at_the_root_metadata_stays_and_the_rest_is_known_or_goes() {
        let schema = Schema::parse(&json!({ "type": "object" }), "s").expect("a good schema");
        let value =
            json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "a" }, "spec": { "a": 1 } });
        let (mut object, _) = Object::decode(value).expect("good");
        assert_eq!(schema.prune(&mut object), ["spec"]);
        assert_eq!(object.name(), "a");
    }

    #[test]
    fn a_hostile_object_is_told_of_in_few_words() {
        let schema = Schema::parse(&json!({ "type": "object" }), "s").expect("a good schema");
        let fields: Map<String, Value> = (0..10_000).map(|n| (format!("f{n}"), json!(1))).collect();
        let (mut object, _) = Object::decode(Value::Object(fields)).expect("good");
        assert_eq!(schema.prune(&mut object).len(), TOLD_MAX);
        assert_eq!(object.as_map().len(), 1);
    }
}
