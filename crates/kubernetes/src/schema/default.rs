//! Puts into an object what its schema says of fields that are absent.
//!
//! A null where none is allowed counts as absent. A default goes only where its parent is: a field whose
//! parent is missing stays missing, unless the parent has a default of its own.

use super::{Additional, Schema};
use crate::object::Object;
use serde_json::{Map, Value};

impl Schema {
    pub fn fill_defaults(&self, object: &mut Object) {
        self.fill_map(object.as_map_mut());
    }

    pub(super) fn fill_value(&self, value: &mut Value) {
        match value {
            Value::Object(map) => self.fill_map(map),
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for item in list {
                    if item.is_null()
                        && !items.nullable
                        && let Some(default) = &items.default
                    {
                        item.clone_from(default);
                    }
                    items.fill_value(item);
                }
            }
            _ => {}
        }
    }

    pub(super) fn fill_map(&self, map: &mut Map<String, Value>) {
        for (field, property) in &self.properties {
            if !property.nullable && map.get(field).is_some_and(Value::is_null) {
                map.remove(field);
            }
            if let Some(default) = &property.default
                && !map.contains_key(field)
            {
                map.insert(field.clone(), default.clone());
            }
            if let Some(value) = map.get_mut(field) {
                property.fill_value(value);
            }
        }
        if let Additional::Like(like) = &self.additional {
            map.retain(|field, value| {
                if self.properties.contains_key(field) {
                    return true;
                }
                if value.is_null() && !like.nullable {
                    match &like.default {
                        Some(default) => value.clone_from(default),
                        None => return false,
                    }
                }
                like.fill_value(value);
                true
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, value: Value, filled: Value) {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let schema = Schema::parse(&schema, "s").expect("a good schema");
        let (mut object, _) = Object::decode(json!({ "spec": value })).expect("a good object");
        schema.fill_defaults(&mut object);
        assert_eq!(object.get("spec"), Some(&filled), "{value}");
        let once = object.clone();
        schema.fill_defaults(&mut object);
        assert_eq!(object, once, "once is enough");
    }

    #[test]
    fn absent_fields_are_filled_and_present_ones_are_not() {
        let spec = json!({ "type": "object", "properties": {
            "size": { "type": "integer", "default": 3 },
            "inner": { "type": "object", "properties": { "mode": { "type": "string", "default": "slow" } } },
            "whole": { "type": "object", "default": {}, "properties": { "mode": { "type": "string", "default": "fast" } } },
        } });
        check(spec.clone(), json!({}), json!({ "size": 3, "whole": { "mode": "fast" } }));
        check(
            spec,
            json!({ "size": 0, "inner": {}, "whole": { "mode": "" } }),
            json!({ "size": 0, "inner": { "mode": "slow" }, "whole": { "mode": "" } }),
        );
    }

    #[test]
    fn a_null_that_is_not_allowed_counts_as_absent() {
        let spec = json!({ "type": "object", "properties": {
            "filled": { "type": "integer", "default": 3 },
            "dropped": { "type": "integer" },
            "allowed": { "type": "integer", "nullable": true, "default": 4 },
        } });
        check(
            spec,
            json!({ "filled": null, "dropped": null, "allowed": null }),
            json!({ "filled": 3, "allowed": null }),
        );
    }

    #[test]
    fn elements_and_values_of_maps_are_filled_too() {
        let item = json!({ "type": "object", "properties": { "p": { "type": "string", "default": "TCP" } } });
        check(
            json!({ "type": "array", "items": item }),
            json!([{}, { "p": "UDP" }]),
            json!([{ "p": "TCP" }, { "p": "UDP" }]),
        );
        check(
            json!({ "type": "object", "additionalProperties": item }),
            json!({ "a": {}, "b": null }),
            json!({ "a": { "p": "TCP" } }),
        );
    }
}
