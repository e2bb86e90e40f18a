//! The store as apply sees it: what is committed, and the batch being built on top of it.
//!
//! `committed` is what readers see, and never changes; a commit replaces it. Everything else here
//! belongs to the one thread that applies.

use crate::error::{StateError, damaged};
use crate::lease;
use crate::mvcc::counts::Counts;
use crate::mvcc::event_id::EventId;
use crate::mvcc::head_row::HeadRow;
use crate::mvcc::past::{Plan, ReadStrategy};
use crate::mvcc::present::{HeadRows, Overlay, Present};
use crate::mvcc::source::Source;
use crate::mvcc::wire::Tail;
use bytes::Bytes;
use meerkat_engine::{Batch, Column, Db, View};
use meerkat_types::{KeyRange, KeyValue, LeaseId, Revision};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The store after some entry, as written to the database.
pub(crate) struct Committed {
    pub view: View,
    pub counts: Arc<Counts>,
    pub revision: Revision,
    /// Below this nothing is readable; `None` before the first compaction.
    pub compacted: Option<Revision>,
}

impl Committed {
    pub(crate) fn present(&self) -> Present<'_> {
        Present { rows: HeadRows { view: &self.view, overlay: None }, counts: &self.counts }
    }

    /// `at` must be readable: see `range::revision_to_read`.
    pub(crate) fn plan(&self, keys: &KeyRange, at: Revision, way: ReadStrategy) -> Result<Plan, StateError> {
        Plan::choose(&self.view, keys, at, self.revision, way)
    }

    pub(crate) fn source<'a>(&'a self, plan: &'a Plan) -> Source<'a> {
        Source { present: self.present(), plan }
    }
}

pub(crate) struct Store {
    pub committed: Arc<Committed>,
    pub batch: Batch,
    pub overlay: Overlay,
    pub revision: Revision,
    pub compacted: Option<Revision>,
    /// Everything ever written, as `weight` counts it.
    pub written_bytes: u64,
    /// Keys were attached to leases, or detached, since the last commit.
    pub attachments_changed: bool,
    counts: Counts,
    /// First keys of the buckets whose number has changed since the last commit.
    changed_buckets: BTreeSet<Bytes>,
    db: Db,
}

/// Below this a revision that a client names counts as compacted: a negative one always does.
pub(crate) fn floor(compacted: Option<Revision>) -> Revision {
    Revision::new(Revision::compacted_to_wire(compacted))
}

/// What a key is before a write replaces it.
pub(crate) struct Standing {
    pub id: EventId,
    pub created: Revision,
    pub version: i64,
    pub lease: Option<LeaseId>,
    pub created_ms: u64,
    /// Only if it was asked for: it costs a copy of the value.
    pub kv: Option<KeyValue>,
}

impl Standing {
    pub(crate) fn of(key: &Bytes, row: HeadRow<'_>, want_kv: bool) -> Result<Standing, StateError> {
        let tail = Tail::decode(row.tail).ok_or(damaged("head"))?;
        let mark = row.mark().ok_or(damaged("head"))?;
        Ok(Standing {
            id: mark.id(&tail),
            created: tail.created,
            version: tail.version,
            lease: tail.lease,
            created_ms: mark.created_ms,
            kv: want_kv.then(|| tail.to_key_value(key.clone())),
        })
    }
}

impl Store {
    pub(crate) fn open(
        db: Db,
        revision: Revision,
        compacted: Option<Revision>,
        written_bytes: u64,
    ) -> Result<Store, StateError> {
        let view = db.view();
        let counts = Counts::load(&view)?;
        let committed = Committed { view, counts: Arc::new(counts.clone()), revision, compacted };
        Ok(Store {
            committed: Arc::new(committed),
            batch: Batch::new(&db),
            overlay: Overlay::new(),
            revision,
            compacted,
            written_bytes,
            attachments_changed: false,
            counts,
            changed_buckets: BTreeSet::new(),
            db,
        })
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// The present, with what the batch has changed.
    pub(crate) fn present(&self) -> Present<'_> {
        Present { rows: self.rows(), counts: &self.counts }
    }

    pub(crate) fn rows(&self) -> HeadRows<'_> {
        HeadRows { view: &self.committed.view, overlay: Some(&self.overlay) }
    }

    pub(crate) fn standing(&self, key: &Bytes, want_kv: bool) -> Result<Option<Standing>, StateError> {
        match self.rows().get(key)? {
            None => Ok(None),
            Some(row) => {
                let row = HeadRow::decode(&row).ok_or(damaged("head"))?;
                Standing::of(key, row, want_kv).map(Some)
            }
        }
    }

    /// Brings the row that ties a key to its lease in line.
    pub(crate) fn move_lease(&mut self, key: &[u8], from: Option<LeaseId>, to: Option<LeaseId>) {
        if from == to {
            return;
        }
        self.attachments_changed = true;
        if let Some(from) = from {
            lease::detach(&mut self.batch, from, key);
        }
        if let Some(to) = to {
            lease::attach(&mut self.batch, to, key);
        }
    }

    pub(crate) fn note_born(&mut self, key: &[u8]) {
        let bucket = self.counts.born(key);
        self.changed_buckets.insert(bucket);
    }

    pub(crate) fn note_died(&mut self, key: &[u8]) -> Result<(), StateError> {
        let bucket = self.counts.died(key)?;
        self.changed_buckets.insert(bucket);
        Ok(())
    }

    /// Brings the bucket rows of the batch up to date. Before every write.
    pub(crate) fn settle_counts(&mut self) -> Result<bool, StateError> {
        if self.changed_buckets.is_empty() {
            return Ok(false);
        }
        let changed = std::mem::take(&mut self.changed_buckets);
        let rows = HeadRows { view: &self.committed.view, overlay: Some(&self.overlay) };
        for (first, keys) in self.counts.settle(changed, &rows)? {
            let key = Counts::row_key(&first);
            match keys {
                Some(keys) => self.batch.put(Column::Counts, &key, &keys.to_be_bytes()),
                None => self.batch.delete(Column::Counts, &key),
            }
        }
        Ok(true)
    }

    /// Writes the batch and moves `committed` on.
    pub(crate) fn write(&mut self, counts_changed: bool) -> Result<(), StateError> {
        let batch = std::mem::replace(&mut self.batch, Batch::new(&self.db));
        self.db.write(batch)?;
        self.overlay.clear();
        self.attachments_changed = false;
        let counts =
            if counts_changed { Arc::new(self.counts.clone()) } else { Arc::clone(&self.committed.counts) };
        self.committed = Arc::new(Committed {
            view: self.db.view(),
            counts,
            revision: self.revision,
            compacted: self.compacted,
        });
        Ok(())
    }
}
