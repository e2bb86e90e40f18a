//! Removes, bit by bit, what no reader can ask for any more.
//!
//! Compacting to revision C is agreed through the log and only moves the bound; from then on reads
//! below C are refused. What this module does is local: it walks the events from the last finished
//! bound up to, but not at, C, and removes for each one the version that it replaced, and the event
//! itself if it is a deletion. So
//!
//! * the cost is that of the events walked, never of the store;
//! * what a key was at C stays, whenever it was written;
//! * a deletion at exactly C stays for watchers that begin there, and so does the previous value of
//!   each event at C. The next compaction walks the events at C and takes them.
//!
//! ```text
//! k: put@2  put@4  del@6  put@8      compact to 6 walks [1, 6): removes put@2
//!           ^ kept  ^ kept           compact to 7 walks [6, 7): removes put@4, del@6
//! ```
//!
//! Each step is one batch with its own progress in it: a crash repeats a step or does not. It runs
//! beside apply, on another thread: the two write different rows. Only one may run for a database.

use crate::error::{StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::version_row;
use crate::mvcc::weight;
use crate::schema::{Registers, Removed};
use meerkat_engine::{Batch, Column, Db, View};
use meerkat_fault as fault;
use meerkat_types::Revision;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Compactor {
    db: Db,
    /// Removed and not yet asked for.
    removed: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to remove.
    Idle,
    /// A step was done; there is more.
    More,
    /// Everything removable at this compacted revision is gone.
    Finished(Revision),
}

impl Compactor {
    pub fn new(db: Db) -> Compactor {
        Compactor { db, removed: AtomicU64::new(0) }
    }

    /// Versions and deletions removed since this was last asked, for metrics.
    pub fn take_removed(&self) -> u64 {
        self.removed.swap(0, Ordering::Relaxed)
    }

    /// The newest compacted revision that this member has finished with.
    pub fn finished_revision(&self) -> Result<Option<Revision>, StateError> {
        Ok(Removed::load(&self.db.view())?.finished)
    }

    /// Everything that the quota does not count any more: what this member has removed so far, and what
    /// the next compaction will remove whatever happens.
    pub fn removed_bytes(&self) -> Result<u64, StateError> {
        let removed = Removed::load(&self.db.view())?;
        Ok(removed.bytes + removed.held_bytes)
    }

    /// Walks at most `events_max` events.
    pub fn step(&self, events_max: usize) -> Result<Progress, StateError> {
        // The bound comes from the same view as the events. It may not be published yet: a reader
        // that does not know it has an older view, in which nothing is removed.
        let view = self.db.view();
        let removed = Removed::load(&view)?;
        let is_new = |bound: &Revision| removed.finished < Some(*bound);
        let Some(bound) = Registers::load(&view)?.compacted.filter(is_new) else {
            return Ok(Progress::Idle);
        };
        let mut sweep = Sweep { batch: Batch::new(&self.db), view: &view, gone: BTreeSet::new(), bytes: 0 };
        let mut next = removed.next;
        let end = EventId::first_of(bound);
        let mut rows = view.scan_once(Column::Log, &next.to_bytes(), Some(&end.to_bytes()));
        let (mut walked, mut gone) = (0, 0);
        while walked < events_max.max(1) {
            let Some((key, row)) = rows.row() else {
                break;
            };
            let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
            gone += sweep.remove_superseded(id, &LogRow::decode(row).ok_or(damaged("log"))?)?;
            next = id.next();
            walked += 1;
            rows.step();
        }
        rows.finish()?;
        let finished = rows.row().is_none();
        let bytes = removed.bytes + sweep.bytes;
        let progress = if finished {
            Removed { next: next.max(end), finished: Some(bound), bytes, held_bytes: sweep.held_at(bound)? }
        } else {
            // The first events walked are those at the bound before: what they held back goes first.
            let held_bytes = removed.held_bytes.saturating_sub(sweep.bytes);
            Removed { next, finished: removed.finished, bytes, held_bytes }
        };
        let mut batch = sweep.batch;
        progress.put(&mut batch);
        fault::point("before_compaction_step")?;
        self.db.write(batch)?;
        self.removed.fetch_add(gone, Ordering::Relaxed);
        fault::point("after_compaction_step")?;
        Ok(if finished { Progress::Finished(bound) } else { Progress::More })
    }
}

/// What an event replaced: the version before its revision, and the one before it in its revision. Both
/// are older than itself, or what is removed would be somebody else's.
fn replaced(id: EventId, row: &LogRow<'_>) -> Result<[Option<EventId>; 2], StateError> {
    let shadowed = row.shadows.map(|sub| EventId { revision: id.revision, sub });
    let older =
        row.link.is_none_or(|link| link.revision < id.revision) && shadowed.is_none_or(|event| event < id);
    if older { Ok([row.link, shadowed]) } else { Err(damaged("log")) }
}

/// What one step removes.
struct Sweep<'a> {
    batch: Batch,
    view: &'a View,
    /// Two events of one revision may point at the same predecessor.
    gone: BTreeSet<EventId>,
    bytes: u64,
}

impl Sweep<'_> {
    /// What the events at exactly `bound` replaced weighs, and stays for watchers that begin there. Not
    /// counted any more: who deletes everything and compacts at once has made room.
    fn held_at(&mut self, bound: Revision) -> Result<u64, StateError> {
        let (first, end) = (EventId::first_of(bound), EventId::first_of(bound.next()));
        let mut rows = self.view.scan_once(Column::Log, &first.to_bytes(), Some(&end.to_bytes()));
        let mut bytes = 0;
        while let Some((key, row)) = rows.row() {
            let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
            let row = LogRow::decode(row).ok_or(damaged("log"))?;
            for held in replaced(id, &row)?.into_iter().flatten() {
                bytes += self.weight_of(held, row.key)?;
            }
            rows.step();
        }
        rows.finish()?;
        Ok(bytes)
    }

    /// Zero for what was removed before, or counted before in this step.
    fn weight_of(&mut self, event: EventId, key: &[u8]) -> Result<u64, StateError> {
        if !self.gone.insert(event) {
            return Ok(0);
        }
        let row = self.view.get(Column::Log, &event.to_bytes())?;
        Ok(row.map_or(0, |row| weight::of_event(&row, key)))
    }

    /// Removes what nobody can read once the bound is above `id`; how many versions that is.
    fn remove_superseded(&mut self, id: EventId, row: &LogRow<'_>) -> Result<u64, StateError> {
        let mut removed = 0;
        let mut version_key = Vec::new();
        let [link, shadowed] = replaced(id, row)?;
        let itself = row.tombstone.then_some(id);
        for gone in [link, shadowed, itself].into_iter().flatten() {
            self.bytes += self.weight_of(gone, row.key)?;
            self.batch.delete(Column::Log, &gone.to_bytes());
            version_row::row_key(row.key, gone, &mut version_key);
            self.batch.delete(Column::Versions, &version_key);
            removed += 1;
        }
        Ok(removed)
    }
}
