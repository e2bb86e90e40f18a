//! What each watcher has seen, in few enough words that keeping them costs almost nothing an event.
//!
//! A watcher whose revisions only rose, whose events are as many as were owed and whose revisions add
//! up to the same sum has seen exactly what it was owed: no loss, no repeat, no disorder. That holds
//! because every write of a bench is one key and so one revision. [`Watched::faults`] is the verdict.

use crate::bench::report::{Latency, Tally};
use crate::bench::watch::interest::{Interest, age_ns};
use crate::bench::watch::response::Event;

/// Faults told one by one; more are counted together.
const FAULTS_TOLD_MAX: usize = 5;

/// The events of one watcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    count: u64,
    revisions_sum: u64,
    last_revision: i64,
    /// Events whose revision was not above the one before: repeated, or out of order.
    not_rising: u64,
}

/// What the watchers of a group are owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    pub count: u64,
    pub revisions_sum: u64,
    /// Writes that failed, and so may or may not have happened.
    pub unsure: u64,
}

impl Owed {
    pub fn written(&mut self, revision: i64) {
        self.count += 1;
        self.revisions_sum = self.revisions_sum.wrapping_add(revision as u64);
    }
}

/// All watchers of a run. Belongs to the thread that reads their connections.
pub struct Watched {
    seen: Vec<Seen>,
    /// How old events were when they arrived. `None`: not asked for.
    latency: Option<Tally>,
    pub created: u64,
    pub delivered: u64,
}

impl Watched {
    pub fn new(watchers: usize, with_latency: bool) -> Watched {
        Watched {
            seen: vec![Seen::default(); watchers],
            latency: with_latency.then(Tally::new),
            created: 0,
            delivered: 0,
        }
    }

    pub fn event(&mut self, watcher: usize, event: &Event<'_>, now_ns: u64) {
        let seen = &mut self.seen[watcher];
        seen.count += 1;
        seen.revisions_sum = seen.revisions_sum.wrapping_add(event.mod_revision as u64);
        seen.not_rising += u64::from(event.mod_revision <= seen.last_revision);
        seen.last_revision = event.mod_revision;
        self.delivered += 1;
        if let Some(latency) = &mut self.latency
            && let Some(age) = age_ns(event.value, now_ns)
        {
            latency.answered_us(age / 1_000);
        }
    }

    pub fn latency_ms(&self) -> Option<Latency> {
        self.latency.as_ref().map(Tally::latency_ms)
    }

    /// What is wrong, told for a few watchers and counted for the rest. Empty: every watcher has seen
    /// exactly what it was owed.
    pub fn faults(&self, interest: &Interest, owed: &[Owed]) -> Vec<String> {
        let mut told = Vec::new();
        let mut untold = 0_usize;
        for (watcher, seen) in self.seen.iter().enumerate() {
            let Some(fault) = fault(seen, owed[interest.group_of_watcher(watcher)]) else { continue };
            if told.len() < FAULTS_TOLD_MAX {
                told.push(format!("watcher {watcher}: {fault}"));
            } else {
                untold += 1;
            }
        }
        if untold > 0 {
            told.push(format!("and {untold} more watchers with wrong events"));
        }
        told
    }
}

fn fault(seen: &Seen, owed: Owed) -> Option<String> {
    if seen.not_rising > 0 {
        return Some(format!("{} events repeated or out of order", seen.not_rising));
    }
    let most = owed.count + owed.unsure;
    if !(owed.count..=most).contains(&seen.count) {
        return Some(format!("{} events instead of {}", seen.count, owed.count));
    }
    // With unsure writes the sum cannot be known.
    if owed.unsure == 0 && seen.revisions_sum != owed.revisions_sum {
        return Some("events of other revisions than those written".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::watch::interest::Target;

    /// One watcher that sees these revisions, of a store where these were written.
    fn check(seen: &[i64], written: &[i64], unsure: u64, expected: &[&str]) {
        let mut watched = Watched::new(1, false);
        for revision in seen {
            watched.event(0, &Event { mod_revision: *revision, ..Event::default() }, 0);
        }
        let mut owed = Owed { unsure, ..Owed::default() };
        written.iter().for_each(|revision| owed.written(*revision));
        let faults = watched.faults(&Interest::new(Target::WholePrefix, 1), &[owed]);
        assert_eq!(faults, expected, "seen {seen:?} of {written:?}");
    }

    #[test]
    fn all_that_was_written_in_order_is_right() {
        check(&[3, 4, 9], &[9, 3, 4], 0, &[]);
        check(&[], &[], 0, &[]);
    }

    #[test]
    fn a_lost_event_is_found() {
        check(&[3, 9], &[3, 4, 9], 0, &["watcher 0: 2 events instead of 3"]);
    }

    #[test]
    fn a_repeated_event_is_found_even_if_another_is_lost() {
        check(&[3, 3, 9], &[3, 4, 9], 0, &["watcher 0: 1 events repeated or out of order"]);
    }

    #[test]
    fn disorder_is_found() {
        check(&[4, 3, 9], &[3, 4, 9], 0, &["watcher 0: 1 events repeated or out of order"]);
    }

    #[test]
    fn somebody_elses_event_in_place_of_ones_own_is_found() {
        check(&[3, 5, 9], &[3, 4, 9], 0, &["watcher 0: events of other revisions than those written"]);
    }

    #[test]
    fn a_write_that_may_have_happened_may_be_seen() {
        check(&[3], &[3], 1, &[]);
        check(&[3, 4], &[3], 1, &[]);
        check(&[3, 4, 5], &[3], 1, &["watcher 0: 3 events instead of 1"]);
    }

    #[test]
    fn many_faults_are_counted_and_not_listed() {
        let watched = Watched::new(100, false);
        let owed = [Owed { count: 1, ..Owed::default() }];
        let faults = watched.faults(&Interest::new(Target::WholePrefix, 1), &owed);
        assert_eq!(faults.len(), FAULTS_TOLD_MAX + 1);
        assert_eq!(faults[FAULTS_TOLD_MAX], "and 95 more watchers with wrong events");
    }
}
