//! Which key is worked on next: pure. Time is handed in.
//!
//! ```text
//!            add_after, retry            due                take               done
//!   (delayed) ----------------> ready -----------> processing --------> gone
//!                                 ^    add meanwhile: dirty |
//!                                 +-------------------------+ done
//! ```
//!
//! Always true:
//! * A key is in `ready` at most once, and never while it is being processed: no two workers ever have
//!   the same key.
//! * A key added while it is processed is dirty, and ready again when it is done: no add is lost.
//! * Everything is bounded by the number of different keys.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::limiter::{Limiter, RateLimits};

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    ready: VecDeque<K>,
    /// Keys that want processing: those in `ready`, and those added while being processed.
    dirty: HashSet<K>,
    processing: HashSet<K>,
    /// By due time, then by order of arrival.
    delayed: BTreeMap<(Instant, u64), K>,
    /// Where each delayed key is. A key is delayed once; the earlier time wins.
    due: HashMap<K, (Instant, u64)>,
    arrivals: u64,
    limiter: Limiter<K>,
    shut: bool,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new(limits: RateLimits, now: Instant) -> Queue<K> {
        Queue {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            arrivals: 0,
            limiter: Limiter::new(limits, now),
            shut: false,
        }
    }

    /// Wants `key` processed. True if that makes a key ready that was not.
    pub(crate) fn add(&mut self, key: K) -> bool {
        if self.shut || !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Wants `key` processed in a while. True if the earliest due time may have changed.
    pub(crate) fn add_after(&mut self, key: K, delay: Duration, now: Instant) -> bool {
        if self.shut {
            return false;
        }
        let Some(at) = now.checked_add(delay) else {
            return false;
        };
        if delay.is_zero() {
            return self.add(key);
        }
        if let Some(place) = self.due.get(&key).copied() {
            if place.0 <= at {
                return false;
            }
            self.delayed.remove(&place);
        }
        let place = (at, self.arrivals);
        self.arrivals += 1;
        self.due.insert(key.clone(), place);
        self.delayed.insert(place, key);
        true
    }

    /// Wants `key` processed when its failures and the bucket allow.
    pub(crate) fn retry(&mut self, key: K, now: Instant) -> bool {
        if self.shut {
            return false;
        }
        let delay = self.limiter.failed(&key, now);
        self.add_after(key, delay, now)
    }

    /// Moves what is due by `now` to the ready keys.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if now < entry.key().0 {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }

    /// When [`Queue::tick`] next has something to do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Hands out the key that has been ready longest.
    pub(crate) fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    /// The worker that had `key` is done with it. True if it is ready again.
    pub(crate) fn done(&mut self, key: &K) -> bool {
        if self.processing.remove(key) && self.dirty.contains(key) {
            self.ready.push_back(key.clone());
            return true;
        }
        false
    }

    /// From now on nothing is added. What is ready is still handed out; what is delayed is dropped.
    pub(crate) fn shut_down(&mut self) {
        self.shut = true;
        self.delayed.clear();
        self.due.clear();
    }

    /// Shut down, and nothing left to hand out, now or later.
    pub(crate) fn is_over(&self) -> bool {
        // A key that is dirty while being processed comes back when it is done.
        self.shut && self.dirty.is_empty()
    }

    /// Over, and every worker done.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_over() && self.processing.is_empty()
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    pub(crate) fn retries(&self, key: &K) -> u32 {
        self.limiter.failures(key)
    }

    /// Ready keys.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
