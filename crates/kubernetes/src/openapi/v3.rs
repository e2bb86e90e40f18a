//! `/openapi/v3`: an index, and one document per group and version.
//!
//! The index names each document with the hash of what it says, so a client that has it need not ask again.

use super::schema::{Definitions, define};
use super::{Dialect, info, operation};
use crate::registry::Registry;
use serde_json::{Map, Value, json};

/// The document at `/openapi/v3`.
pub fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let path = path(&group.name, &version.version);
            let url = format!("/openapi/v3/{path}?hash={}", version.hash());
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// The document at `/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`.
pub fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let version = registry.group_version(group, version)?;
    let (mut paths, mut schemas) = (Map::new(), Definitions::new());
    for kind in version.kinds() {
        operation::add(kind, Dialect::V3, &mut paths);
        define(kind, Dialect::V3, &mut schemas);
    }
    Some(json!({ "openapi": "3.0.0", "info": info(), "paths": paths, "components": { "schemas": schemas } }))
}

/// The ETag of a document, with its quotes.
pub fn etag(registry: &Registry, group: &str, version: &str) -> Option<String> {
    registry.group_version(group, version).map(|version| format!("\"{}\"", version.hash()))
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;

    fn with_example() -> Registry {
        let object = crd::tests::established(crd::tests::example());
        let definition = crd::Definition::parse(&object).expect("good");
        Registry::built_in().with(&definition.name, definition.kinds())
    }

    /// Every reference must lead somewhere.
    fn check_references(value: &Value, document: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                    let pointer = to.strip_prefix('#').expect("local");
                    assert!(document.pointer(pointer).is_some(), "{to}");
                }
                fields.values().for_each(|value| check_references(value, document));
            }
            Value::Array(items) => items.iter().for_each(|value| check_references(value, document)),
            _ => {}
        }
    }

    #[test]
    fn the_index_names_every_document_and_changes_with_it() {
        let (before, after) = (Registry::built_in(), with_example());
        let (one, other) = (index(&before), index(&after));
        let paths = other["paths"].as_object().expect("paths");
        for (path, entry) in paths {
            let url = entry["serverRelativeURL"].as_str().expect("a path");
            assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")));
        }
        assert_eq!(one["paths"]["api/v1"], other["paths"]["api/v1"]);
        assert!(one["paths"].get("apis/stable.example.com/v1").is_none());
        assert!(paths.contains_key("apis/stable.example.com/v1"));
    }

    #[test]
    fn every_reference_in_every_document_leads_somewhere() {
        let registry = with_example();
        for group in registry.groups() {
            for version in &group.versions {
                let document = document(&registry, &group.name, &version.version).expect("there");
                check_references(&document, &document);
            }
        }
        assert_eq!(document(&registry, "apps", "v9"), None);
    }

    /// What kubectl does before it sends a manifest.
    #[test]
    fn every_patch_of_a_kind_takes_field_validation() {
        let registry = with_example();
        for kind in registry.kinds().filter(|kind| kind.has_verb("patch")) {
            let document = document(&registry, &kind.group, &kind.version).expect("there");
            let wanted = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
            let patches: Vec<&Value> = document["paths"]
                .as_object()
                .expect("paths")
                .values()
                .filter_map(|path| path.get("patch"))
                .filter(|patch| patch["x-kubernetes-group-version-kind"] == wanted)
                .collect();
            let [patch] = patches.as_slice() else { panic!("{} has one patch", kind.kind) };
            for query in ["fieldValidation", "dryRun"] {
                let parameters = patch["parameters"].as_array().expect("parameters");
                let takes = parameters.iter().any(|each| each["name"] == query && each["in"] == "query");
                assert!(takes, "{} {query}", kind.kind);
            }
        }
    }

    #[test]
    fn built_in_kinds_offer_strategic_patches_and_custom_ones_do_not() {
        let strategic = |group: &str, version: &str, path: &str| {
            let document = document(&with_example(), group, version).expect("there");
            let content = &document["paths"][path]["patch"]["requestBody"]["content"];
            content.as_object().expect("content").contains_key("application/strategic-merge-patch+json")
        };
        assert!(strategic("", "v1", "/api/v1/namespaces/{namespace}/configmaps/{name}"));
        assert!(strategic("", "v1", "/api/v1/namespaces/{name}"));
        assert!(strategic("", "v1", "/api/v1/namespaces/{namespace}/pods/{name}"));
        let custom = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}";
        assert!(!strategic("stable.example.com", "v1", custom));
    }

    /// What `kubectl explain` does: a kind by its path, then a schema by its kind.
    #[test]
    fn a_kind_can_be_explained() {
        let registry = with_example();
        let document = document(&registry, "stable.example.com", "v1").expect("there");
        let path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs";
        let kind = &document["paths"][path]["get"]["x-kubernetes-group-version-kind"];
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let found: Vec<&Value> = schemas
            .values()
            .filter(|schema| schema["x-kubernetes-group-version-kind"] == json!([kind]))
            .collect();
        let [schema] = found.as_slice() else { panic!("one schema") };
        assert_eq!(schema["properties"]["spec"]["properties"]["cronSpec"]["type"], "string");
        let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        assert_eq!(schema["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    }

    #[test]
    fn a_built_in_kind_is_told_of_to_its_last_field() {
        let document = document(&Registry::built_in(), "apps", "v1").expect("there");
        let schemas = &document["components"]["schemas"];
        let mut at = "io.k8s.api.apps.v1.Deployment".to_owned();
        for field in ["spec", "template", "spec", "containers", "livenessProbe", "httpGet"] {
            let property = &schemas[&at]["properties"][field];
            let to = property.pointer("/allOf/0").or_else(|| property.pointer("/items/allOf/0"));
            let to = to.and_then(|to| to["$ref"].as_str()).unwrap_or_else(|| panic!("{at} {field}"));
            at = to.rsplit('/').next().unwrap_or_default().to_owned();
        }
        let action = &schemas[&at];
        assert_eq!(action["required"], json!(["port"]));
        assert_eq!(action["properties"]["port"]["format"], "int-or-string");
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        let strategy = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
        assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");
        let revision = &schemas["io.k8s.api.apps.v1.ControllerRevision"]["properties"]["data"];
        assert_ne!(*revision, json!({}), "kubectl says that there is no such field");
    }
}
