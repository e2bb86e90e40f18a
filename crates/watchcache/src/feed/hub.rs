//! What is under a feed's lock: the cache, its watchers, and who waits for it.
//!
//! Nothing here waits. Whoever is to be woken is noted, and woken when the lock is free again.

use super::FeedSettings;
use super::counters::Tally;
use super::freshness::Waiters;
use super::seat::{BookmarkWish, Seat, Wakers};
use crate::cacher::bookmark::Bookmarks;
use crate::cacher::entry::Shape;
use crate::cacher::event::Event;
use crate::cacher::filter::Filter;
use crate::cacher::interest::{Interests, WatcherId};
use crate::cacher::park::{Flow, FlowLimits, Line, Offer, State, queue_max};
use crate::cacher::store::Version;
use crate::cacher::{At, Cache, NoAnswer, Write};
use crate::store::History;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(super) struct Hub {
    pub(super) cache: Cache,
    pub(super) waiters: Waiters,
    pub(super) tally: Tally,
    interests: Interests,
    bookmarks: Bookmarks,
    watchers: HashMap<WatcherId, Arc<Seat>>,
    parked: BTreeSet<WatcherId>,
    next: u64,
    /// Nobody comes in any more.
    closed: bool,
    was_filled: bool,
    /// How far the store had come when the cache was filled, or when it was found again.
    pub(super) serves_from: u64,
    cut_off: Option<CutOff>,
    /// What the cache is of.
    history: History,
}

/// The store does not hear of what others write.
#[derive(Clone, Copy, Debug)]
struct CutOff {
    since_ms: u64,
    /// It hears again, and had come so far by then: it is over when the cache has, too.
    until: Option<u64>,
}

/// Why all watchers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// They can go on elsewhere, or later.
    Resumable,
    /// What they know is of another history.
    Expired,
}

/// One that had no room, and what for.
pub(super) struct Blocked {
    pub(super) seat: Arc<Seat>,
    pub(super) lines: Vec<Line>,
}

/// How many watchers there are.
pub(super) struct Census {
    pub(super) live: usize,
    pub(super) parked: usize,
    pub(super) starting: usize,
}

impl Hub {
    pub(super) fn new(shape: Shape, settings: FeedSettings, now_ms: u64) -> Hub {
        Hub {
            interests: Interests::new(shape.fields.clone()),
            cache: Cache::new(shape, settings.bounds, settings.ring, now_ms),
            waiters: Waiters::new(),
            tally: Tally::default(),
            bookmarks: Bookmarks::default(),
            watchers: HashMap::new(),
            parked: BTreeSet::new(),
            next: 0,
            closed: false,
            was_filled: false,
            serves_from: 1,
            cut_off: None,
            history: History::default(),
        }
    }

    /// With the objects of some past revision: nobody is served before what happened up to `now` is
    /// applied.
    pub(super) fn begin(&mut self, version: Version, now: u64, history: History) {
        if self.closed {
            return;
        }
        let revision = version.revision();
        self.cache.begin(version);
        self.history = history;
        self.cut_off = None;
        self.serves_from = now;
        self.waiters.restart(if now <= revision { revision } else { 0 });
        self.tally.relists += u64::from(std::mem::replace(&mut self.was_filled, true));
    }

    pub(super) fn lose(&mut self, ending: Ending, now_ms: u64, wakers: &mut Wakers) {
        self.cache.lose(now_ms);
        self.end_all(ending, wakers);
    }

    /// The cache is kept, but nobody may wait here for what may have happened elsewhere.
    pub(super) fn cut_off(&mut self, now_ms: u64, wakers: &mut Wakers) {
        match &mut self.cut_off {
            Some(cut_off) => cut_off.until = None,
            None => {
                self.cut_off = Some(CutOff { since_ms: now_ms, until: None });
                self.tally.cut_offs += 1;
            }
        }
        self.end_all(Ending::Resumable, wakers);
    }

    /// The store is back, and at `now`. Watchers are let in when the cache has come so far.
    pub(super) fn rejoin(&mut self, now: u64, now_ms: u64) {
        self.serves_from = self.serves_from.max(now);
        if let Some(cut_off) = &mut self.cut_off {
            cut_off.until = Some(now);
        }
        if let Ok(revision) = self.cache.revision(now_ms) {
            self.reached(revision);
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off.is_some()
    }

    pub(super) fn close(&mut self, now_ms: u64, wakers: &mut Wakers) {
        self.closed = true;
        self.lose(Ending::Resumable, now_ms, wakers);
    }

    /// As [`close`](Self::close), whatever state a panic has left all this in.
    pub(super) fn abandon(&mut self, now_ms: u64, wakers: &mut Wakers) {
        self.closed = true;
        self.cache.lose(now_ms);
        for seat in std::mem::take(&mut self.watchers).into_values() {
            seat.end(wakers);
        }
    }

    fn end_all(&mut self, ending: Ending, wakers: &mut Wakers) {
        let ids: Vec<WatcherId> = self.watchers.keys().copied().collect();
        for seat in ids.into_iter().filter_map(|id| self.remove(id)) {
            match ending {
                Ending::Resumable => seat.end(wakers),
                Ending::Expired => seat.expire(wakers),
            }
        }
    }

    /// Takes in one revision and offers it to all whom it concerns. Who is blocked is to be waited for,
    /// and then [parked](Self::park).
    pub(super) fn apply(
        &mut self,
        revision: u64,
        writes: Vec<Write>,
        now_ms: u64,
        wakers: &mut Wakers,
    ) -> Vec<Blocked> {
        // One that is closed may still be told what was on its way.
        if !self.cache.is_ready() {
            return Vec::new();
        }
        if writes.is_empty() {
            self.cache.advance(revision);
            self.reached(revision);
            return Vec::new();
        }
        let events = self.cache.apply(revision, writes, now_ms);
        self.tally.events += events.len() as u64;
        let blocked = match events.as_slice() {
            [] => Vec::new(),
            [event] => self.dispatch_one(event, wakers),
            events => self.dispatch_many(revision, events, wakers),
        };
        self.reached(revision);
        blocked
    }

    fn reached(&mut self, revision: u64) {
        if self.serves_from <= revision {
            self.waiters.reach(revision);
        }
        if self.cut_off.and_then(|cut_off| cut_off.until).is_some_and(|until| until <= revision) {
            self.cut_off = None;
        }
    }

    /// The lowest revision that the store is to say of that it has come so far; 0 for none.
    pub(super) fn awaited(&self) -> u64 {
        let level = match self.cache.revision(0) {
            Ok(revision) if revision < self.serves_from => self.serves_from,
            _ => u64::MAX,
        };
        match self.waiters.lowest().unwrap_or(u64::MAX).min(level) {
            u64::MAX => 0,
            awaited => awaited,
        }
    }

    /// Whether whoever asks for no revision may be answered: not from a past that is still caught up with.
    pub(super) fn serves(&self, now_ms: u64) -> Result<(), NoAnswer> {
        match self.cache.revision(now_ms) {
            Ok(revision) if revision < self.serves_from => Err(NoAnswer::NotReady { down_ms: 0 }),
            _ => Ok(()),
        }
    }

    /// Whether the cache is of the history that the store is on. Who asks has read the store before that,
    /// and must not be answered from what was before the store was replaced.
    pub(super) fn is_of(&self, history: History) -> Result<(), NoAnswer> {
        if self.history == history { Ok(()) } else { Err(NoAnswer::NotReady { down_ms: 0 }) }
    }

    /// Whether a revision that a client names is not reached here, but was, before the store was replaced:
    /// then it may never come.
    pub(super) fn may_be_lost(&self, revision: u64, now_ms: u64) -> bool {
        let reached = self.cache.revision(now_ms).unwrap_or(0);
        reached < revision && revision <= self.history.lost
    }

    /// Whether a watcher may come in.
    pub(super) fn lets_in(&self, now_ms: u64) -> Result<(), NoAnswer> {
        match self.cut_off {
            Some(cut_off) => Err(NoAnswer::NotReady { down_ms: now_ms.saturating_sub(cut_off.since_ms) }),
            None => Ok(()),
        }
    }

    fn dispatch_one(&mut self, event: &Arc<Event>, wakers: &mut Wakers) -> Vec<Blocked> {
        let mut blocked = Vec::new();
        let found = self.interests.find(event);
        self.tally.visited += found.visited as u64;
        for id in found.watchers {
            let Some(seat) = self.watchers.get(&id) else { continue };
            let told = event.told(&seat.filter);
            if told.is_empty() {
                continue;
            }
            let lines = told.iter().map(|kind| Line { event: event.clone(), kind: *kind });
            match seat.offer(event.revision(), lines.clone(), wakers) {
                Offer::Take => self.tally.dispatched += told.len() as u64,
                Offer::Blocked => blocked.push(Blocked { seat: seat.clone(), lines: lines.collect() }),
                Offer::Leave => {}
            }
        }
        blocked
    }

    fn dispatch_many(&mut self, revision: u64, events: &[Arc<Event>], wakers: &mut Wakers) -> Vec<Blocked> {
        let mut owed: BTreeMap<WatcherId, Vec<Line>> = BTreeMap::new();
        for event in events {
            let found = self.interests.find(event);
            self.tally.visited += found.visited as u64;
            for id in found.watchers {
                let Some(seat) = self.watchers.get(&id) else { continue };
                let told = event.told(&seat.filter);
                if !told.is_empty() {
                    let lines = told.iter().map(|kind| Line { event: event.clone(), kind: *kind });
                    owed.entry(id).or_default().extend(lines);
                }
            }
        }
        let mut blocked = Vec::new();
        for (id, lines) in owed {
            let Some(seat) = self.watchers.get(&id) else { continue };
            match seat.offer(revision, lines.iter().cloned(), wakers) {
                Offer::Take => self.tally.dispatched += lines.len() as u64,
                Offer::Blocked => blocked.push(Blocked { seat: seat.clone(), lines }),
                Offer::Leave => {}
            }
        }
        blocked
    }

    /// The time for those who are blocked is over.
    pub(super) fn park(&mut self, blocked: Vec<Blocked>, now_ms: u64, wakers: &mut Wakers) {
        for Blocked { seat, mut lines } in blocked {
            // It may have read since it was asked last.
            if !self.watchers.contains_key(&seat.id) || seat.retry_or_park(&mut lines, now_ms, wakers) {
                continue;
            }
            self.interests.remove(seat.id);
            self.parked.insert(seat.id);
            self.tally.parked += 1;
        }
    }

    /// A watcher that knows all up to `after`. It stays out of the dispatcher's way until it asks for
    /// more.
    pub(super) fn enter(
        &mut self,
        after: u64,
        filter: Filter,
        wish: Option<BookmarkWish>,
        now_ms: u64,
    ) -> Result<Arc<Seat>, NoAnswer> {
        if self.closed {
            return Err(NoAnswer::NotReady { down_ms: 0 });
        }
        self.lets_in(now_ms)?;
        // Whether the ring reaches back so far.
        self.cache.replay(after, now_ms)?;
        let ring = self.cache.ring(now_ms)?;
        let now = self.cache.version(At::Newest, now_ms)?;
        let limits = FlowLimits {
            queue_max: queue_max(ring, self.interests.found_by(&filter, &now)),
            parked_ms_max: ring.limits().window_ms,
        };
        let id = WatcherId(self.next);
        self.next += 1;
        let seat = Arc::new(Seat::new(id, filter, wish, Flow::new(after, limits, now_ms)));
        self.watchers.insert(id, seat.clone());
        Ok(seat)
    }

    /// One step of catching up, and when it is level again the way back among the live.
    pub(super) fn refill(&mut self, seat: &Seat, now_ms: u64, wakers: &mut Wakers) {
        let Ok(ring) = self.cache.ring(now_ms) else { return };
        if !self.watchers.contains_key(&seat.id) {
            return;
        }
        let refilled = seat.refill(ring, now_ms);
        match refilled.state {
            State::Live => {
                self.parked.remove(&seat.id);
                if let Ok(now) = self.cache.version(At::Newest, now_ms) {
                    self.interests.add(seat.id, &seat.filter, &now);
                }
                self.mark(seat, refilled.joins, now_ms, wakers);
            }
            State::Parked { .. } => drop(self.parked.insert(seat.id)),
            State::Forgotten(_) => self.forget(seat.id, wakers),
            State::Blocked { .. } => {}
        }
    }

    fn mark(&mut self, seat: &Seat, joins: bool, now_ms: u64, wakers: &mut Wakers) {
        let Some(wish) = seat.bookmarks else { return };
        if joins {
            self.bookmarks.add(seat.id, now_ms, wish.deadline_ms, seat.after, wish.initial_end);
        }
        if wish.initial_end.is_some() {
            self.send_bookmarks(now_ms, wakers);
        }
    }

    /// To be called about once a second.
    pub(super) fn tick(&mut self, now_ms: u64, wakers: &mut Wakers) {
        self.send_bookmarks(now_ms, wakers);
        let given_up = |id: &WatcherId| self.watchers.get(id).is_some_and(|seat| seat.tick(now_ms));
        let given_up: Vec<WatcherId> = self.parked.iter().copied().filter(given_up).collect();
        for id in given_up {
            self.forget(id, wakers);
        }
    }

    fn send_bookmarks(&mut self, now_ms: u64, wakers: &mut Wakers) {
        let Ok(revision) = self.cache.revision(now_ms) else { return };
        for due in self.bookmarks.due(now_ms, revision) {
            let Some(seat) = self.watchers.get(&due.watcher) else { continue };
            if seat.bookmark(due.mark, due.revision, wakers) {
                self.bookmarks.sent(due, now_ms);
            } else {
                self.bookmarks.skipped(due, now_ms);
            }
        }
    }

    fn forget(&mut self, id: WatcherId, wakers: &mut Wakers) {
        if let Some(seat) = self.remove(id) {
            self.tally.forgotten += 1;
            seat.forget(wakers);
        }
    }

    /// The watcher is gone.
    pub(super) fn remove(&mut self, id: WatcherId) -> Option<Arc<Seat>> {
        let seat = self.watchers.remove(&id)?;
        self.interests.remove(id);
        self.bookmarks.remove(id);
        self.parked.remove(&id);
        Some(seat)
    }

    pub(super) fn census(&self) -> Census {
        let (live, parked) = (self.interests.len(), self.parked.len());
        Census { live, parked, starting: self.watchers.len().saturating_sub(live + parked) }
    }
}
