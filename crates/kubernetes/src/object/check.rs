//! Whether the metadata of an object is good. What is not is told field by field, as a 422's causes.
//!
//! The number of causes is bounded, so that a hostile object makes a small answer.

use super::Object;
use crate::excerpt::excerpt_of;
use crate::names::{self, NameRule};
use crate::status::Cause;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Bytes of all annotations of an object, keys and values together.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;
/// Causes in one refusal; the rest is left unsaid.
pub const CAUSES_MAX: usize = 64;
/// Bytes of a client's string that a message shows.
const SHOWN_BYTES_MAX: usize = 512;

pub const ORPHAN_FINALIZER: &str = "orphan";
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// What is wrong with the metadata, whether the object is created or updated.
pub fn metadata(object: &Object, rule: NameRule, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    name(object, rule, &mut causes);
    namespace(object, namespaced, &mut causes);
    for (key, value) in object.labels() {
        refuse(&mut causes, "metadata.labels", key, names::qualified(key));
        refuse(&mut causes, "metadata.labels", value, names::label_value(value));
    }
    annotations(object, &mut causes);
    owner_references(object, &mut causes);
    finalizers(object, &mut causes);
    causes.truncate(CAUSES_MAX);
    causes
}

/// What is wrong with an update beyond the metadata itself.
pub fn metadata_update(stored: &Object, object: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    if stored.is_being_deleted() {
        let known: BTreeSet<&str> = stored.finalizers().collect();
        let added: Vec<String> = object
            .finalizers()
            .filter(|name| !known.contains(name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers [{}]",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    for (field, old, new) in [
        ("metadata.name", stored.name(), object.name()),
        ("metadata.namespace", stored.namespace(), object.namespace()),
    ] {
        if old != new {
            causes.push(Cause::invalid(field, &shown(new), "field is immutable"));
        }
    }
    causes
}

/// A client's string as a message shows it, cut if it is long.
pub fn shown(text: &str) -> Value {
    json!(excerpt_of(text, SHOWN_BYTES_MAX))
}

fn refuse(causes: &mut Vec<Cause>, field: &str, text: &str, why: Option<String>) {
    if let Some(why) = why
        && causes.len() < CAUSES_MAX
    {
        causes.push(Cause::invalid(field, &shown(text), &why));
    }
}

fn name(object: &Object, rule: NameRule, causes: &mut Vec<Cause>) {
    let (name, prefix) = (object.name(), object.generate_name());
    if !prefix.is_empty() {
        refuse(causes, "metadata.generateName", prefix, rule.refuses_prefix(prefix));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        refuse(causes, "metadata.name", name, rule.refuses(name));
    }
}

fn namespace(object: &Object, namespaced: bool, causes: &mut Vec<Cause>) {
    let namespace = object.namespace();
    match (namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required("metadata.namespace", "")),
        (true, false) => refuse(causes, "metadata.namespace", namespace, names::label(namespace)),
        (false, true) => {}
        (false, false) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
    }
}

fn annotations(object: &Object, causes: &mut Vec<Cause>) {
    let mut bytes = 0;
    for (key, value) in object.annotations() {
        refuse(causes, "metadata.annotations", key, names::qualified(&key.to_lowercase()));
        bytes += key.len() + value.len();
    }
    if ANNOTATIONS_BYTES_MAX < bytes {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX));
    }
}

fn finalizers(object: &Object, causes: &mut Vec<Cause>) {
    for name in object.finalizers() {
        refuse(causes, "metadata.finalizers", name, names::qualified(name));
    }
    let has = |wanted: &str| object.finalizers().any(|name| name == wanted);
    if has(ORPHAN_FINALIZER) && has(FOREGROUND_FINALIZER) {
        let why = format!("{ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} exclude each other");
        let both = json!([ORPHAN_FINALIZER, FOREGROUND_FINALIZER]);
        causes.push(Cause::invalid("metadata.finalizers", &both, &why));
    }
}

fn owner_references(object: &Object, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for (index, owner) in object.owner_references().enumerate() {
        if CAUSES_MAX <= causes.len() {
            return;
        }
        let field = |name: &str| format!("metadata.ownerReferences[{index}].{name}");
        for (name, value) in [
            ("apiVersion", owner.api_version),
            ("kind", owner.kind),
            ("name", owner.name),
            ("uid", owner.uid),
        ] {
            if value.is_empty() {
                causes.push(Cause::required(field(name), "must not be empty"));
            }
        }
        if !owner.api_version.is_empty() && !is_group_version(owner.api_version) {
            let why = "is neither <group>/<version> nor <version>";
            causes.push(Cause::invalid(field("apiVersion"), &shown(owner.api_version), why));
        }
        if (owner.api_version, owner.kind) == ("v1", "Event") {
            let why = "an Event may own nothing";
            let place = format!("metadata.ownerReferences[{index}]");
            causes.push(Cause::invalid(place, &shown(owner.kind), why));
        }
        controllers += usize::from(owner.controller);
    }
    if 1 < controllers {
        let why = "only one owner can be the controller";
        causes.push(Cause::invalid("metadata.ownerReferences", &json!(controllers), why));
    }
}

fn is_group_version(text: &str) -> bool {
    let mut parts = text.split('/');
    parts.all(|part| !part.is_empty()) && text.matches('/').count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes_of(value: Value) -> Vec<(&'static str, String)> {
        let (object, _) = Object::decode(json!({ "metadata": value })).expect("a good shape");
        metadata(&object, NameRule::DnsSubdomain, true)
            .into_iter()
            .map(|cause| (cause.reason, cause.field))
            .collect()
    }

    fn one(value: Value, reason: &'static str, field: &str) {
        let mut whole = json!({ "name": "a", "namespace": "n" });
        for (key, value) in value.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        assert_eq!(causes_of(whole), [(reason, field.to_owned())], "{value}");
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert_eq!(causes_of(json!({ "name": "a", "namespace": "n" })), []);
        one(json!({ "name": "" }), "FieldValueRequired", "metadata.name");
        one(json!({ "name": "A" }), "FieldValueInvalid", "metadata.name");
        one(json!({ "generateName": "A-" }), "FieldValueInvalid", "metadata.generateName");
        one(json!({ "namespace": "" }), "FieldValueRequired", "metadata.namespace");
        one(json!({ "namespace": "a.b" }), "FieldValueInvalid", "metadata.namespace");
        one(json!({ "labels": { "a/b/c": "d" } }), "FieldValueInvalid", "metadata.labels");
        one(json!({ "labels": { "a": "-" } }), "FieldValueInvalid", "metadata.labels");
        one(json!({ "annotations": { "-": "d" } }), "FieldValueInvalid", "metadata.annotations");
        one(json!({ "finalizers": ["a b"] }), "FieldValueInvalid", "metadata.finalizers");
        let both = json!({ "finalizers": ["orphan", "foregroundDeletion"] });
        one(both, "FieldValueInvalid", "metadata.finalizers");
    }

    #[test]
    fn annotation_keys_may_be_in_upper_case_and_all_of_them_have_a_size() {
        let at = |bytes| json!({ "name": "a", "namespace": "n", "annotations": { "Ab": "v".repeat(bytes) } });
        assert_eq!(causes_of(at(ANNOTATIONS_BYTES_MAX - 2)), []);
        let expected = [("FieldValueTooLong", "metadata.annotations".to_owned())];
        assert_eq!(causes_of(at(ANNOTATIONS_BYTES_MAX - 1)), expected);
    }

    #[test]
    fn owners_are_whole_and_one_of_them_controls() {
        let owner = |controller: bool| json!({ "apiVersion": "apps/v1", "kind": "X", "name": "x", "uid": "u", "controller": controller });
        assert_eq!(
            causes_of(
                json!({ "name": "a", "namespace": "n", "ownerReferences": [owner(true), owner(false)] })
            ),
            []
        );
        one(
            json!({ "ownerReferences": [owner(true), owner(true)] }),
            "FieldValueInvalid",
            "metadata.ownerReferences",
        );
        let no_uid = json!({ "apiVersion": "v1", "kind": "X", "name": "x" });
        one(json!({ "ownerReferences": [no_uid] }), "FieldValueRequired", "metadata.ownerReferences[0].uid");
        let bad_version = json!({ "apiVersion": "a/b/c", "kind": "X", "name": "x", "uid": "u" });
        let field = "metadata.ownerReferences[0].apiVersion";
        one(json!({ "ownerReferences": [bad_version] }), "FieldValueInvalid", field);
    }

    #[test]
    fn a_cluster_wide_object_has_no_namespace() {
        let (object, _) =
            Object::decode(json!({ "metadata": { "name": "a", "namespace": "n" } })).expect("good");
        let causes = metadata(&object, NameRule::DnsSubdomain, false);
        assert_eq!(causes[0].field, "metadata.namespace");
        assert_eq!(causes[0].reason, "FieldValueForbidden");
    }

    #[test]
    fn a_hostile_object_makes_a_small_answer() {
        let labels: serde_json::Map<String, Value> =
            (0..10_000).map(|index| (format!("-{index}{}", "x".repeat(300)), json!("-"))).collect();
        let (object, _) =
            Object::decode(json!({ "metadata": { "name": "a", "labels": labels } })).expect("good");
        let causes = metadata(&object, NameRule::DnsSubdomain, false);
        assert_eq!(causes.len(), CAUSES_MAX);
        assert!(causes.iter().all(|cause| cause.message.len() < 2 * SHOWN_BYTES_MAX));
    }

    #[test]
    fn an_object_on_its_way_out_takes_no_new_finalizers() {
        let object = |finalizers: Value, deleted: bool| {
            let mut value = json!({ "metadata": { "name": "a", "finalizers": finalizers } });
            if deleted {
                value["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            }
            Object::decode(value).expect("good").0
        };
        let (one, two) = (json!(["a/x"]), json!(["a/x", "a/y"]));
        assert!(metadata_update(&object(one.clone(), false), &object(two.clone(), false)).is_empty());
        assert!(metadata_update(&object(two.clone(), true), &object(one.clone(), true)).is_empty());
        let causes = metadata_update(&object(one, true), &object(two, true));
        assert_eq!(
            (causes[0].reason, causes[0].field.as_str()),
            ("FieldValueForbidden", "metadata.finalizers")
        );
    }
}
