//! Events between two revisions: what a late watcher is owed.
//!
//! A read is bounded in events and bytes, ends with a whole revision, and says where the next one
//! goes on. Its cost is that of the events walked: one sequential scan of `log`; previous values are
//! shared with events of the same read where these wrote them, and looked up one by one otherwise.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::past::with_version;
use crate::mvcc::store::{Committed, floor};
use crate::mvcc::version_row;
use crate::mvcc::wire::Tail;
use bytes::Bytes;
use meerkat_engine::{Column, Cursor, View};
use meerkat_types::{Event, EventBatch, EventKind, HistoryAnswer, HistoryQuery, KeyValue, Refusal, Revision};
use std::collections::BTreeMap;

pub(crate) fn read(committed: &Committed, query: &HistoryQuery) -> Result<HistoryAnswer, ReadError> {
    let oldest = floor(committed.compacted);
    if query.first < oldest {
        return Err(Refusal::Compacted { asked: query.first, oldest }.into());
    }
    let last = query.last.min(committed.revision);
    let first = EventId::first_of(query.first.max(Revision::new(0))).to_bytes();
    let end = EventId::first_of(last.next()).to_bytes();
    let mut rows = committed.view.scan(Column::Log, &first, Some(&end));
    let mut reading = Reading::new(committed, query);
    while let Some((key, row)) = rows.row() {
        let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
        if reading.open.as_ref().is_some_and(|open| open.revision != id.revision) {
            reading.close();
            if reading.is_full() {
                return Ok(HistoryAnswer { batches: reading.batches, next: id.revision });
            }
        }
        reading.take(id, row)?;
        rows.step();
    }
    rows.finish()?;
    reading.close();
    Ok(HistoryAnswer { batches: reading.batches, next: last.next() })
}

/// One read under way.
struct Reading<'a> {
    view: &'a View,
    query: &'a HistoryQuery,
    compacted: Option<Revision>,
    /// For looking up the newest version of a key, where that is asked.
    newest: Option<Newest<'a>>,
    batches: Vec<EventBatch>,
    open: Option<Open>,
    events: usize,
    bytes: usize,
}

/// A revision whose events are being collected.
struct Open {
    revision: Revision,
    stamp_ms: u64,
    events: Vec<Event>,
}

impl<'a> Reading<'a> {
    fn new(committed: &'a Committed, query: &'a HistoryQuery) -> Reading<'a> {
        let view = &committed.view;
        Reading {
            view,
            query,
            compacted: committed.compacted,
            newest: query.newest_only.then(|| Newest::new(view)),
            batches: Vec::new(),
            open: None,
            events: 0,
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.query.events_max <= self.events || self.query.bytes_max <= self.bytes
    }

    fn take(&mut self, id: EventId, bytes: &[u8]) -> Result<(), StateError> {
        let row = LogRow::decode(bytes).ok_or(damaged("log"))?;
        self.events += 1;
        let open = self.open.get_or_insert(Open { revision: id.revision, stamp_ms: 0, events: Vec::new() });
        // Only the first event of a revision has the stamp.
        open.stamp_ms = row.stamp_ms.unwrap_or(open.stamp_ms);
        if let Some(newest) = &mut self.newest
            && newest.of(row.key)? != id
        {
            return Ok(());
        }
        let wants_previous = self.query.with_previous && self.compacted < Some(id.revision);
        let previous = match row.link.filter(|_| wants_previous) {
            None => None,
            Some(link) => Some(self.previous(link, row.key)?),
        };
        let kind = kind_of(id, Bytes::copy_from_slice(bytes)).ok_or(damaged("log"))?;
        let event = Event { kind, previous };
        self.bytes += weight(&event);
        if let Some(open) = &mut self.open {
            open.events.push(event);
        }
        Ok(())
    }

    /// The version that `link` wrote, which is there: something above the compacted revision links
    /// to it.
    fn previous(&self, link: EventId, key: &[u8]) -> Result<KeyValue, StateError> {
        match self.given_out(link, key) {
            Some(kv) => Ok(kv.clone()),
            None => with_version(self.view, link, |tail| {
                Ok(Tail::decode(tail).ok_or(damaged("log"))?.to_key_value(Bytes::copy_from_slice(key)))
            }),
        }
    }

    /// What an earlier event of this same read wrote.
    fn given_out(&self, id: EventId, key: &[u8]) -> Option<&KeyValue> {
        let at = self.batches.binary_search_by_key(&id.revision, |batch| batch.revision).ok()?;
        match &self.batches[at].events.get(usize::try_from(id.sub).ok()?)?.kind {
            // Events left out move the others: then this is another key's.
            EventKind::Put(kv) if kv.key == key => Some(kv),
            _ => None,
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take().filter(|open| !open.events.is_empty()) {
            let Open { revision, stamp_ms, events } = open;
            self.batches.push(EventBatch { revision, stamp_ms, events: events.into() });
        }
    }
}

/// Key and value are parts of the one copied row.
fn kind_of(id: EventId, bytes: Bytes) -> Option<EventKind> {
    let row = LogRow::decode(&bytes)?;
    let key = bytes.slice_ref(row.key);
    if row.tombstone {
        return Some(EventKind::Delete { key, modified: id.revision });
    }
    let tail = Tail::decode(row.tail)?;
    let value = bytes.slice_ref(tail.value);
    Some(EventKind::Put(tail.with_value(key, value)))
}

fn weight(event: &Event) -> usize {
    let of = |kv: &KeyValue| kv.key.len() + kv.value.len();
    let itself = match &event.kind {
        EventKind::Put(kv) => of(kv),
        EventKind::Delete { key, .. } => key.len(),
    };
    itself + event.previous.as_ref().map_or(0, of)
}

/// Finds the newest event of a key. No value is read for it, and each key is looked up once.
struct Newest<'a> {
    versions: Cursor<'a>,
    start: Vec<u8>,
    known: BTreeMap<Vec<u8>, EventId>,
}

impl<'a> Newest<'a> {
    fn new(view: &'a View) -> Newest<'a> {
        Newest { versions: view.scan(Column::Versions, &[], None), start: Vec::new(), known: BTreeMap::new() }
    }

    /// The key must have an event at or above the compacted revision.
    fn of(&mut self, key: &[u8]) -> Result<EventId, StateError> {
        if let Some(known) = self.known.get(key) {
            return Ok(*known);
        }
        version_row::start_of(key, &mut self.start);
        self.versions.seek(&self.start);
        self.versions.finish()?;
        let (found, id) = self.versions.key().and_then(version_row::split).ok_or(damaged("version"))?;
        if found != self.start {
            return Err(damaged("version"));
        }
        self.known.insert(key.to_vec(), id);
        Ok(id)
    }
}
