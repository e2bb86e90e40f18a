//! From client-side to server-side apply: what kubectl noted of its last apply in an annotation.
//!
//! A field that a client-side apply set, and that still has the value it was set to, is no conflict for the
//! manager `kubectl`. When that manager applies, the annotation follows, so that the next client-side apply
//! begins from what was applied last. Any other manager is on its own.

use super::apply::{Writer, untracked};
use super::field_set::FieldSet;
use super::typed::{Difference, fields_of};
use crate::object::Object;
use crate::object::check::ANNOTATIONS_BYTES_MAX;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MANAGER: &str = "kubectl";

fn noted(object: &Object) -> Option<&str> {
    object
        .annotations()
        .find(|(name, _)| *name == ANNOTATION)
        .map(|(_, text)| text)
        .filter(|text| !text.is_empty())
}

/// The fields of `live` that `writer` may take without force.
pub fn released(writer: &Writer<'_>, live: &Object) -> FieldSet {
    let last = noted(live).filter(|_| writer.manager == MANAGER);
    let last = last.and_then(|text| Object::from_bytes(text.as_bytes()).ok());
    let Some(last) = last.filter(|last| last.api_version() == writer.api_version) else {
        return FieldSet::default();
    };
    let (last, live) = (untracked(&last), untracked(live));
    let mut fields = fields_of(writer.place, &last);
    let since = Difference::between(writer.place, &last, &live);
    fields.subtract(&since.changed);
    fields.subtract(&since.removed);
    fields
}

/// What the annotation is to say of `config`, if `writer` keeps it.
pub fn annotation_of(writer: &Writer<'_>, live: &Object, config: &Object) -> Option<String> {
    if writer.manager != MANAGER || noted(live).or(noted(config)).is_none() {
        return None;
    }
    let mut config = config.clone();
    config.set_annotation(ANNOTATION, None);
    // With the line's end that kubectl writes too, so that the same configuration is the same text.
    Some(format!("{}\n", config.into_value()))
}

/// Takes the annotation along. One that would make the annotations too long is taken out.
pub fn put(object: &mut Object, annotation: &str) {
    if noted(object).is_none() {
        return;
    }
    object.set_annotation(ANNOTATION, Some(annotation));
    let bytes: usize = object.annotations().map(|(name, text)| name.len() + text.len()).sum();
    if ANNOTATIONS_BYTES_MAX < bytes {
        object.set_annotation(ANNOTATION, None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::apply::{apply, track};
    use super::super::typed::Place;
    use super::*;
    use crate::status::{GroupResource, Refusal};
    use crate::timestamp::Timestamp;
    use serde_json::{Value, json};

    fn map(data: &Value) -> Object {
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data });
        Object::decode(map).expect("a good object").0
    }

    /// As a client-side apply of `data` leaves it.
    fn client_side(data: &Value) -> Object {
        let mut made = map(data);
        made.set_annotation(ANNOTATION, Some(&format!("{}\n", map(data).into_value())));
        track(None, &mut made, &writer("kubectl-client-side-apply"));
        made
    }

    fn writer(manager: &str) -> Writer<'_> {
        let now = Timestamp { seconds: 1, nanos: 0 };
        Writer { manager, api_version: "v1", subresource: "", ignored: &[], now, place: Place::BUILT_IN }
    }

    fn applied(live: &Object, manager: &str, data: &Value) -> Result<Object, Refusal> {
        apply(Some(live), map(data), &GroupResource::new("", "configmaps"), &writer(manager), false)
    }

    #[test]
    fn kubectl_takes_over_what_it_applied_client_side() {
        let live = client_side(&json!({ "a": "1", "b": "1" }));
        let made = applied(&live, "kubectl", &json!({ "a": "2", "b": "1" })).expect("no conflict");
        assert_eq!(made.get("data"), Some(&json!({ "a": "2", "b": "1" })));
        let noted: Value = serde_json::from_str(noted(&made).expect("kept")).expect("JSON");
        assert_eq!(noted, map(&json!({ "a": "2", "b": "1" })).into_value());
        // Then it owns what it said.
        applied(&made, "kubectl", &json!({ "a": "3", "b": "1" })).expect("no conflict");
        let other = applied(&live, "me", &json!({ "a": "2" })).expect_err("another manager has to force it");
        assert_eq!(other.code(), 409);
    }

    #[test]
    fn field_changed_since_client_side_apply_is_still_a_conflict() {
        let live = client_side(&json!({ "a": "1", "b": "1" }));
        let mut edited = live.clone();
        edited.set("data", Some(json!({ "a": "1", "b": "9" })));
        track(Some(&live), &mut edited, &writer("hand"));
        let refusal =
            applied(&edited, "kubectl", &json!({ "a": "2", "b": "2" })).expect_err("b is another's");
        let fields: Vec<&str> = refusal.causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, [".data.b"]);
    }

    #[test]
    fn unreadable_or_foreign_annotation_releases_nothing() {
        for text in ["", "{", "[]", r#"{"apiVersion":"v2","data":{"a":"1"}}"#] {
            let mut live = client_side(&json!({ "a": "1" }));
            live.set_annotation(ANNOTATION, Some(text));
            assert_eq!(applied(&live, "kubectl", &json!({ "a": "2" })).expect_err(text).code(), 409);
        }
    }

    #[test]
    fn annotation_that_would_be_too_long_goes() {
        let live = client_side(&json!({ "a": "1" }));
        let long = json!({ "a": "x".repeat(ANNOTATIONS_BYTES_MAX) });
        assert_eq!(noted(&applied(&live, "kubectl", &long).expect("good")), None);
    }
}
