//! One object as it is cached: its JSON on one line, and beside it what filters ask for.
//!
//! An object is parsed once, when it comes in, and never again: the place of its resourceVersion and of
//! its metadata is known, so that a list copies bytes, and an event that carries another revision copies
//! them around it. A copy of an entry is one reference.
//!
//! The key says where an object belongs, whatever its metadata says: others can write to the store too.

use bytes::Bytes;
use meerkat_kubernetes::json_path::JsonPath;
use meerkat_kubernetes::registry::{Kind, SelectableField};
use meerkat_kubernetes::schema::StoredDefaults;
use serde::Serialize;
use serde_json::{Map, Value};
use std::ops::Range;
use std::sync::Arc;

/// What a cache knows of its kind of object.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Given to objects that lack them: a watch tells no object without.
    pub api_version: String,
    pub kind: String,
    /// Whether keys are `namespace/name`, or `name`.
    pub namespaced: bool,
    /// Filled in where a stored object lacks it.
    defaults: Option<Arc<StoredDefaults>>,
    /// Names such as `spec.nodeName`. `metadata.name` and `metadata.namespace` go without saying.
    pub fields: Arc<[Arc<str>]>,
    /// How each of the fields is read, in the same order.
    readers: Arc<[SelectableField]>,
}

impl Shape {
    /// `fields`: paths of names, each called by its path.
    pub fn new(api_version: &str, kind: &str, namespaced: bool, fields: &[&str]) -> Shape {
        let reader = |field: &&str| SelectableField {
            name: (*field).to_owned(),
            paths: JsonPath::parse(&format!(".{field}")).into_iter().collect(),
            missing: String::new(),
        };
        Shape::with(api_version, kind, namespaced, fields.iter().map(reader).collect())
    }

    /// Of the objects as they are stored.
    pub fn of(kind: &Kind) -> Shape {
        let mut shape =
            Shape::with(&kind.stored_as, &kind.kind, kind.is_namespaced(), kind.selectable.clone());
        shape.defaults.clone_from(&kind.stored_defaults);
        shape
    }

    fn with(api_version: &str, kind: &str, namespaced: bool, readers: Vec<SelectableField>) -> Shape {
        Shape {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            defaults: None,
            fields: readers.iter().map(|field| Arc::from(field.name.as_str())).collect(),
            readers: readers.into(),
        }
    }

    /// Whether entries of this shape can be chosen by all that `other` is chosen by.
    pub fn covers(&self, other: &Shape) -> bool {
        self.is_like(other) && other.readers.iter().all(|field| self.readers.contains(field))
    }

    /// One that covers `other`, and this as far as the two do not contradict each other: kinds that are
    /// stored in one place are chosen by different fields.
    pub fn widened(&self, other: &Shape) -> Shape {
        let mut readers = other.readers.to_vec();
        if self.is_like(other) {
            let named = |name: &str| other.readers.iter().any(|field| field.name == name);
            readers.extend(self.readers.iter().filter(|field| !named(&field.name)).cloned());
        }
        let mut shape = Shape::with(&other.api_version, &other.kind, other.namespaced, readers);
        shape.defaults.clone_from(&other.defaults);
        shape
    }

    fn is_like(&self, other: &Shape) -> bool {
        self.api_version == other.api_version
            && self.kind == other.kind
            && self.namespaced == other.namespaced
            && self.defaults == other.defaults
    }
}

/// A value in the store that is no object. Somebody else wrote it.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    #[error("the value is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("the value is not a JSON object with metadata")]
    NotAnObject,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry(Arc<Parts>);

#[derive(Debug, PartialEq)]
struct Parts {
    key: Arc<str>,
    json: Bytes,
    /// Where the members after `apiVersion` and `kind` begin.
    untyped: usize,
    /// Where the metadata are in the JSON.
    metadata: Range<usize>,
    /// Where the digits of the resourceVersion are in the JSON.
    version: Range<usize>,
    /// Sorted.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// One for each field of the shape, in its order; empty if the object has none.
    fields: Box<[(Arc<str>, Box<str>)]>,
    uid: Box<str>,
    revision: u64,
}

impl Entry {
    /// `key`: `namespace/name` or `name`. `revision`: of the object's last write.
    pub fn decode(shape: &Shape, key: &str, value: &[u8], revision: u64) -> Result<Entry, Undecodable> {
        match serde_json::from_slice(value)? {
            Value::Object(object) => Entry::new(shape, key, object, revision),
            _ => Err(Undecodable::NotAnObject),
        }
    }

    pub fn new(
        shape: &Shape,
        key: &str,
        mut object: Map<String, Value>,
        revision: u64,
    ) -> Result<Entry, Undecodable> {
        for (name, value) in [("apiVersion", &shape.api_version), ("kind", &shape.kind)] {
            // One that was stored in a version of before is of this one now.
            if object.get(name).and_then(Value::as_str) != Some(value.as_str()) {
                object.insert(name.to_owned(), Value::String(value.clone()));
            }
        }
        if let Some(defaults) = &shape.defaults {
            defaults.fill(&mut object);
        }
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(metadata) = metadata else { return Err(Undecodable::NotAnObject) };
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        let labels = labels_of(metadata);
        let uid = metadata.get("uid").and_then(Value::as_str).unwrap_or_default().into();
        let Written { json, untyped, metadata, version } = Written::of(&object);
        let object = Value::Object(object);
        let field =
            |(name, reader): (&Arc<str>, &SelectableField)| (name.clone(), reader.value(&object).into());
        let fields = shape.fields.iter().zip(shape.readers.iter()).map(field).collect();
        let json = Bytes::from(json.into_boxed_slice());
        let key = Arc::from(key);
        Ok(Entry(Arc::new(Parts { key, json, untyped, metadata, version, labels, fields, uid, revision })))
    }

    pub fn key(&self) -> &Arc<str> {
        &self.0.key
    }

    /// Empty if the key has none.
    pub fn namespace(&self) -> &str {
        self.0.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.0.key.split_once('/').map_or(&self.0.key, |(_, name)| name)
    }

    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    pub fn revision(&self) -> u64 {
        self.0.revision
    }

    /// The whole object on one line, with its resourceVersion.
    pub fn json(&self) -> &Bytes {
        &self.0.json
    }

    /// The same without `apiVersion` and `kind`, as the items of a list are told.
    pub fn write_untyped_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(&self.0.json[self.0.untyped..]);
    }

    /// Sorted by name.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.labels.iter().map(|(name, value)| (&**name, &**value))
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        let at = self.0.labels.binary_search_by(|(label, _)| (**label).cmp(name)).ok()?;
        Some(&self.0.labels[at].1)
    }

    /// The selectable fields of the shape.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Empty if there is none: that is how a field that is missing compares.
    pub fn field(&self, name: &str) -> &str {
        match name {
            "metadata.name" => self.name(),
            "metadata.namespace" => self.namespace(),
            _ => self.fields().find(|(field, _)| *field == name).map_or("", |(_, value)| value),
        }
    }

    /// Takes the text of its key from an entry that was here before, so that all versions of an object
    /// share it. Does nothing if somebody holds this one already.
    pub(super) fn share_key(&mut self, key: &Arc<str>) {
        if let Some(parts) = Arc::get_mut(&mut self.0)
            && parts.key == *key
        {
            parts.key = key.clone();
        }
    }

    /// Whether an index has to do nothing when this comes in the place of `other`.
    pub fn same_terms(&self, other: &Entry) -> bool {
        self.0.labels == other.0.labels && self.0.fields == other.0.fields
    }

    /// Appends the object as it is told at `revision`.
    pub fn write_json(&self, revision: u64, out: &mut Vec<u8>) {
        self.write(0..self.0.json.len(), revision, out);
    }

    /// Appends the object's metadata as they are told at `revision`.
    pub fn write_metadata(&self, revision: u64, out: &mut Vec<u8>) {
        self.write(self.0.metadata.clone(), revision, out);
    }

    fn write(&self, range: Range<usize>, revision: u64, out: &mut Vec<u8>) {
        let (json, version) = (&self.0.json, &self.0.version);
        if revision == self.0.revision {
            out.extend_from_slice(&json[range]);
            return;
        }
        out.extend_from_slice(&json[range.start..version.start]);
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(&json[version.end..range.end]);
    }
}

fn labels_of(metadata: &Map<String, Value>) -> Box<[(Box<str>, Box<str>)]> {
    let Some(Value::Object(labels)) = metadata.get("labels") else { return Box::default() };
    let text = |(name, value): (&String, &Value)| Some((name.as_str().into(), value.as_str()?.into()));
    let mut labels: Vec<(Box<str>, Box<str>)> = labels.iter().filter_map(text).collect();
    labels.sort_unstable();
    labels.into()
}

/// An object's JSON, and the places in it. It begins with what the object is.
struct Written {
    json: Vec<u8>,
    untyped: usize,
    metadata: Range<usize>,
    version: Range<usize>,
}

impl Written {
    fn of(object: &Map<String, Value>) -> Written {
        let mut written =
            Written { json: Vec::with_capacity(512), untyped: 0, metadata: 0..0, version: 0..0 };
        let (types, rest): (Vec<_>, Vec<_>) =
            object.iter().partition(|(name, _)| matches!(name.as_str(), "apiVersion" | "kind"));
        let types_count = types.len();
        written.members(types.into_iter().chain(rest), |written, at, name, value| {
            if at == types_count {
                written.untyped = written.json.len();
            }
            put(&mut written.json, name);
            written.json.push(b':');
            match value {
                Value::Object(metadata) if name == "metadata" => {
                    let start = written.json.len();
                    written.metadata(metadata);
                    written.metadata = start..written.json.len();
                }
                _ => put(&mut written.json, value),
            }
        });
        written
    }

    fn metadata(&mut self, metadata: &Map<String, Value>) {
        self.members(metadata, |written, _, name, value| {
            put(&mut written.json, name);
            written.json.push(b':');
            let start = written.json.len();
            put(&mut written.json, value);
            if name == "resourceVersion" {
                // Between the quotes.
                written.version = start + 1..written.json.len() - 1;
            }
        });
    }

    fn members<'m>(
        &mut self,
        of: impl IntoIterator<Item = (&'m String, &'m Value)>,
        write: impl Fn(&mut Written, usize, &str, &Value),
    ) {
        self.json.push(b'{');
        for (at, (name, value)) in of.into_iter().enumerate() {
            if at > 0 {
                self.json.push(b',');
            }
            write(self, at, name, value);
        }
        self.json.push(b'}');
    }
}

fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("a vector takes all that is written to it");
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn pods() -> Shape {
        Shape::new("v1", "Pod", true, &["spec.nodeName", "status.phase"])
    }

    /// A pod with labels given as `a=1,b=2`, on a node.
    pub(crate) fn pod(key: &str, labels: &str, node: &str, revision: u64) -> Entry {
        pod_with_uid(key, key, labels, node, revision)
    }

    pub(crate) fn pod_with_uid(key: &str, uid: &str, labels: &str, node: &str, revision: u64) -> Entry {
        let pairs = labels.split(',').filter_map(|label| label.split_once('='));
        let labels: Map<String, Value> = pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let name = key.split_once('/').map_or(key, |(_, name)| name);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "labels": labels, "name": name, "uid": uid },
            "spec": { "nodeName": node },
        });
        Entry::decode(&pods(), key, object.to_string().as_bytes(), revision).expect("it is an object")
    }

    /// Says whether nobody holds the entry any more.
    pub(crate) fn watch_end(entry: &Entry) -> impl Fn() -> bool + use<> {
        let parts = Arc::downgrade(&entry.0);
        move || parts.upgrade().is_none()
    }

    #[test]
    fn an_object_is_on_one_line_and_carries_its_revision() {
        let value = b"{\n  \"metadata\": {\n \"resourceVersion\": \"3\", \"name\": \"a\" }, \"spec\": { \"x\": 1.50 } }";
        let entry = Entry::decode(&pods(), "ns/a", value, 70).expect("it is an object");
        let expected = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"70"},"spec":{"x":1.5}}"#;
        assert_eq!(entry.json(), expected);
        let mut other = Vec::new();
        entry.write_json(12345, &mut other);
        assert_eq!(String::from_utf8_lossy(&other), expected.replace("70", "12345"));
        let mut metadata = Vec::new();
        entry.write_metadata(8, &mut metadata);
        assert_eq!(String::from_utf8_lossy(&metadata), r#"{"name":"a","resourceVersion":"8"}"#);
    }

    #[test]
    fn an_annotation_that_looks_like_a_revision_is_left_alone() {
        let value = br#"{"metadata":{"annotations":{"resourceVersion":"\"resourceVersion\":\"1\""}}}"#;
        let entry = Entry::decode(&pods(), "ns/a", value, 1).expect("it is an object");
        let mut out = Vec::new();
        entry.write_json(22, &mut out);
        let told: Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(told["metadata"]["resourceVersion"], "22");
        assert_eq!(told["metadata"]["annotations"]["resourceVersion"], "\"resourceVersion\":\"1\"");
    }

    #[test]
    fn labels_and_fields_are_read_once() {
        let value = json!({
            "metadata": { "uid": "u", "labels": { "b": "2", "a": "1", "odd": 7 } },
            "spec": { "nodeName": "n1" }, "status": "no object",
        });
        let entry = Entry::decode(&pods(), "ns/a", value.to_string().as_bytes(), 1).expect("an object");
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert_eq!((entry.label("b"), entry.label("c")), (Some("2"), None));
        assert_eq!((entry.field("spec.nodeName"), entry.field("status.phase")), ("n1", ""));
        assert_eq!((entry.field("metadata.name"), entry.field("metadata.namespace")), ("a", "ns"));
        assert_eq!(entry.uid(), "u");
    }

    #[test]
    fn scalars_compare_as_they_are_printed() {
        let shape = Shape::new("v1", "X", false, &["spec.on", "spec.count", "spec.list"]);
        let value = br#"{"metadata":{},"spec":{"on":true,"count":3,"list":[1]}}"#;
        let entry = Entry::decode(&shape, "a", value, 1).expect("an object");
        let values: Vec<&str> = entry.fields().map(|(_, value)| value).collect();
        assert_eq!(values, ["true", "3", ""]);
        assert_eq!((entry.namespace(), entry.name()), ("", "a"));
    }

    #[test]
    fn fields_are_read_as_the_kind_says() {
        let events = meerkat_kubernetes::registry::Registry::built_in();
        let core = Shape::of(events.by_group_resource("", "events").expect("built in"));
        let other = Shape::of(events.by_group_resource("events.k8s.io", "events").expect("built in"));
        let value = br#"{"metadata":{},"reportingComponent":"kubelet","involvedObject":{"name":"x"}}"#;
        let entry = Entry::decode(&core, "ns/a", value, 1).expect("an object");
        assert_eq!((entry.field("source"), entry.field("regarding.name")), ("kubelet", ""));
        assert!(!core.covers(&other) && core.covers(&core));
        let both = core.widened(&other);
        assert!(both.covers(&core) && both.covers(&other));
        let entry = Entry::decode(&both, "ns/a", value, 1).expect("an object");
        assert_eq!((entry.field("source"), entry.field("regarding.name")), ("kubelet", "x"));
        let elsewhere = Shape::new("v1", "Event", false, &["a"]);
        assert!(!both.widened(&elsewhere).covers(&core) && both.widened(&elsewhere).covers(&elsewhere));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let deep = "[".repeat(100_000);
        for value in ["", "7", "[]", "{\"metadata\":7}", "\u{0}k8s", &deep] {
            assert!(Entry::decode(&pods(), "ns/a", value.as_bytes(), 1).is_err(), "{value:.20}");
        }
    }
}
