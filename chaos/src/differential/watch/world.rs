//! What a run has built up: streams, their watchers, and the history they are owed.
//!
//! Holds what was asked and what etcd answered, never what the other product answered. It decides
//! nothing about who is right; it only says what to wait for before two transcripts can be compared,
//! and which of the wanted differences could apply to a watcher.

use std::collections::BTreeMap;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::WatchCreateRequest;
use meerkat_proto::pb::etcdserver::watch_create_request::FilterType;
use meerkat_proto::pb::mvcc::Event;
use meerkat_proto::pb::mvcc::event::EventType;

use super::transcript::revision_of;
use super::wire::WatchStream;

/// Everything known.
#[derive(Debug)]
pub struct World {
    /// The store's revision.
    pub revision: i64,
    /// The revision it was last compacted at; zero if never.
    pub compacted: i64,
    /// Every event since the beginning, with previous values.
    pub history: Vec<Event>,
    /// All streams, those that were closed included.
    pub streams: Vec<StreamState>,
    /// How many members each cluster has.
    pub members: usize,
    /// Sees everything from the beginning, on etcd's side.
    pub reference: Option<WatchStream>,
    /// Whether some watcher may still be on its way through history.
    pub late_watchers: bool,
}

/// One stream.
#[derive(Clone, Debug)]
pub struct StreamState {
    /// The member that serves it.
    pub member: usize,
    /// Whether it ends when there is no leader.
    pub requires_leader: bool,
    /// How far it is open.
    pub phase: Phase,
    /// Every watcher it ever had, by id, in order of creation.
    pub watchers: BTreeMap<i64, Vec<Watcher>>,
    /// Replies to requests so far, as a server of today gives them.
    pub replies: usize,
}

/// How far a stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Both ways.
    Open,
    /// The client sends no more.
    HalfClosed,
    /// Not at all.
    Closed,
}

/// One watcher.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// What was asked for.
    pub request: WatchCreateRequest,
    /// The first revision it is owed.
    pub first: i64,
    /// The bound of compaction when it was created.
    pub compacted: i64,
    /// Whether its client has canceled it.
    pub canceled: bool,
}

impl World {
    /// Empty clusters.
    pub fn new(members: usize) -> Self {
        let (history, streams) = Default::default();
        Self { revision: 1, compacted: 0, history, streams, members, reference: None, late_watchers: false }
    }

    /// Streams on which requests can be sent.
    pub fn open_streams(&self) -> Vec<usize> {
        self.streams_in(|phase| phase == Phase::Open)
    }

    /// Streams that still say something.
    pub fn heard_streams(&self) -> Vec<usize> {
        self.streams_in(|phase| phase != Phase::Closed)
    }

    fn streams_in(&self, wanted: impl Fn(Phase) -> bool) -> Vec<usize> {
        (0..self.streams.len()).filter(|index| wanted(self.streams[*index].phase)).collect()
    }

    /// The revision of the last event a watcher is certain to be given; zero if none.
    pub fn last_owed(&self, watcher: &Watcher) -> i64 {
        let owed = self.history.iter().rev().take_while(|event| watcher.first <= revision_of(event));
        let mut owed = owed.filter(|event| watcher.wants(event) && !self.may_be_gone(watcher, event));
        owed.next().map_or(0, revision_of)
    }

    /// Whether an event is one that a compaction at its very revision may take: it belongs to a key
    /// that was deleted there.
    pub fn may_be_gone(&self, watcher: &Watcher, event: &Event) -> bool {
        let revision = revision_of(event);
        revision == watcher.first
            && revision == watcher.compacted
            && self.at(revision).any(|other| is_delete(other) && key_of(other) == key_of(event))
    }

    /// The events of one revision.
    pub fn at(&self, revision: i64) -> impl Iterator<Item = &Event> {
        let from = self.history.partition_point(|event| revision_of(event) < revision);
        self.history[from..].iter().take_while(move |event| revision_of(event) == revision)
    }

    /// Whether etcd of today answers a request for progress on a stream whose watchers have caught
    /// up: there is a watcher, none begins in the future, and none waits to be canceled after a
    /// compaction.
    pub fn answers_progress(&self, stream: usize) -> bool {
        let mut any = false;
        for watcher in self.streams[stream].live() {
            if watcher.is_compacted() || self.revision < watcher.request.start_revision {
                return false;
            }
            any = true;
        }
        any
    }
}

impl StreamState {
    /// A stream just opened.
    pub fn new(member: usize, requires_leader: bool) -> Self {
        Self { member, requires_leader, phase: Phase::Open, watchers: BTreeMap::new(), replies: 0 }
    }

    /// The watcher that has an id now.
    pub fn holder(&self, id: i64) -> Option<&Watcher> {
        self.watchers.get(&id).and_then(|all| all.last()).filter(|last| !last.canceled)
    }

    /// Watchers whose client has not canceled them.
    pub fn live(&self) -> impl Iterator<Item = &Watcher> {
        self.watchers.values().filter_map(|all| all.last()).filter(|last| !last.canceled)
    }

    /// Ids in use.
    pub fn live_ids(&self) -> Vec<i64> {
        self.watchers.keys().copied().filter(|id| self.holder(*id).is_some()).collect()
    }

    /// Ids that were in use.
    pub fn free_ids(&self) -> Vec<i64> {
        self.watchers.keys().copied().filter(|id| self.holder(*id).is_none()).collect()
    }
}

impl Watcher {
    /// A watcher created when the store was at a revision and compacted up to another.
    pub fn new(request: WatchCreateRequest, revision: i64, compacted: i64) -> Self {
        let first = if request.start_revision == 0 { revision + 1 } else { request.start_revision };
        Self { request, first, compacted, canceled: false }
    }

    /// Whether history it asked for was gone when it was created.
    pub fn is_compacted(&self) -> bool {
        self.first < self.compacted
    }

    /// Whether an event is among those it asked for.
    pub fn wants(&self, event: &Event) -> bool {
        self.first <= revision_of(event) && self.covers(key_of(event)) && self.passes(event)
    }

    fn covers(&self, key: &[u8]) -> bool {
        let from: &[u8] = if self.request.key.is_empty() { b"\0" } else { &self.request.key };
        match self.request.range_end.as_ref() {
            b"" => key == from,
            b"\0" => from <= key,
            end => from <= key && key < end,
        }
    }

    fn passes(&self, event: &Event) -> bool {
        let left_out = if is_delete(event) { FilterType::Nodelete } else { FilterType::Noput };
        !self.request.filters.contains(&(left_out as i32))
    }
}

/// Whether an event is a deletion.
pub fn is_delete(event: &Event) -> bool {
    event.r#type == EventType::Delete as i32
}

/// The key of an event.
pub fn key_of(event: &Event) -> &Bytes {
    static NONE: Bytes = Bytes::new();
    event.kv.as_ref().map_or(&NONE, |kv| &kv.key)
}
