//! Who waits until the cache has reached a revision.
//!
//! A read that must not be older than a revision waits here for it, each until its own deadline. Nobody
//! is told twice: a waiter is reached, or expires, or leaves.

use std::collections::{BTreeMap, BTreeSet};

/// As long as a read waits by itself.
pub const WAIT_MS: u64 = 3_000;
/// Waiters at one time. A request holds more memory than a place here does; this is the last bound.
pub const WAITERS_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The cache is there already.
    Reached,
    Waiting(WaiterId),
    /// Too many wait.
    Refused,
}

#[derive(Debug)]
pub struct Freshness {
    reached: u64,
    next: u64,
    by_id: BTreeMap<WaiterId, Waiter>,
    by_revision: BTreeSet<(u64, WaiterId)>,
    by_deadline: BTreeSet<(u64, WaiterId)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    revision: u64,
    deadline_ms: u64,
}

impl Freshness {
    pub fn new(reached: u64) -> Freshness {
        Freshness {
            reached,
            next: 0,
            by_id: BTreeMap::new(),
            by_revision: BTreeSet::new(),
            by_deadline: BTreeSet::new(),
        }
    }

    pub fn waiting(&self) -> usize {
        self.by_id.len()
    }

    pub fn wait(&mut self, revision: u64, deadline_ms: u64) -> Wait {
        if revision <= self.reached {
            return Wait::Reached;
        }
        if WAITERS_MAX <= self.by_id.len() {
            return Wait::Refused;
        }
        let id = WaiterId(self.next);
        self.next += 1;
        self.by_id.insert(id, Waiter { revision, deadline_ms });
        self.by_revision.insert((revision, id));
        self.by_deadline.insert((deadline_ms, id));
        Wait::Waiting(id)
    }

    /// Those whose revision has come.
    pub fn reach(&mut self, revision: u64) -> Vec<WaiterId> {
        self.reached = self.reached.max(revision);
        let mut ready = Vec::new();
        while let Some(&(wanted, id)) = self.by_revision.first()
            && wanted <= self.reached
        {
            self.leave(id);
            ready.push(id);
        }
        ready
    }

    /// Those who waited for nothing.
    pub fn expire(&mut self, now_ms: u64) -> Vec<WaiterId> {
        let mut expired = Vec::new();
        while let Some(&(deadline_ms, id)) = self.by_deadline.first()
            && deadline_ms <= now_ms
        {
            self.leave(id);
            expired.push(id);
        }
        expired
    }

    /// The lowest revision that somebody waits for.
    pub fn lowest(&self) -> Option<u64> {
        self.by_revision.first().map(|(revision, _)| *revision)
    }

    /// Its client went away, or it was told.
    pub fn leave(&mut self, id: WaiterId) {
        if let Some(waiter) = self.by_id.remove(&id) {
            self.by_revision.remove(&(waiter.revision, id));
            self.by_deadline.remove(&(waiter.deadline_ms, id));
        }
    }

    /// The cache begins anew, perhaps at a lower revision: after a restore. Those who wait go on.
    pub fn restart(&mut self, reached: u64) -> Vec<WaiterId> {
        self.reached = 0;
        self.reach(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn who_asks_for_the_past_does_not_wait() {
        let mut freshness = Freshness::new(7);
        assert_eq!(freshness.wait(7, 100), Wait::Reached);
        assert!(matches!(freshness.wait(8, 100), Wait::Waiting(_)));
        freshness.restart(3);
        assert!(matches!(freshness.wait(7, 100), Wait::Waiting(_)));
    }

    #[test]
    fn the_last_bound_refuses() {
        let mut freshness = Freshness::new(0);
        for _ in 0..WAITERS_MAX {
            assert!(matches!(freshness.wait(1, 1), Wait::Waiting(_)));
        }
        assert_eq!(freshness.wait(1, 1), Wait::Refused);
        assert_eq!(freshness.reach(1).len(), WAITERS_MAX);
        assert!(freshness.by_deadline.is_empty() && freshness.by_revision.is_empty());
    }

    #[test]
    fn everybody_is_told_once_and_by_what_came_first() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut freshness = Freshness::new(0);
            let mut model: BTreeMap<WaiterId, (u64, u64)> = BTreeMap::new();
            let (mut revision, mut now) = (0, 0);
            for _ in 0..500 {
                let (told, due): (Vec<WaiterId>, Vec<WaiterId>) = match rng.random_range(0..4) {
                    0 | 1 => {
                        let (wanted, deadline) =
                            (revision + rng.random_range(0..9), now + rng.random_range(0..9));
                        match freshness.wait(wanted, deadline) {
                            Wait::Waiting(id) => drop(model.insert(id, (wanted, deadline))),
                            Wait::Reached => assert!(wanted <= revision),
                            Wait::Refused => panic!("there are few"),
                        }
                        continue;
                    }
                    2 => {
                        revision += rng.random_range(0..4);
                        let due = model.iter().filter(|(_, (wanted, _))| *wanted <= revision);
                        (freshness.reach(revision), due.map(|(id, _)| *id).collect())
                    }
                    _ => {
                        now += rng.random_range(0..4);
                        let due = model.iter().filter(|(_, (_, deadline))| *deadline <= now);
                        (freshness.expire(now), due.map(|(id, _)| *id).collect())
                    }
                };
                let mut sorted = told.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, due);
                model.retain(|id, _| !told.contains(id));
                assert_eq!(freshness.waiting(), model.len());
                assert_eq!(freshness.lowest(), model.values().map(|(wanted, _)| *wanted).min());
            }
        }
    }
}
