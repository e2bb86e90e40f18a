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
use crate::schema::{Registers, Removed};
use meerkat_engine::{Batch, Column, Db, fault};
use meerkat_types::Revision;

pub struct Compactor {
    db: Db,
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
        Compactor { db }
    }

    /// The newest compacted revision that this member has finished with; -1 before the first.
    pub fn finished_revision(&self) -> Result<Revision, StateError> {
        Ok(Revision::new(Removed::load(&self.db.view())?.finished))
    }

    /// Walks at most `events_max` events.
    pub fn step(&self, events_max: usize) -> Result<Progress, StateError> {
        // The bound comes from the same view as the events. It may not be published yet: a reader
        // that does not know it has an older view, in which nothing is removed.
        let view = self.db.view();
        let bound = Registers::load(&view)?.compacted;
        let removed = Removed::load(&view)?;
        if bound <= removed.finished {
            return Ok(Progress::Idle);
        }
        let mut batch = Batch::new(&self.db);
        let mut next = removed.next;
        let end = EventId::first_of(bound.max(0));
        let mut rows = view.scan_once(Column::Log, &next.to_bytes(), Some(&end.to_bytes()));
        let mut walked = 0;
        while walked < events_max.max(1) {
            let Some((key, row)) = rows.row() else {
                break;
            };
            let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
            remove_superseded(&mut batch, id, &LogRow::decode(row).ok_or(damaged("log"))?);
            next = id.next();
            walked += 1;
            rows.step();
        }
        rows.finish()?;
        let finished = rows.row().is_none();
        let progress = if finished {
            Removed { next: next.max(end), finished: bound }
        } else {
            Removed { next, finished: removed.finished }
        };
        progress.put(&mut batch);
        fault::point("before_compaction_step")?;
        self.db.write(batch)?;
        fault::point("after_compaction_step")?;
        Ok(if finished { Progress::Finished(Revision::new(bound)) } else { Progress::More })
    }
}

/// Removes what nobody can read once the bound is above `id`.
fn remove_superseded(batch: &mut Batch, id: EventId, row: &LogRow<'_>) {
    let mut version_key = Vec::new();
    let shadowed = row.shadows.map(|sub| EventId { revision: id.revision, sub });
    let itself = row.tombstone.then_some(id);
    for gone in [row.link, shadowed, itself].into_iter().flatten() {
        batch.delete(Column::Log, &gone.to_bytes());
        version_row::row_key(row.key, gone, &mut version_key);
        batch.delete(Column::Versions, &version_key);
    }
}
