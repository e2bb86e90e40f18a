//! When to compact, and to which revision: etcd's rules, on a clock that is handed in.
//!
//! By time: the revision is sampled ten times in each hour of the period (in the whole period, if it is
//! shorter), and as many samples are kept as the period has. Once a whole period has passed, history
//! before the oldest sample goes, and again after each hour (or period). By revisions: every five
//! minutes all but the newest N.

use super::AutoCompaction;
use std::collections::VecDeque;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const REVISIONS_INTERVAL: Duration = Duration::from_secs(300);
/// However short a period was asked for.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const SAMPLES_PER_INTERVAL: u32 = 10;

pub(super) struct Schedule {
    kept: AutoCompaction,
    /// Oldest first.
    samples: VecDeque<i64>,
    /// The last compaction that was done, or whose work was.
    last_revision: i64,
    last_at: Duration,
    /// The first one waits for a whole period.
    waited: bool,
}

impl Schedule {
    pub(super) fn new(kept: AutoCompaction) -> Schedule {
        Schedule { kept, samples: VecDeque::new(), last_revision: 0, last_at: Duration::ZERO, waited: false }
    }

    /// Until the next look.
    pub(super) fn pause(&self) -> Duration {
        match self.kept {
            AutoCompaction::Periodic(period) => (period.min(HOUR) / SAMPLES_PER_INTERVAL).max(PAUSE_MIN),
            AutoCompaction::Revisions(_) => REVISIONS_INTERVAL,
        }
    }

    pub(super) fn sample(&mut self, revision: i64) {
        let AutoCompaction::Periodic(period) = self.kept else { return };
        let samples_max = period.as_nanos() / self.pause().as_nanos() + 1;
        self.samples.push_back(revision);
        while samples_max < self.samples.len() as u128 {
            self.samples.pop_front();
        }
    }

    /// The revision to compact to, if it is time. `now` is counted from the start.
    pub(super) fn due(&self, now: Duration, current: i64) -> Option<i64> {
        let revision = match self.kept {
            AutoCompaction::Periodic(period) => {
                let interval = if self.waited { period.min(HOUR) } else { period };
                if now.saturating_sub(self.last_at) < interval {
                    return None;
                }
                *self.samples.front()?
            }
            AutoCompaction::Revisions(kept) => current - kept,
        };
        (0 < revision && revision != self.last_revision).then_some(revision)
    }

    pub(super) fn compacted(&mut self, now: Duration, revision: i64) {
        (self.last_revision, self.last_at, self.waited) = (revision, now, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time pass in steps of the schedule's own pause, with one revision for each minute. Gives
    /// each compaction as (minute, revision).
    fn compactions(kept: AutoCompaction, minutes: u64, leads: impl Fn(u64) -> bool) -> Vec<(u64, i64)> {
        let mut schedule = Schedule::new(kept);
        let (mut now, mut done) = (Duration::ZERO, Vec::new());
        let revision = |now: Duration| 100 + now.as_secs() as i64 / 60;
        while now < Duration::from_secs(60 * minutes) {
            schedule.sample(revision(now));
            now += schedule.pause();
            let minute = now.as_secs() / 60;
            if let Some(due) = schedule.due(now, revision(now)).filter(|_| leads(minute)) {
                schedule.compacted(now, due);
                done.push((minute, due));
            }
        }
        done
    }

    #[test]
    fn a_short_period_is_kept_whole_and_compacted_once_in_each() {
        let kept = AutoCompaction::Periodic(Duration::from_secs(10 * 60));
        // A sample a minute; the oldest of eleven is the period old when the newest is taken.
        assert_eq!(compactions(kept, 35, |_| true), [(10, 100), (20, 109), (30, 119)]);
    }

    #[test]
    fn a_long_period_is_compacted_every_hour_once_it_has_passed() {
        let kept = AutoCompaction::Periodic(Duration::from_secs(3 * 3_600));
        // A sample each six minutes.
        assert_eq!(compactions(kept, 310, |_| true), [(180, 100), (240, 154), (300, 214)]);
    }

    #[test]
    fn who_does_not_lead_samples_and_compacts_nothing_and_knows_enough_when_it_leads() {
        let kept = AutoCompaction::Periodic(Duration::from_secs(10 * 60));
        assert_eq!(compactions(kept, 45, |minute| 30 <= minute), [(30, 119), (40, 129)]);
    }

    #[test]
    fn by_revisions_all_but_the_newest_go_every_five_minutes() {
        let kept = AutoCompaction::Revisions(10);
        assert_eq!(compactions(kept, 15, |_| true), [(5, 95), (10, 100), (15, 105)]);
        assert_eq!(compactions(AutoCompaction::Revisions(1_000), 15, |_| true), []);
    }

    #[test]
    fn nothing_is_compacted_twice_while_nothing_is_written() {
        let mut schedule = Schedule::new(AutoCompaction::Revisions(1));
        assert_eq!(schedule.due(Duration::ZERO, 5), Some(4));
        schedule.compacted(Duration::ZERO, 4);
        assert_eq!(schedule.due(HOUR, 5), None);
        assert_eq!(schedule.due(HOUR, 6), Some(5));
    }
}
