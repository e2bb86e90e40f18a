//! The rules of an update, be it sent whole or made by a patch.

use super::{
    CHANGED_MEANWHILE, Decision, Write, immutable, invalid, is_final, is_phased, settle_namespace,
    settle_type, status_part, stored_bytes,
};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::object::check;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Cause, Refusal};
use meerkat_kubernetes::values;
use serde_json::{Value, json};

/// Which part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// All of it but a status that has an endpoint of its own.
    Whole,
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
}

/// `stored` carries the resourceVersion of the key it was read from. `name` and `namespace` are the path's.
/// An update that empties the finalizers of an object on its way out removes it, and is answered with it.
pub fn before_update(
    stored: &Object,
    mut object: Object,
    kind: &Kind,
    endpoint: Endpoint,
    namespace: &str,
    name: &str,
) -> Result<Decision, Refusal> {
    settle_type(&mut object, kind)?;
    if object.name() != name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object.name()
        )));
    }
    settle_namespace(&mut object, kind, namespace)?;
    preconditions(stored, &object, kind)?;
    let mut object = match endpoint {
        Endpoint::Whole => keep_status(stored, object, kind),
        Endpoint::Status => status_part::only_status(stored, &object, kind),
        Endpoint::Finalize => only_spec_finalizers(stored, &object),
    };
    object.set_api_version(&kind.api_version());
    object.set_resource_version(stored.resource_version());
    object.restore_system_fields(stored);
    immutable::keep_type(stored, &mut object, kind);
    if kind.has_generation && endpoint == Endpoint::Whole && is_other_beside_metadata(stored, &object) {
        object.set_generation(stored.generation().saturating_add(1));
    }
    let mut causes = check::metadata(&object, kind.name_rule, kind.is_namespaced());
    causes.extend(check::metadata_update(stored, &object));
    causes.extend(immutable::causes(stored, &object, kind));
    causes.extend(values::on_update(stored, &object, kind));
    invalid(kind, name, causes)?;
    let graceless = stored.deletion_grace_period_seconds().unwrap_or_default() == 0;
    let write = if stored.is_being_deleted() && graceless && is_final(&object, kind) {
        Write::Remove
    } else {
        let bytes = stored_bytes(&object, kind);
        if bytes == stored_bytes(stored, kind) { Write::Nothing } else { Write::Replace(bytes) }
    };
    Ok(Decision { write, object })
}

/// What the body says of uid and resourceVersion must be so.
fn preconditions(stored: &Object, object: &Object, kind: &Kind) -> Result<(), Refusal> {
    if !object.uid().is_empty() && object.uid() != stored.uid() {
        let why = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            object.uid(),
            stored.uid()
        );
        return Err(Refusal::conflict(&kind.group_resource(), stored.name(), &why));
    }
    let version = object.resource_version();
    // A zero says as little as nothing.
    if version.is_empty() || version == "0" {
        if kind.unconditional_update {
            return Ok(());
        }
        let causes =
            vec![Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update")];
        return Err(Refusal::invalid(&kind.group, &kind.plural, stored.name(), causes));
    }
    if version.parse::<u64>().is_err() {
        let causes = vec![Cause::invalid("metadata.resourceVersion", &check::shown(version), "is no number")];
        return Err(Refusal::invalid(&kind.group, &kind.kind, stored.name(), causes));
    }
    if version == stored.resource_version() {
        return Ok(());
    }
    Err(Refusal::conflict(&kind.group_resource(), stored.name(), CHANGED_MEANWHILE))
}

fn keep_status(stored: &Object, mut object: Object, kind: &Kind) -> Object {
    if kind.subresources.status {
        object.set("status", stored.get("status").cloned());
    }
    if is_phased(kind) {
        let kept = stored.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
        set_spec_finalizers(&mut object, kept);
    }
    object
}

fn only_spec_finalizers(stored: &Object, object: &Object) -> Object {
    let mut kept = stored.clone();
    set_spec_finalizers(&mut kept, object.get("spec").and_then(|spec| spec.get("finalizers")).cloned());
    kept
}

fn set_spec_finalizers(object: &mut Object, finalizers: Option<Value>) {
    let mut spec = match object.get("spec") {
        Some(Value::Object(spec)) => spec.clone(),
        _ => serde_json::Map::new(),
    };
    match finalizers {
        Some(Value::Array(list)) if !list.is_empty() => {
            spec.insert("finalizers".to_owned(), Value::Array(list));
        }
        _ => drop(spec.remove("finalizers")),
    }
    object.set("spec", Some(Value::Object(spec)));
}

fn is_other_beside_metadata(stored: &Object, object: &Object) -> bool {
    // Two versions of a kind differ in name only.
    let rest = |object: &Object| {
        let mut map = object.as_map().clone();
        for field in ["metadata", "apiVersion", "kind"] {
            map.remove(field);
        }
        map
    };
    rest(stored) != rest(object)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{namespace, object, read, widget};
    use super::*;

    fn stored() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2020-01-01T00:00:00Z", "labels": { "x": "y" },
            },
            "spec": { "x": 1 }, "status": { "ready": true },
        })
    }

    fn edited(edit: impl FnOnce(&mut Value)) -> Value {
        let mut value = stored();
        edit(&mut value);
        value
    }

    fn update(sent: Value, endpoint: Endpoint) -> Result<Decision, Refusal> {
        before_update(&object(stored()), object(sent), &widget(), endpoint, "n", "a")
    }

    fn whole(sent: Value) -> Result<Decision, Refusal> {
        update(sent, Endpoint::Whole)
    }

    #[test]
    fn the_same_again_is_no_write() {
        assert_eq!(whole(stored()).expect("good").write, Write::Nothing);
        let again = edited(|sent| {
            sent["metadata"]["generation"] = json!(99);
            sent["metadata"]["creationTimestamp"] = json!(null);
            sent["metadata"]["selfLink"] = json!("/x");
            sent["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
            sent["status"] = json!({ "ready": false });
        });
        let decision = whole(again).expect("good");
        assert_eq!(decision.write, Write::Nothing, "what the client may not change is no change");
        assert_eq!(decision.object, object(stored()), "and is answered as it is stored");
    }

    #[test]
    fn a_changed_spec_counts_up_and_changed_metadata_does_not() {
        let decision = whole(edited(|sent| sent["spec"]["x"] = json!(2))).expect("good");
        assert_eq!(decision.object.generation(), 4);
        assert_eq!(decision.object.resource_version(), "7");
        let bytes = read(&decision.write);
        assert_eq!((&bytes["spec"]["x"], &bytes["metadata"]["generation"]), (&json!(2), &json!(4)));
        assert_eq!(bytes["metadata"].get("resourceVersion"), None, "the store's revision says it");

        let decision = whole(edited(|sent| sent["metadata"]["labels"]["x"] = json!("z"))).expect("good");
        assert_eq!(decision.object.generation(), 3);
        assert!(matches!(decision.write, Write::Replace(_)));
    }

    #[test]
    fn each_endpoint_writes_its_part() {
        let both = || {
            edited(|sent| {
                sent["spec"]["x"] = json!(2);
                sent["status"] = json!({ "ready": false });
                sent["metadata"]["labels"] = json!({ "new": "label" });
                sent["metadata"]["managedFields"] = json!([{ "manager": "m" }]);
            })
        };
        let decision = whole(both()).expect("good");
        assert_eq!(decision.object.get("spec"), Some(&json!({ "x": 2 })));
        assert_eq!(decision.object.get("status"), Some(&json!({ "ready": true })));

        let decision = update(both(), Endpoint::Status).expect("good");
        assert_eq!(decision.object.get("spec"), Some(&json!({ "x": 1 })));
        assert_eq!(decision.object.get("status"), Some(&json!({ "ready": false })));
        assert_eq!(decision.object.labels().collect::<Vec<_>>(), [("x", "y")]);
        assert_eq!((decision.object.generation(), decision.object.managed_fields().len()), (3, 1));

        let mut kind = widget();
        kind.subresources.status = false;
        let ordinary =
            before_update(&object(stored()), object(both()), &kind, Endpoint::Whole, "n", "a").expect("good");
        assert_eq!(ordinary.object.get("status"), Some(&json!({ "ready": false })));

        let taken_out = edited(|sent| drop(sent.as_object_mut().expect("a map").remove("status")));
        assert_eq!(update(taken_out, Endpoint::Status).expect("good").object.get("status"), None);
    }

    #[test]
    fn an_update_names_the_version_it_knows() {
        let with = |version: Value| edited(|sent| sent["metadata"]["resourceVersion"] = version);
        let stale = whole(with(json!("6"))).expect_err("stale");
        assert_eq!((stale.code(), stale.reason.to_string().as_str()), (409, "Conflict"));
        assert!(stale.message.ends_with(CHANGED_MEANWHILE), "{stale}");
        let none = whole(with(json!(null))).expect_err("unconditional");
        assert_eq!(
            none.message,
            "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        );
        assert_eq!(whole(with(json!("x"))).expect_err("garbage").code(), 422);
        let kind = Kind { unconditional_update: true, ..widget() };
        let free =
            before_update(&object(stored()), object(with(json!(null))), &kind, Endpoint::Whole, "n", "a");
        assert_eq!(free.expect("unconditional").write, Write::Nothing);
    }

    #[test]
    fn a_uid_in_the_body_is_a_precondition() {
        let other = whole(edited(|sent| sent["metadata"]["uid"] = json!("v"))).expect_err("another object");
        assert_eq!(other.code(), 409);
        assert!(other.message.contains("UID in precondition: v, UID in object meta: u"), "{other}");
        let none = whole(edited(|sent| sent["metadata"]["uid"] = json!(null))).expect("good");
        assert_eq!((none.write, none.object.uid()), (Write::Nothing, "u"));
    }

    #[test]
    fn the_path_says_which_object_it_is() {
        let name = whole(edited(|sent| sent["metadata"]["name"] = json!("b"))).expect_err("another name");
        assert_eq!(name.message, "the name of the object (b) does not match the name on the URL (a)");
        let place = whole(edited(|sent| sent["metadata"]["namespace"] = json!("m"))).expect_err("elsewhere");
        assert_eq!((name.code(), place.code()), (400, 400));
        assert!(whole(edited(|sent| sent["metadata"]["namespace"] = json!(null))).is_ok());
        assert_eq!(whole(edited(|sent| sent["kind"] = json!("Gadget"))).expect_err("a kind").code(), 400);
        let labels = whole(edited(|sent| sent["metadata"]["labels"]["-"] = json!("a")));
        assert_eq!(labels.expect_err("a bad label").code(), 422);
    }

    fn deleting(finalizers: Value) -> Value {
        edited(|value| {
            value["metadata"]["finalizers"] = finalizers;
            value["metadata"]["deletionTimestamp"] = json!("2021-01-01T00:00:00Z");
            value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        })
    }

    #[test]
    fn the_update_that_empties_the_finalizers_removes_the_object() {
        let before = object(deleting(json!(["a/x", "a/y"])));
        let update = |finalizers: Value| {
            before_update(&before, object(deleting(finalizers)), &widget(), Endpoint::Whole, "n", "a")
        };
        assert!(matches!(update(json!(["a/y"])).expect("good").write, Write::Replace(_)));
        let last = update(json!([])).expect("good");
        assert_eq!((last.write, last.object.finalizers().count()), (Write::Remove, 0));
        assert_eq!(update(json!(["a/x", "a/y", "a/z"])).expect_err("a new one").code(), 422);

        let living = whole(edited(|sent| sent["metadata"]["finalizers"] = json!([]))).expect("good");
        assert_eq!(living.write, Write::Nothing, "an object that nobody deletes stays");
        let mut waiting = deleting(json!(["a/x"]));
        waiting["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let mut emptied = waiting.clone();
        emptied["metadata"]["finalizers"] = json!([]);
        let waiting = before_update(&object(waiting), object(emptied), &widget(), Endpoint::Whole, "n", "a")
            .expect("good");
        assert!(matches!(waiting.write, Write::Replace(_)), "its time has not come");
    }

    #[test]
    fn deletion_once_begun_cannot_be_taken_back() {
        let before = object(deleting(json!(["a/x"])));
        let mut sent = deleting(json!(["a/x"]));
        sent["metadata"]["deletionTimestamp"] = json!(null);
        sent["metadata"]["deletionGracePeriodSeconds"] = json!(60);
        let decision =
            before_update(&before, object(sent), &widget(), Endpoint::Whole, "n", "a").expect("good");
        assert_eq!(decision.write, Write::Nothing);
    }

    #[test]
    fn a_namespace_goes_when_it_is_finalized() {
        let before = object(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "a", "resourceVersion": "7", "deletionTimestamp": "2021-01-01T00:00:00Z" },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Terminating" },
        }));
        let mut sent = before.to_value();
        sent["spec"] = json!({});
        sent["metadata"]["labels"] = json!({ "new": "label" });
        let at = |endpoint| {
            before_update(&before, object(sent.clone()), &namespace(), endpoint, "", "a").expect("good")
        };
        let usual = at(Endpoint::Whole);
        assert_eq!(
            usual.object.get("spec"),
            Some(&json!({ "finalizers": ["kubernetes"] })),
            "not by this way"
        );
        let finalized = at(Endpoint::Finalize);
        assert_eq!((finalized.write, finalized.object.labels().count()), (Write::Remove, 0));
    }

    #[test]
    fn an_object_of_another_version_is_stored_in_the_stored_one() {
        let kind = Kind { version: "v2".to_owned(), ..widget() };
        let sent = edited(|sent| sent["apiVersion"] = json!("example.com/v2"));
        let same =
            before_update(&object(stored()), object(sent), &kind, Endpoint::Whole, "n", "a").expect("good");
        assert_eq!((same.write, same.object.api_version()), (Write::Nothing, "example.com/v2"));
    }

    #[test]
    fn what_was_answered_and_is_sent_again_is_no_write() {
        use rand::{Rng, SeedableRng, rngs::StdRng};
        let mut random = StdRng::seed_from_u64(17);
        let mut written = 0;
        for _ in 0..2_000 {
            let sent = edited(|sent| {
                for _ in 0..random.random_range(1..4) {
                    let small = json!(random.random_range(0..3));
                    match random.random_range(0..6) {
                        0 => sent["spec"]["x"] = small,
                        1 => sent["status"] = json!({ "ready": small }),
                        2 => sent["metadata"]["labels"] = json!({ "x": small.to_string() }),
                        3 => sent["metadata"]["generation"] = small,
                        4 => sent["metadata"]["finalizers"] = json!(vec!["a/x"; random.random_range(0..2)]),
                        _ => sent["extra"] = small,
                    }
                }
            });
            let endpoint = if random.random_bool(0.5) { Endpoint::Whole } else { Endpoint::Status };
            let first = update(sent.clone(), endpoint).expect("a good update");
            written += usize::from(first.write != Write::Nothing);
            let spec_changed = first.object.get("spec") != object(stored()).get("spec")
                || first.object.get("extra").is_some();
            assert_eq!(first.object.generation(), 3 + i64::from(spec_changed), "{sent}");
            let again = before_update(&first.object, first.object.clone(), &widget(), endpoint, "n", "a");
            assert_eq!(again.expect("good").write, Write::Nothing, "{sent}");
        }
        assert!(500 < written);
    }
}
