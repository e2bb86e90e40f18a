//! The rules of a delete: an object goes at once, or is marked and goes when its finalizers are done.

use super::{Decision, Write, is_final, is_phased, stored_bytes};
use crate::write_options::{DeleteOptions, Preconditions, Propagation};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::object::check::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::timestamp::Timestamp;
use serde_json::{Value, json};

/// `stored` carries the resourceVersion of the key it was read from. An object that is marked is answered
/// with itself; of one that is removed, `object` is the last state.
pub fn before_delete(
    stored: &Object,
    kind: &Kind,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    check(&options.preconditions, stored, kind)?;
    let mut object = stored.clone();
    object.set_finalizers(&finalizers(stored, options.propagation));
    if is_final(&object, kind) {
        return Ok(Decision { write: Write::Remove, object: stored.clone() });
    }
    mark(&mut object, stored, now);
    if is_phased(kind) {
        let mut status = match object.get("status") {
            Some(Value::Object(status)) => status.clone(),
            _ => serde_json::Map::new(),
        };
        status.insert("phase".to_owned(), json!("Terminating"));
        object.set("status", Some(Value::Object(status)));
    }
    let bytes = stored_bytes(&object, kind);
    let write = if bytes == stored_bytes(stored, kind) { Write::Nothing } else { Write::Replace(bytes) };
    Ok(Decision { write, object })
}

fn check(preconditions: &Preconditions, stored: &Object, kind: &Kind) -> Result<(), Refusal> {
    let conflict = |why: &str| Err(Refusal::conflict(&kind.group_resource(), stored.name(), why));
    if let Some(uid) = &preconditions.uid
        && uid != stored.uid()
    {
        return conflict(&format!(
            "the UID in the precondition ({uid}) is not that of the object ({}), which may be a newer one of the same name",
            stored.uid()
        ));
    }
    if let Some(version) = &preconditions.resource_version
        && version != stored.resource_version()
    {
        return conflict(&format!(
            "the ResourceVersion in the precondition ({version}) is not that of the object ({}), which may have been changed",
            stored.resource_version()
        ));
    }
    Ok(())
}

/// The object's finalizers, with the garbage collector's as the client wants them. A client that says
/// nothing leaves them as they are.
fn finalizers(stored: &Object, propagation: Option<Propagation>) -> Vec<String> {
    let all = || stored.finalizers().map(str::to_owned);
    let Some(propagation) = propagation else { return all().collect() };
    let added = match propagation {
        Propagation::Orphan => Some(ORPHAN_FINALIZER),
        Propagation::Foreground => Some(FOREGROUND_FINALIZER),
        Propagation::Background => None,
    };
    // One that is there already keeps its place, so that a delete said twice changes nothing.
    if added.is_some_and(|added| stored.finalizers().any(|name| name == added)) {
        return all().filter(|name| Some(name.as_str()) == added || !is_collectors(name)).collect();
    }
    all().filter(|name| !is_collectors(name)).chain(added.map(str::to_owned)).collect()
}

fn is_collectors(name: &str) -> bool {
    name == ORPHAN_FINALIZER || name == FOREGROUND_FINALIZER
}

fn mark(object: &mut Object, stored: &Object, now: Timestamp) {
    let marked = stored.deletion_timestamp().and_then(Timestamp::parse);
    if !stored.is_being_deleted() && 0 < stored.generation() {
        object.set_generation(stored.generation().saturating_add(1));
    }
    object.set_deletion(marked.map_or(now, |marked| marked.min(now)), 0);
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{namespace, object, read, widget};
    use super::*;

    const NOW: Timestamp = later(0);

    const fn later(seconds: i64) -> Timestamp {
        Timestamp { seconds: 1_600_000_000 + seconds, nanos: 5 }
    }

    fn stored(finalizers: Value) -> Object {
        object(json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                "finalizers": finalizers,
            },
        }))
    }

    fn delete(stored: &Object, options: &DeleteOptions) -> Decision {
        before_delete(stored, &widget(), options, NOW).expect("a good delete")
    }

    fn with(propagation: Propagation) -> DeleteOptions {
        DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() }
    }

    #[test]
    fn without_finalizers_it_goes_at_once() {
        let stored = stored(json!([]));
        let decision = delete(&stored, &DeleteOptions::default());
        assert_eq!((decision.write, decision.object), (Write::Remove, stored));
    }

    #[test]
    fn with_finalizers_it_is_marked_once() {
        let decision = delete(&stored(json!(["a/x"])), &DeleteOptions::default());
        let bytes = read(&decision.write);
        assert_eq!(bytes["metadata"]["deletionTimestamp"], "2020-09-13T12:26:40Z");
        assert_eq!(bytes["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(bytes["metadata"]["generation"], 4, "the wish to go is a change of what is wanted");
        let later = before_delete(&decision.object, &widget(), &DeleteOptions::default(), later(60));
        assert_eq!(later.expect("again").write, Write::Nothing);
    }

    #[test]
    fn the_collectors_finalizers_follow_the_propagation() {
        for (before, propagation, after) in [
            (json!([]), Propagation::Background, None),
            (json!([]), Propagation::Orphan, Some(json!(["orphan"]))),
            (json!([]), Propagation::Foreground, Some(json!(["foregroundDeletion"]))),
            (json!(["orphan"]), Propagation::Background, None),
            (json!(["orphan", "a/x"]), Propagation::Foreground, Some(json!(["a/x", "foregroundDeletion"]))),
            (json!(["orphan", "a/x"]), Propagation::Orphan, Some(json!(["orphan", "a/x"]))),
        ] {
            let decision = delete(&stored(before.clone()), &with(propagation));
            match after {
                None => assert_eq!(decision.write, Write::Remove, "{before}"),
                Some(after) => assert_eq!(read(&decision.write)["metadata"]["finalizers"], after, "{before}"),
            }
        }
        assert!(matches!(
            delete(&stored(json!(["orphan"])), &DeleteOptions::default()).write,
            Write::Replace(_)
        ));
    }

    #[test]
    fn preconditions_that_do_not_hold_are_conflicts() {
        let stored = stored(json!([]));
        let refused = |uid: Option<&str>, version: Option<&str>| {
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: uid.map(str::to_owned),
                    resource_version: version.map(str::to_owned),
                },
                ..DeleteOptions::default()
            };
            before_delete(&stored, &widget(), &options, NOW).map(|_| ()).map_err(|refusal| refusal.code())
        };
        assert_eq!(refused(Some("u"), Some("7")), Ok(()));
        assert_eq!(refused(Some("v"), None), Err(409));
        assert_eq!(refused(None, Some("6")), Err(409));
    }

    #[test]
    fn a_time_to_go_is_only_ever_brought_forward() {
        let mut early = stored(json!(["a/x"]));
        early.set_deletion(later(-100), 30);
        let decision = delete(&early, &DeleteOptions::default());
        assert_eq!(decision.object.deletion_timestamp(), Some(later(-100).to_seconds().to_string().as_str()));
        assert_eq!(
            (decision.object.deletion_grace_period_seconds(), decision.object.generation()),
            (Some(0), 3)
        );
        let mut late = stored(json!(["a/x"]));
        late.set_deletion(later(100), 30);
        let decision = delete(&late, &DeleteOptions::default());
        assert_eq!(decision.object.deletion_timestamp(), Some(NOW.to_seconds().to_string().as_str()));
    }

    #[test]
    fn a_namespace_is_terminating_until_it_is_finalized() {
        let stored = object(json!({
            "metadata": { "name": "a" }, "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        }));
        let decision = before_delete(&stored, &namespace(), &DeleteOptions::default(), NOW).expect("good");
        assert_eq!(read(&decision.write)["status"]["phase"], "Terminating");
        assert!(decision.object.is_being_deleted());
    }
}
