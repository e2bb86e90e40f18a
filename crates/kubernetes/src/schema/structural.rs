//! Whether a schema is structural: every field has its type outside of the junctors, and the junctors only
//! restrict. That is what makes pruning and defaulting mean one thing.

use super::{Additional, Limits, ListType, Schema, Type};
use crate::object::check::CAUSES_MAX;
use crate::status::Cause;
use serde_json::json;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Items,
    Field,
}

impl Schema {
    pub(super) fn structural_causes(&self, field: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        node(self, Level::Root, field, &mut causes);
        causes.truncate(CAUSES_MAX);
        causes
    }
}

fn node(schema: &Schema, level: Level, field: &str, causes: &mut Vec<Cause>) {
    if CAUSES_MAX <= causes.len() {
        return;
    }
    value_type(schema, level, field, causes);
    extensions(schema, field, causes);
    lists(schema, field, causes);
    if !matches!(schema.additional, Additional::None) {
        let place = || format!("{field}.additionalProperties");
        if level == Level::Root {
            causes.push(Cause::forbidden(place(), "the root has named properties only"));
        } else if !schema.properties.is_empty() {
            causes.push(Cause::forbidden(place(), "properties and additionalProperties exclude each other"));
        }
    }
    if level == Level::Root {
        root(schema, field, causes);
    }
    if let Some(items) = &schema.items {
        node(items, Level::Items, &format!("{field}.items"), causes);
    }
    for (name, property) in &schema.properties {
        // At the root it is what every object has, and has been looked at.
        if level != Level::Root || name != "metadata" {
            node(property, Level::Field, &format!("{field}.properties[{name}]"), causes);
        }
    }
    if let Additional::Like(like) = &schema.additional {
        node(like, Level::Field, &format!("{field}.additionalProperties"), causes);
    }
    junctors(&schema.limits, schema, schema.int_or_string, field, causes);
    default(schema, field, causes);
}

fn value_type(schema: &Schema, level: Level, field: &str, causes: &mut Vec<Cause>) {
    let place = format!("{field}.type");
    match schema.value_type {
        Some(Type::Object) => {}
        Some(value_type) if schema.embedded_resource => {
            let why = "an embedded resource is an object";
            causes.push(Cause::invalid(place, &json!(value_type.name()), why));
        }
        Some(value_type) if level == Level::Root => {
            causes.push(Cause::invalid(
                place,
                &json!(value_type.name()),
                "the root of a schema is an object",
            ));
        }
        Some(value_type) if schema.int_or_string => {
            let why = "an int-or-string has no type of its own";
            causes.push(Cause::invalid(place, &json!(value_type.name()), why));
        }
        Some(Type::Array) if schema.items.is_none() => {
            causes.push(Cause::required(format!("{field}.items"), "an array says what its items are"));
        }
        Some(_) => {}
        None if schema.embedded_resource => {
            causes.push(Cause::required(place, "an embedded resource is an object"));
        }
        None if schema.int_or_string || schema.preserve_unknown_fields => {}
        None => {
            let whose = match level {
                Level::Root => "the root",
                Level::Items => "what a list holds",
                Level::Field => "a field",
            };
            causes.push(Cause::required(place, &format!("{whose} has a type")));
        }
    }
}

fn extensions(schema: &Schema, field: &str, causes: &mut Vec<Cause>) {
    if schema.int_or_string && schema.preserve_unknown_fields {
        let place = format!("{field}.x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(place, &json!(true), "an int-or-string is a plain value"));
    }
    if schema.int_or_string && schema.embedded_resource {
        let place = format!("{field}.x-kubernetes-embedded-resource");
        causes.push(Cause::invalid(place, &json!(true), "an int-or-string is a plain value"));
    }
    if schema.embedded_resource && !schema.preserve_unknown_fields && schema.properties.is_empty() {
        let why = "an embedded resource has properties, or keeps unknown fields";
        causes.push(Cause::required(format!("{field}.properties"), why));
    }
}

fn lists(schema: &Schema, field: &str, causes: &mut Vec<Cause>) {
    if schema.list_type.is_some() && schema.value_type != Some(Type::Array) {
        let why = "only an array has a list type";
        causes.push(Cause::invalid(format!("{field}.type"), &json!(schema.value_type.map(Type::name)), why));
        return;
    }
    let keys = format!("{field}.x-kubernetes-list-map-keys");
    match (schema.list_type, schema.list_map_keys.as_slice()) {
        (Some(ListType::Map), []) => {
            causes.push(Cause::required(keys, "a list of type map has keys"));
        }
        (Some(ListType::Map), names) => {
            let items = schema.items.as_deref();
            for name in names {
                let property = items.and_then(|items| items.properties.get(name));
                let is_plain = property.is_some_and(|property| {
                    !matches!(property.value_type, None | Some(Type::Object | Type::Array))
                        || property.int_or_string
                });
                if !is_plain {
                    let why = "a key is the name of an item's property that is a plain value";
                    causes.push(Cause::invalid(keys.clone(), &json!(name), why));
                }
                let is_sure = property.is_some_and(|property| property.default.is_some())
                    || items.is_some_and(|items| items.limits.required.contains(name));
                if is_plain && !is_sure {
                    let place = format!("{field}.items.properties[{name}].default");
                    let why = "a key of a list is required, or has a default";
                    causes.push(Cause::required(place, why));
                }
            }
        }
        (_, []) => {}
        (_, _) => causes.push(Cause::forbidden(keys, "only a list of type map has keys")),
    }
    if schema.list_type == Some(ListType::Set)
        && let Some(items) = &schema.items
    {
        let is_granular = match items.value_type {
            Some(Type::Object) => !items.atomic_map,
            Some(Type::Array) => !matches!(items.list_type, None | Some(ListType::Atomic)),
            _ => false,
        };
        if is_granular || items.nullable {
            let why = "items of a set must be plain values or atomic, and not nullable";
            causes.push(Cause::forbidden(format!("{field}.items"), why));
        }
    }
}

fn root(schema: &Schema, field: &str, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        let found = schema.properties.get(name).map(|property| property.value_type);
        if found.is_some_and(|found| found != Some(Type::String)) {
            let place = format!("{field}.properties[{name}].type");
            causes.push(Cause::invalid(place, &json!(found.flatten().map(Type::name)), "must be string"));
        }
    }
    let Some(metadata) = schema.properties.get("metadata") else { return };
    let only_names = metadata.properties.keys().all(|name| name == "name" || name == "generateName");
    let is_bare = metadata.items.is_none()
        && metadata.default.is_none()
        && !metadata.nullable
        && !metadata.preserve_unknown_fields
        && matches!(metadata.additional, Additional::None);
    if metadata.value_type != Some(Type::Object) {
        let found = json!(metadata.value_type.map(Type::name));
        causes.push(Cause::invalid(format!("{field}.properties[metadata].type"), &found, "must be object"));
    }
    if !only_names || !is_bare {
        let why = "of the metadata only name and generateName can be restricted";
        causes.push(Cause::forbidden(format!("{field}.properties[metadata]"), why));
    }
}

/// `whole`: the node outside of all junctors that the junctors restrict.
fn junctors(limits: &Limits, whole: &Schema, int_or_string: bool, field: &str, causes: &mut Vec<Cause>) {
    for (word, list) in [("allOf", &limits.all_of), ("anyOf", &limits.any_of), ("oneOf", &limits.one_of)] {
        for (index, nested) in list.iter().enumerate() {
            let place = format!("{field}.{word}[{index}]");
            // The one way to spell the types of an int-or-string out: anyOf, or the first of allOf.
            let may_type = int_or_string && word == "anyOf" && is_int_or_string(list);
            let passes_on = int_or_string && word == "allOf" && index == 0;
            restriction(nested, whole, may_type, passes_on, &place, causes);
        }
    }
    if let Some(not) = &limits.not {
        restriction(not, whole, false, false, &format!("{field}.not"), causes);
    }
}

fn is_int_or_string(list: &[Schema]) -> bool {
    matches!(list, [a, b] if a.value_type == Some(Type::Integer) && b.value_type == Some(Type::String))
}

fn restriction(
    nested: &Schema,
    whole: &Schema,
    may_type: bool,
    int_or_string: bool,
    field: &str,
    causes: &mut Vec<Cause>,
) {
    if CAUSES_MAX <= causes.len() {
        return;
    }
    for (word, is_there) in [
        ("type", nested.value_type.is_some() && !may_type),
        ("default", nested.default.is_some()),
        ("nullable", nested.nullable),
        ("additionalProperties", !matches!(nested.additional, Additional::None)),
        ("x-kubernetes-preserve-unknown-fields", nested.preserve_unknown_fields),
        ("x-kubernetes-embedded-resource", nested.embedded_resource),
        ("x-kubernetes-int-or-string", nested.int_or_string),
        ("x-kubernetes-list-type", nested.list_type.is_some()),
        ("x-kubernetes-list-map-keys", !nested.list_map_keys.is_empty()),
        ("x-kubernetes-map-type", nested.atomic_map),
        ("x-kubernetes-validations", !nested.rules.is_empty()),
    ] {
        if is_there {
            causes.push(Cause::forbidden(format!("{field}.{word}"), "has no place inside of a junctor"));
        }
    }
    if nested.properties.contains_key("metadata") {
        let place = format!("{field}.properties[metadata]");
        causes.push(Cause::forbidden(place, "metadata cannot be restricted here"));
    }
    for (name, property) in &nested.properties {
        let place = format!("{field}.properties[{name}]");
        match whole.properties.get(name) {
            Some(outer) => restriction(property, outer, false, false, &place, causes),
            None if name == "metadata" => {}
            None => causes.push(Cause::required(place, "must be specified outside of the junctors as well")),
        }
    }
    if let Some(items) = &nested.items {
        let place = format!("{field}.items");
        match &whole.items {
            Some(outer) => restriction(items, outer, false, false, &place, causes),
            None => causes.push(Cause::required(place, "must be specified outside of the junctors as well")),
        }
    }
    junctors(&nested.limits, whole, int_or_string, field, causes);
}

/// A default that its own schema would refuse can never be filled in.
fn default(schema: &Schema, field: &str, causes: &mut Vec<Cause>) {
    let Some(value) = &schema.default else { return };
    let place = format!("{field}.default");
    let mut pruned = value.clone();
    if !schema.prune_value(&mut pruned, &place).is_empty() {
        causes.push(Cause::invalid(place, value, "has fields that its own schema does not know"));
        return;
    }
    schema.fill_value(&mut pruned);
    causes.extend(schema.value_causes(&pruned, &place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn fields(schema: Value) -> Vec<String> {
        match Schema::parse(&schema, "s") {
            Ok(_) => Vec::new(),
            Err(causes) => causes.into_iter().map(|cause| cause.field).collect(),
        }
    }

    fn in_spec(spec: Value) -> Vec<String> {
        let paths = fields(json!({ "type": "object", "properties": { "spec": spec } }));
        paths.into_iter().map(|path| path.replace("s.properties[spec]", "~")).collect()
    }

    #[test]
    fn good_schemas_are_structural() {
        for spec in [
            json!({ "type": "string", "pattern": "^a$" }),
            json!({ "x-kubernetes-preserve-unknown-fields": true }),
            json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
            json!({
                "x-kubernetes-int-or-string": true,
                "allOf": [{ "anyOf": [{ "type": "integer" }, { "type": "string" }] }, { "pattern": "a" }],
            }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } }, "oneOf": [{ "required": ["a"] }, { "properties": { "a": { "maxLength": 3 } } }] }),
            json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "string" } } } }),
            json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } }),
            json!({ "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true }),
            json!({ "type": "integer", "default": 3, "minimum": 1 }),
        ] {
            assert_eq!(in_spec(spec.clone()), Vec::<String>::new(), "{spec}");
        }
    }

    #[test]
    fn each_fault_is_told_by_its_place() {
        for (spec, place) in [
            (json!({}), "~.type"),
            (json!({ "type": "thing" }), "~.type"),
            (json!({ "type": 1 }), "~.type"),
            (json!({ "type": "array" }), "~.items"),
            (json!({ "type": "array", "items": {} }), "~.items.type"),
            (json!({ "type": "string", "pattern": "(" }), "~.pattern"),
            (json!({ "type": "string", "minLength": -1 }), "~.minLength"),
            (json!({ "type": "string", "$ref": "#/x" }), "~.$ref"),
            (json!({ "type": "integer", "multipleOf": 0 }), "~.multipleOf"),
            (json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true }), "~.uniqueItems"),
            (
                json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": false }),
                "~.x-kubernetes-preserve-unknown-fields",
            ),
            (
                json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": true }),
                "~.additionalProperties",
            ),
            (json!({ "type": "object", "additionalProperties": false }), "~.additionalProperties"),
            (json!({ "type": "string", "anyOf": [{ "type": "string" }] }), "~.anyOf[0].type"),
            (json!({ "type": "string", "not": { "default": "a" } }), "~.not.default"),
            (
                json!({ "type": "object", "allOf": [{ "properties": { "a": { "maxLength": 1 } } }] }),
                "~.allOf[0].properties[a]",
            ),
            (json!({ "type": "string", "x-kubernetes-list-type": "set" }), "~.type"),
            (
                json!({ "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "heap" }),
                "~.x-kubernetes-list-type",
            ),
            (
                json!({ "type": "array", "items": { "type": "object" }, "x-kubernetes-list-type": "set" }),
                "~.items",
            ),
            (
                json!({ "type": "array", "items": { "type": "object" }, "x-kubernetes-list-type": "map" }),
                "~.x-kubernetes-list-map-keys",
            ),
            (
                json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": { "type": "object", "properties": { "k": { "type": "string" } } } }),
                "~.items.properties[k].default",
            ),
            (
                json!({ "type": "string", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true }),
                "~.type",
            ),
            (json!({ "type": "integer", "default": "three" }), "~.default"),
            (json!({ "type": "object", "default": { "unknown": 1 } }), "~.default"),
            (json!({ "type": "integer", "minimum": 3, "default": 1 }), "~.default"),
        ] {
            assert_eq!(in_spec(spec.clone()), [place], "{spec}");
        }
    }

    #[test]
    fn the_root_is_an_object_with_the_metadata_of_every_object() {
        assert_eq!(fields(json!({ "type": "string" })), ["s.type"]);
        assert_eq!(fields(json!({})), ["s.type"]);
        assert_eq!(fields(json!(1)), ["s"]);
        assert_eq!(
            fields(json!({ "type": "object", "additionalProperties": true })),
            ["s.additionalProperties"]
        );
        let with =
            |metadata: Value| fields(json!({ "type": "object", "properties": { "metadata": metadata } }));
        assert_eq!(with(json!({ "type": "object" })), Vec::<String>::new());
        assert_eq!(
            with(json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 3 } } })),
            Vec::<String>::new()
        );
        let labels = json!({ "type": "object", "properties": { "labels": { "type": "object" } } });
        assert_eq!(with(labels), ["s.properties[metadata]"]);
    }

    #[test]
    fn a_hostile_schema_makes_a_small_answer() {
        let properties: serde_json::Map<String, Value> =
            (0..5_000).map(|n| (format!("p{n}"), json!({}))).collect();
        let causes =
            Schema::parse(&json!({ "type": "object", "properties": properties }), "s").expect_err("bad");
        assert_eq!(causes.len(), CAUSES_MAX);
        let deep = (0..200).fold(json!({ "type": "string" }), |inner, _| json!({ "not": inner }));
        assert_eq!(Schema::parse(&deep, "s").expect_err("deep").len(), 1);
    }
}
