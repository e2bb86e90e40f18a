//! Events between two revisions: what a late watcher is owed.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::past::with_version;
use crate::mvcc::store::Committed;
use crate::mvcc::wire::Tail;
use bytes::Bytes;
use meerkat_engine::{Column, View};
use meerkat_types::{Event, EventBatch, EventKind, Refusal, Revision};

/// Whole revisions, oldest first.
#[derive(Clone, Debug)]
pub struct History {
    pub batches: Vec<EventBatch>,
    /// Where the next read goes on; above the asked end when everything was read.
    pub next: Revision,
}

pub(crate) fn read(
    committed: &Committed,
    from: Revision,
    to: Revision,
    events_max: usize,
) -> Result<History, ReadError> {
    let oldest = Revision::new(committed.compacted);
    if from < oldest {
        return Err(Refusal::Compacted { asked: from, oldest }.into());
    }
    let last = to.get().min(committed.revision);
    let view = &committed.view;
    let end = EventId::first_of(last + 1).to_bytes();
    let mut rows = view.scan(Column::Log, &EventId::first_of(from.get().max(0)).to_bytes(), Some(&end));
    let (mut batches, mut open) = (Vec::new(), None::<Open>);
    let mut events = 0;
    while let Some((key, row)) = rows.row() {
        let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
        let row = LogRow::decode(row).ok_or(damaged("log"))?;
        if open.as_ref().is_some_and(|open| open.revision != id.revision) {
            batches.extend(open.take().map(Open::close));
            if events_max <= events {
                return Ok(History { batches, next: Revision::new(id.revision) });
            }
        }
        let open = open.get_or_insert_with(|| Open::new(id.revision));
        // Only the first event of a revision has the stamp.
        open.stamp_ms = row.stamp_ms.unwrap_or(open.stamp_ms);
        open.events.push(event(view, id, &row)?);
        events += 1;
        rows.step();
    }
    rows.finish()?;
    batches.extend(open.map(Open::close));
    Ok(History { batches, next: Revision::new(last + 1) })
}

/// A revision whose events are being collected.
struct Open {
    revision: i64,
    stamp_ms: u64,
    events: Vec<Event>,
}

impl Open {
    const fn new(revision: i64) -> Open {
        Open { revision, stamp_ms: 0, events: Vec::new() }
    }

    fn close(self) -> EventBatch {
        let revision = Revision::new(self.revision);
        EventBatch { revision, stamp_ms: self.stamp_ms, events: self.events.into() }
    }
}

fn event(view: &View, id: EventId, row: &LogRow<'_>) -> Result<Event, StateError> {
    let key = Bytes::copy_from_slice(row.key);
    let previous = match row.link {
        None => None,
        Some(link) => Some(with_version(view, link, |tail| {
            Ok(Tail::decode(tail).ok_or(damaged("log"))?.to_key_value(key.clone()))
        })?),
    };
    let kind = if row.tombstone {
        EventKind::Delete { key, modified: Revision::new(id.revision) }
    } else {
        EventKind::Put(Tail::decode(row.tail).ok_or(damaged("log"))?.to_key_value(key))
    };
    Ok(Event { kind, previous })
}
