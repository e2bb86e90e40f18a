//! What the keys were at an older revision.
//!
//! Two ways that give the same answer. A recent revision is the present with the few events since
//! then undone: their number is the cost, and the count comes from the present's. An older one is
//! walked in `versions`, at the cost of the range's own history. One key is always one seek.
//!
//! The caller has checked that the revision is neither compacted nor in the future, on the same
//! view.

use crate::error::{StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::present::Present;
use crate::mvcc::version_row;
use bytes::Bytes;
use meerkat_engine::{Column, Cursor, View};
use meerkat_types::{KeyRange, Revision};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, ControlFlow};

/// Events undone rather than walked around: a few milliseconds of sequential reading, and what a
/// client that pages through a busy store sees pass by.
const UNDO_EVENTS_MAX: usize = 50_000;

/// A row of `versions` is often followed by only a few older ones of its key: stepping is cheaper
/// than a seek up to about this many.
const STEPS_BEFORE_SEEK: usize = 8;

/// How to read a range at one revision.
pub(crate) enum Plan {
    /// The current revision: as it is.
    Present,
    Undo(Undo),
    /// At this revision, from `versions`.
    Walk(Revision),
}

/// The changed keys of a range, as they were.
pub(crate) struct Undo {
    keys: BTreeMap<Bytes, Change>,
}

struct Change {
    /// The version to show instead; `None` when the key did not exist.
    before: Option<EventId>,
    lives_now: bool,
}

/// Which of the two ways. Only tests, which compare them, ask for a certain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStrategy {
    Cheapest,
    Undo,
    Walk,
}

impl Plan {
    pub(crate) fn choose(
        view: &View,
        keys: &KeyRange,
        at: Revision,
        current: Revision,
        way: ReadStrategy,
    ) -> Result<Plan, StateError> {
        if at == current {
            return Ok(Plan::Present);
        }
        let events_max = match way {
            ReadStrategy::Cheapest if matches!(keys, KeyRange::One(_)) => 0,
            ReadStrategy::Cheapest => UNDO_EVENTS_MAX,
            ReadStrategy::Undo => usize::MAX,
            ReadStrategy::Walk => 0,
        };
        // A revision has at least one event, so this many revisions cannot be few enough events.
        if events_max as u64 <= (current.get() - at.get()) as u64 {
            return Ok(Plan::Walk(at));
        }
        Ok(Undo::collect(view, keys, at, current, events_max)?.map_or(Plan::Walk(at), Plan::Undo))
    }
}

impl Undo {
    /// `None` when there are more than `events_max` events to undo.
    fn collect(
        view: &View,
        range: &KeyRange,
        at: Revision,
        current: Revision,
        events_max: usize,
    ) -> Result<Option<Undo>, StateError> {
        let mut keys = BTreeMap::new();
        let first = EventId::first_of(at.next()).to_bytes();
        let end = EventId::first_of(current.next()).to_bytes();
        let mut rows = view.scan(Column::Log, &first, Some(&end));
        let mut events = 0;
        while let Some((_, row)) = rows.row() {
            events += 1;
            if events_max < events {
                return Ok(None);
            }
            let row = LogRow::decode(row).ok_or(damaged("log"))?;
            if range.contains(row.key) {
                match keys.entry(Bytes::copy_from_slice(row.key)) {
                    // The first event since then knows what was before it.
                    Entry::Vacant(entry) => {
                        entry.insert(Change { before: row.link, lives_now: !row.tombstone });
                    }
                    Entry::Occupied(mut entry) => entry.get_mut().lives_now = !row.tombstone,
                }
            }
            rows.step();
        }
        rows.finish()?;
        Ok(Some(Undo { keys }))
    }

    pub(crate) fn scan(
        &self,
        present: &Present<'_>,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        let view = present.rows.view;
        let mut changed = self
            .keys
            .range::<[u8], _>((Bound::Included(range.first().as_bytes()), Bound::Unbounded))
            .peekable();
        let mut stopped = false;
        present.rows.scan(range.first().as_bytes(), range.end().as_deref(), |key, row| {
            while let Some((changed_key, change)) =
                changed.next_if(|(changed_key, _)| changed_key.as_ref() < key)
            {
                if range.contains(changed_key) && show(view, changed_key, change, &mut visit)?.is_break() {
                    stopped = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            let flow = match changed.next_if(|(changed_key, _)| changed_key.as_ref() == key) {
                Some((changed_key, change)) => show(view, changed_key, change, &mut visit)?,
                None => visit(key, row.tail)?,
            };
            stopped = flow.is_break();
            Ok(flow)
        })?;
        if stopped {
            return Ok(());
        }
        for (key, change) in changed.take_while(|(key, _)| range.contains(key)) {
            if show(view, key, change, &mut visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self, present: &Present<'_>, range: &KeyRange) -> Result<u64, StateError> {
        let now = present.count(range)?;
        let changed = self.keys.iter().filter(|(key, _)| range.contains(key));
        let (mut more, mut fewer) = (0, 0);
        for (_, change) in changed {
            more += u64::from(change.before.is_some());
            fewer += u64::from(change.lives_now);
        }
        Ok(now + more - fewer)
    }
}

fn show(
    view: &View,
    key: &[u8],
    change: &Change,
    visit: &mut impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
) -> Result<ControlFlow<()>, StateError> {
    match change.before {
        None => Ok(ControlFlow::Continue(())),
        Some(id) => with_version(view, id, |tail| visit(key, tail)),
    }
}

/// Reads the version that an event wrote, which must be there: something live links to it.
pub(crate) fn with_version<R>(
    view: &View,
    id: EventId,
    read: impl FnOnce(&[u8]) -> Result<R, StateError>,
) -> Result<R, StateError> {
    let row = view.get(Column::Log, &id.to_bytes())?.ok_or(damaged("linked log"))?;
    read(LogRow::decode(&row).ok_or(damaged("log"))?.tail)
}

/// Shows each key of the range that lived at `at`. Without `values` the tails come without theirs,
/// and no value is read.
pub(crate) fn walk(
    view: &View,
    range: &KeyRange,
    at: Revision,
    values: bool,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
) -> Result<(), StateError> {
    if range.is_empty() {
        return Ok(());
    }
    let (mut first, mut end) = (Vec::new(), Vec::new());
    version_row::start_of(range.first().as_bytes(), &mut first);
    match range {
        KeyRange::One(key) => version_row::end_of(key.as_bytes(), &mut end),
        KeyRange::Span { end: bytes, .. } => version_row::start_of(bytes, &mut end),
        KeyRange::From(_) => {}
    }
    let end = (!end.is_empty()).then_some(end);
    let mut rows = view.scan(Column::Versions, &first, end.as_deref());
    let (mut escaped, mut key) = (Vec::new(), Vec::new());
    while let Some((row_key, _)) = rows.row() {
        let (prefix, _) = version_row::split(row_key).ok_or(damaged("version"))?;
        escaped.clear();
        escaped.extend_from_slice(prefix);
        version_row::unescape(&escaped, &mut key).ok_or(damaged("version"))?;
        let newest = EventId { revision: at, sub: u32::MAX };
        if !advance(&mut rows, &escaped, Some(newest)) {
            continue;
        }
        if show_version(view, &rows, &key, values, &mut visit)?.is_break() {
            return Ok(());
        }
        advance(&mut rows, &escaped, None);
    }
    Ok(rows.finish()?)
}

/// Moves to the key's newest row at or before `target`, or, without one, past all rows of the key.
/// True if the cursor then stands on a row of the key.
fn advance(rows: &mut Cursor<'_>, escaped: &[u8], target: Option<EventId>) -> bool {
    for _ in 0..STEPS_BEFORE_SEEK {
        match rows.key().and_then(version_row::split) {
            Some((prefix, id)) if prefix == escaped => {
                if target.is_some_and(|target| id <= target) {
                    return true;
                }
            }
            _ => return false,
        }
        rows.step();
    }
    let mut seek = escaped.to_vec();
    match target {
        Some(target) => seek.extend_from_slice(&target.to_inverted_bytes()),
        None => *seek.last_mut().expect("an escaped key has its terminator") = 2,
    }
    rows.seek(&seek);
    rows.key().and_then(version_row::split).is_some_and(|(prefix, _)| prefix == escaped)
}

fn show_version(
    view: &View,
    rows: &Cursor<'_>,
    key: &[u8],
    values: bool,
    visit: &mut impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
) -> Result<ControlFlow<()>, StateError> {
    let (row_key, row) = rows.row().ok_or(damaged("version"))?;
    match version_row::decode(row).ok_or(damaged("version"))? {
        None => Ok(ControlFlow::Continue(())),
        Some(tail) if !values => visit(key, tail),
        Some(_) => {
            let (_, id) = version_row::split(row_key).ok_or(damaged("version"))?;
            with_version(view, id, |tail| visit(key, tail))
        }
    }
}
