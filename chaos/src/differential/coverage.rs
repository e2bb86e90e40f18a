//! How often each kind of step and answer came up; none may be missing.
//!
//! Kinds are read off the steps, the world before them and the answers, not noted by the generator,
//! so that a generator which only believes it made something is found out. A kind that no table has
//! is a gap too, in what we know.

use std::collections::BTreeMap;
use std::fmt;

/// Counts of everything that came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// In the order of the table.
    wanted: Vec<String>,
    counts: BTreeMap<String, u64>,
    allowed: BTreeMap<String, u64>,
}

impl Coverage {
    /// Of all kinds in a table whose lines are `topic: kind; another kind`.
    pub fn of(table: &str) -> Self {
        let mut coverage = Self::default();
        for line in table.lines() {
            let (topic, kinds) = line.split_once(": ").expect("a line begins with its topic");
            kinds.split("; ").for_each(|kind| coverage.want(format!("{topic}: {kind}")));
        }
        coverage
    }

    /// One more kind that has to come up.
    pub fn want(&mut self, kind: String) {
        self.wanted.push(kind);
    }

    /// Counts a kind if it came up.
    pub fn count(&mut self, kind: &str, came_up: bool) {
        if came_up {
            *self.counts.entry(kind.to_owned()).or_default() += 1;
        }
    }

    /// Counts a kind if the table has it.
    pub fn count_known(&mut self, kind: &str) {
        self.count(kind, self.wanted.iter().any(|wanted| wanted == kind));
    }

    /// How often a kind came up.
    pub fn times(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or(0)
    }

    /// Counts a wanted difference.
    pub fn allow(&mut self, what: impl fmt::Debug) {
        *self.allowed.entry(format!("{what:?}")).or_default() += 1;
    }

    /// How many wanted differences there were.
    pub fn allowed(&self) -> u64 {
        self.allowed.values().sum()
    }

    /// What should have come up and did not, and what nobody foresaw.
    pub fn gaps(&self) -> Vec<String> {
        let missing = self.wanted.iter().filter(|kind| self.times(kind) == 0);
        let unforeseen = self.counts.iter().filter(|(kind, _)| !self.wanted.contains(kind));
        missing
            .map(|kind| format!("never exercised: {kind}"))
            .chain(unforeseen.map(|(kind, count)| format!("unforeseen, {count}x: {kind}")))
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in &self.wanted {
            writeln!(f, "  {:>6}  {kind}", self.times(kind))?;
        }
        for (what, count) in &self.allowed {
            writeln!(f, "  {count:>6}  allowed: {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "put: plain; with a lease\nanswer: put";

    #[test]
    fn nothing_exercised_is_a_gap_for_every_kind() {
        let gaps = ["put: plain", "put: with a lease", "answer: put"];
        assert_eq!(Coverage::of(TABLE).gaps(), gaps.map(|kind| format!("never exercised: {kind}")));
    }

    #[test]
    fn what_came_up_is_no_gap() {
        let mut coverage = Coverage::of(TABLE);
        coverage.count("put: plain", true);
        coverage.count("put: with a lease", false);
        coverage.count_known("answer: put");
        coverage.count_known("answer: other");
        assert_eq!(coverage.gaps(), ["never exercised: put: with a lease"]);
    }

    #[test]
    fn an_unforeseen_kind_is_a_gap_in_our_knowledge() {
        let mut coverage = Coverage::default();
        coverage.count("error: something new", true);
        assert_eq!(coverage.gaps(), ["unforeseen, 1x: error: something new"]);
    }
}
