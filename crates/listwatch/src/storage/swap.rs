//! Read, decide, write: one compare-and-swap of one key, begun again as long as somebody else is quicker.

use super::read::object;
use super::rules::Rules;
use super::{Place, Storage, definition, event_lease, failure, now};
use crate::write_rules::{CHANGED_MEANWHILE, Decision, Write, stored_bytes};
use bytes::Bytes;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::schema::Schema;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::key;
use meerkat_watchcache::store::{self, By, Change, StoreError, Written};
use std::sync::Arc;
use std::time::Duration;

/// How often a write is decided before its client is told of a conflict.
const ATTEMPTS_MAX: u32 = 64;
/// From here on somebody who loses waits a little.
const PATIENT_ATTEMPTS: u32 = 2;
const PAUSE_MS_MAX: u64 = 128;

/// A decision, and what the client is to be warned of.
pub(super) struct Decided {
    pub decision: Decision,
    pub warnings: Vec<String>,
    /// Of a custom kind, where its object is still to be held against it.
    pub schema: Option<Arc<Schema>>,
}

/// What a swap came to.
pub(super) struct Swapped {
    /// With the revision of the write.
    pub object: Object,
    pub warnings: Vec<String>,
    pub was: Was,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    Created,
    Changed,
    Removed,
}

/// What becomes of a request for an object that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    Refused,
    Created,
}

/// An object from which a write is decided.
struct Current {
    object: Object,
    revision: u64,
    /// As the store has it; nothing of a cached copy.
    bytes: Option<Bytes>,
}

pub(super) enum Committed {
    At(u64),
    Otherwise(Option<store::Row>),
}

impl Storage {
    pub(super) async fn rules<'a>(&self, place: Place<'a>, manager: &'a str) -> Result<Rules<'a>, Refusal> {
        let is_definition = definition::is_definition(place.kind);
        let registry = if is_definition { self.kinds.fresh().await? } else { self.kinds.now() };
        Ok(Rules {
            kind: place.kind,
            namespace: place.namespace,
            name: place.name,
            manager,
            schema: self.kinds.schema(place.kind),
            registry,
            now: now(),
        })
    }

    /// `decide` is given the object as it is, or `None` where `absent` lets it be created.
    pub(super) async fn swap(
        &self,
        place: Place<'_>,
        dry_run: bool,
        absent: Absent,
        mut decide: impl FnMut(Option<&Object>) -> Result<Decided, Refusal> + Send,
    ) -> Result<Swapped, Refusal> {
        let key = key::object(place.kind, place.namespace, place.name)?;
        let mut current = if dry_run { None } else { self.cached(place) };
        let mut is_cached = current.is_some();
        if !is_cached {
            current = self.stored(place, &key).await?;
        }
        let mut is_admitted = false;
        for attempt in 0..ATTEMPTS_MAX {
            if current.is_none() {
                if absent == Absent::Refused {
                    return Err(Refusal::not_found(&place.kind.group_resource(), place.name));
                }
                if !is_admitted {
                    self.admit_new(place.kind, place.namespace, place.name).await?;
                    is_admitted = true;
                }
            }
            let stored = current.as_ref().map(|current| &current.object);
            let mut decided = match decide(stored) {
                Ok(decided) => self.judged(place, decided, stored).await,
                refused => refused,
            };
            if let (Some(current), Ok(decided)) = (&current, &mut decided) {
                current.migrate(place, &mut decided.decision);
            }
            let is_write = decided.as_ref().is_ok_and(|decided| decided.decision.write != Write::Nothing);
            if is_cached && !is_write {
                // It may be so only of the copy.
                current = self.stored(place, &key).await?;
                is_cached = false;
                continue;
            }
            let decided = decided?;
            if dry_run || !is_write {
                place.writer.judge_again().await?;
                return Ok(Swapped::of(decided, None));
            }
            let expected = current.as_ref().map_or(0, |current| current.revision);
            match self.commit(place, &key, expected, &decided.decision.write).await? {
                Committed::At(revision) => return Ok(Swapped::of(decided, Some(revision))),
                Committed::Otherwise(found) => {
                    current = found.map(|row| Current::read(place, &key, &row)).transpose()?;
                    is_cached = false;
                }
            }
            pause(attempt).await;
        }
        Err(Refusal::conflict(&place.kind.group_resource(), place.name, CHANGED_MEANWHILE))
    }

    async fn judged(
        &self,
        place: Place<'_>,
        decided: Decided,
        stored: Option<&Object>,
    ) -> Result<Decided, Refusal> {
        if decided.decision.write != Write::Remove {
            self.judge(place.kind, decided.schema.as_ref(), &decided.decision.object, stored).await?;
        }
        Ok(decided)
    }

    fn cached(&self, place: Place<'_>) -> Option<Current> {
        // Nobody needs a cache of what is mostly written.
        if event_lease::expires(place.kind) {
            return None;
        }
        let entry = self.peek(place, 0)?;
        let object = object(place.kind, entry.key(), entry.json(), entry.revision()).ok()?;
        Some(Current { object, revision: entry.revision(), bytes: None })
    }

    async fn stored(&self, place: Place<'_>, key: &str) -> Result<Option<Current>, Refusal> {
        let (row, _) = self.store.get(Bytes::from(key.to_owned())).await.map_err(failure::refusal)?;
        row.map(|row| Current::read(place, key, &row)).transpose()
    }

    /// Does a write, if the key is still at `expected`. Of one whose outcome is unknown the store is asked:
    /// if it has just what was to be written, that is the outcome.
    pub(super) async fn commit(
        &self,
        place: Place<'_>,
        key: &str,
        expected: u64,
        write: &Write,
    ) -> Result<Committed, Refusal> {
        let change = match write {
            Write::Create(bytes) | Write::Replace(bytes) => {
                let expires = event_lease::expires(place.kind);
                let lease =
                    if expires { self.event_leases.take().await.map_err(failure::refusal)? } else { 0 };
                Change::Put { value: Bytes::from(bytes.clone()), lease }
            }
            Write::Remove => Change::Delete,
            Write::Nothing => return Ok(Committed::At(expected)),
        };
        let key = Bytes::from(key.to_owned());
        let write = store::Write { key: key.clone(), expected, change: change.clone(), by: By::Door };
        match self.write(place.writer, write).await? {
            Ok(Written::Done { revision }) => {
                self.note_written(place.kind, revision);
                if definition::is_definition(place.kind) {
                    self.kinds.reach(revision).await;
                }
                Ok(Committed::At(revision))
            }
            Ok(Written::Otherwise { found, .. }) => Ok(Committed::Otherwise(found)),
            Err(StoreError::Unknown(why)) => {
                let found = self.store.get(key).await.ok().and_then(|(row, _)| row);
                match (found, change) {
                    (Some(row), Change::Put { value, .. }) if row.value == value => {
                        Ok(Committed::At(row.modified))
                    }
                    _ => Err(failure::refusal(StoreError::Unknown(why))),
                }
            }
            Err(error) => Err(failure::refusal(error)),
        }
    }
}

impl Current {
    /// A write that changes nothing brings what is stored in another form, of a version from before or
    /// without defaults that came since, into the form of now. That is how all objects are migrated.
    fn migrate(&self, place: Place<'_>, decision: &mut Decision) {
        let Some(bytes) = self.bytes.as_ref().filter(|_| decision.write == Write::Nothing) else { return };
        let as_of_now = stored_bytes(&decision.object, place.kind);
        if as_of_now != **bytes && !is_same_json(&as_of_now, bytes) {
            decision.write = Write::Replace(as_of_now);
        }
    }

    fn read(place: Place<'_>, key: &str, row: &store::Row) -> Result<Current, Refusal> {
        let object = object(place.kind, key, &row.value, row.modified)?;
        Ok(Current { object, revision: row.modified, bytes: Some(row.value.clone()) })
    }
}

impl Swapped {
    fn of(decided: Decided, revision: Option<u64>) -> Swapped {
        let Decided { decision: Decision { write, mut object }, warnings, .. } = decided;
        if let Some(revision) = revision {
            object.set_resource_version(&revision.to_string());
        }
        let was = match write {
            Write::Create(_) => Was::Created,
            Write::Replace(_) | Write::Nothing => Was::Changed,
            Write::Remove => Was::Removed,
        };
        Swapped { object, warnings, was }
    }
}

/// However it is written.
fn is_same_json(one: &[u8], other: &[u8]) -> bool {
    let read = |bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    read(one) == read(other)
}

/// Those who write to one object at one time shall not meet again each time.
async fn pause(attempt: u32) {
    if PATIENT_ATTEMPTS <= attempt {
        let most_ms = (1_u64 << attempt.min(16)).min(PAUSE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most_ms))).await;
    }
}
