//! A [`Store`] in memory, for tests: the semantics of the real ones, and their failures on demand.
//!
//! It has dense revisions from 1 on, the whole history above the last compaction, and leases that end by
//! tokio's clock. Watches are told of progress when somebody waits for it, and not otherwise. It has no
//! task of its own: what has expired goes when somebody looks.

use crate::store::{
    Awaited, Batch, By, Change, History, Page, Row, RowChange, Span, Store, StoreError, Write, Written,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A clone is the same store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Counts what watches have to look at.
    changed: watch::Sender<u64>,
}

struct Inner {
    revision: u64,
    compacted: u64,
    /// Each key as each revision above the compaction left it, and as it was then.
    keys: BTreeMap<Bytes, Vec<(u64, Option<Row>)>>,
    log: VecDeque<Batch>,
    leases: BTreeMap<i64, Lease>,
    last_lease: i64,
    history: History,
    faults: Faults,
    calls: Calls,
}

struct Lease {
    ttl_s: u64,
    end: Instant,
}

impl Lease {
    fn new(ttl_s: u64) -> Lease {
        Lease { ttl_s, end: Instant::now() + Duration::from_secs(ttl_s) }
    }
}

#[derive(Default)]
struct Faults {
    unavailable: bool,
    cut_off: bool,
    held: bool,
    /// Whoever reads the watch of this prefix next panics.
    panics: Option<String>,
    /// Watches begun before it went up have ended.
    epoch: u64,
    refused_writes: usize,
    lost_answers: usize,
    /// Who was let in by others may not write.
    rules: Option<u64>,
}

/// How often the store was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub now: u64,
    pub read: u64,
    pub get: u64,
    pub write: u64,
    pub watch: u64,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        let inner = Inner {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            log: VecDeque::new(),
            leases: BTreeMap::new(),
            history: History::default(),
            last_lease: 0,
            faults: Faults::default(),
            calls: Calls::default(),
        };
        let (changed, _) = watch::channel(0);
        MemoryStore { shared: Arc::new(Shared { inner: Mutex::new(inner), changed }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.shared.inner.lock();
        if inner.expire() {
            self.wake();
        }
        inner
    }

    fn wake(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    pub fn calls(&self) -> Calls {
        self.lock().calls
    }

    /// From now on only who was let in by this revision of users and roles may write, and the door itself.
    pub fn set_rules(&self, revision: u64) {
        self.lock().faults.rules = Some(revision);
    }

    /// The rows under a prefix as they are now.
    pub fn rows(&self, prefix: &str) -> Vec<Row> {
        let inner = self.lock();
        inner.rows(prefix.as_bytes(), b"", inner.revision).collect()
    }

    pub fn put(&self, key: &str, value: impl Into<Bytes>) -> u64 {
        self.transact(vec![(key, Some(value.into()))])
    }

    pub fn delete(&self, key: &str) -> u64 {
        self.transact(vec![(key, None)])
    }

    /// Several keys in one revision, in this order: `None` deletes.
    pub fn transact(&self, changes: Vec<(&str, Option<Bytes>)>) -> u64 {
        let mut inner = self.lock();
        let changes = changes
            .into_iter()
            .map(|(key, value)| {
                let change = value.map_or(Change::Delete, |value| Change::Put { value, lease: 0 });
                (Bytes::copy_from_slice(key.as_bytes()), change)
            })
            .collect();
        let revision = inner.commit(changes);
        self.wake();
        revision
    }

    /// Drops the history before `revision`.
    pub fn compact(&self, revision: u64) {
        self.lock().compact(revision);
        self.wake();
    }

    /// Ends all watches with an error.
    pub fn break_watches(&self) {
        self.lock().faults.epoch += 1;
        self.wake();
    }

    /// As long as it is not, every call fails and no watch lives.
    pub fn set_available(&self, available: bool) {
        let mut inner = self.lock();
        inner.faults.unavailable = !available;
        inner.faults.epoch += u64::from(!available);
        self.wake();
    }

    /// As long as it is cut off it answers nothing that is of now, and no watch lives.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.lock().faults.cut_off = cut_off;
        self.wake();
    }

    /// It is empty and at the first revision, as one that somebody put in the place of this one.
    pub fn replace(&self) {
        let mut inner = self.lock();
        inner.history = History { number: inner.history.number + 1, lost: inner.revision };
        (inner.revision, inner.compacted) = (1, 0);
        inner.keys.clear();
        inner.log.clear();
        inner.leases.clear();
        self.wake();
    }

    /// Whoever reads the watch of this prefix next panics.
    pub fn panic_once(&self, prefix: &str) {
        self.lock().faults.panics = Some(prefix.to_owned());
        self.wake();
    }

    /// Watches tell nothing for as long as they are held.
    pub fn hold_watches(&self, held: bool) {
        self.lock().faults.held = held;
        self.wake();
    }

    /// The next writes are not done, and say so.
    pub fn refuse_writes(&self, count: usize) {
        self.lock().faults.refused_writes = count;
    }

    /// The next writes are done, and nobody is told.
    pub fn lose_answers(&self, count: usize) {
        self.lock().faults.lost_answers = count;
    }

    fn answer<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        async move {
            // As with a real store, somebody else may come between.
            tokio::task::yield_now().await;
            let mut inner = self.lock();
            if inner.faults.unavailable {
                return Err(unavailable());
            }
            if inner.faults.cut_off {
                return Err(cut_off());
            }
            let before = inner.revision;
            let answer = call(&mut inner);
            if before != inner.revision {
                self.wake();
            }
            answer
        }
        .boxed()
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("it is made to fail".to_owned())
}

fn cut_off() -> StoreError {
    StoreError::CutOff("it is made to be".to_owned())
}

impl Inner {
    fn current(&self, key: &[u8]) -> Option<&Row> {
        self.keys.get(key)?.last()?.1.as_ref()
    }

    fn rows<'a>(&'a self, prefix: &'a [u8], from: &[u8], revision: u64) -> impl Iterator<Item = Row> + 'a {
        let first = Bytes::copy_from_slice(prefix.max(from));
        self.keys.range(first..).take_while(|(key, _)| key.starts_with(prefix)).filter_map(
            move |(_, states)| {
                let after = states.partition_point(|(at, _)| *at <= revision);
                states[..after].last()?.1.clone()
            },
        )
    }

    fn commit(&mut self, changes: Vec<(Bytes, Change)>) -> u64 {
        let revision = self.revision + 1;
        let mut told = Vec::new();
        for (key, change) in changes {
            let before = self.current(&key).cloned();
            let after = match change {
                Change::Put { value, lease } => {
                    Some(Row { key: key.clone(), value, modified: revision, lease })
                }
                Change::Delete => None,
            };
            if before.is_some() || after.is_some() {
                self.keys.entry(key.clone()).or_default().push((revision, after.clone()));
                told.push(RowChange { key, after });
            }
        }
        if !told.is_empty() {
            self.revision = revision;
            self.log.push_back(Batch { revision, changes: told });
        }
        self.revision
    }

    /// Whether something went.
    fn expire(&mut self) -> bool {
        if self.leases.is_empty() {
            return false;
        }
        let now = Instant::now();
        let ended: Vec<i64> =
            self.leases.iter().filter(|(_, lease)| lease.end <= now).map(|(lease, _)| *lease).collect();
        let before = self.revision;
        for lease in ended {
            self.leases.remove(&lease);
            let rows = self.keys.values().filter_map(|states| states.last()?.1.as_ref());
            let keys = rows.filter(|row| row.lease == lease).map(|row| (row.key.clone(), Change::Delete));
            let keys = keys.collect();
            self.commit(keys);
        }
        before < self.revision
    }

    fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        while self.log.front().is_some_and(|batch| batch.revision <= self.compacted) {
            self.log.pop_front();
        }
        let compacted = self.compacted;
        self.keys.retain(|_, states| {
            let after = states.partition_point(|(at, _)| *at <= compacted);
            states.drain(..after.saturating_sub(1));
            !matches!(states.as_slice(), [] | [(_, None)])
        });
    }

    fn read(&mut self, span: &Span, revision: Option<u64>) -> Result<Page, StoreError> {
        self.calls.read += 1;
        let revision = revision.unwrap_or(self.revision);
        if self.revision < revision {
            return Err(StoreError::Future { asked: revision });
        }
        if revision < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let mut rows = self.rows(&span.prefix, &span.from, revision);
        let page: Vec<Row> = rows.by_ref().take(span.limit).collect();
        let more = rows.next().is_some();
        drop(rows);
        Ok(Page { rows: page, revision, more })
    }

    fn write(&mut self, write: Write) -> Result<Written, StoreError> {
        self.calls.write += 1;
        if 0 < self.faults.refused_writes {
            self.faults.refused_writes -= 1;
            return Err(unavailable());
        }
        if let (Some(rules), By::Somebody(pass)) = (self.faults.rules, &write.by)
            && pass.rules != rules
        {
            return Err(StoreError::OtherRules);
        }
        if let Change::Put { lease, .. } = &write.change
            && *lease != 0
            && !self.leases.contains_key(lease)
        {
            return Err(StoreError::Unavailable("there is no such lease".to_owned()));
        }
        let found = self.current(&write.key).cloned();
        let written = if found.as_ref().map_or(0, |row| row.modified) == write.expected {
            Written::Done { revision: self.commit(vec![(write.key, write.change)]) }
        } else {
            Written::Otherwise { found, revision: self.revision }
        };
        if 0 < self.faults.lost_answers {
            self.faults.lost_answers -= 1;
            return Err(StoreError::Unknown("the answer is made to get lost".to_owned()));
        }
        Ok(written)
    }

    /// The next thing that a watch is told, if there is one.
    fn next(&self, watching: &Watching, awaited: u64) -> Option<Result<Batch, StoreError>> {
        let (prefix, after) = (&watching.prefix, watching.after);
        if self.history.number != watching.history {
            return Some(Err(StoreError::OtherHistory));
        }
        if self.faults.epoch != watching.epoch || self.faults.unavailable {
            return Some(Err(unavailable()));
        }
        if self.faults.cut_off {
            return Some(Err(cut_off()));
        }
        if after < self.compacted {
            return Some(Err(StoreError::Compacted { oldest: self.compacted }));
        }
        if self.faults.held {
            return None;
        }
        let first = self.log.partition_point(|batch| batch.revision <= after);
        for batch in self.log.range(first..) {
            let ours = |change: &&RowChange| change.key.starts_with(prefix);
            let changes: Vec<RowChange> = batch.changes.iter().filter(ours).cloned().collect();
            if !changes.is_empty() {
                return Some(Ok(Batch { revision: batch.revision, changes }));
            }
        }
        let progress = Batch { revision: self.revision, changes: Vec::new() };
        (after < awaited && after < self.revision).then_some(Ok(progress))
    }
}

/// One watch.
struct Watching {
    store: MemoryStore,
    changed: watch::Receiver<u64>,
    awaited: Awaited,
    prefix: Bytes,
    after: u64,
    epoch: u64,
    history: u64,
}

impl Watching {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            self.changed.mark_unchanged();
            let awaited = *self.awaited.borrow_and_update();
            let (told, expiry) = {
                let mut inner = self.store.lock();
                if inner.faults.panics.as_ref().is_some_and(|prefix| self.prefix == prefix.as_bytes()) {
                    inner.faults.panics = None;
                    drop(inner);
                    panic!("made to panic");
                }
                (inner.next(self, awaited), inner.leases.values().map(|lease| lease.end).min())
            };
            match told {
                Some(Ok(batch)) => {
                    self.after = batch.revision;
                    return Ok(batch);
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let changed = async {
                tokio::select! {
                    _ = self.changed.changed() => {}
                    Ok(()) = self.awaited.changed() => {}
                }
            };
            match expiry {
                None => changed.await,
                Some(end) => drop(tokio::time::timeout_at(end, changed).await),
            }
        }
    }
}

impl Store for MemoryStore {
    fn now(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.answer(|inner| {
            inner.calls.now += 1;
            Ok(inner.revision)
        })
    }

    fn read(&self, span: Span, revision: Option<u64>) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.answer(move |inner| inner.read(&span, revision))
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<(Option<Row>, u64), StoreError>> {
        self.answer(move |inner| {
            inner.calls.get += 1;
            Ok((inner.current(&key).cloned(), inner.revision))
        })
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.answer(move |inner| inner.write(write))
    }

    fn watch(
        &self,
        prefix: Bytes,
        after: u64,
        awaited: Awaited,
    ) -> BoxStream<'static, Result<Batch, StoreError>> {
        let (epoch, history) = {
            let mut inner = self.lock();
            inner.calls.watch += 1;
            (inner.faults.epoch, inner.history.number)
        };
        let changed = self.shared.changed.subscribe();
        let watching = Watching { store: self.clone(), changed, awaited, prefix, after, epoch, history };
        futures::stream::unfold(Some(watching), |watching| async {
            let mut watching = watching?;
            let told = watching.next().await;
            let goes_on = told.is_ok();
            Some((told, goes_on.then_some(watching)))
        })
        .boxed()
    }

    fn history(&self) -> History {
        self.lock().history
    }

    fn grant(&self, ttl_s: u64) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.answer(move |inner| {
            inner.last_lease += 1;
            let lease = inner.last_lease;
            inner.leases.insert(lease, Lease::new(ttl_s));
            Ok(lease)
        })
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.answer(move |inner| {
            let renewed = inner.leases.get_mut(&lease).map(|lease| *lease = Lease::new(lease.ttl_s));
            Ok(renewed.is_some())
        })
    }
}

#[cfg(test)]
mod tests;
