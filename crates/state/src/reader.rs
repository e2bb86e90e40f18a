//! Reading the state, from any thread, without waiting for anyone.
//!
//! A [`StateReader`] always shows the newest read point that the machine has published, also of a
//! machine that was opened later on another directory. A [`Pinned`] is one such point and never
//! changes; hold one for a request, since it keeps superseded rows on disk.

use crate::alarm::Alarms;
use crate::auth::AuthBook;
use crate::digest::Digest;
use crate::error::{ReadError, StateError};
use crate::lease;
use crate::mvcc::export::{self, ExportedEvent};
use crate::mvcc::hash::{self, HashKv, StoredHash};
use crate::mvcc::history;
use crate::mvcc::past::{Plan, ReadStrategy};
use crate::mvcc::range;
use crate::mvcc::store::Committed;
use crate::mvcc::times::{self, KeyTimes, RevisionAtTime};
use crate::mvcc::weight;
use crate::schema::{Members, Membership};
use crate::txn;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use meerkat_types::{
    Alarm, AlarmBy, HistoryAnswer, HistoryQuery, Key, KeyRange, KvPage, Lease, LeaseId, LogPosition,
    MemberAttributes, MemberId, RangeAnswer, RangeQuery, Revision, Txn, TxnDone,
};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clones show the same state.
#[derive(Clone, Default)]
pub struct StateReader {
    point: Arc<ArcSwapOption<ReadPoint>>,
    /// Whether the newest point asks who its clients are: all that a cluster without users pays.
    auth_enabled: Arc<AtomicBool>,
}

pub(crate) struct ReadPoint {
    pub committed: Arc<Committed>,
    pub digest: Digest,
    pub marks: Arc<VecDeque<Digest>>,
    pub alarms: Arc<Alarms>,
    pub downgrade: Option<Arc<str>>,
    pub written_bytes: u64,
    pub members: Arc<Members>,
    pub removed: Arc<BTreeSet<MemberId>>,
    pub membership: Option<Membership>,
    pub auth: Arc<AuthBook>,
}

/// The state after one applied batch.
#[derive(Clone)]
pub struct Pinned {
    point: Arc<ReadPoint>,
}

impl StateReader {
    pub fn new() -> StateReader {
        StateReader::default()
    }

    pub(crate) fn publish(&self, point: ReadPoint) {
        // Before the point when it comes and after it when it goes: whoever sees a point with users also
        // knows that there are some.
        let enabled = point.auth.is_enabled();
        if enabled {
            self.auth_enabled.store(true, Ordering::Release);
        }
        self.point.store(Some(Arc::new(point)));
        self.auth_enabled.store(enabled, Ordering::Release);
    }

    /// The newest point. No request may be served before a machine was opened for this reader.
    pub fn pin(&self) -> Pinned {
        let point = self.point.load_full().expect("a machine is opened before anything is read");
        Pinned { point }
    }

    pub fn current_revision(&self) -> Revision {
        self.point.load().as_ref().map_or(Revision::EMPTY_STORE, |point| point.digest.revision)
    }

    /// The oldest readable revision; `None` if nothing was ever compacted.
    pub fn compacted_revision(&self) -> Option<Revision> {
        self.point.load().as_ref().and_then(|point| point.committed.compacted)
    }

    pub fn applied(&self) -> Option<LogPosition> {
        self.point.load().as_ref().and_then(|point| point.digest.position)
    }

    pub fn digest(&self) -> Digest {
        self.pin().digest()
    }

    /// The digest at the last places where all members keep it, oldest first.
    pub fn digest_marks(&self) -> Vec<Digest> {
        self.point.load().as_ref().map_or_else(Vec::new, |point| point.marks.iter().copied().collect())
    }

    /// The alarms that are on, in order, and who must clear each.
    pub fn alarms(&self) -> Vec<(Alarm, AlarmBy)> {
        let point = self.point.load();
        point.as_ref().map_or_else(Vec::new, |point| point.alarms.iter().map(|(a, by)| (*a, *by)).collect())
    }

    /// The version that an operator means to go back to.
    pub fn downgrade(&self) -> Option<Arc<str>> {
        self.point.load().as_ref().and_then(|point| point.downgrade.clone())
    }

    /// What was ever written, as the quota counts it: what is there is this less what compaction has
    /// removed.
    pub fn written_bytes(&self) -> u64 {
        self.point.load().as_ref().map_or(0, |point| point.written_bytes)
    }

    /// What the store keeps about itself, which no quota counts.
    pub fn own_bytes(&self) -> Result<u64, ReadError> {
        weight::of_own_rows(&self.pin().point.committed.view)
    }

    pub fn range(&self, query: &RangeQuery) -> Result<RangeAnswer, ReadError> {
        self.pin().range(query)
    }

    /// Whether clients must say who they are.
    pub fn auth_enabled(&self) -> bool {
        self.auth_enabled.load(Ordering::Acquire)
    }

    /// Users, roles and permissions as of the newest point.
    pub fn auth(&self) -> Arc<AuthBook> {
        self.point.load().as_ref().map_or_else(Arc::default, |point| Arc::clone(&point.auth))
    }

    /// Answers a transaction for which [`Txn::is_read_only`] holds.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnDone, ReadError> {
        self.pin().read_txn(txn)
    }

    /// `None` hashes the current revision.
    pub fn hash_kv(&self, at: Option<Revision>) -> Result<HashKv, ReadError> {
        self.pin().hash_kv(at)
    }

    pub fn members(&self) -> Vec<MemberAttributes> {
        self.point.load().as_ref().map_or_else(Vec::new, |point| point.members.values().cloned().collect())
    }

    /// Whether this member was in the cluster once and is not any more.
    pub fn is_removed(&self, member: MemberId) -> bool {
        self.point.load().as_ref().is_some_and(|point| point.removed.contains(&member))
    }

    pub fn membership_bytes(&self) -> Option<Bytes> {
        let point = self.point.load();
        point.as_ref().and_then(|point| point.membership.as_ref()).map(|(_, bytes)| bytes.clone())
    }
}

impl Pinned {
    pub fn current_revision(&self) -> Revision {
        self.point.digest.revision
    }

    /// The oldest readable revision; `None` if nothing was ever compacted.
    pub fn compacted_revision(&self) -> Option<Revision> {
        self.point.committed.compacted
    }

    pub fn applied(&self) -> Option<LogPosition> {
        self.point.digest.position
    }

    pub fn digest(&self) -> Digest {
        self.point.digest
    }

    /// The alarms that are on, in order, and who must clear each.
    pub fn alarms(&self) -> impl Iterator<Item = (Alarm, AlarmBy)> {
        self.point.alarms.iter().map(|(alarm, by)| (*alarm, *by))
    }

    /// Users, roles and permissions as of this point.
    pub fn auth(&self) -> &Arc<AuthBook> {
        &self.point.auth
    }

    pub fn range(&self, query: &RangeQuery) -> Result<RangeAnswer, ReadError> {
        self.range_by(query, ReadStrategy::Cheapest)
    }

    /// As [`Pinned::range`], at an older revision by the given way.
    #[doc(hidden)]
    pub fn range_by(&self, query: &RangeQuery, way: ReadStrategy) -> Result<RangeAnswer, ReadError> {
        let committed = &self.point.committed;
        let at = range::revision_to_read(query.at, committed.revision, committed.compacted)?;
        let plan = committed.plan(&query.keys, at, way)?;
        Ok(range::answer(&committed.source(&plan), query, committed.revision)?)
    }

    pub fn read_txn(&self, txn: &Txn) -> Result<TxnDone, ReadError> {
        txn::read(&self.point.committed, txn)
    }

    pub fn hash_kv(&self, at: Option<Revision>) -> Result<HashKv, ReadError> {
        hash::hash_kv(&self.point.committed, at)
    }

    /// Everything that is stored as of one revision, read in full.
    pub fn stored_hash(&self, at: Revision) -> Result<StoredHash, ReadError> {
        let history = self.hash_kv(Some(at))?;
        Ok(StoredHash { history, present: hash::hash_pages(self.pages(&hash::every_key(at)?)?)? })
    }

    /// Every stored event that a reader could still see, in order, until told to stop.
    pub fn each_event(
        &self,
        visit: impl FnMut(&ExportedEvent<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        export::each_event(&self.point.committed, visit)
    }

    /// Events of whole revisions, until the query's bounds are reached. Refused below the compacted
    /// revision.
    pub fn history(&self, query: &HistoryQuery) -> Result<HistoryAnswer, ReadError> {
        history::read(&self.point.committed, query)
    }

    /// The first revision that was made at or after a time in milliseconds since the Unix epoch.
    pub fn revision_at_time(&self, unix_ms: u64) -> Result<RevisionAtTime, ReadError> {
        times::revision_at_time(&self.point.committed, unix_ms)
    }

    /// When the keys of a range were created and last changed, as they are now.
    pub fn key_times(&self, keys: &KeyRange, limit: Option<usize>) -> Result<KeyTimes, ReadError> {
        times::key_times(&self.point.committed, keys, limit)
    }

    pub fn lease(&self, lease: LeaseId) -> Result<Option<Lease>, ReadError> {
        Ok(lease::read(&self.point.committed.view, lease)?)
    }

    /// Every lease, in ascending order of its number without the sign.
    pub fn leases(&self) -> Result<Vec<Lease>, ReadError> {
        Ok(lease::read_all(&self.point.committed.view)?)
    }

    /// The keys attached to a lease, in ascending order.
    pub fn lease_keys(&self, lease: LeaseId) -> Result<Vec<Bytes>, ReadError> {
        Ok(lease::attached(&self.point.committed.view, lease)?)
    }

    /// A long answer in pieces, all of this point: the query's keys, revision and `keys_only` count;
    /// its limit, sort and bounds do not.
    pub fn pages(&self, query: &RangeQuery) -> Result<Pages, ReadError> {
        let committed = &self.point.committed;
        let at = range::revision_to_read(query.at, committed.revision, committed.compacted)?;
        let plan = committed.plan(&query.keys, at, ReadStrategy::Cheapest)?;
        let left = Some(query.keys.clone());
        Ok(Pages {
            point: Arc::clone(&self.point),
            plan,
            keys_only: query.keys_only,
            left,
            all: query.keys.clone(),
        })
    }
}

/// What is left of a long answer.
pub struct Pages {
    point: Arc<ReadPoint>,
    plan: Plan,
    keys_only: bool,
    all: KeyRange,
    /// `None` when there is nothing left.
    left: Option<KeyRange>,
}

impl Pages {
    /// The next at most `keys_max` key-values, and no more once they weigh `bytes_max`; `None` after
    /// the last.
    pub fn next_page(&mut self, keys_max: usize, bytes_max: usize) -> Result<Option<KvPage>, ReadError> {
        let Some(left) = self.left.take() else {
            return Ok(None);
        };
        let source = self.point.committed.source(&self.plan);
        let piece = range::piece(&source, &left, self.keys_only, keys_max.max(1), bytes_max)?;
        if !piece.finished {
            self.left = piece.last.and_then(|last| after(&left, &last));
        }
        Ok((!piece.kvs.is_empty()).then_some(piece.kvs))
    }

    /// Whether [`Pages::next_page`] has anything more to give.
    pub fn is_finished(&self) -> bool {
        self.left.is_none()
    }

    /// Live keys in the whole range, given out or not.
    pub fn count(&self) -> Result<u64, ReadError> {
        let counted: Result<u64, StateError> = self.point.committed.source(&self.plan).count(&self.all);
        Ok(counted?)
    }

    /// The revision of the state that is read from.
    pub fn revision(&self) -> Revision {
        self.point.digest.revision
    }
}

/// What of the range lies above `last`.
fn after(range: &KeyRange, last: &Bytes) -> Option<KeyRange> {
    let mut first = Vec::with_capacity(last.len() + 1);
    first.extend_from_slice(last);
    first.push(0);
    let first = Key::new(first.into())?;
    match range {
        KeyRange::One(_) => None,
        KeyRange::Span { end, .. } => Some(KeyRange::Span { first, end: end.clone() }),
        KeyRange::From(_) => Some(KeyRange::From(first)),
    }
}
