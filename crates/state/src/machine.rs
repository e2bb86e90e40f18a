//! The one writer of the state.
//!
//! ```text
//! log entries -> apply -> overlay and batch -> one engine write -> new read point
//! ```
//!
//! Always true: what readers see is the state after some entry, whole; an entry is applied once,
//! however often it is handed in. After an error the machine must be dropped: the batch it was
//! building is of no use to anyone, and the log has it all.

use crate::alarm::AlarmTable;
use crate::applied::{Applied, LogEntry};
use crate::auth::{self, AuthBook};
use crate::digest::{DIGEST_MARK_ENTRIES, DIGEST_MARKS_MAX, Digest};
use crate::error::StateError;
use crate::lease::LeaseTable;
use crate::mvcc::store::Store;
use crate::mvcc::weight;
use crate::reader::{ReadPoint, StateReader};
use crate::schema::{self, Members, Membership, Registers};
use bytes::Bytes;
use meerkat_engine::{Column, Db};
use meerkat_fault as fault;
use meerkat_types::{LogPosition, MemberId, Revision};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A batch that has grown to this is written even if more entries wait, so that the memory of one
/// apply is bounded by this and its largest entry.
const BATCH_BYTES_MAX: usize = 4 << 20;

pub struct Machine {
    pub(crate) store: Store,
    pub(crate) leases: LeaseTable,
    pub(crate) alarms: AlarmTable,
    pub(crate) downgrade: Option<Arc<str>>,
    pub(crate) auth: Arc<AuthBook>,
    pub(crate) stamp_ms: u64,
    pub(crate) applied: Option<LogPosition>,
    pub(crate) digest: u128,
    /// The digest at the last places where all members keep it, oldest first.
    marks: Arc<VecDeque<Digest>>,
    pub(crate) membership: Option<Membership>,
    pub(crate) members: Arc<Members>,
    pub(crate) removed: Arc<BTreeSet<MemberId>>,
    /// Everybody in the newest membership.
    pub(crate) roster: BTreeSet<MemberId>,
    pub(crate) publish_events: bool,
    reader: StateReader,
    /// The position that the database has.
    written: Option<LogPosition>,
}

impl Machine {
    /// Takes up the state that `db` holds and shows it to `reader` and its clones.
    pub fn open(db: Db, reader: &StateReader) -> Result<Machine, StateError> {
        schema::check_format(&db)?;
        let view = db.view();
        let registers = Registers::load(&view)?;
        let machine = Machine {
            leases: LeaseTable::load(&view)?,
            alarms: AlarmTable::load(&view)?,
            auth: Arc::new(auth::load(&view)?),
            downgrade: schema::load_downgrade(&view)?,
            store: Store::open(db, registers.revision, registers.compacted, weight::load(&view)?)?,
            stamp_ms: registers.stamp_ms,
            applied: registers.applied,
            digest: registers.digest,
            marks: Arc::default(),
            membership: schema::load_membership(&view)?,
            members: Arc::new(schema::load_members(&view)?),
            removed: Arc::new(schema::load_removed(&view)?),
            roster: BTreeSet::new(),
            publish_events: true,
            reader: reader.clone(),
            written: registers.applied,
        };
        machine.publish();
        Ok(machine)
    }

    /// Who is in the stored membership, which only the consensus layer can read. Must be told before
    /// the first entry is applied, or the next change would not know whom it removes.
    pub fn set_roster(&mut self, members: BTreeSet<MemberId>) {
        self.roster = members;
    }

    /// Without them apply copies no previous values.
    pub fn set_publish_events(&mut self, publish: bool) {
        self.publish_events = publish;
    }

    /// Applies entries in log order; the answers are in the same order. Those at or below the
    /// applied position are passed over.
    pub fn apply(&mut self, entries: &[LogEntry]) -> Result<Vec<Applied>, StateError> {
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            if self.applied.is_some_and(|applied| entry.position.index <= applied.index) {
                all.push(Applied::default());
                continue;
            }
            if let Some(applied) = self.applied {
                assert_eq!(entry.position.index, applied.index.next(), "the log has no gaps");
            }
            // For the line that names a mistake.
            fault::at(Some(entry.position.index.0));
            let before = self.store.revision;
            let applied = self.apply_one(entry)?;
            self.check_step(before, &applied);
            all.push(applied);
            if BATCH_BYTES_MAX <= self.store.batch.bytes() {
                self.commit()?;
            }
        }
        self.commit()?;
        fault::at(None);
        Ok(all)
    }

    /// What is always true of one entry, wherever it was applied: a mistake stops here, before anybody is
    /// told of it and before it is on the disk.
    fn check_step(&self, before: Revision, applied: &Applied) {
        let after = self.store.revision;
        assert!(before <= after && after <= before.next(), "an entry takes one revision at most");
        assert!(self.store.compacted <= Some(after), "what is compacted has happened");
        let told = applied.events.as_ref().map(|batch| batch.revision);
        let taken = (self.publish_events && before < after).then_some(after);
        assert_eq!(told, taken, "each revision has one batch of events, and no other has any");
    }

    /// Writes what has been applied since the last commit, and shows it to readers.
    pub(crate) fn commit(&mut self) -> Result<(), StateError> {
        if self.written == self.applied {
            return Ok(());
        }
        let counts_changed = self.store.settle_counts()?;
        let registers = Registers {
            revision: self.store.revision,
            compacted: self.store.compacted,
            stamp_ms: self.stamp_ms,
            applied: self.applied,
            digest: self.digest,
        };
        self.store.batch.put(Column::Meta, schema::REGISTERS, &registers.encode());
        weight::put(&mut self.store.batch, self.store.written_bytes);
        fault::point("before_apply_batch")?;
        self.store.write(counts_changed)?;
        fault::point("after_apply_batch")?;
        self.written = self.applied;
        self.publish();
        Ok(())
    }

    /// Keeps the digest where every member does, so that any two can be compared while they apply.
    pub(crate) fn mark_digest(&mut self, at: LogPosition) {
        if !at.index.0.is_multiple_of(DIGEST_MARK_ENTRIES) {
            return;
        }
        let now = self.digest_now();
        let marks = Arc::make_mut(&mut self.marks);
        if DIGEST_MARKS_MAX <= marks.len() {
            marks.pop_front();
        }
        marks.push_back(now);
    }

    fn digest_now(&self) -> Digest {
        Digest { position: self.applied, revision: self.store.revision, bytes: self.digest.to_be_bytes() }
    }

    fn publish(&self) {
        self.reader.publish(ReadPoint {
            committed: Arc::clone(&self.store.committed),
            digest: self.digest_now(),
            marks: Arc::clone(&self.marks),
            alarms: Arc::clone(&self.alarms.alarms),
            downgrade: self.downgrade.clone(),
            written_bytes: self.store.written_bytes + self.leases.len() as u64 * weight::LEASE_BYTES,
            members: Arc::clone(&self.members),
            removed: Arc::clone(&self.removed),
            membership: self.membership.clone(),
            auth: Arc::clone(&self.auth),
        });
    }

    pub fn applied(&self) -> Option<LogPosition> {
        self.applied
    }

    /// The newest membership entry: where it stands in the log, and its bytes.
    pub fn membership(&self) -> Option<(LogPosition, Bytes)> {
        self.membership.clone()
    }

    pub fn db(&self) -> &Db {
        self.store.db()
    }
}
