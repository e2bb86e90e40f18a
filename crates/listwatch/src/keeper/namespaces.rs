//! Empties a namespace that goes, and lets it go.
//!
//! A member refuses to create anything in a namespace once it knows that the namespace goes. It may learn so
//! a little late, and a create that it let through may reach the store later still. No write of one key can
//! exclude that, so there are two nets. A namespace goes only if it was found empty, by a read as of now, at
//! least [`SETTLE_MS`] after this keeper learned that it goes. And some time after it went it is looked into
//! once more, by this keeper or by the next, and what is found in a namespace that is not there is removed.

use super::collect::{MANAGER, Subject};
use super::follow::deletable_kinds;
use super::queue::Outcome;
use super::tally::{Deed, Tally};
use super::{Times, sweeps};
use crate::storage::{Part, Place, Storage, Writer};
use crate::write_options::{DeleteOptions, Propagation, WriteOptions};
use crate::write_rules::Endpoint;
use meerkat_kubernetes::object;
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::{Filter, Scope};
use meerkat_watchcache::list_plan::{ListPlan, ReadAt};
use meerkat_watchcache::store::StoreError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a create may take from the look at its namespace to the store.
pub const SETTLE_MS: u64 = 5_000;
/// When to look into a namespace that went.
pub const SWEEP_MS: u64 = 10_000;
/// What is left goes when somebody lets it, which is told; this is for what is not.
const REMAINS_AFTER_MS: u64 = 5_000;
/// The finalizer in a namespace's spec that is ours.
const FINALIZER: &str = "kubernetes";

/// What is left of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rest {
    /// Objects by resource.
    objects: BTreeMap<String, usize>,
    /// Objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted or counted, and why.
    failures: Vec<String>,
}

/// `known_ms`: how long it is known that the namespace goes. `now`: for its conditions.
pub async fn empty(
    storage: &Storage,
    name: &str,
    known_ms: u64,
    times: Times,
    now: Timestamp,
    tally: &Tally,
) -> Result<Outcome, Refusal> {
    let registry = storage.kinds().fresh().await?;
    let Some(kind) = registry.by_group_kind("", "Namespace") else { return Ok(Outcome::Done) };
    let entry = match storage
        .get(Place { kind, namespace: "", name, writer: Writer::Door }, ReadAt::MostRecent)
        .await
    {
        Ok(entry) => entry,
        Err(refusal) if refusal.reason == Reason::NotFound => {
            sweep(storage, &registry, kind, name).await?;
            return Ok(Outcome::Done);
        }
        Err(refusal) => return Err(refusal),
    };
    let mut namespace = object::parse(entry.json())?;
    let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let goes = namespace["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null());
    if !goes || !finalizers.iter().any(|each| each == FINALIZER) {
        return Ok(Outcome::Done);
    }
    let holder = Holder { storage, kind, entry: &entry };
    let rest = delete_all(&holder, &registry).await;
    if !rest.objects.is_empty() || !rest.failures.is_empty() {
        let conditions = conditions(&namespace["status"]["conditions"], &rest, now);
        if namespace["status"]["conditions"] != conditions {
            namespace["status"]["conditions"] = conditions;
            write(storage, kind, name, Endpoint::Status, namespace).await?;
        }
        return Ok(Outcome::Again { after_ms: REMAINS_AFTER_MS });
    }
    if known_ms < times.settle_ms {
        return Ok(Outcome::Again { after_ms: times.settle_ms - known_ms });
    }
    sweeps::note(&**storage.store(), name).await.map_err(unnoted)?;
    let others: Vec<Value> = finalizers.into_iter().filter(|each| each != FINALIZER).collect();
    namespace["spec"]["finalizers"] = Value::Array(others);
    write(storage, kind, name, Endpoint::Finalize, namespace).await?;
    tally.add(Deed::Namespace);
    Ok(Outcome::Again { after_ms: times.sweep_ms })
}

/// It is tried again.
fn unnoted(error: StoreError) -> Refusal {
    Refusal::new(Reason::ServiceUnavailable, error.to_string())
}

async fn write(
    storage: &Storage,
    kind: &Arc<Kind>,
    name: &str,
    endpoint: Endpoint,
    object: Value,
) -> Result<(), Refusal> {
    let place = Place { kind, namespace: "", name, writer: Writer::Door };
    let options = WriteOptions::default();
    storage.update(place, Part::Of(endpoint), object, &options, MANAGER).await.map(|_| ())
}

fn namespaced(registry: &Registry) -> impl Iterator<Item = &Arc<Kind>> {
    deletable_kinds(registry).into_iter().filter(|kind| kind.is_namespaced())
}

async fn delete_all(namespace: &Holder<'_>, registry: &Registry) -> Rest {
    let mut rest = Rest::default();
    let filter = Filter::new(Scope::namespace(namespace.entry.name()), Vec::new());
    for kind in namespaced(registry) {
        match namespace.delete_held(kind, &filter).await {
            Ok(left) => rest.count(kind, &left),
            Err(refusal) => rest.failures.push(format!("{}: {refusal}", kind.group_resource())),
        }
    }
    rest
}

/// A namespace or a definition that goes, with all that it holds.
pub struct Holder<'a> {
    pub storage: &'a Storage,
    /// Its own.
    pub kind: &'a Arc<Kind>,
    pub entry: &'a Entry,
}

impl Holder<'_> {
    /// Deletes what it holds of a kind, and tells what is left then. What is to go is listed before the
    /// holder is looked for: nothing that another of its name holds can be among it.
    pub async fn delete_held(&self, kind: &Arc<Kind>, filter: &Filter) -> Result<Vec<Entry>, Refusal> {
        let found = list(self.storage, kind, filter).await?;
        if found.is_empty() {
            return Ok(found);
        }
        let place = Place { kind: self.kind, namespace: "", name: self.entry.name(), writer: Writer::Door };
        let now = self.storage.get(place, ReadAt::MostRecent).await?;
        if now.uid() != self.entry.uid() || !is_going(&now) {
            let why = "another has its name, whose objects stay";
            return Err(Refusal::conflict(&self.kind.group_resource(), self.entry.name(), why));
        }
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        self.storage.delete_entries(kind, found, &options, Writer::Door).await?;
        list(self.storage, kind, filter).await
    }
}

fn is_going(entry: &Entry) -> bool {
    object::parse(entry.json())
        .is_ok_and(|object| object["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null()))
}

/// As of now.
pub async fn list(storage: &Storage, kind: &Kind, filter: &Filter) -> Result<Vec<Entry>, Refusal> {
    let plan = ListPlan { at: ReadAt::MostRecent, resume: None, limit: None };
    storage.list(kind, filter, &plan).await.map(|listed| listed.entries)
}

/// Removes what came into a namespace that is gone. The objects are listed before the namespace is looked
/// for: whatever is in one that is made anew is not among them, or the namespace is found.
async fn sweep(
    storage: &Storage,
    registry: &Registry,
    namespaces: &Arc<Kind>,
    name: &str,
) -> Result<(), Refusal> {
    let filter = Filter::new(Scope::namespace(name), Vec::new());
    for kind in namespaced(registry) {
        let found = list(storage, kind, &filter).await?;
        if found.is_empty() {
            continue;
        }
        match storage
            .get(Place { kind: namespaces, namespace: "", name, writer: Writer::Door }, ReadAt::MostRecent)
            .await
        {
            Err(refusal) if refusal.reason == Reason::NotFound => {}
            Err(refusal) => return Err(refusal),
            Ok(_) => return Ok(()),
        }
        for entry in &found {
            Subject { storage, kind, entry }.delete(Propagation::Background).await?;
        }
    }
    Ok(())
}

impl Rest {
    fn count(&mut self, kind: &Kind, left: &[Entry]) {
        if left.is_empty() {
            return;
        }
        *self.objects.entry(kind.group_resource().to_string()).or_default() += left.len();
        for entry in left {
            let Ok(object) = object::parse(entry.json()) else { continue };
            let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            for finalizer in finalizers.iter().filter_map(Value::as_str) {
                *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
}

/// What a namespace says of its end. A condition that holds as before keeps its time, and others' conditions
/// stay.
fn conditions(old: &Value, rest: &Rest, now: Timestamp) -> Value {
    let told = |counts: &BTreeMap<String, usize>, of: &str| {
        let each = counts.iter().map(|(name, count)| format!("{name} {of} {count} resource instances"));
        each.collect::<Vec<_>>().join(", ")
    };
    let (objects, finalizers) = (told(&rest.objects, "has"), told(&rest.finalizers, "in"));
    let mut all = old.as_array().cloned().unwrap_or_default();
    for (of_type, words, holds, fails, good) in [
        (
            "NamespaceDeletionContentFailure",
            rest.failures.join("; "),
            "ContentDeletionFailed",
            "Failed to delete all resource types",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            objects,
            "SomeResourcesRemain",
            "Some resources are remaining",
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            finalizers,
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ] {
        let (status, reason, message) = if words.is_empty() {
            ("False", good.0, good.1.to_owned())
        } else {
            ("True", holds, format!("{fails}: {words}"))
        };
        let mut condition = json!({
            "type": of_type, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now.to_seconds().to_string(),
        });
        match all.iter_mut().find(|each| each["type"] == of_type) {
            Some(before) => {
                if before["status"] == status {
                    condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
                }
                *before = condition;
            }
            None => all.push(condition),
        }
    }
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_conditions() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let other = json!([{ "type": "Other", "status": "True" }]);
        let rest = Rest {
            objects: BTreeMap::from([("pods".to_owned(), 2)]),
            finalizers: BTreeMap::from([("a/b".to_owned(), 1)]),
            failures: Vec::new(),
        };
        let first = conditions(&other, &rest, at(1_000));
        let find = |all: &Value, of_type: &str| {
            all.as_array().and_then(|all| all.iter().find(|each| each["type"] == of_type)).cloned()
        };
        let content = find(&first, "NamespaceContentRemaining").expect("told");
        assert_eq!((&content["status"], &content["reason"]), (&json!("True"), &json!("SomeResourcesRemain")));
        assert_eq!(content["message"], "Some resources are remaining: pods has 2 resource instances");
        let finalizers = find(&first, "NamespaceFinalizersRemaining").expect("told");
        assert_eq!(finalizers["status"], "True");
        assert_eq!(find(&first, "NamespaceDeletionContentFailure").expect("told")["status"], "False");
        assert!(find(&first, "Other").is_some());
        assert_eq!(conditions(&first, &rest, at(2_000)), first, "nothing changed, nothing to write");
        let done = conditions(&first, &Rest::default(), at(3_000));
        let content = find(&done, "NamespaceContentRemaining").expect("told");
        assert_eq!((&content["status"], &content["reason"]), (&json!("False"), &json!("ContentRemoved")));
        assert_ne!(content["lastTransitionTime"], finalizers["lastTransitionTime"]);
    }
}
