//! The schemas of kinds: from the tables, from definitions, or free.

use super::Dialect;
use crate::protobuf::schemas::{self, Field, Merge, Message, Type};
use crate::registry::Kind;
use serde_json::{Map, Value, json};

/// Definitions by name.
pub type Definitions = Map<String, Value>;

/// Deeper parts of a custom schema are free in version 2. Objects of that depth are refused anyway.
const DEPTH_MAX: u32 = 64;

/// The message whose table tells of this kind.
pub fn table(kind: &Kind) -> Option<&'static Message> {
    if kind.custom().is_some() { None } else { schemas::message(&kind.api_version(), &kind.kind) }
}

/// `io.k8s.api.core.v1.Pod`, `com.example.stable.v1.CronTab`
pub fn name(kind: &Kind) -> String {
    if let Some(message) = table(kind) {
        return message.name.to_owned();
    }
    if kind.custom().is_some() {
        let reversed: Vec<&str> = kind.group.split('.').rev().collect();
        return format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind);
    }
    let group = kind.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("io.k8s.api.{group}.{}.{}", kind.version, kind.kind)
}

pub fn reference(name: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::V2 => format!("#/definitions/{name}"),
        Dialect::V3 => format!("#/components/schemas/{name}"),
    }
}

/// As operations name it. Definitions have a list of these.
pub fn group_version_kind(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

/// The kind's own definition, and all that it refers to.
pub fn define(kind: &Kind, dialect: Dialect, definitions: &mut Definitions) {
    define_message(&schemas::OBJECT_META, dialect, definitions);
    let mut own = match (table(kind), kind.custom()) {
        (Some(message), _) => {
            define_message(message, dialect, definitions);
            message_schema(message, dialect)
        }
        (None, Some((_, schema))) => custom(schema, dialect),
        (None, None) => opaque(kind),
    };
    let free = own.get("properties").is_none();
    if !(dialect == Dialect::V2 && free) {
        add_type_and_metadata(&mut own, dialect);
    }
    let opaque = table(kind).is_none() && kind.custom().is_none();
    if !(dialect == Dialect::V2 && opaque) {
        own["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
    }
    definitions.insert(name(kind), own);
}

fn add_type_and_metadata(own: &mut Value, dialect: Dialect) {
    let Some(own) = own.as_object_mut() else { return };
    let properties = own.entry("properties").or_insert(Value::Null);
    if !properties.is_object() {
        *properties = json!({});
    }
    let text = |about: &str| json!({ "type": "string", "description": about });
    properties["apiVersion"] = text("The group and version in which the object is written.");
    properties["kind"] = text("The name of the object's kind.");
    properties["metadata"] = refer(&schemas::OBJECT_META, dialect);
}

fn opaque(kind: &Kind) -> Value {
    let free = |about: &str| json!({ "type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": true });
    let mut properties = json!({});
    if kind.has_spec {
        properties["spec"] = free("What is wanted.");
    }
    if kind.subresources.status {
        properties["status"] = free("What there is.");
    }
    json!({ "type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true })
}

fn define_message(message: &'static Message, dialect: Dialect, definitions: &mut Definitions) {
    if definitions.contains_key(message.name) {
        return;
    }
    definitions.insert(message.name.to_owned(), message_schema(message, dialect));
    for field in message.fields {
        if let Type::Message(inner) = field.of {
            define_message(inner, dialect, definitions);
        }
    }
}

fn message_schema(message: &Message, dialect: Dialect) -> Value {
    let properties: Map<String, Value> =
        message.fields.iter().map(|field| (field.name.to_owned(), field_schema(field, dialect))).collect();
    json!({ "type": "object", "description": message.about, "properties": properties })
}

fn refer(message: &Message, dialect: Dialect) -> Value {
    let to = json!({ "$ref": reference(message.name, dialect) });
    match dialect {
        // Beside a reference nothing else may stand, and here stands what it is about.
        Dialect::V3 => json!({ "allOf": [to], "description": message.about }),
        Dialect::V2 => json!({ "$ref": to["$ref"], "description": message.about }),
    }
}

fn field_schema(field: &Field, dialect: Dialect) -> Value {
    let one = match field.of {
        Type::Text => json!({ "type": "string" }),
        Type::Int32 => json!({ "type": "integer", "format": "int32" }),
        Type::Int64 => json!({ "type": "integer", "format": "int64" }),
        Type::Bool => json!({ "type": "boolean" }),
        Type::Time | Type::MicroTime => json!({ "type": "string", "format": "date-time" }),
        Type::Quantity => json!({ "type": "string" }),
        Type::IntOrString => json!({ "x-kubernetes-int-or-string": true }),
        Type::TextMap | Type::QuantityMap | Type::TimeMap => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Type::BytesMap => {
            json!({ "type": "object", "additionalProperties": { "type": "string", "format": "byte" } })
        }
        Type::Json => json!({ "type": "object" }),
        Type::Message(message) if field.repeated => json!({ "$ref": reference(message.name, dialect) }),
        Type::Message(message) | Type::Inline(message) => refer(message, dialect),
    };
    if !field.repeated {
        return one;
    }
    let mut list = json!({ "type": "array", "items": one });
    match field.merge {
        Merge::Replace => {}
        Merge::AsSet => list["x-kubernetes-patch-strategy"] = json!("merge"),
        Merge::ByKey(key) => {
            list["x-kubernetes-patch-strategy"] = json!("merge");
            list["x-kubernetes-patch-merge-key"] = json!(key);
        }
    }
    list
}

fn custom(schema: Option<&Value>, dialect: Dialect) -> Value {
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let own = match (schema, dialect) {
        (None, _) => return free,
        (Some(schema), Dialect::V3) => schema.clone(),
        (Some(schema), Dialect::V2) => to_v2(schema, DEPTH_MAX),
    };
    if own.get("type").is_some_and(|of| of == "object") { own } else { free }
}

/// What version 2 can say of a custom schema, read as old clients read it: where it cannot be said, anything
/// goes, since a client that refuses what the server would take is worse than one that checks less.
fn to_v2(schema: &Value, depth: u32) -> Value {
    let mut shown = Map::new();
    let Some(given) = schema.as_object().filter(|_| depth > 0) else { return Value::Object(shown) };
    let plain =
        ["description", "title", "format", "default", "maximum", "minimum", "pattern", "required", "enum"];
    for field in plain {
        shown.extend(given.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    let extensions = given.iter().filter(|(field, _)| field.starts_with("x-kubernetes-"));
    shown.extend(extensions.map(|(field, value)| (field.clone(), value.clone())));
    shown.remove("x-kubernetes-validations");
    if is_free(given) {
        shown.remove("required");
        return Value::Object(shown);
    }
    let of_type = given.get("type").and_then(Value::as_str).unwrap_or_default();
    shown.insert("type".to_owned(), json!(of_type));
    match of_type {
        "object" => shown.extend(contents_to_v2(given, depth)),
        "array" => {
            shown.extend(given.get("items").map(|items| ("items".to_owned(), to_v2(items, depth - 1))))
        }
        _ => {}
    }
    Value::Object(shown)
}

/// What an object may hold: anything of one schema, or fields by name.
fn contents_to_v2(given: &Map<String, Value>, depth: u32) -> Option<(String, Value)> {
    if let Some(additional) = given.get("additionalProperties").filter(|additional| additional.is_object()) {
        return Some(("additionalProperties".to_owned(), to_v2(additional, depth - 1)));
    }
    let properties = given.get("properties")?.as_object().filter(|properties| !properties.is_empty())?;
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| (name.clone(), to_v2(schema, depth - 1))).collect();
    Some(("properties".to_owned(), Value::Object(properties)))
}

fn is_free(schema: &Map<String, Value>) -> bool {
    let set = |field: &str| schema.get(field) == Some(&Value::Bool(true));
    let of_type = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let known = ["object", "array", "string", "integer", "number", "boolean"].contains(&of_type);
    set("nullable")
        || set("x-kubernetes-preserve-unknown-fields")
        || set("x-kubernetes-int-or-string")
        || set("x-kubernetes-embedded-resource")
        || !known
        || (of_type == "array" && !schema.get("items").is_some_and(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    /// The rules by which kubectl makes models of definitions. One that breaks them costs it all others.
    fn check_model(schema: &Value, definitions: &Definitions) {
        let fields = schema.as_object().expect("a schema is an object");
        if let Some(to) = fields.get("$ref") {
            let name = to.as_str().and_then(|to| to.strip_prefix("#/definitions/")).expect("a definition");
            assert!(definitions.contains_key(name), "{name}");
            assert!(!fields.contains_key("type") && !fields.contains_key("properties"), "{schema}");
            return;
        }
        let of_type = fields.get("type").map(|of| of.as_str().expect("one type"));
        assert!(of_type != Some("array") || fields.contains_key("items"), "{schema}");
        let known = ["object", "array", "string", "integer", "number", "boolean"];
        assert!(of_type.is_none_or(|of| known.contains(&of)), "{schema}");
        let properties = fields.get("properties").map(|all| all.as_object().expect("properties by name"));
        assert!(properties.is_none() || of_type == Some("object"), "{schema}");
        let inner = properties.into_iter().flat_map(Map::values);
        for each in inner.chain(fields.get("items")).chain(fields.get("additionalProperties")) {
            check_model(each, definitions);
        }
    }

    /// Anything that may stand in a definition's schema, and things that may not.
    fn random_schema(random: &mut StdRng, depth: u32) -> Value {
        let mut schema = json!({});
        let types = ["object", "array", "string", "integer", "number", "boolean", "strange"];
        if random.random_bool(0.9) {
            schema["type"] = json!(types[random.random_range(0..types.len())]);
        }
        for flag in ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"] {
            if random.random_bool(0.1) {
                schema[flag] = json!(random.random_bool(0.7));
            }
        }
        for field in ["items", "additionalProperties", "properties", "oneOf", "required", "default"] {
            if random.random_bool(0.4) {
                schema[field] = match random.random_range(0..4) {
                    0 if depth > 0 => random_schema(random, depth - 1),
                    1 if depth > 0 => {
                        json!({ "a": random_schema(random, depth - 1), "b": { "type": "string" } })
                    }
                    2 => json!(true),
                    _ => json!([1, "x", null]),
                };
            }
        }
        schema
    }

    #[test]
    fn no_definition_makes_a_document_that_kubectl_cannot_read() {
        let mut random = StdRng::seed_from_u64(5);
        let mut object = crd::tests::established(crd::tests::example());
        for _ in 0..600 {
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = random_schema(&mut random, 4);
            let kinds = crd::Definition::parse(&object).expect("good").kinds();
            let (mut definitions, mut schemas) = (Definitions::new(), Definitions::new());
            define(&kinds[0], Dialect::V2, &mut definitions);
            define(&kinds[0], Dialect::V3, &mut schemas);
            definitions.values().for_each(|schema| check_model(schema, &definitions));
            let metadata = &schemas["com.example.stable.v1.CronTab"]["properties"]["metadata"];
            assert!(metadata["allOf"].is_array());
        }
    }

    #[test]
    fn kubectl_can_read_the_built_in_definitions() {
        let mut definitions = Definitions::new();
        for kind in crate::registry::Registry::built_in().kinds() {
            define(kind, Dialect::V2, &mut definitions);
        }
        definitions.values().for_each(|schema| check_model(schema, &definitions));
    }

    #[test]
    fn what_version_2_says_of_a_custom_schema() {
        for (schema, expected) in [
            (
                json!({ "type": "string", "pattern": "a", "nullable": false }),
                json!({ "type": "string", "pattern": "a" }),
            ),
            (json!({ "type": "string", "nullable": true }), json!({})),
            (json!({ "type": "array" }), json!({})),
            (
                json!({ "type": "array", "items": { "type": "integer" } }),
                json!({ "type": "array", "items": { "type": "integer" } }),
            ),
            (
                json!({ "x-kubernetes-int-or-string": true, "anyOf": [] }),
                json!({ "x-kubernetes-int-or-string": true }),
            ),
            (
                json!({ "type": "object", "required": ["a"], "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": {} } }),
                json!({ "x-kubernetes-preserve-unknown-fields": true }),
            ),
            (json!({ "type": "object", "additionalProperties": true }), json!({ "type": "object" })),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            ),
            (json!({ "type": ["a", "b"] }), json!({})),
        ] {
            assert_eq!(to_v2(&schema, DEPTH_MAX), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_without_end_is_cut() {
        let mut schema = json!({ "type": "string" });
        for _ in 0..DEPTH_MAX * 2 {
            schema = json!({ "type": "array", "items": schema });
        }
        let mut shown = &to_v2(&schema, DEPTH_MAX);
        let mut depth = 0;
        while let Some(items) = shown.get("items") {
            (shown, depth) = (items, depth + 1);
        }
        assert_eq!((depth, shown), (DEPTH_MAX, &json!({})));
    }
}
