//! The hub's decisions: who is told what, in which order, and from where. No clock, no threads, no
//! waiting; whatever happens is a call, so that any interleaving can be tried.
//!
//! ```text
//!   … history … ring.first … ring.last = frontier ≤ horizon.current
//! ```
//!
//! What is compacted ends anywhere up to the current revision, also inside the ring.
//!
//! Always true: a watcher is in exactly one of the groups, or ended. A synced watcher is owed
//! nothing up to the frontier that is not in its stream's queue. What is queued for a watcher is in
//! order of revision, and everything matching below its `next` was queued or told.
//!
//! The rooms: this file keeps streams and watchers; `dispatch` tells the synced of what is
//! published; `catch_up` deals history to the late; `outbox` gives a stream's reader its due;
//! `progress` marks; `relief` frees memory; `report` describes.

use crate::config::WatchConfig;
use crate::encoded::Meter;
use crate::group::Group;
use crate::history::Horizon;
use crate::place::{Placement, place};
use crate::ring::Ring;
use crate::stream::{Control, End, Item, Refused, SlowPolicy, Stream, StreamId, StreamOptions};
use crate::watcher::{State, WatchSpec, Watcher};
use meerkat_types::{KeyRange, Revision, WatchId, WatchRequest, WatchStart};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub fell_behind: u64,
    pub caught_up: u64,
    pub compacted: u64,
    /// Queued history given back because others needed the memory.
    pub set_back: u64,
    /// Streams ended because of it.
    pub cut: u64,
    pub history_reads: u64,
}

pub struct Core {
    pub(crate) config: WatchConfig,
    pub(crate) ring: Ring,
    pub(crate) streams: Slab<Stream>,
    pub(crate) watchers: Slab<Watcher>,
    pub(crate) synced: Group,
    pub(crate) late: Group,
    /// Streams with late watchers and a reader, in the order in which history is read for them.
    pub(crate) hungry: VecDeque<StreamId>,
    /// Somebody joined the line since this was last asked.
    pub(crate) lined_up: bool,
    /// Streams that asked for a progress mark of a revision that is not published yet.
    pub(crate) marks: Vec<StreamId>,
    /// Readers that have something to do.
    pub(crate) awake: Vec<Waker>,
    /// Clients whose streams were ended for their memory, to be logged.
    pub(crate) cut_clients: Vec<Arc<str>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) now_ms: u64,
    pub(crate) rounds: u64,
    pub(crate) counts: Counts,
    pub(crate) matched: Vec<u32>,
    /// What was held when relief last found nothing more to free.
    pub(crate) relieved_to: usize,
    /// Keys and range ends of all watchers.
    spec_bytes: usize,
    epochs: u64,
    serials: u64,
    stopping: bool,
}

impl Core {
    /// A hub of a store at `frontier`.
    pub fn new(config: WatchConfig, frontier: Revision, meter: Arc<Meter>) -> Core {
        Core {
            ring: Ring::new(frontier, config.ring_bytes, config.ring_entry_bytes_max()),
            config,
            streams: Slab::new(),
            watchers: Slab::new(),
            synced: Group::default(),
            late: Group::default(),
            hungry: VecDeque::new(),
            lined_up: false,
            relieved_to: 0,
            spec_bytes: 0,
            marks: Vec::new(),
            awake: Vec::new(),
            cut_clients: Vec::new(),
            meter,
            now_ms: 0,
            rounds: 0,
            counts: Counts::default(),
            matched: Vec::new(),
            epochs: 0,
            serials: 0,
            stopping: false,
        }
    }

    /// The newest revision given to watchers.
    pub fn frontier(&self) -> Revision {
        self.ring.last()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Tells the time, which only rises; the hub has no clock of its own.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Whom to wake, once the lock is gone.
    pub fn take_awake(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.awake)
    }

    /// Whose streams were ended because others needed their memory, since this was last asked.
    pub fn take_cut_clients(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.cut_clients)
    }

    pub fn open(&mut self, options: StreamOptions) -> StreamId {
        self.serials += 1;
        let entry = self.streams.vacant_entry();
        let id = StreamId { slot: entry.key() as u32, serial: self.serials };
        let mut stream = Stream::new(id, options, self.now_ms);
        stream.end = self.stopping.then_some(End::Stopping);
        entry.insert(stream);
        id
    }

    pub fn close(&mut self, id: StreamId) {
        let Some(stream) = self.stream_mut(id) else { return };
        for slot in std::mem::take(&mut stream.watchers).into_values() {
            self.remove(slot);
        }
        self.streams.remove(id.slot as usize);
    }

    /// Makes no watcher, and says why in its turn.
    pub fn refuse(&mut self, stream_id: StreamId, refused: Refused) {
        let Some(stream) = self.streams.get_mut(stream_id.slot as usize) else { return };
        if stream.id == stream_id {
            stream.push(Item::Control(Control::Refused(refused)), &mut self.awake);
        }
    }

    /// Makes a watcher; the answer is queued before anything it is told.
    pub fn register(&mut self, stream_id: StreamId, request: WatchRequest, horizon: Horizon) {
        assert!(self.frontier() <= horizon.current, "watchers are never told before readers can see");
        let frontier = self.frontier();
        let Some(stream) = self.streams.get_mut(stream_id.slot as usize) else { return };
        if stream.id != stream_id {
            return;
        }
        let place = place(request.start, horizon, frontier);
        let placed = if place == Placement::BeforeHistory {
            Err(Refused::BeforeHistory)
        } else if request.range.is_empty() {
            Err(Refused::EmptyRange)
        } else if self.config.keys_bytes < self.spec_bytes.saturating_add(spec_bytes(&request.range)) {
            Err(Refused::OutOfMemory)
        } else {
            // Only a watcher that is made takes a number.
            stream.choose_id(request.id).map(|id| (id, place)).ok_or(Refused::DuplicateId)
        };
        match placed {
            Err(refused) => stream.push(Item::Control(Control::Refused(refused)), &mut self.awake),
            Ok((id, place)) => {
                let created = Control::Created { id, revision: horizon.current };
                stream.push(Item::Control(created), &mut self.awake);
                self.add(stream_id, id, request, place);
            }
        }
    }

    fn add(&mut self, stream: StreamId, id: WatchId, request: WatchRequest, place: Placement) {
        let WatchRequest { range, start, filter, previous, fragment, progress, .. } = request;
        let start = match start {
            WatchStart::Live => None,
            WatchStart::At(first) => Some(first),
        };
        self.spec_bytes += spec_bytes(&range);
        let spec = WatchSpec { id, range, start, filter, previous, fragment, progress };
        let next = match place {
            Placement::Synced { next } | Placement::CatchingUp { next } => next,
            Placement::Compacted { .. } | Placement::BeforeHistory => Revision::EMPTY_STORE,
        };
        let epoch = self.new_epoch();
        let watcher = Watcher {
            spec: Arc::new(spec),
            stream,
            next,
            state: State::Ended,
            epoch,
            held_back: 0,
            told: false,
        };
        let slot = self.watchers.insert(watcher) as u32;
        self.streams[stream.slot as usize].watchers.insert(id, slot);
        match place {
            Placement::Synced { .. } => self.enter_synced(slot),
            Placement::CatchingUp { .. } => self.enter_late(slot),
            Placement::Compacted { oldest } => self.end(slot, Control::Compacted { id, oldest }),
            Placement::BeforeHistory => unreachable!("refused before"),
        }
    }

    fn remove(&mut self, slot: u32) {
        self.leave(slot);
        let watcher = self.watchers.remove(slot as usize);
        self.spec_bytes -= spec_bytes(&watcher.spec.range);
    }

    /// Ends a watcher at its client's wish. An unknown id is not answered, as in etcd.
    pub fn cancel(&mut self, stream_id: StreamId, id: WatchId, horizon: Horizon) {
        let Some(stream) = self.stream_mut(stream_id) else { return };
        let Some(slot) = stream.watchers.remove(&id) else { return };
        self.remove(slot);
        let canceled = Control::Canceled { id, revision: horizon.current };
        self.say(stream_id, canceled);
    }

    /// Ends every stream: the member stops.
    pub fn stop(&mut self) {
        self.stopping = true;
        for (_, stream) in &mut self.streams {
            stream.finish(End::Stopping, &mut self.awake);
        }
    }

    /// Ends the streams that asked for a leader: none is known.
    pub fn lose_leader(&mut self) {
        for (_, stream) in &mut self.streams {
            if stream.options.require_leader {
                stream.finish(End::NoLeader, &mut self.awake);
            }
        }
    }

    pub(crate) fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(id.slot as usize).filter(|stream| stream.id == id)
    }

    pub(crate) fn say(&mut self, stream: StreamId, control: Control) {
        self.streams[stream.slot as usize].push(Item::Control(control), &mut self.awake);
    }

    pub(crate) fn new_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    pub(crate) fn enter_synced(&mut self, slot: u32) {
        let Core { watchers, synced, .. } = self;
        let range = watchers[slot as usize].spec.range.clone();
        let home = synced.insert(slot, &range, |slot| key_of(watchers, slot));
        watchers[slot as usize].state = State::Synced(home);
    }

    pub(crate) fn enter_late(&mut self, slot: u32) {
        let Core { watchers, late, .. } = self;
        let range = watchers[slot as usize].spec.range.clone();
        let home = late.insert(slot, &range, |slot| key_of(watchers, slot));
        let since_ms = self.now_ms;
        let watcher = &mut self.watchers[slot as usize];
        watcher.state = State::CatchingUp { home, since_ms };
        let id = watcher.stream;
        let stream = &mut self.streams[id.slot as usize];
        stream.late.insert(slot);
        // Its reader waits for exactly this.
        if stream.reader.is_some() {
            self.line_up(id);
        }
    }

    /// Takes a watcher out of its group; it is nowhere until it enters one or is ended.
    pub(crate) fn leave(&mut self, slot: u32) {
        let Core { watchers, synced, late, .. } = self;
        let watcher = &watchers[slot as usize];
        let range: &KeyRange = &watcher.spec.range;
        let (moved, home) = match watcher.state {
            State::Ended => return,
            State::Synced(home) => (synced.remove(slot, range, home, |slot| key_of(watchers, slot)), home),
            State::CatchingUp { home, .. } => {
                // A closing stream is still there, without its watchers.
                self.streams[watcher.stream.slot as usize].late.remove(&slot);
                (late.remove(slot, range, home, |slot| key_of(watchers, slot)), home)
            }
        };
        watchers[slot as usize].state = State::Ended;
        if let Some(moved) = moved {
            let moved = &mut watchers[moved as usize];
            match &mut moved.state {
                State::Synced(place) | State::CatchingUp { home: place, .. } => {
                    *place = place.moved_to(home.place());
                }
                State::Ended => unreachable!("who is ended is in no group"),
            }
        }
    }

    /// The watcher's last word. Its id stays taken until its client cancels it.
    pub(crate) fn end(&mut self, slot: u32, last_word: Control) {
        self.leave(slot);
        if let Control::Compacted { .. } = last_word {
            self.counts.compacted += 1;
        }
        let stream = self.watchers[slot as usize].stream;
        self.say(stream, last_word);
    }

    /// A synced watcher could not be told of `at`: its client is too slow.
    pub(crate) fn fall_behind(&mut self, slot: u32, at: Revision) {
        self.counts.fell_behind += 1;
        let watcher = &mut self.watchers[slot as usize];
        let (id, stream) = (watcher.spec.id, watcher.stream);
        if self.streams[stream.slot as usize].options.slow == SlowPolicy::Cancel {
            watcher.next = at;
            return self.end(slot, Control::FellBehind { id, resume: at });
        }
        self.send_to_history(slot, at);
    }

    /// A synced watcher gets `at` from history, and not by its client's fault.
    pub(crate) fn send_to_history(&mut self, slot: u32, at: Revision) {
        self.watchers[slot as usize].next = at;
        self.leave(slot);
        self.enter_late(slot);
    }

    /// What was queued for the watcher from `to` on is gone; it goes back there.
    pub(crate) fn revert(&mut self, slot: u32, to: Revision) {
        let epoch = self.new_epoch();
        let watcher = &mut self.watchers[slot as usize];
        watcher.epoch = epoch;
        let stream = watcher.stream;
        self.streams[stream.slot as usize].reverts += 1;
        match watcher.state {
            State::CatchingUp { .. } => watcher.next = to,
            State::Synced(_) => self.fall_behind(slot, to),
            State::Ended => self.lower_resume(slot, to),
        }
    }

    /// A watcher that ended with "go on there" has to go on earlier. One that ended by compaction
    /// has to list again in any case.
    fn lower_resume(&mut self, slot: u32, to: Revision) {
        let watcher = &self.watchers[slot as usize];
        for item in &mut self.streams[watcher.stream.slot as usize].items {
            if let Item::Control(Control::FellBehind { id, resume }) = item
                && *id == watcher.spec.id
            {
                *resume = to.min(*resume);
            }
        }
    }
}

/// What a watcher keeps of its request; ranges are kept a second time, in their tree.
fn spec_bytes(range: &KeyRange) -> usize {
    let first = range.first().as_bytes().len();
    match range {
        KeyRange::One(_) => first,
        KeyRange::Span { end, .. } => 2 * (first + end.len()),
        KeyRange::From(_) => 2 * first,
    }
}

pub(crate) fn key_of(watchers: &Slab<Watcher>, slot: u32) -> &[u8] {
    watchers[slot as usize].spec.range.first().as_bytes()
}
