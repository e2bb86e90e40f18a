//! A run in a few numbers, and what they say about it.

use std::collections::BTreeMap;

use super::Story;
use super::buckets::{self, Latency};
use super::gaps::{self, Availability, GAP_MIN_US};
use crate::record::trace::{Ended, Led};

/// What is to be said first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every promise was judged, nothing was found, and the harness did its part.
    Held,
    /// A promise was broken.
    Broken,
    /// Nothing was found, but some promise was not judged, or the harness failed.
    Unproved,
}

/// A run in a few numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What is to be said first.
    pub standing: Standing,
    /// Operations answered, refused and of unknown outcome.
    pub ok: usize,
    /// Refused.
    pub failed: usize,
    /// Nobody knows.
    pub unknown: usize,
    /// Of all of them, how many would change something.
    pub writes: usize,
    /// How long the answered ones took.
    pub latency: Option<Latency>,
    /// How many faults of each kind; what could not be made is none.
    pub faults: BTreeMap<String, usize>,
    /// How many things were judged, in all promises together.
    pub judged: u64,
    /// Findings, in all promises together.
    pub findings: usize,
    /// Promises about which nothing was judged.
    pub unjudged: usize,
    /// When writes were possible.
    pub availability: Availability,
    /// How often another member, or the same one again, came to lead.
    pub leader_changes: usize,
}

/// Sums a run up.
pub fn of(story: &Story) -> Summary {
    let record = &story.record;
    let count = |ended: Ended| record.ops.iter().filter(|op| op.ended == ended).count();
    let answered = record.ops.iter().filter(|op| op.ended == Ended::Ok);
    let mut faults = BTreeMap::new();
    for fault in record.faults.iter().filter(|fault| fault.made) {
        *faults.entry(fault.kind.clone()).or_insert(0) += 1;
    }
    let judged = story.verdicts.iter().map(|verdict| verdict.judged).sum();
    let findings = story.verdicts.iter().map(|verdict| verdict.findings.len()).sum();
    let unjudged = story.verdicts.iter().filter(|verdict| verdict.judged == 0).count();
    Summary {
        standing: standing(story, findings, unjudged),
        ok: count(Ended::Ok),
        failed: count(Ended::Failed),
        unknown: count(Ended::Unknown),
        writes: record.ops.iter().filter(|op| op.writes).count(),
        latency: buckets::latency(answered.map(|op| op.returned_us.saturating_sub(op.invoked_us)).collect()),
        faults,
        judged,
        findings,
        unjudged,
        availability: gaps::find(&record.ops, GAP_MIN_US),
        leader_changes: leader_changes(&record.leaders),
    }
}

fn standing(story: &Story, findings: usize, unjudged: usize) -> Standing {
    if 0 < findings {
        Standing::Broken
    } else if story.verdicts.is_empty() || 0 < unjudged || !story.troubles.is_empty() {
        Standing::Unproved
    } else {
        Standing::Held
    }
}

/// The first leader is no change; a time without one is none either.
fn leader_changes(leaders: &[Led]) -> usize {
    let mut reigns: Vec<(usize, u64)> =
        leaders.iter().filter_map(|led| Some((led.member?, led.term))).collect();
    reigns.dedup();
    reigns.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Verdict;
    use crate::report::sample;

    fn verdict(judged: u64, findings: &[&str]) -> Verdict {
        Verdict {
            workload: "register".to_owned(),
            promise: "linearizable".to_owned(),
            judged,
            findings: findings.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_finding_breaks_and_a_promise_that_was_not_judged_is_not_proved() {
        let mut story = sample::story(10);
        for (verdicts, expected) in [
            (vec![], Standing::Unproved),
            (vec![verdict(0, &[])], Standing::Unproved),
            (vec![verdict(0, &[]), verdict(3, &[])], Standing::Unproved),
            (vec![verdict(1, &[]), verdict(3, &[])], Standing::Held),
            (vec![verdict(0, &["no end state"]), verdict(3, &[])], Standing::Broken),
        ] {
            story.verdicts = verdicts;
            assert_eq!(of(&story).standing, expected, "{:?}", story.verdicts);
        }
    }

    #[test]
    fn a_run_with_troubles_is_not_held_and_one_with_findings_too_is_broken() {
        let mut story = sample::story(10);
        story.verdicts = vec![verdict(3, &[])];
        story.troubles.push("no port could be had".to_owned());
        assert_eq!(of(&story).standing, Standing::Unproved);
        story.verdicts.push(verdict(3, &["lost"]));
        assert_eq!(of(&story).standing, Standing::Broken);
    }

    #[test]
    fn a_fault_that_could_not_be_made_is_not_counted() {
        let mut story = sample::story(30);
        story.record.faults[0].made = false;
        assert_eq!(of(&story).faults.values().sum::<usize>(), story.record.faults.len() - 1);
    }

    #[test]
    fn every_operation_and_fault_is_counted_once() {
        let story = sample::story(30);
        let summary = of(&story);
        assert_eq!(summary.ok + summary.failed + summary.unknown, story.record.ops.len());
        assert_eq!(summary.faults.values().sum::<usize>(), story.record.faults.len());
        assert!(!summary.availability.gaps.is_empty(), "the sample has a leader killed");
    }

    #[test]
    fn the_first_leader_is_no_change_and_an_interregnum_is_none() {
        let led = |member, term| Led { at_us: 0, member, term };
        assert_eq!(leader_changes(&[]), 0);
        assert_eq!(leader_changes(&[led(Some(1), 2), led(None, 2), led(Some(1), 2)]), 0);
        assert_eq!(leader_changes(&[led(Some(1), 2), led(None, 3), led(Some(1), 4), led(Some(0), 5)]), 2);
    }
}
