//! An OpenAPI v2 document as the protobuf that older clients ask for.
//!
//! The numbers are those of gnostic's `OpenAPIv2.proto`. It writes what the documents of this crate hold
//! and is no general encoder. What gnostic keeps as any value is written as YAML, and JSON is YAML.

use crate::protobuf::wire::Writer;
use serde_json::{Map, Value};

pub fn encode(document: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    text(&mut writer, 1, document.get("swagger"));
    let mut info = Writer::default();
    text(&mut info, 1, document.pointer("/info/title"));
    text(&mut info, 2, document.pointer("/info/version"));
    writer.message(2, info);
    let mut paths = Writer::default();
    for (path, item) in entries(document.get("paths")) {
        paths.message(2, named(path, path_item(item)));
    }
    writer.message(8, paths);
    let mut definitions = Writer::default();
    for (name, definition) in entries(document.get("definitions")) {
        definitions.message(1, named(name, schema(definition)));
    }
    writer.message(9, definitions);
    writer.finish()
}

fn entries(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn text(writer: &mut Writer, number: u32, value: Option<&Value>) {
    if let Some(text) = value.and_then(Value::as_str) {
        writer.text(number, text);
    }
}

fn texts(writer: &mut Writer, number: u32, value: Option<&Value>) {
    items(value).filter_map(Value::as_str).for_each(|item| writer.text(number, item));
}

/// Every message of a name and a value has these numbers.
fn named(name: &str, value: Writer) -> Writer {
    let mut writer = Writer::default();
    writer.text(1, name);
    writer.message(2, value);
    writer
}

/// Around one of several things that could stand here.
fn choice(number: u32, value: Writer) -> Writer {
    let mut writer = Writer::default();
    writer.message(number, value);
    writer
}

fn any(value: &Value) -> Writer {
    let mut writer = Writer::default();
    writer.text(2, &value.to_string());
    writer
}

fn extensions(writer: &mut Writer, number: u32, fields: &Map<String, Value>) {
    for (name, value) in fields.iter().filter(|(name, _)| name.starts_with("x-")) {
        writer.message(number, named(name, any(value)));
    }
}

fn path_item(item: &Value) -> Writer {
    let mut writer = Writer::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(found) = item.get(method).and_then(Value::as_object) {
            writer.message(number, operation(found));
        }
    }
    writer
}

fn operation(fields: &Map<String, Value>) -> Writer {
    let mut writer = Writer::default();
    text(&mut writer, 5, fields.get("operationId"));
    texts(&mut writer, 6, fields.get("produces"));
    texts(&mut writer, 7, fields.get("consumes"));
    for each in items(fields.get("parameters")) {
        writer.message(8, choice(1, parameter(each)));
    }
    let mut responses = Writer::default();
    for (code, response) in entries(fields.get("responses")) {
        let mut inner = Writer::default();
        text(&mut inner, 1, response.get("description"));
        if let Some(returned) = response.get("schema") {
            inner.message(2, choice(1, schema(returned)));
        }
        responses.message(1, named(code, choice(1, inner)));
    }
    writer.message(9, responses);
    extensions(&mut writer, 13, fields);
    writer
}

fn parameter(parameter: &Value) -> Writer {
    let mut inner = Writer::default();
    let required = u64::from(parameter.get("required") == Some(&Value::Bool(true)));
    let place = parameter.get("in").and_then(Value::as_str);
    if place == Some("body") {
        text(&mut inner, 2, parameter.get("name"));
        text(&mut inner, 3, parameter.get("in"));
        inner.varint(4, required);
        if let Some(sent) = parameter.get("schema") {
            inner.message(5, schema(sent));
        }
        return choice(1, inner);
    }
    inner.varint(1, required);
    text(&mut inner, 2, parameter.get("in"));
    text(&mut inner, 4, parameter.get("name"));
    // A parameter of a query may also be empty, and so has its type one number later.
    let (type_number, kind_number) = if place == Some("query") { (6, 3) } else { (5, 4) };
    text(&mut inner, type_number, parameter.get("type"));
    choice(2, choice(kind_number, inner))
}

/// Its depth is that of a definition's schema, which `schema.rs` bounds.
fn schema(value: &Value) -> Writer {
    let mut writer = Writer::default();
    let Some(fields) = value.as_object() else { return writer };
    text(&mut writer, 1, fields.get("$ref"));
    text(&mut writer, 2, fields.get("format"));
    text(&mut writer, 3, fields.get("title"));
    text(&mut writer, 4, fields.get("description"));
    if let Some(default) = fields.get("default") {
        writer.message(5, any(default));
    }
    for (number, name) in [(7, "maximum"), (9, "minimum")] {
        if let Some(bound) = fields.get(name).and_then(Value::as_f64) {
            writer.double(number, bound);
        }
    }
    text(&mut writer, 13, fields.get("pattern"));
    texts(&mut writer, 19, fields.get("required"));
    items(fields.get("enum")).for_each(|value| writer.message(20, any(value)));
    if let Some(additional) = fields.get("additionalProperties") {
        writer.message(21, choice(1, schema(additional)));
    }
    if let Some(of) = fields.get("type").and_then(Value::as_str) {
        let mut types = Writer::default();
        types.text(1, of);
        writer.message(22, types);
    }
    if let Some(item) = fields.get("items") {
        writer.message(23, choice(1, schema(item)));
    }
    if fields.contains_key("properties") {
        let mut properties = Writer::default();
        for (name, property) in entries(fields.get("properties")) {
            properties.message(1, named(name, schema(property)));
        }
        writer.message(25, properties);
    }
    extensions(&mut writer, 31, fields);
    writer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{Allowance, Raw, Reader};
    use crate::registry::Registry;
    use serde_json::json;

    /// The first field of each number on the way down.
    fn at<'a>(bytes: &'a [u8], path: &[u32], allowance: &'a Allowance) -> Vec<&'a [u8]> {
        let Some((number, rest)) = path.split_first() else { return vec![bytes] };
        let mut found = Vec::new();
        let mut reader = Reader::new(bytes, allowance);
        while let Some((each, raw)) = reader.next_field().expect("well formed") {
            if let (true, Raw::Bytes(inner)) = (each == *number, raw) {
                found.extend(at(inner, rest, allowance));
            }
        }
        found
    }

    fn shown(bytes: &[u8], path: &[u32]) -> Vec<String> {
        let allowance = Allowance::default();
        at(bytes, path, &allowance)
            .into_iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    #[test]
    fn a_small_document_by_hand() {
        let bytes = encode(&json!({
            "swagger": "2.0", "info": { "title": "T", "version": "1" },
            "definitions": { "D": { "type": "object", "x-a": [1] } },
        }));
        let expected = [
            // swagger, info, no paths
            &[0x0a, 3][..],
            b"2.0",
            &[0x12, 6, 0x0a, 1, b'T', 0x12, 1, b'1', 0x42, 0],
            // definitions, one of them, its name, its schema
            &[0x4a, 33, 0x0a, 31, 0x0a, 1, b'D', 0x12, 26],
            // type
            &[0xb2, 0x01, 8, 0x0a, 6],
            b"object",
            // an extension: its name, and its value as YAML
            &[0xfa, 0x01, 12, 0x0a, 3],
            b"x-a",
            &[0x12, 5, 0x12, 3],
            b"[1]",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn kubectl_finds_models_and_patches() {
        let bytes = encode(&crate::openapi::v2::document(&Registry::built_in()));
        let names = shown(&bytes, &[9, 1, 1]);
        assert!(names.contains(&"io.k8s.api.core.v1.ConfigMap".to_owned()));
        let kinds = shown(&bytes, &[9, 1, 2, 31, 2, 2]);
        assert!(kinds.contains(&r#"[{"group":"","kind":"ConfigMap","version":"v1"}]"#.to_owned()));
        let patched = shown(&bytes, &[8, 2, 2, 8, 13, 2, 2]);
        assert!(patched.contains(&r#"{"group":"apps","kind":"Deployment","version":"v1"}"#.to_owned()));
        let queries = shown(&bytes, &[8, 2, 2, 8, 8, 1, 2, 3, 4]);
        assert!(queries.contains(&"dryRun".to_owned()) && queries.contains(&"fieldValidation".to_owned()));
        let consumed = shown(&bytes, &[8, 2, 2, 8, 7]);
        assert!(consumed.contains(&"application/strategic-merge-patch+json".to_owned()));
        // Whatever a model refers to must be a model, or kubectl takes none of them.
        for to in shown(&bytes, &[9, 1, 2, 25, 1, 2, 1]) {
            let name = to.strip_prefix("#/definitions/").expect("a definition");
            assert!(names.iter().any(|each| each == name), "{name}");
        }
    }
}
