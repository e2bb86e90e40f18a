//! The stored history as a backup wants it: every event that a reader at some live revision could
//! see, in order, and nothing that compaction may remove, removed or not.
//!
//! A deletion at exactly the compacted revision is given out: watchers that begin there are owed it.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::hash::removable;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::store::Committed;
use meerkat_engine::Column;
use meerkat_types::Revision;
use std::ops::ControlFlow;

/// One event, as long as it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct ExportedEvent<'a> {
    pub revision: Revision,
    /// Its place among the events of its revision.
    pub sub: u32,
    pub key: &'a [u8],
    /// The protobuf KeyValue; `None` of a deletion.
    pub key_value: Option<&'a [u8]>,
}

pub(crate) fn each_event(
    committed: &Committed,
    mut visit: impl FnMut(&ExportedEvent<'_>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let Committed { view, revision, compacted, .. } = committed;
    let removable = removable(view, *compacted)?;
    let end = EventId::first_of(revision.next()).to_bytes();
    let mut rows = view.scan_once(Column::Log, &[], Some(&end));
    while let Some((key, bytes)) = rows.row() {
        let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
        let row = LogRow::decode(bytes).ok_or(damaged("log"))?;
        let gone = Some(id.revision) <= *compacted
            && (removable.contains(&id) || row.tombstone && Some(id.revision) < *compacted);
        if !gone {
            let key_value = if row.tombstone { None } else { Some(row.key_value(bytes)) };
            let event = ExportedEvent { revision: id.revision, sub: id.sub, key: row.key, key_value };
            if visit(&event).is_break() {
                return Ok(());
            }
        }
        rows.step();
    }
    rows.finish().map_err(StateError::from)?;
    Ok(())
}
