//! Objects as rows of a table, which is what `kubectl get` shows.
//!
//! The objects come in the form in which they are stored; what a row includes of one is in the form of the
//! kind that was asked for. A watch sends one table per event, and the columns with the first only: a client
//! prints its header when it sees them.

mod cell;
mod cluster;
mod event;
mod look;
mod network;
mod pod;
mod workload;

use crate::excerpt::excerpt;
use crate::metadata_form::{self, MetaVersion};
use crate::registry::{Column, Kind};
use crate::status::Refusal;
use crate::stored_form;
use crate::timestamp::Timestamp;
use serde_json::{Map, Value, json};

/// How much of its object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// As in the query; empty if it is not there.
    pub fn parse(text: &str) -> Result<IncludeObject, Refusal> {
        match text {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Refusal::bad_request(format!(
                "cannot make a Table: includeObject is None, Metadata, Object or empty, not {:?}",
                excerpt(other)
            ))),
        }
    }
}

/// What a client asked for, and when.
#[derive(Clone, Copy, Debug)]
pub struct TableForm<'a> {
    pub kind: &'a Kind,
    pub version: MetaVersion,
    pub include: IncludeObject,
    pub now: Timestamp,
}

impl TableForm<'_> {
    /// `list`: `metadata` and `items`.
    pub fn of_list(&self, list: &Value) -> Value {
        let items = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut metadata = Map::new();
        for field in ["resourceVersion", "continue", "remainingItemCount"] {
            let value = list.get("metadata").and_then(|metadata| metadata.get(field));
            metadata.extend(value.map(|value| (field.to_owned(), value.clone())));
        }
        self.table(metadata, items.iter(), true)
    }

    pub fn of_object(&self, object: &Value) -> Value {
        self.of_event(object, true)
    }

    /// The object of an event. `first`: of this watch.
    pub fn of_event(&self, object: &Value, first: bool) -> Value {
        let mut metadata = Map::new();
        let version = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
        metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version.clone())));
        self.table(metadata, std::iter::once(object), first)
    }

    fn table<'b>(
        &self,
        metadata: Map<String, Value>,
        objects: impl Iterator<Item = &'b Value>,
        columns: bool,
    ) -> Value {
        let columns = if columns { self.columns() } else { Vec::new() };
        let rows: Vec<Value> = objects.map(|object| self.row(object)).collect();
        json!({
            "kind": "Table",
            "apiVersion": self.version.api_version(),
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    /// What a table says of its columns.
    pub fn columns(&self) -> Vec<Value> {
        self.kind.columns.iter().map(definition).collect()
    }

    pub fn row(&self, object: &Value) -> Value {
        let cells: Vec<Value> =
            self.kind.columns.iter().map(|column| cell::cell(column, object, self.now)).collect();
        let included = match self.include {
            IncludeObject::None => return json!({ "cells": cells }),
            IncludeObject::Metadata => metadata_form::of_object(object, self.version),
            IncludeObject::Object => self.whole(object),
        };
        json!({ "cells": cells, "object": included })
    }

    fn whole(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            stored_form::from_stored(self.kind, fields);
            fields.entry("kind").or_insert_with(|| json!(self.kind.kind));
        }
        object
    }
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.data_type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::registry::Registry;

    pub(crate) fn now() -> Timestamp {
        Timestamp::parse("2024-01-31T12:00:00Z").expect("a time")
    }

    /// The cells of one object of a built-in kind, by the names of their columns.
    pub(crate) fn cells(group: &str, plural: &str, object: &Value) -> Map<String, Value> {
        let registry = Registry::built_in();
        let kind = registry.by_group_resource(group, plural).expect("built in");
        let form = TableForm { kind, version: MetaVersion::V1, include: IncludeObject::None, now: now() };
        let table = form.of_object(object);
        let names = kind.columns.iter().map(|column| column.name.clone());
        names.zip(table["rows"][0]["cells"].as_array().expect("cells").iter().cloned()).collect()
    }

    /// Some of the cells.
    pub(crate) fn check(group: &str, plural: &str, object: &Value, expected: &[(&str, Value)]) {
        let cells = cells(group, plural, object);
        for (name, value) in expected {
            assert_eq!(&cells[*name], value, "{plural} {name}");
        }
    }

    fn form(kind: &Kind, include: IncludeObject) -> TableForm<'_> {
        TableForm { kind, version: MetaVersion::V1, include, now: now() }
    }

    #[test]
    fn a_list_becomes_a_table_with_its_place_in_history() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "configmaps").expect("built in");
        let object = json!({
            "metadata": { "name": "a", "creationTimestamp": "2024-01-31T11:00:00Z" },
            "data": { "x": "1" }, "binaryData": { "y": "AA==" },
        });
        let list = json!({
            "metadata": { "resourceVersion": "9", "continue": "t", "remainingItemCount": 3, "selfLink": "" },
            "items": [object],
        });
        let table = form(kind, IncludeObject::Metadata).of_list(&list);
        assert_eq!(
            table["metadata"],
            json!({ "resourceVersion": "9", "continue": "t", "remainingItemCount": 3 })
        );
        assert_eq!(table["rows"][0]["cells"], json!(["a", "2", "60m"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let column =
            json!({ "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0 });
        assert_eq!(table["columnDefinitions"][0], column);
    }

    #[test]
    fn columns_come_with_the_first_event_only() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "namespaces").expect("built in");
        let object = json!({ "metadata": { "name": "a", "resourceVersion": "5" } });
        let form = form(kind, IncludeObject::None);
        assert_eq!(form.of_event(&object, true)["columnDefinitions"].as_array().map(Vec::len), Some(3));
        let next = form.of_event(&object, false);
        assert_eq!(next["columnDefinitions"], json!([]));
        assert_eq!(next["metadata"], json!({ "resourceVersion": "5" }));
        assert!(next["rows"][0].get("object").is_none());
    }

    #[test]
    fn a_bookmark_keeps_its_annotation() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "pods").expect("built in");
        let annotations = json!({ "k8s.io/initial-events-end": "true" });
        let bookmark = json!({ "metadata": { "resourceVersion": "5", "annotations": annotations } });
        let table = form(kind, IncludeObject::Metadata).of_event(&bookmark, true);
        assert_eq!(table["rows"][0]["object"]["metadata"]["annotations"], annotations);
    }

    #[test]
    fn an_included_object_has_the_form_that_was_asked_for() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("events.k8s.io", "v1", "events").expect("built in");
        let stored = json!({ "apiVersion": "v1", "kind": "Event", "metadata": {}, "message": "hi" });
        let table = form(kind, IncludeObject::Object).of_object(&stored);
        assert_eq!(table["rows"][0]["object"]["note"], "hi");
        assert_eq!(table["rows"][0]["object"]["apiVersion"], "events.k8s.io/v1");
    }

    #[test]
    fn no_object_is_too_strange_to_be_shown() {
        let strange = json!({
            "metadata": { "labels": 3, "creationTimestamp": [], "ownerReferences": {} },
            "spec": [1, { "containers": "x" }], "status": "x", "data": 7, "subjects": { "a": 1 },
            "subsets": "x", "involvedObject": [], "roleRef": 1, "webhooks": {},
        });
        let registry = Registry::built_in();
        for kind in registry.kinds() {
            for object in
                [&strange, &json!(null), &json!([]), &json!({ "spec": { "ports": [1], "rules": ["x"] } })]
            {
                let table = form(kind, IncludeObject::Object).of_object(object);
                let cells = table["rows"][0]["cells"].as_array().expect("cells");
                assert_eq!(cells.len(), kind.columns.len());
            }
        }
    }

    #[test]
    fn how_much_of_an_object_is_included() {
        assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(IncludeObject::parse("None"), Ok(IncludeObject::None));
        assert_eq!(IncludeObject::parse("all").expect_err("unknown").code(), 400);
    }
}
