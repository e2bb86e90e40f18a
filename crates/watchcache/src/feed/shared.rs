//! What a feed's tasks, its watchers and those who ask it have in common.

use super::FeedSettings;
use super::clock::Clock;
use super::hub::Hub;
use super::present::Present;
use super::seat::Wakers;
use crate::cacher::Write;
use crate::cacher::entry::{Entry, Shape, Undecodable};
use crate::key;
use crate::store::{Awaited, Batch, Row, Store};
use bytes::Bytes;
use meerkat_kubernetes::registry::Kind;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Keys with values that are no objects, of which was spoken already.
const COMPLAINTS_MAX: usize = 1_000;
const COMPLAIN_EVERY_MS: u64 = 1_000;

pub(super) struct Shared {
    pub(super) prefix: String,
    pub(super) shape: Shape,
    pub(super) settings: FeedSettings,
    pub(super) store: Arc<dyn Store>,
    pub(super) present: Arc<Present>,
    /// One that was blocked has read.
    pub(super) room: Notify,
    /// Any kind of this place: they have the same keys.
    kind: Kind,
    hub: Mutex<Hub>,
    /// A panic under its lock has left it half changed.
    pub(super) broken: Notify,
    /// What the watch of the store is to hurry for.
    awaited: watch::Sender<u64>,
    clock: Clock,
    complaints: Mutex<Complaints>,
}

#[derive(Default)]
struct Complaints {
    keys: HashSet<Bytes>,
    last_ms: Option<u64>,
}

impl Shared {
    pub(super) fn new(
        kind: Kind,
        prefix: String,
        shape: Shape,
        settings: FeedSettings,
        store: Arc<dyn Store>,
        present: Arc<Present>,
    ) -> Shared {
        let clock = Clock::start();
        let hub = Mutex::new(Hub::new(shape.clone(), settings, clock.now_ms()));
        let (room, broken, complaints) = (Notify::new(), Notify::new(), Mutex::default());
        let awaited = watch::Sender::new(0);
        Shared {
            prefix,
            shape,
            settings,
            store,
            present,
            room,
            kind,
            hub,
            broken,
            awaited,
            clock,
            complaints,
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(super) fn place(&self) -> &str {
        self.kind.storage.as_deref().unwrap_or_default()
    }

    /// Wakes those who are to be woken when the lock is free again. Nobody sees what a panic, perhaps of
    /// one request, has left half changed: it is abandoned before the lock is free.
    pub(super) fn locked<T>(&self, work: impl FnOnce(&mut Hub, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let done = {
            let mut hub = self.hub.lock();
            let done = catch_unwind(AssertUnwindSafe(|| work(&mut hub, &mut wakers)));
            if done.is_err() {
                self.broken.notify_one();
                hub.abandon(self.now_ms(), &mut wakers);
            }
            hub.tally.woken += wakers.len() as u64;
            // Under the lock, so that the last word is the newest.
            self.await_revision(hub.awaited());
            done
        };
        wakers.wake();
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn await_revision(&self, revision: u64) {
        self.awaited.send_if_modified(|awaited| std::mem::replace(awaited, revision) != revision);
    }

    pub(super) fn awaited(&self) -> Awaited {
        self.awaited.subscribe()
    }

    /// Whatever a panic has left the hub in.
    pub(super) fn abandon(&self) {
        let mut wakers = Wakers::default();
        self.hub.lock().abandon(self.now_ms(), &mut wakers);
        wakers.wake();
    }

    /// As the cache names an object. `None` for a key of which no object can be.
    pub(super) fn name_of<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let key = std::str::from_utf8(key).ok()?;
        key::parse(&self.kind, key)?;
        key.strip_prefix(&self.prefix)
    }

    /// `None` for what is no object.
    pub(super) fn entry_of(&self, row: &Row, revision: u64) -> Option<Entry> {
        let name = self.name_of(&row.key)?;
        match Entry::decode(&self.shape, name, &row.value, revision) {
            Ok(entry) => Some(entry),
            Err(why) => {
                self.complain(&row.key, &why);
                None
            }
        }
    }

    /// What a batch does to the cache. A value that is no object is the end of the one before it.
    pub(super) fn writes_of(&self, batch: &Batch) -> Vec<Write> {
        let writes = batch.changes.iter().filter_map(|change| {
            let name = self.name_of(&change.key)?;
            let put = change.after.as_ref().and_then(|row| self.entry_of(row, batch.revision));
            Some(put.map_or_else(|| Write::Delete(name.into()), Write::Put))
        });
        writes.collect()
    }

    fn complain(&self, key: &Bytes, why: &Undecodable) {
        self.locked(|hub, _| hub.tally.undecodable += 1);
        let now_ms = self.now_ms();
        let mut complaints = self.complaints.lock();
        let is_soon = complaints.last_ms.is_some_and(|last| now_ms < last + COMPLAIN_EVERY_MS);
        if is_soon || COMPLAINTS_MAX <= complaints.keys.len() || !complaints.keys.insert(key.clone()) {
            return;
        }
        complaints.last_ms = Some(now_ms);
        let key = String::from_utf8_lossy(key);
        tracing::warn!(%key, %why, "a value is no object and is left out of lists and watches");
    }
}
