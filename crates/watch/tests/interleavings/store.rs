//! A store in a few lines: every revision that ever was, so that what a watcher is told can be
//! compared with what happened. It reads history by the rules of the real one.

use bytes::Bytes;
use meerkat_types::{Event, EventBatch, EventKind, HistoryAnswer, HistoryQuery, KeyValue, Revision};
use meerkat_watch::{HistoryError, Horizon};
use std::collections::BTreeMap;

/// One change within a revision.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    Put { key: &'static str, size: usize },
    Delete { key: &'static str },
}

/// An event's revision, and its place within it.
pub type Place = (Revision, usize);

pub struct Store {
    /// From revision 2 on; 1 is the empty store.
    revisions: Vec<EventBatch>,
    values: BTreeMap<Bytes, KeyValue>,
    newest: BTreeMap<Bytes, Place>,
    compacted: Option<Revision>,
}

impl Store {
    pub fn new() -> Store {
        let (values, newest) = (BTreeMap::new(), BTreeMap::new());
        Store { revisions: Vec::new(), values, newest, compacted: None }
    }

    pub fn current(&self) -> Revision {
        Revision::new(1 + self.revisions.len() as i64)
    }

    pub fn horizon(&self) -> Horizon {
        Horizon { current: self.current(), oldest: self.compacted }
    }

    pub fn is_compacted(&self, revision: Revision) -> bool {
        Some(revision) <= self.compacted
    }

    pub fn compact(&mut self, to: Revision) {
        self.compacted = self.compacted.max(Some(to.min(self.current())));
    }

    /// Makes one revision. Readers see it from here on.
    pub fn commit(&mut self, writes: &[Write]) -> EventBatch {
        let revision = self.current().next();
        let before: Vec<Option<KeyValue>> =
            writes.iter().map(|write| self.values.get(write.key()).cloned()).collect();
        let mut events = Vec::new();
        for (write, previous) in writes.iter().zip(before) {
            let kind = self.write(write, revision);
            self.newest.insert(Bytes::from_static(write.key()), (revision, events.len()));
            events.push(Event { kind, previous });
        }
        let batch = EventBatch { revision, stamp_ms: revision.get() as u64, events: events.into() };
        self.revisions.push(batch.clone());
        batch
    }

    fn write(&mut self, write: &Write, revision: Revision) -> EventKind {
        match *write {
            Write::Delete { key } => {
                let key = Bytes::from_static(key.as_bytes());
                self.values.remove(&key);
                EventKind::Delete { key, modified: revision }
            }
            Write::Put { key, size } => {
                let key = Bytes::from_static(key.as_bytes());
                let before = self.values.get(&key).map(|kv| (kv.created, kv.version));
                let (created, version) = before.unwrap_or((revision, 0));
                let value = Bytes::from(vec![b'0' + (revision.get() % 10) as u8; size]);
                let kv = KeyValue {
                    key: key.clone(),
                    value,
                    created,
                    modified: revision,
                    version: version + 1,
                    lease: None,
                };
                self.values.insert(key, kv.clone());
                EventKind::Put(kv)
            }
        }
    }

    /// The revision, if it has happened.
    pub fn at(&self, revision: Revision) -> Option<&EventBatch> {
        self.revisions.get(usize::try_from(revision.get() - 2).ok()?)
    }

    /// What happened from `first` up to `end`, exclusive.
    pub fn between(&self, first: Revision, end: Revision) -> impl Iterator<Item = &EventBatch> {
        let most = self.revisions.len() as i64;
        let first = (first.get() - 2).clamp(0, most);
        let end = (end.get() - 2).clamp(first, most);
        self.revisions[first as usize..end as usize].iter()
    }

    /// Whether a later event of the same key has happened.
    pub fn is_overtaken(&self, key: &[u8], place: Place) -> bool {
        self.newest.get(key).is_some_and(|newest| place < *newest)
    }

    /// As the store on disk reads: whole revisions, up to a bound, as of now.
    pub fn read(&self, query: &HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        if Some(query.first) < self.compacted {
            return Err(HistoryError::Compacted);
        }
        let last = query.last.min(self.current());
        let (mut batches, mut walked, mut bytes) = (Vec::new(), 0, 0);
        for batch in self.between(query.first, last.next()) {
            if query.events_max <= walked || query.bytes_max <= bytes {
                return Ok(HistoryAnswer { batches, next: batch.revision });
            }
            walked += batch.events.len();
            let events: Vec<Event> = self.selected(query, batch).collect();
            bytes += events.iter().map(size_of).sum::<usize>();
            if !events.is_empty() {
                batches.push(EventBatch { events: events.into(), ..batch.clone() });
            }
        }
        Ok(HistoryAnswer { batches, next: last.next() })
    }

    fn selected<'a>(
        &'a self,
        query: &HistoryQuery,
        batch: &'a EventBatch,
    ) -> impl Iterator<Item = Event> + 'a {
        let (newest_only, revision) = (query.newest_only, batch.revision);
        let with_previous = query.with_previous && !self.is_compacted(revision);
        let events = batch.events.iter().enumerate().filter(move |(place, event)| {
            !newest_only || !self.is_overtaken(key_of(event), (revision, *place))
        });
        events.map(move |(_, event)| {
            let previous = event.previous.clone().filter(|_| with_previous);
            Event { kind: event.kind.clone(), previous }
        })
    }
}

impl Write {
    fn key(&self) -> &'static [u8] {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key.as_bytes(),
        }
    }
}

pub fn key_of(event: &Event) -> &[u8] {
    match &event.kind {
        EventKind::Put(kv) => &kv.key,
        EventKind::Delete { key, .. } => key,
    }
}

fn size_of(event: &Event) -> usize {
    let value = match &event.kind {
        EventKind::Put(kv) => kv.value.len(),
        EventKind::Delete { .. } => 0,
    };
    key_of(event).len() + value + event.previous.as_ref().map_or(0, |kv| kv.key.len() + kv.value.len())
}
