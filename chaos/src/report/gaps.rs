//! Times in which somebody wanted to write and nobody could.
//!
//! A gap lies between two acknowledgements, whoever got them, and begins no earlier than the first
//! write that waited in it: a cluster that nobody asks is not unavailable.

use crate::record::trace::{Ended, Op};

/// Shorter silences are not called gaps: they are a latency.
pub const GAP_MIN_US: u64 = 500_000;

/// One such time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// From the first write that waited.
    pub from_us: u64,
    /// To the next acknowledgement, or to the last known outcome.
    pub until_us: u64,
}

/// How available writes were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// All gaps, in order.
    pub gaps: Vec<Gap>,
    /// From the first write sent to the last outcome.
    pub wanted_us: u64,
}

impl Gap {
    /// How long it was.
    pub fn length_us(&self) -> u64 {
        self.until_us - self.from_us
    }
}

impl Availability {
    /// The share of the time in which writes were wanted and no gap was; none if nobody wrote.
    pub fn share(&self) -> Option<f64> {
        let lost: u64 = self.gaps.iter().map(Gap::length_us).sum();
        (0 < self.wanted_us).then(|| 1.0 - lost as f64 / self.wanted_us as f64)
    }

    /// The longest gap.
    pub fn longest_us(&self) -> u64 {
        self.gaps.iter().map(Gap::length_us).max().unwrap_or(0)
    }
}

/// Finds the gaps of at least this length among these operations, in any order.
pub fn find(ops: &[Op], min_us: u64) -> Availability {
    let mut writes: Vec<&Op> = ops.iter().filter(|op| op.writes).collect();
    writes.sort_unstable_by_key(|op| op.returned_us);
    let (Some(first), Some(last)) = (writes.iter().map(|op| op.invoked_us).min(), writes.last()) else {
        return Availability::default();
    };
    // The earliest sending among a write and all that ended after it.
    let mut waiting_since: Vec<u64> = writes.iter().map(|op| op.invoked_us).collect();
    for index in (1..waiting_since.len()).rev() {
        waiting_since[index - 1] = waiting_since[index - 1].min(waiting_since[index]);
    }
    let mut gaps = Vec::new();
    let mut told = first;
    // The first write that ended after the last acknowledgement.
    let mut next = 0;
    for (index, op) in writes.iter().enumerate() {
        let ends = op.ended == Ended::Ok || index + 1 == writes.len();
        if !ends {
            continue;
        }
        let from_us = waiting_since[next].max(told);
        if from_us + min_us <= op.returned_us {
            gaps.push(Gap { from_us, until_us: op.returned_us });
        }
        told = op.returned_us;
        next = index + 1;
    }
    Availability { gaps, wanted_us: last.returned_us.saturating_sub(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(invoked_us: u64, returned_us: u64, ended: Ended) -> Op {
        Op { client: 0, writes: true, invoked_us, returned_us, ended }
    }

    #[test]
    fn a_gap_lies_between_acknowledgements_while_somebody_waits() {
        let ops = [
            write(0, 10, Ended::Ok),
            write(20, 300, Ended::Unknown),
            write(310, 400, Ended::Failed),
            write(405, 500, Ended::Ok),
            write(501, 505, Ended::Ok),
        ];
        let found = find(&ops, 100);
        assert_eq!(found.gaps, [Gap { from_us: 20, until_us: 500 }]);
        assert_eq!((found.wanted_us, found.longest_us()), (505, 480));
        assert!((found.share().expect("somebody wrote") - (1.0 - 480.0 / 505.0)).abs() < 1e-9);
    }

    #[test]
    fn a_cluster_that_nobody_asks_has_no_gap() {
        let ops = [write(0, 10, Ended::Ok), write(900, 910, Ended::Ok)];
        assert!(find(&ops, 100).gaps.is_empty());
    }

    #[test]
    fn another_clients_acknowledgement_ends_a_gap() {
        let ops = [write(0, 300, Ended::Unknown), write(0, 150, Ended::Ok), write(151, 310, Ended::Ok)];
        assert_eq!(
            find(&ops, 100).gaps,
            [Gap { from_us: 0, until_us: 150 }, Gap { from_us: 150, until_us: 310 }]
        );
        assert!(find(&ops, 200).gaps.is_empty());
    }

    #[test]
    fn writes_that_never_succeed_again_are_a_gap_to_the_end() {
        let ops = [write(0, 10, Ended::Ok), write(20, 500, Ended::Unknown), write(510, 900, Ended::Unknown)];
        assert_eq!(find(&ops, 100).gaps, [Gap { from_us: 20, until_us: 900 }]);
    }

    #[test]
    fn reads_neither_make_nor_end_a_gap_and_nothing_has_no_share() {
        let read = Op { writes: false, ..write(0, 900, Ended::Ok) };
        assert_eq!(find(&[read], 100), Availability::default());
        assert_eq!(find(&[], 100).share(), None);
        let ops = [write(0, 10, Ended::Ok), Op { writes: false, ..write(0, 200, Ended::Ok) }];
        assert!(find(&ops, 100).gaps.is_empty());
    }
}
