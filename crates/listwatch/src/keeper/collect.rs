//! Looks at one object that has owners, or that goes: what the store says of it and of them, one
//! [`step`](super::owners::step), and what that asks for.
//!
//! Every write is bound to the uid and the revision of what was read, so that one that comes too late, from
//! a keeper whose turn is over, does nothing.

use super::follow::{deletable_kinds, kind_at};
use super::namespaces::list;
use super::owners::{Around, Dependent, Leaving, Owner, OwnerState, Sighting, Spot, Step, Uid, step};
use super::queue::Outcome;
use super::tally::{Deed, Tally};
use crate::storage::{Part, Patch, Place, Storage, Writer};
use crate::write_options::{DeleteOptions, Preconditions, Propagation, WriteOptions};
use crate::write_rules::Endpoint;
use meerkat_kubernetes::negotiation::PatchForm;
use meerkat_kubernetes::registry::{Group, Kind, Registry};
use meerkat_kubernetes::schema::FieldValidation;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::{Filter, Scope};
use meerkat_watchcache::list_plan::ReadAt;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Under which the keeper's changes are kept.
pub const MANAGER: &str = "meerkat-keeper";

/// An object that waits for kinds that are not followed yet is looked at again.
const UNFOLLOWED_MS: u64 = 500;
/// One of which the store knows more than we were told, likewise.
const UNTOLD_MS: u64 = 100;
/// A dependent that was made before its owner was deleted may be told after it. One that is told after this
/// time is no orphan: it goes.
const ORPHANS_KNOWN_MS: u64 = 500;

/// What is known of an object beforehand.
#[derive(Debug)]
pub struct Look {
    pub spot: Spot,
    pub uid: Uid,
    pub around: Around,
    /// Some dependents may not be known.
    pub is_partial: bool,
    /// How long it is known that it goes and leaves orphans.
    pub known_ms: u64,
}

pub async fn look(storage: &Storage, look: Look, tally: &Tally) -> Result<Outcome, Refusal> {
    let registry = storage.kinds().now();
    let Some(kind) = kind_at(&registry, &look.spot.place) else { return Ok(Outcome::Done) };
    let Some(entry) = find(storage, kind, &look.spot.key, ReadAt::MostRecent).await? else {
        return Ok(Outcome::Done);
    };
    let sighting = Sighting::of(&look.spot.place, &entry).filter(|sighting| sighting.uid == look.uid);
    let Some(object) = sighting else { return Ok(Outcome::Done) };
    if let Some(after_ms) = wait_ms(&object, &look) {
        return Ok(Outcome::Again { after_ms });
    }
    let mut states = Vec::new();
    if object.leaving.is_none() {
        for owner in &object.owners {
            states.push(owner_state(storage, &registry, entry.namespace(), owner).await?);
        }
    }
    let subject = Subject { storage, kind, entry: &entry };
    match step(&object, &states, look.around) {
        Step::Nothing | Step::Undecided => {}
        Step::Delete(propagation) => {
            subject.delete(propagation).await?;
            tally.add(Deed::Collected);
        }
        Step::Disown(owners) => subject.disown(&owners).await?,
        Step::Unblock => subject.unblock().await?,
        Step::Orphan(dependents) => {
            for dependent in dependents {
                orphan(storage, &registry, &dependent, &look.uid, tally).await?;
            }
            return Ok(Outcome::Again { after_ms: UNTOLD_MS });
        }
        Step::Release(finalizer) => {
            if object.leaving == Some(Leaving::Orphan) && orphan_untold(storage, &look.uid, tally).await? {
                return Ok(Outcome::Again { after_ms: UNTOLD_MS });
            }
            subject.release(finalizer).await?;
        }
    }
    Ok(Outcome::Done)
}

/// How long to wait until enough is known of an object whose dependents come before it.
fn wait_ms(object: &Sighting, look: &Look) -> Option<u64> {
    if !matches!(object.leaving, Some(Leaving::Foreground | Leaving::Orphan)) {
        return None;
    }
    if look.is_partial {
        return Some(UNFOLLOWED_MS);
    }
    if look.around.leaving != object.leaving {
        return Some(UNTOLD_MS);
    }
    let is_early = object.leaving == Some(Leaving::Orphan) && look.known_ms < ORPHANS_KNOWN_MS;
    is_early.then(|| ORPHANS_KNOWN_MS - look.known_ms)
}

/// Nothing if it is not there. `key`: `namespace/name` or `name`.
async fn find(storage: &Storage, kind: &Arc<Kind>, key: &str, at: ReadAt) -> Result<Option<Entry>, Refusal> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    match storage.get(Place { kind, namespace, name, writer: Writer::Door }, at).await {
        Ok(entry) => Ok(Some(entry)),
        Err(refusal) if refusal.reason == Reason::NotFound => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Two definitions that came at the same time may both have got the name of the kind: an owner is looked for
/// wherever it can be.
async fn owner_state(
    storage: &Storage,
    registry: &Registry,
    namespace: &str,
    owner: &Owner,
) -> Result<OwnerState, Refusal> {
    let mut places = HashSet::new();
    let mut kinds: Vec<&Arc<Kind>> =
        registry.group(&owner.group).into_iter().flat_map(Group::kinds).collect();
    kinds.retain(|kind| {
        *kind.kind == *owner.kind && kind.storage.as_ref().is_some_and(|at| places.insert(at))
    });
    let mut told = if kinds.is_empty() { OwnerState::Unknown } else { OwnerState::Absent };
    for kind in kinds {
        match state_as(storage, kind, namespace, owner).await? {
            OwnerState::Absent => {}
            OwnerState::Unknown => told = OwnerState::Unknown,
            there @ (OwnerState::Alive | OwnerState::Waits) => return Ok(there),
        }
    }
    Ok(told)
}

/// That an owner is there is believed of the cache, since its end would be told; that it is not, is not.
async fn state_as(
    storage: &Storage,
    kind: &Arc<Kind>,
    namespace: &str,
    owner: &Owner,
) -> Result<OwnerState, Refusal> {
    // An object of the whole cluster cannot say in which namespace its owner is.
    if kind.is_namespaced() && namespace.is_empty() {
        return Ok(OwnerState::Unknown);
    }
    // No object can have such a name, and so there is no telling which one was meant.
    if meerkat_watchcache::key::object(kind, namespace, &owner.name).is_err() {
        return Ok(OwnerState::Unknown);
    }
    let key =
        if kind.is_namespaced() { format!("{namespace}/{}", owner.name) } else { owner.name.to_string() };
    for at in [ReadAt::AnyCached, ReadAt::MostRecent] {
        let found = match find(storage, kind, &key, at).await {
            Err(_) if at == ReadAt::AnyCached => None,
            found => found?,
        };
        if let Some(entry) = found.filter(|entry| *entry.uid() == *owner.uid) {
            let place: Arc<str> = kind.storage.as_deref().unwrap_or_default().into();
            let leaving = Sighting::of(&place, &entry).and_then(|sighting| sighting.leaving);
            let waits = leaving == Some(Leaving::Foreground);
            return Ok(if waits { OwnerState::Waits } else { OwnerState::Alive });
        }
    }
    Ok(OwnerState::Absent)
}

async fn orphan(
    storage: &Storage,
    registry: &Registry,
    dependent: &Dependent,
    owner: &Uid,
    tally: &Tally,
) -> Result<(), Refusal> {
    let Some(kind) = kind_at(registry, &dependent.spot.place) else { return Ok(()) };
    let found = find(storage, kind, &dependent.spot.key, ReadAt::MostRecent).await?;
    let Some(entry) = found.filter(|entry| *entry.uid() == *dependent.uid) else { return Ok(()) };
    let references =
        Sighting::of(&dependent.spot.place, &entry).map(|sighting| sighting.owners).unwrap_or_default();
    // It may be done already, and not be told yet.
    if references.iter().any(|each| each.uid == *owner) {
        Subject { storage, kind, entry: &entry }.disown(std::slice::from_ref(owner)).await?;
        tally.add(Deed::Orphaned);
    }
    Ok(())
}

/// Looks through the store, as of now, for dependents that were not told of yet, and makes orphans of them.
/// Whether there were some. Who is let go without this could take them along.
async fn orphan_untold(storage: &Storage, owner: &Uid, tally: &Tally) -> Result<bool, Refusal> {
    let registry = storage.kinds().fresh().await?;
    let all = Filter::new(Scope::all(), Vec::new());
    let mut any = false;
    for kind in deletable_kinds(&registry) {
        let place: Arc<str> = kind.storage.as_deref().unwrap_or_default().into();
        for entry in list(storage, kind, &all).await? {
            let owners = Sighting::of(&place, &entry).map(|sighting| sighting.owners).unwrap_or_default();
            if owners.iter().any(|each| each.uid == *owner) {
                Subject { storage, kind, entry: &entry }.disown(std::slice::from_ref(owner)).await?;
                tally.add(Deed::Orphaned);
                any = true;
            }
        }
    }
    Ok(any)
}

/// An object as it was read, to be changed if it still is so.
pub struct Subject<'a> {
    pub storage: &'a Storage,
    pub kind: &'a Arc<Kind>,
    pub entry: &'a Entry,
}

impl Subject<'_> {
    fn place(&self) -> Place<'_> {
        Place {
            kind: self.kind,
            namespace: self.entry.namespace(),
            name: self.entry.name(),
            writer: Writer::Door,
        }
    }

    /// What is gone already is as good.
    pub async fn delete(&self, propagation: Propagation) -> Result<(), Refusal> {
        let preconditions = Preconditions {
            uid: Some(self.entry.uid().to_owned()).filter(|uid| !uid.is_empty()),
            resource_version: Some(self.entry.revision().to_string()),
        };
        let options =
            DeleteOptions { propagation: Some(propagation), preconditions, ..DeleteOptions::default() };
        match self.storage.delete(self.place(), &options).await {
            Err(refusal) if refusal.reason != Reason::NotFound => Err(refusal),
            _ => Ok(()),
        }
    }

    async fn disown(&self, owners: &[Uid]) -> Result<(), Refusal> {
        let mut references = self.metadata("ownerReferences")?;
        references.retain(|each| !owners.iter().any(|owner| each["uid"].as_str() == Some(owner)));
        self.set("ownerReferences", references).await
    }

    async fn unblock(&self) -> Result<(), Refusal> {
        let mut references = self.metadata("ownerReferences")?;
        for reference in references.iter_mut().filter_map(Value::as_object_mut) {
            reference.remove("blockOwnerDeletion");
        }
        self.set("ownerReferences", references).await
    }

    /// The finalizer is done.
    pub async fn release(&self, finalizer: &str) -> Result<(), Refusal> {
        let mut finalizers = self.metadata("finalizers")?;
        finalizers.retain(|each| each != finalizer);
        self.set("finalizers", finalizers).await
    }

    fn metadata(&self, field: &str) -> Result<Vec<Value>, Refusal> {
        let object = meerkat_kubernetes::object::parse(self.entry.json())?;
        Ok(object["metadata"][field].as_array().cloned().unwrap_or_default())
    }

    async fn set(&self, field: &str, list: Vec<Value>) -> Result<(), Refusal> {
        let mut metadata = json!({ "resourceVersion": self.entry.revision().to_string() });
        metadata[field] = if list.is_empty() { Value::Null } else { Value::Array(list) };
        let options = WriteOptions { field_validation: FieldValidation::Ignore, ..WriteOptions::default() };
        let body = json!({ "metadata": metadata });
        let patch = Patch::Of { form: PatchForm::Merge, body, options };
        self.storage.patch(self.place(), Part::Of(Endpoint::Whole), &patch, MANAGER).await.map(|_| ())
    }
}
