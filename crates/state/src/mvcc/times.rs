//! When things happened, by the agreed time of each revision: the same answer on every member.
//!
//! Agreed times never go back from one revision to the next, so the revision of a time is found by
//! halving. Every revision above the compacted one has its first row in `log`, and that row has the
//! time; so does the compacted one, but in a store that was restored to it.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::store::Committed;
use crate::mvcc::wire::Tail;
use bytes::Bytes;
use meerkat_engine::{Column, View};
use meerkat_types::{KeyRange, Revision};
use std::ops::ControlFlow;

/// Revision 1 is the empty store: nothing was ever written in it.
const FIRST_WRITTEN: Revision = Revision::EMPTY_STORE.next();

/// The first revision that was made at or after some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionAtTime {
    /// One above the newest if nothing is that new.
    pub revision: Revision,
    /// When it was made; `None` if it was not yet.
    pub stamp_ms: Option<u64>,
    /// Revisions that are compacted away may have been made at or after that time too: `revision` is
    /// then the oldest that is kept.
    pub before_history: bool,
}

/// When a key was created and last changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTime {
    pub key: Bytes,
    pub created: Revision,
    pub modified: Revision,
    pub created_ms: u64,
    pub modified_ms: u64,
}

/// Keys in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTimes {
    pub times: Vec<KeyTime>,
    /// There are more keys in the range than the limit let through.
    pub more: bool,
    /// The revision at which the keys were so.
    pub revision: Revision,
}

pub(crate) fn revision_at_time(committed: &Committed, unix_ms: u64) -> Result<RevisionAtTime, ReadError> {
    let Committed { view, revision, compacted, .. } = committed;
    let oldest = compacted.map_or(FIRST_WRITTEN, |compacted| compacted.max(FIRST_WRITTEN));
    // The answer is in oldest..=next; `low` is never above it and `high` never below.
    let next = revision.next();
    let (mut low, mut high) = (oldest, next.max(oldest));
    while low < high {
        let middle = Revision::new(low.get() + (high.get() - low.get()) / 2);
        if stamp_of(view, middle, *compacted)? < unix_ms {
            low = middle.next();
        } else {
            high = middle;
        }
    }
    let stamp_ms = if low < next { Some(stamp_of(view, low, *compacted)?) } else { None };
    Ok(RevisionAtTime { revision: low, stamp_ms, before_history: low == oldest && FIRST_WRITTEN < oldest })
}

/// The time of a revision at or above the compacted one. A restored store may begin at a revision in
/// which nothing happened, or of which the first event is gone: the time of that one is not known.
fn stamp_of(view: &View, revision: Revision, compacted: Option<Revision>) -> Result<u64, StateError> {
    match view.get(Column::Log, &EventId::first_of(revision).to_bytes())? {
        Some(row) => LogRow::decode(&row).and_then(|row| row.stamp_ms).ok_or(damaged("log")),
        None if Some(revision) == compacted => Ok(0),
        None => Err(damaged("log")),
    }
}

pub(crate) fn key_times(
    committed: &Committed,
    keys: &KeyRange,
    limit: Option<usize>,
) -> Result<KeyTimes, ReadError> {
    let mut answer = KeyTimes { times: Vec::new(), more: false, revision: committed.revision };
    if keys.is_empty() {
        return Ok(answer);
    }
    committed.present().rows.scan(keys.first().as_bytes(), keys.end().as_deref(), |key, row| {
        if limit.is_some_and(|limit| limit <= answer.times.len()) {
            answer.more = true;
            return Ok(ControlFlow::Break(()));
        }
        let mark = row.mark().ok_or(damaged("head"))?;
        let tail = Tail::decode(row.tail).ok_or(damaged("head"))?;
        answer.times.push(KeyTime {
            key: Bytes::copy_from_slice(key),
            created: tail.created,
            modified: tail.modified,
            created_ms: mark.created_ms,
            modified_ms: mark.modified_ms,
        });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(answer)
}
