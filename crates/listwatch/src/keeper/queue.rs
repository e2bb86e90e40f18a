//! What is to be looked at, and when: each thing once, however often it is named.
//!
//! A thing that is named while somebody is at it is looked at once more afterwards. One that failed comes
//! again later, each time twice as late. There is no clock here: times are milliseconds, brought along.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// After the first failure, and at most.
const BACKOFF_MS_FIRST: u64 = 5;
const BACKOFF_MS_MAX: u64 = 60_000;

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Nothing went wrong, and there is more to be done after this time.
    Again {
        after_ms: u64,
    },
    Failed,
}

#[derive(Debug)]
pub struct Queue<K> {
    states: HashMap<K, State>,
    /// When, in which order of arrival, and what.
    waiting: BTreeSet<(u64, u64, K)>,
    arrivals: u64,
    running: usize,
    running_max: usize,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Its place in the row, if it waits.
    place: Option<(u64, u64)>,
    /// Named while it was run.
    named_again: bool,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub fn new(running_max: usize) -> Queue<K> {
        Queue { states: HashMap::new(), waiting: BTreeSet::new(), arrivals: 0, running: 0, running_max }
    }

    /// To be looked at now, or after the present look; what waits for later is brought forward.
    pub fn add(&mut self, key: K, now_ms: u64) {
        match self.states.get_mut(&key) {
            Some(state) if state.place.is_none() => state.named_again = true,
            Some(state) if state.place.is_some_and(|(due, _)| due <= now_ms) => {}
            _ => self.put(key, now_ms),
        }
    }

    /// What is due, if not too many are run. It is run from now until [`finished`](Self::finished).
    pub fn next(&mut self, now_ms: u64) -> Option<K> {
        if self.running_max <= self.running || self.waiting.first().is_none_or(|first| now_ms < first.0) {
            return None;
        }
        let (_, _, key) = self.waiting.pop_first()?;
        if let Some(state) = self.states.get_mut(&key) {
            state.place = None;
        }
        self.running += 1;
        Some(key)
    }

    pub fn finished(&mut self, key: K, outcome: Outcome, now_ms: u64) {
        self.running = self.running.saturating_sub(1);
        let Some(state) = self.states.get_mut(&key) else { return };
        let named_again = std::mem::take(&mut state.named_again);
        state.failures = if outcome == Outcome::Failed { state.failures.saturating_add(1) } else { 0 };
        let wait_ms = match outcome {
            Outcome::Failed => backoff_ms(state.failures),
            _ if named_again => 0,
            Outcome::Again { after_ms } => after_ms,
            Outcome::Done => {
                self.states.remove(&key);
                return;
            }
        };
        self.put(key, now_ms.saturating_add(wait_ms));
    }

    /// When something can be run; `None` if nothing waits, or as much is run as may be.
    pub fn due_ms(&self) -> Option<u64> {
        let first = self.waiting.first().map(|(due, _, _)| *due);
        first.filter(|_| self.running < self.running_max)
    }

    fn put(&mut self, key: K, due_ms: u64) {
        self.arrivals += 1;
        let state = self.states.entry(key.clone()).or_default();
        if let Some((due, arrival)) = state.place.replace((due_ms, self.arrivals)) {
            self.waiting.remove(&(due, arrival, key.clone()));
        }
        self.waiting.insert((due_ms, self.arrivals, key));
    }
}

/// Before the next try, after so many in a row that failed.
pub fn backoff_ms(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(32);
    (BACKOFF_MS_FIRST << doublings).min(BACKOFF_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_run_once_in_the_order_of_arrival() {
        let mut queue = Queue::new(8);
        for key in ["b", "a", "b"] {
            queue.add(key, 0);
        }
        assert_eq!([queue.next(0), queue.next(0), queue.next(0)], [Some("b"), Some("a"), None]);
        queue.finished("a", Outcome::Done, 1);
        queue.finished("b", Outcome::Done, 1);
        assert_eq!((queue.next(9), queue.states.len()), (None, 0));
    }

    #[test]
    fn what_is_named_while_it_runs_is_run_once_more() {
        let mut queue = Queue::new(8);
        queue.add("a", 0);
        assert_eq!(queue.next(0), Some("a"));
        queue.add("a", 1);
        queue.add("a", 1);
        assert_eq!(queue.next(1), None, "not twice at once");
        queue.finished("a", Outcome::Done, 2);
        assert_eq!(queue.next(2), Some("a"));
        queue.finished("a", Outcome::Done, 3);
        assert_eq!(queue.next(3), None);
    }

    #[test]
    fn failures_come_later_and_later_and_a_success_forgets_them() {
        let mut queue = Queue::new(8);
        queue.add("a", 0);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..16 {
            assert_eq!(queue.next(now), Some("a"));
            queue.finished("a", Outcome::Failed, now);
            let due = queue.due_ms().expect("it waits");
            assert_eq!(queue.next(due - 1), None);
            waits.push(due - now);
            now = due;
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[15], BACKOFF_MS_MAX);
        assert_eq!(queue.next(now), Some("a"));
        queue.finished("a", Outcome::Again { after_ms: 7 }, now);
        assert_eq!(queue.due_ms(), Some(now + 7));
        assert_eq!(queue.next(now + 7), Some("a"));
        queue.finished("a", Outcome::Failed, now);
        assert_eq!(queue.due_ms(), Some(now + 5));
    }

    #[test]
    fn a_name_brings_forward_what_waits() {
        let mut queue = Queue::new(8);
        queue.add("a", 0);
        assert_eq!(queue.next(0), Some("a"));
        queue.finished("a", Outcome::Again { after_ms: 1_000 }, 0);
        queue.add("a", 10);
        assert_eq!((queue.next(10), queue.waiting.len()), (Some("a"), 0));
    }

    #[test]
    fn no_more_are_run_than_may_be() {
        let mut queue = Queue::new(2);
        for key in 0..5 {
            queue.add(key, 0);
        }
        assert_eq!([queue.next(0), queue.next(0), queue.next(0)], [Some(0), Some(1), None]);
        assert_eq!(queue.due_ms(), None);
        queue.finished(1, Outcome::Done, 0);
        assert_eq!((queue.due_ms(), queue.next(0), queue.next(0)), (Some(0), Some(2), None));
    }
}
