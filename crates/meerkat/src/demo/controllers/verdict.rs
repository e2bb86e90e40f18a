//! Whether the cluster came to be what was asked for: pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::board::Sight;
use super::object::{is_going, is_running, name, node_of, uid};

/// Nothing if there are exactly so many pods, all of them running on a node; what is wrong otherwise.
pub fn unlike(pods: &[Value], wanted: usize) -> Option<String> {
    let going = pods.iter().filter(|pod| is_going(pod)).count();
    if going != 0 {
        return Some(format!("{going} pods are still going"));
    }
    if pods.len() != wanted {
        return Some(format!("there are {} pods and not {wanted}", pods.len()));
    }
    let idle: Vec<&str> =
        pods.iter().filter(|pod| !is_running(pod) || node_of(pod).is_empty()).map(name).collect();
    if !idle.is_empty() {
        return Some(format!("these do not run: {}", idle.join(", ")));
    }
    let uids: BTreeSet<&str> = pods.iter().map(uid).collect();
    (uids.len() != pods.len()).then(|| "two pods share a uid".to_owned())
}

/// What the whole run is found guilty of.
pub fn reach(sight: &Sight, troubles: &[String], kills: usize) -> Verdict {
    let mut wrong = troubles.to_vec();
    for row in sight.caches.iter().filter(|row| row.relists != 0) {
        wrong.push(format!("{} listed again {} times", row.name, row.relists));
    }
    if !sight.started_twice.is_empty() {
        wrong.push(format!("{} pods were started twice", sight.started_twice.len()));
    }
    let resumed: u64 = sight.caches.iter().map(|row| row.opened.saturating_sub(1)).sum();
    if resumed == 0 && kills != 0 {
        wrong.push("no watch ever moved to another member: nothing was put to the test".to_owned());
    }
    Verdict { wrong, kills, resumed, started: sight.started, failures: sight.failures }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub wrong: Vec<String>,
    kills: usize,
    resumed: u64,
    started: usize,
    failures: u64,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
    }

    /// The last lines of a run.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.wrong.iter().map(|what| format!("WRONG: {what}")).collect();
        let Verdict { kills, resumed, started, failures, .. } = self;
        lines.push(format!(
            "{kills} members killed, {resumed} watches resumed elsewhere, {started} pods started once each, \
             {failures} writes tried again"
        ));
        let word = if self.passed() {
            "PASS: every state asked for was reached exactly, no informer listed again"
        } else {
            "FAIL"
        };
        lines.push(word.to_owned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::{Board, CacheRow};
    use super::super::object::sample::{going, pod};
    use super::*;

    #[test]
    fn only_the_exact_state_is_right() {
        let good = [pod("a", "n1", true), pod("b", "n2", true)];
        assert_eq!(unlike(&good, 2), None);
        assert_eq!(unlike(&[], 0), None);
        assert!(unlike(&good, 3).is_some() && unlike(&good, 1).is_some());
        assert!(unlike(&[pod("a", "n1", false)], 1).is_some());
        assert!(unlike(&[pod("a", "", true)], 1).is_some());
        assert!(unlike(&[good[0].clone(), going(good[1].clone())], 1).is_some());
        assert!(unlike(&[good[0].clone(), good[0].clone()], 2).is_some());
    }

    fn sight(relists: u64, opened: u64) -> Sight {
        let mut sight = Board::new().look();
        let name = "replicas/pods".to_owned();
        sight.caches = vec![CacheRow { name, on: Some(0), objects: 0, revision: 0, opened, relists }];
        sight
    }

    #[test]
    fn a_run_passes_only_if_watches_moved_and_nobody_listed_again() {
        assert!(reach(&sight(0, 2), &[], 3).passed());
        assert!(!reach(&sight(1, 2), &[], 3).passed());
        assert!(!reach(&sight(0, 1), &[], 3).passed());
        assert!(!reach(&sight(0, 2), &["late".to_owned()], 3).passed());
        let mut doubled = sight(0, 2);
        doubled.started_twice = vec!["uid".to_owned()];
        let verdict = reach(&doubled, &[], 3);
        assert_eq!(verdict.lines().last().map(String::as_str), Some("FAIL"));
    }
}
