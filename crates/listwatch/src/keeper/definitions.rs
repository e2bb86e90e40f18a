//! Removes the objects of a definition that goes, and lets it go; and gives one that waited for a name the
//! name that became free.
//!
//! As with namespaces, a member may learn late that a definition goes: it goes only if no object was found,
//! by a read as of now, some time after this keeper learned of it.

use super::collect::{MANAGER, Subject};
use super::namespaces::Holder;
use super::queue::Outcome;
use super::tally::{Deed, Tally};
use crate::storage::{Part, Place, Storage, Writer};
use crate::write_options::WriteOptions;
use crate::write_rules::Endpoint;
use meerkat_kubernetes::crd::{self, CLEANUP_FINALIZER, Definition};
use meerkat_kubernetes::object;
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::{Filter, Scope};
use meerkat_watchcache::list_plan::ReadAt;
use serde_json::Value;
use std::sync::Arc;

/// Objects that are held by others' finalizers are looked for again.
const REMAINS_AFTER_MS: u64 = 5_000;

/// `known_ms`: how long it is known that the definition goes.
pub async fn tend(
    storage: &Storage,
    name: &str,
    known_ms: u64,
    settle_ms: u64,
    now: Timestamp,
    tally: &Tally,
) -> Result<Outcome, Refusal> {
    let registry = storage.kinds().fresh().await?;
    let Some(kind) = registry.by_group_kind(crd::GROUP, crd::KIND) else { return Ok(Outcome::Done) };
    let entry = match storage
        .get(Place { kind, namespace: "", name, writer: Writer::Door }, ReadAt::MostRecent)
        .await
    {
        Ok(entry) => entry,
        Err(refusal) if refusal.reason == Reason::NotFound => return Ok(Outcome::Done),
        Err(refusal) => return Err(refusal),
    };
    let definition = object::parse(entry.json())?;
    if is_held(&definition) {
        return empty(storage, &registry, kind, &entry, known_ms, settle_ms, tally).await;
    }
    let status = crd::status::next(&definition, &registry, now)?;
    if definition["status"] != status {
        settle(storage, kind, name, definition, status).await?;
    }
    Ok(Outcome::Done)
}

/// Whether it goes, and waits for its objects to be removed.
fn is_held(definition: &Value) -> bool {
    let metadata = &definition["metadata"];
    let goes = metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null());
    let finalizers = metadata["finalizers"].as_array();
    goes && finalizers.is_some_and(|all| all.iter().any(|each| each == CLEANUP_FINALIZER))
}

async fn empty(
    storage: &Storage,
    registry: &Registry,
    definitions: &Arc<Kind>,
    entry: &Entry,
    known_ms: u64,
    settle_ms: u64,
    tally: &Tally,
) -> Result<Outcome, Refusal> {
    let served = registry.kinds().find(|kind| kind.is_of(entry.name())).cloned();
    let is_served = served.is_some();
    // Without a kind it was never established, and nobody can have made objects of it.
    if let Some(kind) = served.or(unserved(entry)?) {
        let holder = Holder { storage, kind: definitions, entry };
        if !holder.delete_held(&kind, &Filter::new(Scope::all(), Vec::new())).await?.is_empty() {
            return Ok(Outcome::Again { after_ms: REMAINS_AFTER_MS });
        }
        if known_ms < settle_ms {
            return Ok(Outcome::Again { after_ms: settle_ms - known_ms });
        }
        // Nobody else ends the feed of a place that nobody serves.
        if let Some(place) = kind.storage.as_deref().filter(|_| !is_served) {
            storage.feeds().end(place);
        }
    }
    Subject { storage, kind: definitions, entry }.release(CLEANUP_FINALIZER).await?;
    tally.add(Deed::Definition);
    Ok(Outcome::Done)
}

/// A kind of which no version is served any more still has the objects that it had.
fn unserved(entry: &Entry) -> Result<Option<Arc<Kind>>, Refusal> {
    let definition = Definition::parse(&object::parse(entry.json())?)?;
    Ok(definition.stored_kind().map(Arc::new))
}

async fn settle(
    storage: &Storage,
    kind: &Arc<Kind>,
    name: &str,
    mut definition: Value,
    status: Value,
) -> Result<(), Refusal> {
    definition["status"] = status;
    let place = Place { kind, namespace: "", name, writer: Writer::Door };
    let part = Part::Of(Endpoint::Status);
    storage.update(place, part, definition, &WriteOptions::default(), MANAGER).await.map(|_| ())
}
