//! The schemas of kinds: from the tables, or from definitions.

use super::Dialect;
use crate::published::{self, Field, Merge, Message, Shape, Type};
use crate::registry::Kind;
use serde_json::{Map, Value, json};

/// Definitions by name.
pub type Definitions = Map<String, Value>;

const OBJECT_META: &str = "meta.ObjectMeta";

/// Deeper parts of a custom schema are free in version 2. Objects of that depth are refused anyway.
const DEPTH_MAX: u32 = 64;

/// `io.k8s.api.core.v1.Pod`, `com.example.stable.v1.CronTab`
pub fn name(kind: &Kind) -> String {
    if let Some(message) = kind.published() {
        return message.openapi_name();
    }
    let reversed: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
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
    define_message(published::named(OBJECT_META), dialect, definitions);
    let mut own = match kind.published() {
        Some(message) => {
            define_message(message, dialect, definitions);
            message_schema(message, dialect)
        }
        None => custom(kind.custom().and_then(|(_, schema)| schema), dialect),
    };
    let free = own.get("properties").is_none();
    if !(dialect == Dialect::V2 && free) {
        add_type_and_metadata(&mut own, dialect);
    }
    own["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
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
    properties["metadata"] = refer(published::named(OBJECT_META), dialect);
}

fn define_message(message: &'static Message, dialect: Dialect, definitions: &mut Definitions) {
    let name = message.openapi_name();
    if definitions.contains_key(&name) {
        return;
    }
    definitions.insert(name, message_schema(message, dialect));
    for field in message.all_fields() {
        if let Type::Message(inner) = field.of {
            define_message(inner, dialect, definitions);
        }
    }
}

fn message_schema(message: &Message, dialect: Dialect) -> Value {
    let fields = message.all_fields();
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), field_schema(field, dialect))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({ "type": "object" });
    // A message without fields takes anything in version 2 if it says that it has none.
    if !properties.is_empty() {
        schema["properties"] = Value::Object(properties);
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn refer(message: &Message, dialect: Dialect) -> Value {
    let to = json!({ "$ref": reference(&message.openapi_name(), dialect) });
    match dialect {
        // Beside a reference nothing else may stand.
        Dialect::V3 => json!({ "allOf": [to] }),
        Dialect::V2 => to,
    }
}

fn field_schema(field: &Field, dialect: Dialect) -> Value {
    let one = match (field.of, dialect) {
        (Type::Text, _) => json!({ "type": "string" }),
        (Type::Int32, _) => json!({ "type": "integer", "format": "int32" }),
        (Type::Int64, _) => json!({ "type": "integer", "format": "int64" }),
        (Type::Bool, _) => json!({ "type": "boolean" }),
        (Type::Double, _) => json!({ "type": "number", "format": "double" }),
        (Type::Bytes, _) => json!({ "type": "string", "format": "byte" }),
        (Type::Time | Type::MicroTime, _) => json!({ "type": "string", "format": "date-time" }),
        (Type::Quantity, Dialect::V2) => json!({ "type": "string" }),
        (Type::Quantity, Dialect::V3) => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
        (Type::IntOrString, Dialect::V2) => json!({ "type": "string", "format": "int-or-string" }),
        (Type::IntOrString, Dialect::V3) => {
            json!({ "oneOf": [{ "type": "integer" }, { "type": "string" }], "format": "int-or-string" })
        }
        (Type::Texts, _) => json!({ "type": "array", "items": { "type": "string" } }),
        // Anything, which no type can say. kubectl takes an empty schema for none.
        (Type::Json | Type::SchemaOrList | Type::SchemaOrBool | Type::SchemaOrTexts, _) => {
            json!({ "x-kubernetes-preserve-unknown-fields": true })
        }
        (Type::Message(message) | Type::Inline(message), _) => refer(message, dialect),
    };
    let mut schema = match field.shape {
        Shape::One => one,
        Shape::List => json!({ "type": "array", "items": one }),
        Shape::Map => json!({ "type": "object", "additionalProperties": one }),
    };
    let merges = field.merge != Merge::Replace;
    let strategy = [("merge", merges), ("retainKeys", field.retains_keys)];
    let strategy: Vec<&str> = strategy.into_iter().filter(|(_, is)| *is).map(|(word, _)| word).collect();
    if !strategy.is_empty() {
        schema["x-kubernetes-patch-strategy"] = json!(strategy.join(","));
    }
    if let Merge::ByKey(key) = field.merge {
        schema["x-kubernetes-patch-merge-key"] = json!(key);
    }
    schema
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
