//! The kinds of `kinds.json`, which are served without a definition.
//!
//! The file is part of the program: a mistake in it is ours, and stops the member (and the test below)
//! at once. A column's `from` is a JSON path if it begins with a dot, and else a cell by its name.

use crate::json_path::JsonPath;
use crate::names::NameRule;
use crate::registry::{
    Column, ColumnSource, Kind, Origin, ScalePaths, Scope, SelectableField, Subresources, join_api_version,
};
use serde::Deserialize;
use serde_json::Value;

const FILE: &str = include_str!("kinds.json");

/// What a kind can do unless the file says less.
pub const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Every entry of the file once per version.
pub fn kinds() -> Vec<Kind> {
    let entries: Vec<Entry> =
        serde_json::from_str(FILE).expect("kinds.json is of the form that is read here");
    let versioned = |entry: &Entry| -> Vec<(Entry, String)> {
        entry.versions.iter().map(|version| (entry.clone(), version.clone())).collect()
    };
    entries.iter().flat_map(versioned).map(|(entry, version)| entry.into_kind(version)).collect()
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    group: String,
    versions: Vec<String>,
    kind: String,
    plural: String,
    singular: Option<String>,
    list_kind: Option<String>,
    scope: Scope,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    /// Given only for kinds that are answered and not kept.
    verbs: Option<Vec<String>>,
    /// Those of the usual verbs that a kept kind does not have.
    #[serde(default)]
    without_verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<SubresourceName>,
    storage: Option<String>,
    #[serde(default)]
    selectable_fields: Vec<FieldEntry>,
    #[serde(default)]
    name_rule: NameRule,
    #[serde(default)]
    delete_returns_object: bool,
    #[serde(default)]
    spec: bool,
    #[serde(default)]
    generation: bool,
    #[serde(default)]
    conditional_update_only: bool,
    #[serde(default)]
    create_on_update: bool,
    columns: Vec<ColumnEntry>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SubresourceName {
    Status,
    Scale,
    Finalize,
    PodActions,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldEntry {
    name: String,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    missing: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnEntry {
    name: String,
    #[serde(rename = "type", default = "string_type")]
    data_type: String,
    #[serde(default)]
    format: String,
    from: String,
    #[serde(default)]
    priority: i64,
    missing: Option<String>,
}

fn string_type() -> String {
    "string".to_owned()
}

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).expect("a path of kinds.json")
}

impl Entry {
    fn into_kind(self, version: String) -> Kind {
        // Events have two groups and one place. The core form is the one that is stored.
        let stored_group = if self.kind == "Event" { "" } else { &self.group };
        let stored_as = join_api_version(stored_group, &version);
        let kept = self.verbs.is_none();
        let storage = kept.then(|| self.storage.clone().unwrap_or_else(|| self.plural.clone()));
        let without = self.without_verbs;
        let all_verbs = || {
            let has = |verb: &&&str| !without.iter().any(|without| without == **verb);
            ALL_VERBS.iter().filter(has).map(|verb| (*verb).to_owned()).collect()
        };
        Kind {
            version,
            list_kind: self.list_kind.unwrap_or_else(|| format!("{}List", self.kind)),
            singular: self.singular.unwrap_or_else(|| self.kind.to_lowercase()),
            verbs: self.verbs.unwrap_or_else(all_verbs),
            subresources: subresources(&self.subresources),
            storage,
            stored_as,
            stored_defaults: None,
            selectable: self.selectable_fields.into_iter().map(FieldEntry::into_field).collect(),
            columns: self.columns.into_iter().map(ColumnEntry::into_column).collect(),
            group: self.group,
            kind: self.kind,
            plural: self.plural,
            short_names: self.short_names,
            categories: self.categories,
            scope: self.scope,
            name_rule: self.name_rule,
            delete_returns_object: self.delete_returns_object,
            unconditional_update: !self.conditional_update_only,
            create_on_update: self.create_on_update,
            has_spec: self.spec,
            has_generation: self.generation,
            origin: Origin::BuiltIn,
        }
    }
}

/// The built-in kinds that scale all keep their numbers in the same place.
fn subresources(names: &[SubresourceName]) -> Subresources {
    let scale = names.contains(&SubresourceName::Scale).then(|| ScalePaths {
        spec_replicas: path(".spec.replicas"),
        status_replicas: path(".status.replicas"),
        selector: Some(path(".spec.selector")),
    });
    Subresources {
        status: names.contains(&SubresourceName::Status),
        scale,
        finalize: names.contains(&SubresourceName::Finalize),
        pod_actions: names.contains(&SubresourceName::PodActions),
    }
}

impl FieldEntry {
    fn into_field(self) -> SelectableField {
        let paths = if self.paths.is_empty() {
            vec![path(&format!(".{}", self.name))]
        } else {
            self.paths.iter().map(|text| path(text)).collect()
        };
        SelectableField { name: self.name, paths, missing: self.missing }
    }
}

impl ColumnEntry {
    fn into_column(self) -> Column {
        let source = if self.from.starts_with('.') {
            ColumnSource::Path(path(&self.from))
        } else {
            let name = Value::String(self.from);
            ColumnSource::Named(serde_json::from_value(name).expect("a cell that kinds.json names"))
        };
        // What is absent has a value all the same: the one that Kubernetes' own types would have.
        let zero = match self.data_type.as_str() {
            "integer" => Value::from(0),
            "boolean" => Value::Bool(false),
            _ => Value::from(""),
        };
        Column {
            name: self.name,
            missing: self.missing.map_or(zero, Value::String),
            data_type: self.data_type,
            format: self.format,
            description: String::new(),
            priority: self.priority,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn kind(group: &str, plural: &str) -> Kind {
        let found = kinds().into_iter().find(|kind| kind.group == group && kind.plural == plural);
        found.expect("a built-in kind")
    }

    #[test]
    fn no_two_kinds_share_a_resource_or_a_name() {
        let mut seen = BTreeSet::new();
        for kind in kinds() {
            let scope = (kind.group.clone(), kind.version.clone());
            assert!(seen.insert((scope.clone(), kind.plural.clone())), "{}", kind.plural);
            assert!(seen.insert((scope, kind.kind.clone())), "{}", kind.kind);
        }
        let mut short = BTreeSet::new();
        for kind in kinds().into_iter().filter(|kind| kind.kind != "Event") {
            for name in &kind.short_names {
                assert!(short.insert(name.clone()), "{name}");
            }
        }
    }

    #[test]
    fn no_two_kinds_share_a_place_but_the_two_forms_of_an_event() {
        let mut places = BTreeSet::new();
        for kind in kinds().into_iter().filter(|kind| kind.group != "events.k8s.io") {
            let Some(place) = kind.storage else { continue };
            assert!(places.insert(place.clone()), "{place}");
        }
        assert_eq!(kind("", "events").storage, kind("events.k8s.io", "events").storage);
        assert_eq!(kind("events.k8s.io", "events").stored_as, "v1");
    }

    #[test]
    fn places_that_are_not_called_like_their_resource() {
        for (group, plural, place) in [
            ("", "nodes", "minions"),
            ("", "services", "services/specs"),
            ("", "endpoints", "services/endpoints"),
            ("", "replicationcontrollers", "controllers"),
            ("networking.k8s.io", "ingresses", "ingress"),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "apiextensions.k8s.io/customresourcedefinitions",
            ),
            ("apps", "deployments", "deployments"),
        ] {
            assert_eq!(kind(group, plural).storage.as_deref(), Some(place));
        }
    }

    #[test]
    fn every_kind_shows_its_name_and_keeps_to_the_types_of_columns() {
        for kind in kinds() {
            let names: Vec<&str> = kind.columns.iter().map(|column| column.name.as_str()).collect();
            assert!(names.contains(&"Name"), "{}", kind.kind);
            let distinct: BTreeSet<&&str> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}", kind.kind);
            for column in &kind.columns {
                let types = ["string", "integer", "boolean", "date"];
                assert!(types.contains(&column.data_type.as_str()), "{} {}", kind.kind, column.name);
            }
        }
    }

    #[test]
    fn fields_of_a_pod_by_which_it_is_found() {
        let pod = json!({ "spec": { "nodeName": "n1" }, "status": { "podIPs": [{ "ip": "10.0.0.1" }] } });
        let kind = kind("", "pods");
        for (field, value) in [
            ("spec.nodeName", "n1"),
            ("status.phase", ""),
            ("spec.hostNetwork", "false"),
            ("status.podIP", "10.0.0.1"),
        ] {
            assert_eq!(kind.selectable_field(field).expect(field).value(&pod), value);
        }
        assert!(kind.selectable_field("spec.containers").is_none());
    }

    #[test]
    fn the_source_of_an_event_is_its_component_or_its_reporter() {
        let source = kind("", "events").selectable_field("source").expect("selectable").clone();
        assert_eq!(source.value(&json!({ "source": { "component": "a" }, "reportingComponent": "b" })), "a");
        assert_eq!(source.value(&json!({ "reportingComponent": "b" })), "b");
    }

    #[test]
    fn a_review_is_answered_and_not_kept() {
        let review = kind("authorization.k8s.io", "selfsubjectaccessreviews");
        assert_eq!((review.storage.as_deref(), review.verbs.as_slice()), (None, &["create".to_owned()][..]));
    }
}
