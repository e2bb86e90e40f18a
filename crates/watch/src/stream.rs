//! One client stream: its watchers, and the bounded queue of what is to be told to it.
//!
//! The queue holds names of revisions rather than bytes: what a slow reader leaves lying costs a
//! few words, and the revision itself may leave the ring meanwhile. Then the watcher goes back to
//! that revision and is served from history.

use crate::encoded::{Encoded, Form};
use meerkat_types::{Revision, WatchId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// Names a stream for as long as the hub lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// What happens to watchers that cannot be told as fast as the store changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowPolicy {
    /// They are told everything, later.
    #[default]
    Wait,
    /// They are told of each key's latest event only.
    Coalesce,
    /// They are ended, and told where to go on.
    Cancel,
}

#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Whom the stream belongs to, for operators.
    pub client: Arc<str>,
    pub slow: SlowPolicy,
    /// The stream ends when this member no longer knows a leader.
    pub require_leader: bool,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { client: "".into(), slow: SlowPolicy::Wait, require_leader: false }
    }
}

/// Why the hub ends a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Stopping,
    NoLeader,
    /// It was not read, and what it held was needed for others.
    OutOfMemory,
    /// History cannot be read on this member.
    Unreadable(String),
}

/// What a stream says beside events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Created {
        id: WatchId,
        revision: Revision,
    },
    Refused(Refused),
    Canceled {
        id: WatchId,
        revision: Revision,
    },
    /// What the watcher is owed was compacted away.
    Compacted {
        id: WatchId,
        oldest: Revision,
    },
    /// It asked to be ended rather than to wait.
    FellBehind {
        id: WatchId,
        resume: Revision,
    },
    /// Nothing up to the revision will follow, for one watcher or, without an id, for all.
    Progress {
        id: Option<WatchId>,
        revision: Revision,
    },
}

/// Why a watch is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    EmptyRange,
    DuplicateId,
    /// It would start before any revision there can be.
    BeforeHistory,
    /// The keys of all watchers together take too much memory.
    OutOfMemory,
    /// Whoever asks may not see these keys; with what to tell them.
    NotPermitted(&'static str),
}

#[derive(Debug)]
pub(crate) enum Item {
    Note(Note),
    Control(Control),
    Mark(Mark),
}

/// One revision for one watcher.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) watcher: u32,
    pub(crate) epoch: u64,
    pub(crate) revision: Revision,
    /// Where the ring does not have it.
    pub(crate) held: Option<Arc<Encoded>>,
    pub(crate) form: Form,
    /// To one who was late. Such notes have room of their own: one who catches up never makes his
    /// neighbours late.
    pub(crate) dealt: bool,
}

/// A progress mark, told only if nothing before it was lost from the queue.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) of: MarkOf,
    pub(crate) revision: Revision,
}

#[derive(Debug)]
pub(crate) enum MarkOf {
    Watcher { watcher: u32, epoch: u64 },
    All { reverts: u64 },
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) options: StreamOptions,
    pub(crate) watchers: BTreeMap<WatchId, u32>,
    pub(crate) next_id: WatchId,
    pub(crate) items: VecDeque<Item>,
    /// Notes among the items, and those of them that were dealt.
    pub(crate) notes: usize,
    pub(crate) dealt: usize,
    /// Weight of what the notes hold beyond the ring.
    pub(crate) held_bytes: usize,
    /// Watchers that are catching up.
    pub(crate) late: BTreeSet<u32>,
    /// In line for history.
    pub(crate) hungry: bool,
    /// The last round of history that did not fit in.
    pub(crate) full_round: u64,
    /// Its reader has taken everything and waits.
    pub(crate) reader: Option<Waker>,
    /// How often a watcher had to go back.
    pub(crate) reverts: u64,
    /// A progress mark is due once this is published.
    pub(crate) mark_at: Option<Revision>,
    /// And another one after that, once this is.
    pub(crate) mark_again: Option<Revision>,
    /// A large revision that is being written out.
    pub(crate) in_flight: Option<Arc<Encoded>>,
    /// When its reader last took something.
    pub(crate) read_ms: u64,
    pub(crate) end: Option<End>,
}

impl Stream {
    pub(crate) fn new(id: StreamId, options: StreamOptions, now_ms: u64) -> Stream {
        Stream {
            id,
            options,
            watchers: BTreeMap::new(),
            next_id: WatchId::new(0),
            items: VecDeque::new(),
            notes: 0,
            dealt: 0,
            held_bytes: 0,
            late: BTreeSet::new(),
            hungry: false,
            full_round: 0,
            reader: None,
            reverts: 0,
            mark_at: None,
            mark_again: None,
            in_flight: None,
            read_ms: now_ms,
            end: None,
        }
    }

    /// The id a new watcher gets: as asked, or the next free one.
    pub(crate) fn choose_id(&mut self, asked: Option<WatchId>) -> Option<WatchId> {
        if let Some(id) = asked {
            // -1 is how the wire says "no watcher".
            let free = id.get() != -1 && !self.watchers.contains_key(&id);
            return free.then_some(id);
        }
        let mut free = self.next_id;
        while self.watchers.contains_key(&free) {
            free = free.next();
        }
        self.next_id = free.next();
        Some(free)
    }

    pub(crate) fn push(&mut self, item: Item, awake: &mut Vec<Waker>) {
        if let Item::Note(note) = &item {
            self.notes += 1;
            self.dealt += usize::from(note.dealt);
            self.held_bytes += note.held.as_ref().map_or(0, |held| held.weight());
        }
        self.items.push_back(item);
        awake.extend(self.reader.take());
    }

    pub(crate) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        if let Item::Note(note) = &item {
            self.notes -= 1;
            self.dealt -= usize::from(note.dealt);
            self.held_bytes -= note.held.as_ref().map_or(0, |held| held.weight());
        }
        // A queue that was long once does not stay large for ever.
        if self.items.is_empty() && self.items.capacity() > 64 {
            self.items = VecDeque::new();
        }
        Some(item)
    }

    pub(crate) fn finish(&mut self, end: End, awake: &mut Vec<Waker>) {
        self.end.get_or_insert(end);
        self.in_flight = None;
        awake.extend(self.reader.take());
    }
}
