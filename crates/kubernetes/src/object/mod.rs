//! An object: its metadata by name, and the rest as it came.
//!
//! What [`Object::decode`] lets through has metadata of the right shape: strings are strings, labels map
//! strings to strings, finalizers are a list of strings. So every accessor answers without a failure, and
//! what is absent reads as empty. Whether the words are good ones is [`check`]'s to say.
//! Never hold an object that did not come through `decode`: its bytes would not compare.

pub mod check;

use crate::status::Refusal;
use crate::timestamp::Timestamp;
use serde_json::{Map, Value, json};

/// Levels of nesting in one object. A little below the JSON decoder's own limit of 128, so that what is
/// stored can be read back inside a list or an event. Whatever else builds values keeps to it too: walking
/// or dropping one never needs more than a small stack.
pub const DEPTH_MAX: usize = 120;

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Object(Map<String, Value>);

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

enum Shape {
    Text,
    Number,
    TextMap,
    TextList,
    ObjectList,
    OwnerList,
    /// Left out whatever it holds.
    Dropped,
}

fn shape(field: &str) -> Option<Shape> {
    Some(match field {
        "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
        | "deletionTimestamp" => Shape::Text,
        "generation" | "deletionGracePeriodSeconds" => Shape::Number,
        "labels" | "annotations" => Shape::TextMap,
        "finalizers" => Shape::TextList,
        "ownerReferences" => Shape::OwnerList,
        "managedFields" => Shape::ObjectList,
        "selfLink" => Shape::Dropped,
        _ => return None,
    })
}

impl Object {
    /// An object as a client sent it, and the paths of the metadata fields that no object has, which are
    /// left out. Nulls and empty collections in metadata are left out as well: they mean the same as absence.
    pub fn decode(value: Value) -> Result<(Object, Vec<String>), Refusal> {
        if !depth_within(&value, DEPTH_MAX) {
            return Err(Refusal::bad_request("the object is nested too deeply"));
        }
        let Value::Object(mut map) = value else {
            return Err(Refusal::bad_request("the body is not a JSON object"));
        };
        for field in ["apiVersion", "kind"] {
            if map.get(field).is_some_and(|value| !value.is_string()) {
                return Err(Refusal::bad_request(format!("{field} must be a string")));
            }
        }
        let metadata = match map.remove("metadata") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err(Refusal::bad_request("metadata must be an object")),
        };
        let (mut kept, mut unknown) = (Map::new(), Vec::new());
        for (field, value) in metadata {
            let Some(shape) = shape(&field) else {
                unknown.push(format!("metadata.{field}"));
                continue;
            };
            if let Some(value) = shaped(&field, shape, value)? {
                kept.insert(field, value);
            }
        }
        map.insert("metadata".to_owned(), Value::Object(kept));
        Ok((Object(map), unknown))
    }

    /// An object from the bytes of the store, to which others write too. Unknown metadata fields, and what
    /// of an owner has no sense, are dropped silently.
    pub fn from_bytes(bytes: &[u8]) -> Result<Object, Refusal> {
        let mut value = parse(bytes)?;
        let owners = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.retain(|field, value| misfit(field, value).is_none());
        }
        Object::decode(value).map(|(object, _)| object)
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// For whoever walks all of it. The shape of the metadata must stay.
    pub fn as_map_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Replaces a field beside the metadata; `None` takes it out.
    pub fn set(&mut self, field: &str, value: Option<Value>) {
        debug_assert_ne!(field, "metadata", "metadata has setters of its own");
        put(&mut self.0, field, value);
    }

    pub fn api_version(&self) -> &str {
        self.0.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.0.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    fn meta(&self, field: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(field)
    }

    fn meta_text(&self, field: &str) -> &str {
        self.meta(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.meta_text("name")
    }

    pub fn generate_name(&self) -> &str {
        self.meta_text("generateName")
    }

    pub fn namespace(&self) -> &str {
        self.meta_text("namespace")
    }

    pub fn uid(&self) -> &str {
        self.meta_text("uid")
    }

    pub fn resource_version(&self) -> &str {
        self.meta_text("resourceVersion")
    }

    pub fn creation_timestamp(&self) -> &str {
        self.meta_text("creationTimestamp")
    }

    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.meta("deletionTimestamp").and_then(Value::as_str)
    }

    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp().is_some()
    }

    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.meta("deletionGracePeriodSeconds").and_then(Value::as_i64)
    }

    pub fn generation(&self) -> i64 {
        self.meta("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta_map("labels")
    }

    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta_map("annotations")
    }

    fn meta_map(&self, field: &str) -> impl Iterator<Item = (&str, &str)> {
        let map = self.meta(field).and_then(Value::as_object);
        map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.meta_list("finalizers").iter().filter_map(Value::as_str)
    }

    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        self.meta_list("ownerReferences").iter().map(|entry| {
            let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let flag = |field| entry.get(field).and_then(Value::as_bool).unwrap_or_default();
            OwnerReference {
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                uid: text("uid"),
                controller: flag("controller"),
                block_owner_deletion: flag("blockOwnerDeletion"),
            }
        })
    }

    pub fn managed_fields(&self) -> &[Value] {
        self.meta_list("managedFields")
    }

    fn meta_list(&self, field: &str) -> &[Value] {
        self.meta(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn set_meta(&mut self, field: &str, value: Option<Value>) {
        let metadata = self.0.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            put(metadata, field, value);
        }
    }

    fn set_meta_text(&mut self, field: &str, text: &str) {
        self.set_meta(field, if text.is_empty() { None } else { Some(json!(text)) });
    }

    pub fn set_api_version(&mut self, api_version: &str) {
        self.set("apiVersion", Some(json!(api_version)));
    }

    pub fn set_kind(&mut self, kind: &str) {
        self.set("kind", Some(json!(kind)));
    }

    pub fn set_name(&mut self, name: &str) {
        self.set_meta_text("name", name);
    }

    pub fn set_namespace(&mut self, namespace: &str) {
        self.set_meta_text("namespace", namespace);
    }

    pub fn set_uid(&mut self, uid: &str) {
        self.set_meta_text("uid", uid);
    }

    /// Empty takes it out: the store keeps none, for the revision of the write is not known before it.
    pub fn set_resource_version(&mut self, version: &str) {
        self.set_meta_text("resourceVersion", version);
    }

    pub fn set_creation_timestamp(&mut self, time: Timestamp) {
        self.set_meta("creationTimestamp", Some(json!(time.to_seconds().to_string())));
    }

    /// Zero takes it out.
    pub fn set_generation(&mut self, generation: i64) {
        self.set_meta("generation", if generation == 0 { None } else { Some(json!(generation)) });
    }

    pub fn set_deletion(&mut self, time: Timestamp, grace_period_s: i64) {
        self.set_meta("deletionTimestamp", Some(json!(time.to_seconds().to_string())));
        self.set_meta("deletionGracePeriodSeconds", Some(json!(grace_period_s)));
    }

    pub fn set_label(&mut self, name: &str, value: &str) {
        self.set_meta_member("labels", name, Some(value));
    }

    /// `None` takes it out.
    pub fn set_annotation(&mut self, name: &str, value: Option<&str>) {
        self.set_meta_member("annotations", name, value);
    }

    fn set_meta_member(&mut self, field: &str, name: &str, value: Option<&str>) {
        let mut map = match self.meta(field) {
            Some(Value::Object(map)) => map.clone(),
            _ => Map::new(),
        };
        match value {
            Some(value) => drop(map.insert(name.to_owned(), json!(value))),
            None => drop(map.remove(name)),
        }
        self.set_meta(field, (!map.is_empty()).then_some(Value::Object(map)));
    }

    pub fn set_finalizers(&mut self, finalizers: &[String]) {
        self.set_meta("finalizers", if finalizers.is_empty() { None } else { Some(json!(finalizers)) });
    }

    pub fn set_managed_fields(&mut self, entries: Vec<Value>) {
        self.set_meta("managedFields", if entries.is_empty() { None } else { Some(Value::Array(entries)) });
    }

    pub fn take_all_metadata(&mut self, from: &Object) {
        put(&mut self.0, "metadata", from.get("metadata").cloned());
    }

    /// Takes over one field of the metadata, or that there is none.
    pub fn take_metadata(&mut self, field: &str, from: &Object) {
        self.set_meta(field, from.meta(field).cloned());
    }

    /// Takes over what only the server may set, from the object as it is stored.
    pub fn restore_system_fields(&mut self, stored: &Object) {
        for field in
            ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
        {
            self.set_meta(field, stored.meta(field).cloned());
        }
    }

    /// Forgets what only the server may set, so that it can be set anew.
    pub fn wipe_system_fields(&mut self) {
        self.restore_system_fields(&Object::default());
    }
}

fn put(map: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value)),
        None => drop(map.remove(field)),
    }
}

/// JSON of bounded nesting: the decoder stops at 128 levels.
pub fn parse(bytes: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad_request(format!("error decoding JSON: {error}")))
}

/// Whether no value in it is nested more than `levels` deep. Descends no further than that.
pub fn depth_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => 0 < levels && items.iter().all(|item| depth_within(item, levels - 1)),
        Value::Object(map) => 0 < levels && map.values().all(|item| depth_within(item, levels - 1)),
        _ => true,
    }
}

/// The value of one metadata field, `None` if it says nothing.
fn shaped(field: &str, shape: Shape, value: Value) -> Result<Option<Value>, Refusal> {
    let (fits, what) = match (&shape, &value) {
        (Shape::Dropped, _) | (_, Value::Null) => return Ok(None),
        (Shape::Text, value) => (value.is_string(), "a string"),
        (Shape::Number, value) => (value.is_i64(), "an integer"),
        (Shape::TextMap, Value::Object(map)) => {
            (map.values().all(|value| value.is_string() || value.is_null()), "a map of strings to strings")
        }
        (Shape::TextMap, _) => (false, "a map of strings to strings"),
        (Shape::TextList, Value::Array(list)) => (list.iter().all(Value::is_string), "a list of strings"),
        (Shape::TextList, _) => (false, "a list of strings"),
        (Shape::ObjectList | Shape::OwnerList, Value::Array(list)) => {
            (list.iter().all(Value::is_object), "a list of objects")
        }
        (Shape::ObjectList | Shape::OwnerList, _) => (false, "a list of objects"),
    };
    if !fits {
        return Err(Refusal::bad_request(format!("metadata.{field} must be {what}")));
    }
    if let (Shape::OwnerList, Value::Array(owners)) = (&shape, &value) {
        check_owners(owners)?;
    }
    Ok(match value {
        Value::String(text) if text.is_empty() => None,
        Value::Array(list) if list.is_empty() => None,
        Value::Object(map) if map.is_empty() => None,
        // A null label is read as an empty one, as a typed decoder would.
        Value::Object(map) => {
            let text = |value: Value| if value.is_null() { json!("") } else { value };
            Some(Value::Object(map.into_iter().map(|(key, value)| (key, text(value))).collect()))
        }
        value => Some(value),
    })
}

fn check_owners(owners: &[Value]) -> Result<(), Refusal> {
    for (index, owner) in owners.iter().enumerate() {
        for (name, value) in owner.as_object().into_iter().flatten() {
            if let Some(what) = misfit(name, value) {
                let field = format!("metadata.ownerReferences[{index}].{name}");
                return Err(Refusal::bad_request(format!("{field} must be {what}")));
            }
        }
    }
    Ok(())
}

/// What a field of an owner has to be, if it is something else.
fn misfit(field: &str, value: &Value) -> Option<&'static str> {
    let (fits, what) = match field {
        "apiVersion" | "kind" | "name" | "uid" => (value.is_string(), "a string"),
        "controller" | "blockOwnerDeletion" => (value.is_boolean(), "a boolean"),
        _ => return None,
    };
    (!fits && !value.is_null()).then_some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(value: Value) -> (Object, Vec<String>) {
        Object::decode(value).expect("a good object")
    }

    #[test]
    fn accessors_read_what_is_there_and_empty_for_what_is_not() {
        let (object, unknown) = decode(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 3,
                "labels": { "x": "y" }, "annotations": { "p": "q" }, "finalizers": ["f/a"],
                "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
                "ownerReferences": [
                    { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true },
                ],
            },
        }));
        assert!(unknown.is_empty());
        assert_eq!((object.api_version(), object.kind(), object.name()), ("v1", "Pod", "a"));
        assert_eq!((object.namespace(), object.uid(), object.resource_version()), ("n", "u", "5"));
        assert_eq!((object.generation(), object.deletion_grace_period_seconds()), (3, Some(0)));
        assert_eq!(object.labels().collect::<Vec<_>>(), [("x", "y")]);
        assert_eq!(object.annotations().collect::<Vec<_>>(), [("p", "q")]);
        assert_eq!(object.finalizers().collect::<Vec<_>>(), ["f/a"]);
        let owner = object.owner_references().next().expect("one owner");
        assert_eq!(
            (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion),
            ("ReplicaSet", "o", true, false)
        );

        let (empty, _) = decode(json!({}));
        assert_eq!((empty.name(), empty.generation(), empty.deletion_timestamp()), ("", 0, None));
        assert_eq!(empty.labels().count() + empty.finalizers().count() + empty.managed_fields().len(), 0);
    }

    #[test]
    fn what_says_nothing_is_left_out_and_what_no_object_has_is_reported() {
        let (object, unknown) = decode(json!({
            "metadata": {
                "name": "a", "creationTimestamp": null, "labels": {}, "finalizers": [], "selfLink": "/x",
                "annotations": { "a": null }, "nickname": 1, "generateName": "",
            },
            "spec": { "empty": {}, "null": null },
        }));
        assert_eq!(object.get("metadata"), Some(&json!({ "name": "a", "annotations": { "a": "" } })));
        assert_eq!(
            object.get("spec"),
            Some(&json!({ "empty": {}, "null": null })),
            "the rest stays as it came"
        );
        assert_eq!(unknown, ["metadata.nickname"]);
    }

    #[test]
    fn metadata_of_the_wrong_shape_is_a_bad_request() {
        for metadata in [
            json!(1),
            json!([]),
            json!({ "name": 1 }),
            json!({ "labels": { "a": 1 } }),
            json!({ "labels": ["a"] }),
            json!({ "finalizers": "a" }),
            json!({ "finalizers": [1] }),
            json!({ "ownerReferences": ["a"] }),
            json!({ "ownerReferences": [{ "name": "a" }, { "blockOwnerDeletion": "true" }] }),
            json!({ "ownerReferences": [{ "controller": 1 }] }),
            json!({ "ownerReferences": [{ "uid": 5 }] }),
            json!({ "generation": "1" }),
            json!({ "deletionGracePeriodSeconds": 1.5 }),
        ] {
            let refusal = Object::decode(json!({ "metadata": metadata })).expect_err("a bad object");
            assert_eq!(refusal.code(), 400, "{metadata}");
        }
        // Where somebody else wrote it past us, the rest of it is read.
        let owner = json!({ "name": "a", "uid": 5, "controller": null, "blockOwnerDeletion": "true" });
        let stored = json!({ "metadata": { "ownerReferences": [owner] } }).to_string();
        let object = Object::from_bytes(stored.as_bytes()).expect("readable");
        let owner = json!({ "name": "a", "controller": null });
        assert_eq!(object.get("metadata"), Some(&json!({ "ownerReferences": [owner] })));
        for whole in [json!([]), json!("a"), json!({ "kind": 1 })] {
            assert_eq!(Object::decode(whole).expect_err("a bad object").code(), 400);
        }
    }

    #[test]
    fn deep_nesting_is_refused_by_bytes_and_by_value() {
        let bytes = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(bytes.as_bytes()).expect_err("too deep").code(), 400);
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
        let deepest = Object::decode(nested(DEPTH_MAX)).expect("deep enough").0;
        let listed = serde_json::to_vec(&json!({ "items": [deepest.to_value()] })).expect("JSON");
        assert!(parse(&listed).is_ok(), "what is let in can be read back");
        assert_eq!(Object::decode(nested(DEPTH_MAX + 1)).expect_err("too deep").code(), 400);
    }

    #[test]
    fn system_fields_are_restored_whatever_the_client_wrote() {
        let (stored, _) = decode(json!({ "metadata": { "uid": "u", "generation": 2, "name": "a" } }));
        let (mut sent, _) = decode(json!({
            "metadata": { "uid": "x", "creationTimestamp": "2024-01-01T00:00:00Z", "name": "b" },
        }));
        sent.restore_system_fields(&stored);
        assert_eq!(sent.get("metadata"), Some(&json!({ "uid": "u", "generation": 2, "name": "b" })));
        sent.wipe_system_fields();
        assert_eq!(sent.get("metadata"), Some(&json!({ "name": "b" })));
    }
}
