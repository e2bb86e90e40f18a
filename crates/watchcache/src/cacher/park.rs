//! How events come to one watcher, however slowly it reads.
//!
//! ```text
//!              queue full           budget used up
//!   ┌─► live ─────────────► blocked ──────────────► parked ──┬──► forgotten
//!   │    ▲                     │                     │  ▲    │ dropped from the ring,
//!   │    └──── queue has room ─┘                     │  └────┘ or too long without reading
//!   └──────────── read from the ring up to its end ──┘
//! ```
//!
//! A watcher that starts in the past is parked first: there is one way to catch up.
//!
//! Always true of one that is not forgotten: all that it is to be told up to `position`, and nothing
//! else, was queued, in order, once. While it is live nothing above `position` was left out, either, so
//! that the dispatcher only has to offer what comes next. Parked watchers cost the dispatcher nothing.
//!
//! Whoever calls [`Flow::refill`] must not dispatch meanwhile: what it brings up to the ring's end must
//! still be the end when it is back among the live.

use super::event::Event;
use super::filter::Filter;
use super::frame::Mark;
use super::ring::Ring;
use super::transition::EventType;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// Lines that wait for the watcher's connection.
    pub queue_max: usize,
    /// How long a parked watcher may take nothing.
    pub parked_ms_max: u64,
}

/// Whether a watcher is found by a term, or by its scope only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    Term,
    Scope,
}

/// As many lines as come in a second if the ring is filled in its window, within bounds: few come to a
/// watcher that is found by a term.
pub fn queue_max(ring: &Ring, found_by: FoundBy) -> usize {
    let window_s = usize::try_from(ring.limits().window_ms / 1_000).unwrap_or(usize::MAX);
    let most = match found_by {
        FoundBy::Term => 10,
        FoundBy::Scope => 1_000,
    };
    ring.capacity().div_ceil(window_s.max(1)).clamp(10, most)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// What it is owed is no longer in the ring.
    Overtaken,
    /// It took nothing for too long.
    Stalled,
}

/// How the stream of a forgotten watcher ends: without a word, since its client comes back where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    AtOnce,
    /// The bookmark that ends the first objects is in the queue: with it the client keeps them.
    AfterQueue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Live,
    Blocked { missed: u64, lines: usize },
    Parked { missed: u64, since_ms: u64 },
    Forgotten(Forgotten),
}

/// What to do with what was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Queue it.
    Take,
    /// There is no room: wait for the watcher as long as the budget lasts.
    Blocked,
    /// Leave it: the watcher has it already, or will read it from the ring, or is gone.
    Leave,
}

/// One line to be queued.
#[derive(Clone, Debug)]
pub struct Line {
    pub event: Arc<Event>,
    pub kind: EventType,
}

#[derive(Debug)]
pub struct Flow {
    state: State,
    position: u64,
    queued: usize,
    /// Lines of the next revision in the ring, if it was found not to fit.
    needed: usize,
    /// Lines until the bookmark that ends the first objects has gone out.
    initial_end_in: Option<usize>,
    limits: FlowLimits,
}

impl Flow {
    /// A watcher that knows all up to `after`.
    pub fn new(after: u64, limits: FlowLimits, now_ms: u64) -> Flow {
        Flow {
            state: State::Parked { missed: after.saturating_add(1), since_ms: now_ms },
            position: after,
            queued: 0,
            needed: 0,
            initial_end_in: None,
            limits,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn queued(&self) -> usize {
        self.queued
    }

    /// A revision is taken whole or not at all; one that no queue could hold goes into an empty one.
    fn fits(&self, lines: usize) -> bool {
        self.queued == 0 || self.queued.saturating_add(lines) <= self.limits.queue_max
    }

    /// All lines of one revision for this watcher. Revisions are offered in order.
    pub fn offer(&mut self, revision: u64, lines: usize) -> Offer {
        // It read this from the ring, before the dispatcher came to it.
        if self.state != State::Live || revision <= self.position {
            return Offer::Leave;
        }
        if self.fits(lines) {
            self.take(revision, lines);
            return Offer::Take;
        }
        self.position = revision - 1;
        self.state = State::Blocked { missed: revision, lines };
        Offer::Blocked
    }

    fn take(&mut self, revision: u64, lines: usize) {
        self.position = revision;
        self.queued += lines;
    }

    /// Whether what was blocked is now to be queued.
    pub fn retry(&mut self) -> bool {
        match self.state {
            State::Blocked { missed, lines } if self.fits(lines) => {
                self.take(missed, lines);
                self.state = State::Live;
                true
            }
            _ => false,
        }
    }

    /// The budget is used up: the dispatcher goes on without this one.
    pub fn park(&mut self, now_ms: u64) {
        if let State::Blocked { missed, .. } = self.state {
            self.state = State::Parked { missed, since_ms: now_ms };
        }
    }

    /// The connection took lines from the queue.
    pub fn sent(&mut self, lines: usize, now_ms: u64) {
        assert!(lines <= self.queued, "only what is queued is sent");
        self.queued -= lines;
        self.initial_end_in = self.initial_end_in.filter(|left| lines < *left).map(|left| left - lines);
        if let State::Parked { since_ms, .. } = &mut self.state
            && lines > 0
        {
            *since_ms = now_ms;
        }
    }

    /// Whether a parked watcher has room again. Half a queue, so that it does not come back for a line.
    pub fn wants_refill(&self) -> bool {
        matches!(self.state, State::Parked { .. })
            && self.queued <= self.limits.queue_max / 2
            && self.fits(self.needed)
    }

    /// The next lines from the ring, to be queued in this order. One step: as long as
    /// [`wants_refill`](Self::wants_refill) holds after it, there is more to come.
    pub fn refill(&mut self, ring: &Ring, filter: &Filter, now_ms: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        if !self.wants_refill() {
            return lines;
        }
        let Ok(replay) = ring.replay(self.position) else {
            self.state = State::Forgotten(Forgotten::Overtaken);
            return lines;
        };
        for events in replay.events.chunk_by(|one, next| one.revision() == next.revision()) {
            let before = lines.len();
            for event in events {
                let kinds = event.told(filter).iter();
                lines.extend(kinds.map(|kind| Line { event: event.clone(), kind: *kind }));
            }
            let revision = events[0].revision();
            self.needed = lines.len() - before;
            if !self.fits(self.needed) {
                lines.truncate(before);
                self.await_room(revision, now_ms, !lines.is_empty());
                return lines;
            }
            self.take(revision, self.needed);
        }
        self.needed = 0;
        self.position = replay.through;
        if replay.is_level {
            self.state = State::Live;
        } else {
            self.await_room(replay.through + 1, now_ms, true);
        }
        lines
    }

    fn await_room(&mut self, first_missed: u64, now_ms: u64, has_moved: bool) {
        if let State::Parked { missed, since_ms } = &mut self.state {
            *missed = first_missed;
            if has_moved {
                *since_ms = now_ms;
            }
        }
    }

    /// To be called now and then: gives up on one that takes nothing.
    pub fn tick(&mut self, now_ms: u64) {
        if let State::Parked { since_ms, .. } = self.state
            && self.queued > 0
            && self.limits.parked_ms_max < now_ms.saturating_sub(since_ms)
        {
            self.state = State::Forgotten(Forgotten::Stalled);
        }
    }

    /// Tries to put a bookmark into the queue; its revision, if it is to be queued. `dispatched`: all
    /// up to there was offered.
    pub fn bookmark(&mut self, mark: Mark, dispatched: u64) -> Option<u64> {
        // Who is behind must not be told that it is not.
        if self.state != State::Live || self.limits.queue_max <= self.queued {
            return None;
        }
        self.queued += 1;
        if mark == Mark::InitialEventsEnd {
            self.initial_end_in = Some(self.queued);
        }
        Some(self.position.max(dispatched))
    }

    /// How it ends, if it is forgotten.
    pub fn end(&self) -> Option<End> {
        match (self.state, self.initial_end_in) {
            (State::Forgotten(_), None) => Some(End::AtOnce),
            (State::Forgotten(_), Some(_)) => Some(End::AfterQueue),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::pod;
    use crate::cacher::filter::Scope;
    use crate::cacher::ring::RingLimits;

    const LIMITS: FlowLimits = FlowLimits { queue_max: 4, parked_ms_max: 1_000 };

    fn ring(revisions: impl Iterator<Item = u64>) -> Ring {
        let mut ring = Ring::new(RingLimits { events_max: 100, ..RingLimits::default() }, 0);
        for revision in revisions {
            ring.push(Event::put(None, pod("a/1", "", "", revision), 0, &Arc::default()));
        }
        ring
    }

    fn revisions(lines: &[Line]) -> Vec<u64> {
        lines.iter().map(|line| line.event.revision()).collect()
    }

    fn live(after: u64) -> Flow {
        let mut flow = Flow::new(after, LIMITS, 0);
        flow.refill(&ring(std::iter::empty()), &Filter::default(), 0);
        assert_eq!(flow.state(), State::Live);
        flow
    }

    #[test]
    fn a_full_queue_blocks_and_room_in_time_makes_it_live_again() {
        let mut flow = live(0);
        for revision in 1..=4 {
            assert_eq!(flow.offer(revision, 1), Offer::Take);
        }
        assert_eq!(flow.offer(5, 1), Offer::Blocked);
        assert!(!flow.retry());
        flow.sent(1, 0);
        assert!(flow.retry());
        assert_eq!((flow.state(), flow.position(), flow.queued()), (State::Live, 5, 4));
    }

    #[test]
    fn a_parked_watcher_reads_what_it_missed_and_is_not_offered_it_again() {
        let mut flow = live(0);
        (1..=4).for_each(|revision| assert_eq!(flow.offer(revision, 1), Offer::Take));
        assert_eq!(flow.offer(5, 1), Offer::Blocked);
        flow.park(10);
        assert_eq!(flow.state(), State::Parked { missed: 5, since_ms: 10 });
        assert_eq!(flow.offer(6, 1), Offer::Leave);
        let ring = ring(1..=7);
        assert!(flow.refill(&ring, &Filter::default(), 20).is_empty(), "there is no room yet");
        flow.sent(3, 30);
        assert_eq!(revisions(&flow.refill(&ring, &Filter::default(), 40)), [5, 6, 7]);
        assert_eq!(flow.state(), State::Live);
        assert_eq!(flow.offer(7, 1), Offer::Leave, "the dispatcher comes to it later");
        flow.sent(4, 40);
        assert_eq!(flow.offer(8, 1), Offer::Take);
    }

    #[test]
    fn what_the_ring_dropped_is_not_skipped_but_told_by_the_end_of_the_stream() {
        let mut flow = Flow::new(5, LIMITS, 0);
        assert!(flow.refill(&ring(1..=300), &Filter::default(), 0).is_empty());
        assert_eq!(flow.state(), State::Forgotten(Forgotten::Overtaken));
        assert_eq!(flow.end(), Some(End::AtOnce));
        assert_eq!(flow.offer(301, 1), Offer::Leave);
    }

    #[test]
    fn one_that_takes_nothing_for_too_long_is_forgotten_and_one_that_reads_slowly_is_not() {
        let mut flow = Flow::new(0, LIMITS, 0);
        let ring = ring(1..=100);
        flow.refill(&ring, &Filter::default(), 0);
        for now in (0..10).map(|step| step * 900) {
            flow.tick(now);
            flow.sent(1, now);
            flow.refill(&ring, &Filter::default(), now);
        }
        assert!(matches!(flow.state(), State::Parked { .. }));
        flow.tick(9_101);
        assert_eq!(flow.state(), State::Forgotten(Forgotten::Stalled));
    }

    #[test]
    fn a_revision_larger_than_the_queue_waits_for_it_to_be_empty() {
        let mut flow = live(0);
        assert_eq!(flow.offer(1, 1), Offer::Take);
        assert_eq!(flow.offer(2, 9), Offer::Blocked);
        flow.sent(1, 0);
        assert!(flow.retry());
        assert_eq!(flow.queued(), 9);
    }

    #[test]
    fn who_is_not_yet_at_the_end_of_the_ring_is_not_live_even_if_nothing_matched() {
        let mut ring = Ring::new(RingLimits::default(), 0);
        for revision in 1..=250 {
            ring.push(Event::put(None, pod("a/1", "", "", revision), 0, &Arc::default()));
        }
        let elsewhere = Filter::new(Scope::namespace("none"), vec![]);
        let mut flow = Flow::new(0, LIMITS, 0);
        for missed in [101, 201] {
            assert!(flow.refill(&ring, &elsewhere, 0).is_empty());
            assert_eq!(flow.state(), State::Parked { missed, since_ms: 0 });
        }
        flow.refill(&ring, &elsewhere, 0);
        assert_eq!((flow.state(), flow.position()), (State::Live, 250));
    }

    #[test]
    fn a_parked_watcher_does_not_ask_again_until_the_next_revision_fits() {
        let mut ring = ring(1..=2);
        for _ in 0..6 {
            ring.push(Event::put(None, pod("a/1", "", "", 3), 0, &Arc::default()));
        }
        let mut flow = Flow::new(0, LIMITS, 0);
        assert_eq!(revisions(&flow.refill(&ring, &Filter::default(), 0)), [1, 2]);
        assert!(!flow.wants_refill());
        flow.sent(1, 0);
        assert!(!flow.wants_refill(), "six lines do not fit beside one");
        flow.sent(1, 0);
        assert_eq!(revisions(&flow.refill(&ring, &Filter::default(), 0)), [3; 6]);
        assert_eq!(flow.state(), State::Live);
    }

    #[test]
    fn bookmarks_are_for_the_live_and_never_in_front_of_what_is_owed() {
        let mut flow = live(0);
        assert_eq!(flow.bookmark(Mark::Progress, 3), Some(3));
        (4..=6).for_each(|revision| assert_eq!(flow.offer(revision, 1), Offer::Take));
        assert_eq!(flow.bookmark(Mark::Progress, 6), None, "the queue is full");
        flow.sent(1, 0);
        assert_eq!(flow.bookmark(Mark::Progress, 5), Some(6), "never back");
        assert_eq!(flow.offer(7, 1), Offer::Blocked);
        flow.sent(2, 0);
        assert_eq!(flow.bookmark(Mark::Progress, 7), None, "it is owed 7");
    }

    #[test]
    fn who_has_the_end_of_the_first_objects_in_its_queue_gets_it_before_it_is_closed() {
        let mut flow = live(0);
        assert_eq!(flow.offer(1, 1), Offer::Take);
        assert_eq!(flow.bookmark(Mark::InitialEventsEnd, 1), Some(1));
        (2..=3).for_each(|revision| assert_eq!(flow.offer(revision, 1), Offer::Take));
        flow.offer(4, 1);
        flow.park(0);
        flow.tick(2_000);
        assert_eq!(flow.end(), Some(End::AfterQueue));
        flow.sent(1, 2_000);
        assert_eq!(flow.end(), Some(End::AfterQueue));
        flow.sent(1, 2_000);
        assert_eq!(flow.end(), Some(End::AtOnce), "the bookmark is out");
    }

    #[test]
    fn queues_follow_the_ring_within_their_bounds() {
        let small = ring(1..=1);
        assert_eq!(queue_max(&small, FoundBy::Scope), 10);
        let large = Ring::new(RingLimits { events_min: 51_200, ..RingLimits::default() }, 0);
        assert_eq!(queue_max(&large, FoundBy::Scope), 683);
        assert_eq!(queue_max(&large, FoundBy::Term), 10);
    }
}
