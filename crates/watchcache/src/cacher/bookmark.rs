//! When each watcher is due a bookmark.
//!
//! Once a minute, and once shortly before its deadline, so that a client that comes back stands where
//! the ring still reaches. While the bookmark that ends the first objects is outstanding, that one is due
//! as soon as its revision is reached, and no other. To a watcher no bookmark goes back in time.
//!
//! A bookmark is tried, never waited for: whoever sends says whether it went out.

use super::frame::Mark;
use super::interest::WatcherId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub const PERIOD_MS: u64 = 60_000;
pub const BEFORE_DEADLINE_MS: u64 = 2_000;
const BUCKET_MS: u64 = 1_000;
/// A quarter of a bucket, so that the members of a cluster do not tick together.
const JITTER_MS_MAX: f64 = 250.0;

/// When to look again. `chance`: from 0 to 1.
pub fn next_tick_ms(now_ms: u64, chance: f64) -> u64 {
    now_ms + BUCKET_MS + (chance.clamp(0.0, 1.0) * JITTER_MS_MAX) as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub watcher: WatcherId,
    pub mark: Mark,
    pub revision: u64,
}

#[derive(Debug, Default)]
pub struct Bookmarks {
    watchers: HashMap<WatcherId, Plan>,
    /// By the second in which they are due.
    buckets: BTreeMap<u64, BTreeSet<WatcherId>>,
    /// By the revision that ends their first objects.
    initial: BTreeSet<(u64, WatcherId)>,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    deadline_ms: u64,
    /// No bookmark below it.
    told: u64,
    wants: Wants,
}

#[derive(Clone, Copy, Debug)]
enum Wants {
    InitialEnd {
        target: u64,
    },
    Progress {
        bucket: u64,
    },
    /// It is being sent, or the watch ends before the next.
    Nothing,
}

impl Bookmarks {
    /// `after`: the revision that the watch begins after. `initial_end`: the revision to be reached
    /// before its first objects are complete, if it asked to be told.
    pub fn add(
        &mut self,
        watcher: WatcherId,
        now_ms: u64,
        deadline_ms: u64,
        after: u64,
        initial_end: Option<u64>,
    ) {
        self.remove(watcher);
        self.watchers.insert(watcher, Plan { deadline_ms, told: after, wants: Wants::Nothing });
        match initial_end {
            Some(target) => self.set(watcher, Wants::InitialEnd { target }),
            None => self.schedule(watcher, now_ms),
        }
    }

    pub fn remove(&mut self, watcher: WatcherId) {
        self.set(watcher, Wants::Nothing);
        self.watchers.remove(&watcher);
    }

    /// Those to be sent now. Each is to be followed by [`sent`](Self::sent) or
    /// [`skipped`](Self::skipped). `revision`: all events up to it have been dispatched.
    pub fn due(&mut self, now_ms: u64, revision: u64) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some(&(target, watcher)) = self.initial.first()
            && target <= revision
        {
            self.set(watcher, Wants::Nothing);
            due.push(Due { watcher, mark: Mark::InitialEventsEnd, revision });
        }
        while let Some(mut bucket) = self.buckets.first_entry()
            && *bucket.key() <= now_ms / BUCKET_MS
        {
            let Some(watcher) = bucket.get_mut().pop_first() else {
                bucket.remove();
                continue;
            };
            let Some(plan) = self.watchers.get_mut(&watcher) else { continue };
            plan.wants = Wants::Nothing;
            if plan.told <= revision {
                due.push(Due { watcher, mark: Mark::Progress, revision });
            } else {
                // It began in the future, which has not come.
                self.schedule(watcher, now_ms);
            }
        }
        due
    }

    pub fn sent(&mut self, due: Due, now_ms: u64) {
        if let Some(plan) = self.watchers.get_mut(&due.watcher) {
            plan.told = plan.told.max(due.revision);
            self.schedule(due.watcher, now_ms);
        }
    }

    /// Its queue was full. It is tried again in a second; the one that ends the first objects at the
    /// next occasion.
    pub fn skipped(&mut self, due: Due, now_ms: u64) {
        match due.mark {
            Mark::InitialEventsEnd => self.set(due.watcher, Wants::InitialEnd { target: due.revision }),
            Mark::Progress => self.set(due.watcher, Wants::Progress { bucket: now_ms / BUCKET_MS + 1 }),
        }
    }

    fn schedule(&mut self, watcher: WatcherId, now_ms: u64) {
        let Some(plan) = self.watchers.get(&watcher) else { return };
        let (now, regular) = (now_ms / BUCKET_MS, (now_ms + PERIOD_MS) / BUCKET_MS);
        let last = plan.deadline_ms.saturating_sub(BEFORE_DEADLINE_MS) / BUCKET_MS;
        // The last one may have been sent a little early: in its second there is no other.
        let wants = if now < last { Wants::Progress { bucket: last.min(regular) } } else { Wants::Nothing };
        self.set(watcher, wants);
    }

    fn set(&mut self, watcher: WatcherId, wants: Wants) {
        let Some(plan) = self.watchers.get_mut(&watcher) else { return };
        let before = std::mem::replace(&mut plan.wants, wants);
        match before {
            Wants::InitialEnd { target } => drop(self.initial.remove(&(target, watcher))),
            Wants::Progress { bucket } => {
                if let Some(watchers) = self.buckets.get_mut(&bucket) {
                    watchers.remove(&watcher);
                    if watchers.is_empty() {
                        self.buckets.remove(&bucket);
                    }
                }
            }
            Wants::Nothing => {}
        }
        match wants {
            Wants::InitialEnd { target } => drop(self.initial.insert((target, watcher))),
            Wants::Progress { bucket } => drop(self.buckets.entry(bucket).or_default().insert(watcher)),
            Wants::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const ONE: WatcherId = WatcherId(1);

    /// The seconds in which bookmarks go out, all of them taken.
    fn seconds(bookmarks: &mut Bookmarks, until_s: u64) -> Vec<u64> {
        let mut seconds = Vec::new();
        for second in 0..until_s {
            for due in bookmarks.due(second * 1_000, 10) {
                bookmarks.sent(due, second * 1_000);
                seconds.push(second);
            }
        }
        seconds
    }

    #[test]
    fn one_a_minute_and_one_before_the_deadline() {
        for (deadline_s, expected) in
            [(300, vec![60, 120, 180, 240, 298]), (30, vec![28]), (62, vec![60]), (2, vec![]), (1, vec![])]
        {
            let mut bookmarks = Bookmarks::default();
            bookmarks.add(ONE, 0, deadline_s * 1_000, 0, None);
            assert_eq!(seconds(&mut bookmarks, 400), expected, "deadline {deadline_s} s");
        }
    }

    #[test]
    fn the_end_of_the_first_objects_is_due_at_once_when_reached_and_comes_once() {
        let mut bookmarks = Bookmarks::default();
        bookmarks.add(ONE, 0, 300_000, 0, Some(10));
        assert_eq!(bookmarks.due(0, 9), []);
        assert_eq!(bookmarks.due(70_000, 9), [], "no other before it");
        let due = Due { watcher: ONE, mark: Mark::InitialEventsEnd, revision: 12 };
        assert_eq!(bookmarks.due(70_000, 12), [due]);
        bookmarks.skipped(due, 70_000);
        assert_eq!(bookmarks.due(70_001, 12), [due], "the queue was full: again");
        bookmarks.sent(due, 70_001);
        assert_eq!(bookmarks.due(70_002, 13), []);
        assert_eq!(bookmarks.due(131_000, 13), [Due { mark: Mark::Progress, revision: 13, ..due }]);
    }

    #[test]
    fn what_was_skipped_is_tried_again_in_a_second() {
        let mut bookmarks = Bookmarks::default();
        bookmarks.add(ONE, 0, 300_000, 0, None);
        let due = bookmarks.due(60_500, 7);
        assert_eq!(due.len(), 1);
        bookmarks.skipped(due[0], 60_500);
        assert_eq!(bookmarks.due(60_900, 7), []);
        assert_eq!(bookmarks.due(61_000, 8), [Due { revision: 8, ..due[0] }]);
    }

    #[test]
    fn a_watch_of_the_future_gets_none_from_before_its_beginning() {
        let mut bookmarks = Bookmarks::default();
        bookmarks.add(ONE, 0, 300_000, 50, None);
        assert_eq!(bookmarks.due(60_000, 49), []);
        assert_eq!(bookmarks.due(120_000, 50).len(), 1);
    }

    #[test]
    fn who_left_gets_none_and_leaves_nothing() {
        let mut bookmarks = Bookmarks::default();
        bookmarks.add(ONE, 0, 300_000, 0, None);
        bookmarks.add(WatcherId(2), 0, 300_000, 0, Some(5));
        bookmarks.remove(ONE);
        bookmarks.remove(WatcherId(2));
        assert_eq!(bookmarks.due(200_000, 9), []);
        assert!(bookmarks.buckets.is_empty() && bookmarks.initial.is_empty());
    }

    #[test]
    fn ticks_are_a_second_and_at_most_a_quarter_apart() {
        assert_eq!(next_tick_ms(5, 0.0), 1_005);
        assert_eq!(next_tick_ms(5, 1.0), 1_255);
    }

    #[test]
    fn no_watcher_waits_longer_than_its_period_or_goes_back() {
        for seed in 0..10 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut bookmarks = Bookmarks::default();
            // Since when each has had none, its deadline, and what it was told.
            let mut model: BTreeMap<WatcherId, (u64, u64, u64)> = BTreeMap::new();
            let (mut now, mut revision) = (0, 0);
            for number in 0..2_000 {
                now = next_tick_ms(now, rng.random());
                revision += rng.random_range(0..3);
                model.retain(|watcher, (_, deadline, _)| {
                    if *deadline <= now {
                        bookmarks.remove(*watcher);
                    }
                    now < *deadline
                });
                if rng.random_bool(0.3) {
                    let deadline = now + rng.random_range(1..400_000);
                    let initial = rng.random_bool(0.5).then_some(revision + rng.random_range(0..5));
                    bookmarks.add(WatcherId(number), now, deadline, 0, initial);
                    model.insert(WatcherId(number), (now, deadline, 0));
                }
                for due in bookmarks.due(now, revision) {
                    let row = model.get_mut(&due.watcher).expect("only those who are there");
                    assert!(row.2 <= due.revision);
                    if rng.random_bool(0.1) {
                        bookmarks.skipped(due, now);
                    } else {
                        bookmarks.sent(due, now);
                        (row.0, row.2) = (now, due.revision);
                    }
                }
                for (since, deadline, _) in model.values() {
                    // A few may be skipped in a row.
                    assert!(now < *since + PERIOD_MS + 8 * 1_250, "{now} since {since} until {deadline}");
                }
            }
        }
    }
}
