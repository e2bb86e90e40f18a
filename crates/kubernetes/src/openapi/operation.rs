//! The paths of a kind and what can be done there.
//!
//! kubectl looks for the PATCH of a kind, by its group, version and kind, and asks whether it takes
//! `fieldValidation` and `dryRun`; if two paths patched the same kind it would take either. So only the
//! object itself is told of, and not its subresources.

use super::{Dialect, schema};
use crate::negotiation::PatchForm;
use crate::registry::Kind;
use serde_json::{Map, Value, json};

/// A path, and its operations by method.
pub fn add(kind: &Kind, dialect: Dialect, paths: &mut Map<String, Value>) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let all = format!("{root}/{}", kind.plural);
    let collection = if kind.is_namespaced() {
        format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        all.clone()
    };
    if kind.is_namespaced() && kind.has_verb("list") {
        paths.insert(all, json!({ "get": operation(kind, "list", dialect, &[]) }));
    }
    let place: &[&str] = if kind.is_namespaced() { &["namespace"] } else { &[] };
    let object: &[&str] = if kind.is_namespaced() { &["namespace", "name"] } else { &["name"] };
    let on_collection = [("get", "list"), ("post", "create"), ("delete", "deletecollection")];
    let on_object = [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")];
    for (path, segments, verbs) in [
        (collection.clone(), place, &on_collection[..]),
        (format!("{collection}/{{name}}"), object, &on_object[..]),
    ] {
        let operations: Map<String, Value> = verbs
            .iter()
            .filter(|(_, verb)| kind.has_verb(verb))
            .map(|(method, verb)| ((*method).to_owned(), operation(kind, verb, dialect, segments)))
            .collect();
        if !operations.is_empty() {
            paths.insert(path, Value::Object(operations));
        }
    }
}

/// The ways of patching that a client is to choose from.
pub fn patch_types(kind: &Kind) -> Vec<&'static str> {
    PatchForm::known(kind).iter().map(|form| form.mime()).collect()
}

fn operation(kind: &Kind, verb: &str, dialect: Dialect, segments: &[&str]) -> Value {
    let writes = ["create", "update", "patch"].contains(&verb);
    let mut parameters: Vec<Value> =
        segments.iter().map(|name| parameter(name, "path", "string", dialect)).collect();
    parameters.extend(queries(verb).iter().map(|(name, of)| parameter(name, "query", of, dialect)));
    let returned = json!({ "$ref": schema::reference(&schema::name(kind), dialect) });
    let mut operation = json!({
        "operationId": format!("{verb}{}{}{}", camel(&kind.group), camel(&kind.version), kind.kind),
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": schema::group_version_kind(kind),
    });
    let bodies = if verb == "patch" { patch_types(kind) } else { vec!["application/json"] };
    let sent = if verb == "patch" { json!({ "type": "object" }) } else { returned.clone() };
    match dialect {
        Dialect::V2 => {
            operation["produces"] = json!(["application/json"]);
            operation["consumes"] = json!(bodies);
            if writes {
                parameters.push(json!({ "name": "body", "in": "body", "required": true, "schema": sent }));
            }
            operation["responses"] = json!({ "200": { "description": "OK", "schema": returned } });
        }
        Dialect::V3 => {
            if writes {
                let content: Map<String, Value> =
                    bodies.iter().map(|of| ((*of).to_owned(), json!({ "schema": sent }))).collect();
                operation["requestBody"] = json!({ "required": true, "content": content });
            }
            let content = json!({ "application/json": { "schema": returned } });
            operation["responses"] = json!({ "200": { "description": "OK", "content": content } });
        }
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

fn queries(verb: &str) -> &'static [(&'static str, &'static str)] {
    match verb {
        "list" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        "create" | "update" => {
            &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")]
        }
        "patch" => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        "delete" | "deletecollection" => {
            &[("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string")]
        }
        _ => &[],
    }
}

fn parameter(name: &str, place: &str, of: &str, dialect: Dialect) -> Value {
    let mut parameter = json!({ "name": name, "in": place });
    if place == "path" {
        parameter["required"] = json!(true);
    }
    match dialect {
        Dialect::V2 => parameter["type"] = json!(of),
        Dialect::V3 => parameter["schema"] = json!({ "type": of }),
    }
    parameter
}

/// `apps.k8s.io` to `AppsK8sIo`; the core group to `Core`.
fn camel(text: &str) -> String {
    let text = if text.is_empty() { "core" } else { text };
    let capital = |part: &str| {
        let mut letters = part.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        first + letters.as_str()
    };
    text.split(['.', '-']).map(capital).collect()
}
