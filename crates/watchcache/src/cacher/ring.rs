//! The recent events, for whoever comes late or has fallen behind.
//!
//! ```text
//!   gone ─────────┐ floor      oldest ... newest      last
//!   revisions     ┴────────────┬───┬───┬───┬──────────┴──►
//!                   nothing    │ events, each once │  nothing
//! ```
//!
//! Always true: all events above `floor` up to `last` are here. So a watch may begin after any revision
//! not below the floor. Right after a list the floor is the list's revision; later it is the last one of
//! which an event was dropped, which is exact, where the usual rule (the oldest event's revision less
//! one) refuses a quiet resource's watchers for nothing. A revision is kept or dropped whole, and
//! replayed whole, so that one number is a place in the ring.
//!
//! For a client it is not: all lines of a revision carry its number, and a connection may break between two
//! of them. So who comes back with the number of a revision that has several lines for it is told that
//! revision again.
//!
//! The ring grows while it cannot hold its window of time, and shrinks when it holds far more.

use super::event::Event;
use super::filter::Filter;
use std::collections::VecDeque;
use std::sync::Arc;

/// The bookmark period of a minute and a quarter of one for who is late: a client that got its last
/// bookmark just before its connection broke can still come back.
pub const WINDOW_MS_MIN: u64 = 75_000;
/// Events that one replay step takes, so that no lock is held for long.
pub const REPLAY_EVENTS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    pub window_ms: u64,
    pub events_min: usize,
    pub events_max: usize,
    /// Objects and frames of all events together, about.
    pub bytes_max: usize,
}

impl RingLimits {
    /// The most events double with each doubling of the window.
    pub fn for_window(window_ms: u64) -> RingLimits {
        let window_ms = window_ms.max(WINDOW_MS_MIN);
        // Beyond ten doublings (a day) the bytes are what limits.
        let doublings = (window_ms / WINDOW_MS_MIN).ilog2().min(10);
        RingLimits { window_ms, events_min: 100, events_max: 102_400 << doublings, bytes_max: 256 << 20 }
    }
}

impl Default for RingLimits {
    fn default() -> RingLimits {
        RingLimits::for_window(WINDOW_MS_MIN)
    }
}

/// What a watcher asked for was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// The first revision from which on all is here.
    pub oldest: u64,
}

/// The next events for one place.
#[derive(Debug)]
pub struct Replay {
    /// At most [`REPLAY_EVENTS_MAX`], or those of one revision.
    pub events: Vec<Arc<Event>>,
    /// The place after them.
    pub through: u64,
    /// Nothing follows: who stands at `through` may join the live ones.
    pub is_level: bool,
}

#[derive(Debug)]
pub struct Ring {
    events: VecDeque<Arc<Event>>,
    capacity: usize,
    limits: RingLimits,
    bytes: usize,
    floor: u64,
    last: u64,
}

impl Ring {
    /// `listed`: the revision of the list that the ring joins on to.
    pub fn new(limits: RingLimits, listed: u64) -> Ring {
        Ring {
            events: VecDeque::new(),
            capacity: limits.events_min,
            limits,
            bytes: 0,
            floor: listed,
            last: listed,
        }
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn limits(&self) -> &RingLimits {
        &self.limits
    }

    /// A watch may begin after this revision, and not before it.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The oldest revision that is sure to be told.
    pub fn oldest(&self) -> u64 {
        self.floor + 1
    }

    /// The newest revision that is taken in, with or without events.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Events come in the order of their revisions.
    pub fn push(&mut self, event: Arc<Event>) {
        assert!(self.last <= event.revision(), "revisions rise: {} after {}", event.revision(), self.last);
        self.resize(event.received_ms());
        while self.events.len() >= self.capacity {
            self.drop_first();
        }
        self.last = event.revision();
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.bytes > self.limits.bytes_max {
            self.drop_first();
        }
    }

    /// There are no events up to `revision` but those that were pushed.
    pub fn advance(&mut self, revision: u64) {
        self.last = self.last.max(revision);
    }

    fn resize(&mut self, now_ms: u64) {
        if self.events.len() < self.capacity {
            return;
        }
        let age = |at: usize| self.events.get(at).map(|event| now_ms.saturating_sub(event.received_ms()));
        let window = self.limits.window_ms;
        if age(0).is_some_and(|age| age < window) {
            self.capacity = (self.capacity * 2).min(self.limits.events_max);
        } else if age(self.events.len() - self.capacity / 4).is_some_and(|age| age > window) {
            self.capacity = (self.capacity / 2).max(self.limits.events_min);
        }
    }

    /// With all that is of the same revision.
    fn drop_first(&mut self) {
        let Some(first) = self.events.front() else { return };
        self.floor = first.revision();
        while let Some(first) = self.events.front()
            && first.revision() == self.floor
        {
            self.bytes -= first.weight();
            self.events.pop_front();
        }
    }

    /// What follows after revision `after`. A revision that is yet to come is a place, too: nothing is
    /// replayed for it.
    pub fn replay(&self, after: u64) -> Result<Replay, Overtaken> {
        if after < self.floor {
            return Err(Overtaken { oldest: self.oldest() });
        }
        let first = self.events.partition_point(|event| event.revision() <= after);
        let mut end = (first + REPLAY_EVENTS_MAX).min(self.events.len());
        if end < self.events.len() {
            end = self.whole_revisions(first, end);
        }
        let events: Vec<Arc<Event>> = self.events.range(first..end).cloned().collect();
        let is_level = end == self.events.len();
        let through = match events.last() {
            Some(last) if !is_level => last.revision(),
            _ => self.last.max(after),
        };
        Ok(Replay { events, through, is_level })
    }

    /// The place of a client that names revision `after` as the last that it was told of: before it, if
    /// perhaps not all of it was told. Below the floor nobody has a place.
    pub fn resume(&self, after: u64, filter: &Filter) -> u64 {
        let first = self.events.partition_point(|event| event.revision() < after);
        let of_it = self.events.range(first..).take_while(|event| event.revision() == after);
        let lines = of_it.flat_map(|event| event.told(filter)).take(2).count();
        if lines == 2 && self.floor < after { after - 1 } else { after }
    }

    /// Moves `end` back to where a revision begins, or forward if there is but one.
    fn whole_revisions(&self, first: usize, end: usize) -> usize {
        let revision = |at: usize| self.events.get(at).map(|event| event.revision());
        let cut = revision(end);
        let start = self.events.partition_point(|event| Some(event.revision()) < cut);
        if first < start { start } else { self.events.partition_point(|event| Some(event.revision()) <= cut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::pod;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn event(revision: u64, now_ms: u64) -> Arc<Event> {
        Event::put(None, pod("a/1", "", "", revision), now_ms, &Arc::default())
    }

    fn revisions(replay: &Replay) -> Vec<u64> {
        replay.events.iter().map(|event| event.revision()).collect()
    }

    #[test]
    fn right_after_a_list_a_watch_may_begin_at_its_revision_and_not_before() {
        let mut ring = Ring::new(RingLimits::default(), 50);
        ring.advance(90);
        let replay = ring.replay(50).expect("nothing was dropped");
        assert_eq!((replay.events.len(), replay.through, replay.is_level), (0, 90, true));
        assert_eq!(ring.replay(49).expect_err("nobody knows what was before"), Overtaken { oldest: 51 });
    }

    #[test]
    fn changes_are_those_after_the_revision_never_at_it() {
        let mut ring = Ring::new(RingLimits::default(), 1);
        [3, 5, 9].into_iter().for_each(|revision| ring.push(event(revision, 0)));
        for (after, expected) in [(1, vec![3, 5, 9]), (2, vec![3, 5, 9]), (3, vec![5, 9]), (9, vec![])] {
            assert_eq!(revisions(&ring.replay(after).expect("it is here")), expected);
        }
        let future = ring.replay(30).expect("the future is silent");
        assert_eq!((future.events.len(), future.through), (0, 30));
    }

    #[test]
    fn who_names_a_revision_of_several_lines_is_told_it_again() {
        use crate::cacher::entry::tests::pod_with_uid;
        use crate::cacher::filter::Scope;
        let put = |key: &str, revision| Event::put(None, pod(key, "", "", revision), 0, &Arc::default());
        let mut ring = Ring::new(RingLimits::default(), 1);
        for event in [put("a/1", 3), put("a/1", 5), put("a/2", 5), put("b/1", 5), put("a/1", 7)] {
            ring.push(event);
        }
        let uid = |uid: &str, revision| pod_with_uid("c/1", uid, "", "", revision);
        ring.push(Event::put(Some(uid("one", 2)), uid("other", 8), 0, &Arc::default()));
        let (all, a, b) = (Filter::default(), Scope::namespace("a"), Scope::namespace("b"));
        for (after, expected) in [(1, 1), (3, 3), (4, 4), (5, 4), (6, 6), (7, 7), (8, 7), (9, 9)] {
            assert_eq!(ring.resume(after, &all), expected, "after {after}");
        }
        assert_eq!(ring.resume(5, &Filter::new(a, Vec::new())), 4);
        assert_eq!(ring.resume(5, &Filter::new(b, Vec::new())), 5, "it was told of one line");
        // Half of a revision that is larger than the ring.
        let mut small = Ring::new(RingLimits { bytes_max: 2_000, ..RingLimits::default() }, 1);
        (0..50).for_each(|number| small.push(put(&format!("a/{number}"), 5)));
        assert_eq!((small.floor(), small.resume(5, &all)), (5, 5));
    }

    #[test]
    fn who_is_overtaken_is_told_so_and_who_missed_nothing_is_not() {
        let limits = RingLimits { events_max: 100, ..RingLimits::default() };
        let mut ring = Ring::new(limits, 10);
        (0..101).for_each(|number| ring.push(event(20 + 10 * number, 0)));
        assert_eq!((ring.len(), ring.floor()), (100, 20));
        assert!(ring.replay(19).is_err());
        assert_eq!(ring.replay(20).map(|replay| replay.events[0].revision()), Ok(30));
    }

    impl PartialEq for Replay {
        fn eq(&self, other: &Replay) -> bool {
            revisions(self) == revisions(other)
        }
    }

    #[test]
    fn it_grows_while_its_window_does_not_fit_and_shrinks_when_it_is_quiet() {
        let mut ring = Ring::new(RingLimits::default(), 0);
        let mut revision = 0;
        let mut push = |ring: &mut Ring, count: u64, from_ms: u64, every_ms: u64| {
            for number in 0..count {
                revision += 1;
                ring.push(event(revision, from_ms + number * every_ms));
            }
        };
        push(&mut ring, 100, 0, 10);
        assert_eq!(ring.capacity(), 100);
        push(&mut ring, 1, 1_000, 0);
        assert_eq!((ring.capacity(), ring.len()), (200, 101), "full and young: twice");
        push(&mut ring, 800, 1_000, 10);
        assert_eq!((ring.capacity(), ring.len()), (1_600, 901));
        // From here on one event a second: 75 of them are the window. It must be full to be judged.
        push(&mut ring, 699, 100_000, 1_000);
        assert_eq!(ring.capacity(), 1_600);
        push(&mut ring, 1, 800_000, 0);
        assert_eq!((ring.capacity(), ring.len()), (800, 800), "a quarter from the newest is old: half");
        push(&mut ring, 1_000, 801_000, 1_000);
        assert_eq!((ring.capacity(), ring.len()), (200, 200), "a quarter of it fits the window");
    }

    #[test]
    fn a_flood_stops_at_the_most_and_a_longer_window_allows_more() {
        let limits = RingLimits { events_max: 250, ..RingLimits::default() };
        let mut ring = Ring::new(limits, 0);
        (1..=1_000).for_each(|revision| ring.push(event(revision, 0)));
        assert_eq!((ring.capacity(), ring.len(), ring.oldest()), (250, 250, 751));
        assert_eq!(RingLimits::for_window(75_000).events_max, 102_400);
        assert_eq!(RingLimits::for_window(150_000).events_max, 204_800);
        assert_eq!(RingLimits::for_window(299_000).events_max, 204_800);
        assert_eq!(RingLimits::for_window(1).window_ms, 75_000);
    }

    #[test]
    fn large_objects_do_not_fill_the_memory() {
        let weight = event(1, 0).weight();
        let mut ring = Ring::new(RingLimits { bytes_max: 10 * weight, ..RingLimits::default() }, 0);
        (1..=9).for_each(|revision| ring.push(event(revision, 0)));
        let dropped = Arc::downgrade(&ring.replay(0).expect("all is here").events[0]);
        (1..=20).for_each(|revision| ring.push(event(9 + revision, 0)));
        assert!(ring.bytes <= 10 * weight);
        assert_eq!(ring.bytes, ring.events.iter().map(|event| event.weight()).sum::<usize>());
        assert!(dropped.upgrade().is_none(), "what is dropped is free");
    }

    #[test]
    fn replay_in_steps_tells_everything_once_and_never_half_a_revision() {
        for seed in 0..30 {
            let mut rng = StdRng::seed_from_u64(seed);
            let limits = RingLimits { events_max: 400, ..RingLimits::default() };
            let mut ring = Ring::new(limits, 5);
            let (mut all, mut revision) = (Vec::new(), 5);
            for _ in 0..200 {
                revision += rng.random_range(1..4);
                let size = if rng.random_bool(0.02) { 150 } else { rng.random_range(0..4) };
                for _ in 0..size {
                    ring.push(event(revision, 0));
                    all.push(revision);
                }
                ring.advance(revision);
            }
            for after in 0..revision + 3 {
                let mut place = after;
                let mut got = Vec::new();
                if after < ring.floor() {
                    assert!(ring.replay(after).is_err());
                    continue;
                }
                loop {
                    let replay = ring.replay(place).expect("it is above the floor");
                    let told = revisions(&replay);
                    let (first, last) = (told.first(), told.last());
                    assert!(told.len() <= REPLAY_EVENTS_MAX || first == last, "short, or one revision");
                    got.extend(told);
                    assert!(place <= replay.through);
                    place = replay.through;
                    if replay.is_level {
                        break;
                    }
                }
                let wanted: Vec<u64> = all.iter().copied().filter(|revision| after < *revision).collect();
                assert_eq!(got, wanted);
                assert_eq!(place, revision.max(after));
            }
        }
    }
}
