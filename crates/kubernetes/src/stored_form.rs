//! Between the form in which a client sees an object and the one form in which it is stored.
//!
//! For most kinds these differ in `apiVersion` at most. Events are the exception: `events.k8s.io/v1` calls
//! by other names what the core group stores. A form and back again is the same object.

use crate::registry::Kind;
use serde_json::{Map, Value};

/// The names of an event's fields: stored, and as `events.k8s.io/v1` says it.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// What the store is to hold.
pub fn to_stored(kind: &Kind, object: &mut Map<String, Value>) {
    if is_other_event(kind) {
        for (stored, shown) in EVENT_FIELDS {
            rename(object, shown, stored);
        }
    }
    object.insert("apiVersion".to_owned(), Value::String(kind.stored_as.clone()));
}

/// What a client of this kind and version is to see.
pub fn from_stored(kind: &Kind, object: &mut Map<String, Value>) {
    if is_other_event(kind) {
        for (stored, shown) in EVENT_FIELDS {
            rename(object, stored, shown);
        }
    }
    object.insert("apiVersion".to_owned(), Value::String(kind.api_version()));
}

/// Whether the two forms can differ, so that stored bytes cannot be sent as they are.
pub fn differs(kind: &Kind) -> bool {
    kind.stored_as != kind.api_version()
}

fn is_other_event(kind: &Kind) -> bool {
    kind.group == "events.k8s.io" && kind.kind == "Event" && kind.custom().is_none()
}

/// A field already there under the new name stays: it is the one that the form knows.
fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.entry(to).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    #[test]
    fn an_event_has_two_forms_and_is_stored_in_the_core_one() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("events.k8s.io", "v1", "events").expect("built in");
        let shown = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "x" },
            "regarding": { "kind": "Pod" }, "note": "started", "reportingController": "kubelet",
            "deprecatedCount": 2, "eventTime": "2024-01-01T00:00:00.000000Z",
        });
        let mut object = shown.as_object().expect("an object").clone();
        to_stored(kind, &mut object);
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "x" },
            "involvedObject": { "kind": "Pod" }, "message": "started", "reportingComponent": "kubelet",
            "count": 2, "eventTime": "2024-01-01T00:00:00.000000Z",
        });
        assert_eq!(Value::Object(object.clone()), stored);
        from_stored(kind, &mut object);
        assert_eq!(Value::Object(object), shown);
        assert!(differs(kind));
    }

    #[test]
    fn other_kinds_change_nothing_but_their_version() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "configmaps").expect("built in");
        let mut object = json!({ "apiVersion": "v1", "note": "x" }).as_object().expect("an object").clone();
        let before = object.clone();
        to_stored(kind, &mut object);
        assert_eq!(object, before);
        assert!(!differs(kind));
    }
}
