//! Changes within one revision.
//!
//! A [`WriteTxn`] takes the next revision only if something changes. Its changes go to the store's
//! batch and overlay at once, so that later operations of the same transaction, and later entries of
//! the same batch, see them. It cannot be undone: every refusal is decided before it begins.

use crate::digest::fold_event;
use crate::error::{StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::head_row::{HeadRow, Mark};
use crate::mvcc::log_row::LogRowHeader;
use crate::mvcc::store::{Standing, Store};
use crate::mvcc::version_row;
use crate::mvcc::weight;
use crate::mvcc::wire::Tail;
use bytes::Bytes;
use meerkat_engine::Column;
use meerkat_types::{
    DeleteRange, Deleted, Event, EventBatch, EventKind, KeyRange, KeyValue, NewLease, NewValue, Put, PutDone,
    Revision,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

pub(crate) struct WriteTxn<'a> {
    pub store: &'a mut Store,
    /// The revision that changes get.
    revision: Revision,
    /// How many changes there were.
    subs: u32,
    stamp_ms: u64,
    want_events: bool,
    events: Vec<Event>,
    digest: u128,
    /// What this revision did to each key so far. Only kept where one key can change twice.
    touched: Option<BTreeMap<Bytes, Touched>>,
    row: Vec<u8>,
    version_key: Vec<u8>,
}

struct Touched {
    newest_sub: u32,
    /// The key before this revision.
    link: Option<EventId>,
    previous: Option<KeyValue>,
}

/// How an event is tied to what was before it.
struct Ties {
    link: Option<EventId>,
    shadows: Option<u32>,
    previous: Option<KeyValue>,
}

/// What a write transaction did as a whole.
pub(crate) struct Written {
    pub digest: u128,
    pub events: Option<EventBatch>,
}

impl<'a> WriteTxn<'a> {
    /// `repeats`: whether one key may be changed more than once.
    pub(crate) fn begin(
        store: &'a mut Store,
        stamp_ms: u64,
        want_events: bool,
        repeats: bool,
    ) -> WriteTxn<'a> {
        let revision = store.revision.next();
        WriteTxn {
            store,
            revision,
            subs: 0,
            stamp_ms,
            want_events,
            events: Vec::new(),
            digest: 0,
            touched: repeats.then(BTreeMap::new),
            row: Vec::new(),
            version_key: Vec::new(),
        }
    }

    /// The store's revision as operations of this transaction see it.
    pub(crate) fn revision_now(&self) -> Revision {
        if self.subs == 0 { self.revision.previous() } else { self.revision }
    }

    pub(crate) fn standing(&self, put: &Put) -> Result<Option<Standing>, StateError> {
        let keeps_value = matches!(put.value, NewValue::KeepCurrent);
        let want_kv = keeps_value || put.want_previous || self.want_events;
        self.store.standing(put.key.bytes(), want_kv)
    }

    /// `standing` is what the key is now. If the put keeps anything of it, it must be there.
    pub(crate) fn put(&mut self, put: &Put, standing: Option<Standing>) -> Result<PutDone, StateError> {
        let key = put.key.bytes();
        let kept = standing.as_ref();
        let value = match &put.value {
            NewValue::Set(value) => value.clone(),
            NewValue::KeepCurrent => {
                kept.and_then(|kept| kept.kv.as_ref()).map(|kv| kv.value.clone()).expect("checked before")
            }
        };
        let lease = match put.lease {
            NewLease::Set(lease) => lease,
            NewLease::KeepCurrent => kept.expect("checked before").lease,
        };
        let version = kept.map_or(0, |kept| kept.version);
        let tail = Tail {
            created: kept.map_or(self.revision, |kept| kept.created),
            modified: self.revision,
            version: version.checked_add(1).ok_or(damaged("head"))?,
            value: &value,
            lease,
        };
        let mark = Mark {
            sub: self.subs,
            created_ms: kept.map_or(self.stamp_ms, |kept| kept.created_ms),
            modified_ms: self.stamp_ms,
        };
        if standing.is_none() {
            self.store.note_born(key);
        }
        self.store.move_lease(key, kept.and_then(|kept| kept.lease), lease);
        let head = Bytes::from(HeadRow::encode(&mark, &tail));
        let (mut ties, previous) = self.tie(key, standing, put.want_previous);
        if self.want_events {
            // Copied: watchers may keep an event far longer than the log keeps the entry that it is a
            // part of, and of a transaction it may be a small one.
            let kv = KeyValue {
                key: Bytes::copy_from_slice(key),
                value: Bytes::copy_from_slice(&value),
                created: tail.created,
                modified: tail.modified,
                version: tail.version,
                lease,
            };
            self.events.push(Event { kind: EventKind::Put(kv), previous: ties.previous.take() });
        }
        self.write_put(key, head, &ties)?;
        let previous = previous.filter(|_| put.want_previous);
        Ok(PutDone { revision: self.revision, previous })
    }

    pub(crate) fn delete_range(&mut self, delete: &DeleteRange) -> Result<Deleted, StateError> {
        let want_kv = delete.want_previous || self.want_events;
        let doomed = self.standing_in(&delete.keys, want_kv)?;
        let deleted = doomed.len() as u64;
        let mut previous = Vec::with_capacity(if delete.want_previous { doomed.len() } else { 0 });
        for (key, standing) in doomed {
            let before = self.delete(key, standing, delete.want_previous)?;
            previous.extend(before.filter(|_| delete.want_previous));
        }
        Ok(Deleted { revision: self.revision_now(), deleted, previous })
    }

    /// Deletes these keys, which must all be there.
    pub(crate) fn delete_each(&mut self, keys: Vec<Bytes>) -> Result<Revision, StateError> {
        for key in keys {
            let standing = self.store.standing(&key, self.want_events)?.ok_or(damaged("lease"))?;
            self.delete(key, standing, false)?;
        }
        Ok(self.revision_now())
    }

    /// Gives what the key was, if that is wanted.
    fn delete(&mut self, key: Bytes, standing: Standing, want: bool) -> Result<Option<KeyValue>, StateError> {
        self.store.move_lease(&key, standing.lease, None);
        let (mut ties, before) = self.tie(&key, Some(standing), want);
        if self.want_events {
            let kind = EventKind::Delete { key: Bytes::copy_from_slice(&key), modified: self.revision };
            self.events.push(Event { kind, previous: ties.previous.take() });
        }
        self.write_tombstone(key, &ties)?;
        Ok(before)
    }

    fn standing_in(&self, keys: &KeyRange, want_kv: bool) -> Result<Vec<(Bytes, Standing)>, StateError> {
        if let KeyRange::One(key) = keys {
            let standing = self.store.standing(key.bytes(), want_kv)?;
            return Ok(standing.map(|standing| (key.bytes().clone(), standing)).into_iter().collect());
        }
        let mut found = Vec::new();
        self.store.rows().scan(keys.first().as_bytes(), keys.end().as_deref(), |key, row| {
            let key = Bytes::copy_from_slice(key);
            let standing = Standing::of(&key, row, want_kv)?;
            found.push((key, standing));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// Ties the next event of `key` to what was before it; also gives what stood just before the
    /// event, if that is wanted.
    fn tie(&mut self, key: &Bytes, standing: Option<Standing>, want: bool) -> (Ties, Option<KeyValue>) {
        let (id, kv) = match standing {
            None => (None, None),
            Some(standing) => (Some(standing.id), standing.kv),
        };
        let Some(touched) = &mut self.touched else {
            let answer = if want { kv.clone() } else { None };
            return (Ties { link: id, shadows: None, previous: kv }, answer);
        };
        match touched.get_mut(key) {
            Some(earlier) => {
                let shadows = Some(std::mem::replace(&mut earlier.newest_sub, self.subs));
                (Ties { link: earlier.link, shadows, previous: earlier.previous.clone() }, kv)
            }
            None => {
                let earlier = Touched { newest_sub: self.subs, link: id, previous: kv.clone() };
                touched.insert(key.clone(), earlier);
                (Ties { link: id, shadows: None, previous: kv.clone() }, kv)
            }
        }
    }

    fn write_put(&mut self, key: &Bytes, head: Bytes, ties: &Ties) -> Result<(), StateError> {
        let tail = HeadRow::decode(&head).ok_or(damaged("head"))?.tail;
        self.row.clear();
        self.header(ties).encode_put(&mut self.row, key, tail);
        let id = self.write_log_row(key);
        version_row::row_key(key, id, &mut self.version_key);
        self.row.clear();
        version_row::encode_live(tail, &mut self.row).ok_or(damaged("head"))?;
        self.store.batch.put(Column::Versions, &self.version_key, &self.row);
        self.store.batch.put(Column::Head, key, &head);
        self.store.overlay.insert(key.clone(), Some(head));
        Ok(())
    }

    fn write_tombstone(&mut self, key: Bytes, ties: &Ties) -> Result<(), StateError> {
        self.row.clear();
        self.header(ties).encode_tombstone(&mut self.row, &key, self.revision);
        let id = self.write_log_row(&key);
        version_row::row_key(&key, id, &mut self.version_key);
        self.store.batch.put(Column::Versions, &self.version_key, &version_row::TOMBSTONE_ROW);
        self.store.batch.delete(Column::Head, &key);
        self.store.note_died(&key)?;
        self.store.overlay.insert(key, None);
        Ok(())
    }

    fn header(&self, ties: &Ties) -> LogRowHeader {
        LogRowHeader {
            stamp_ms: (self.subs == 0).then_some(self.stamp_ms),
            link: ties.link,
            shadows: ties.shadows,
        }
    }

    fn write_log_row(&mut self, key: &[u8]) -> EventId {
        let id = EventId { revision: self.revision, sub: self.subs };
        self.store.batch.put(Column::Log, &id.to_bytes(), &self.row);
        self.store.written_bytes += weight::of_event(&self.row, key);
        self.digest = fold_event(self.digest, id, &self.row);
        self.subs = self.subs.checked_add(1).expect("fewer than 2^32 keys change at once");
        id
    }

    /// Takes the revision, if anything changed.
    pub(crate) fn finish(self) -> Written {
        if self.subs == 0 {
            return Written { digest: 0, events: None };
        }
        self.store.revision = self.revision;
        let events = self.want_events.then(|| EventBatch {
            revision: self.revision,
            stamp_ms: self.stamp_ms,
            events: self.events.into(),
        });
        Written { digest: self.digest, events }
    }
}
