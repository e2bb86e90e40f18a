//! What strikes when, and for how long: from one seed, before anything runs.
//!
//! One foreground fault at a time, then a gap for recovery. Now and then a fault of a process falls
//! within one of the network: a member killed while others are cut off. Background kinds come and
//! go beside them. Every kind has had its turn before weights decide, if there is time for it.

use std::collections::HashSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::plan::{Kind, Plan, Range};

/// Faults that can hold while another is made, and are undone without undoing it.
const OF_THE_NETWORK: &[&str] = &["partition", "one-way", "black-hole", "slow-network", "lossy-network"];
/// Faults that can be made while the network is bad, and leave it as it is.
const OF_A_PROCESS: &[&str] = &["kill", "terminate", "pause", "leader-transfer"];

/// One fault, planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// When, from the start of the faults.
    pub at: Duration,
    /// How long until it is healed.
    pub lasting: Duration,
    /// Its kind.
    pub kind: String,
    /// What the nemesis draws from.
    pub seed: u64,
}

/// A whole run, in the order of strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The strikes.
    pub strikes: Vec<Strike>,
    /// Kinds for which there was no time.
    pub no_time_for: Vec<String>,
}

impl Schedule {
    /// Whether every kind has had its first turn by half of the time: then there is so much of it that
    /// no delay explains a kind that was never struck.
    pub fn has_time_for_all(&self, length: Duration) -> bool {
        let mut seen = HashSet::new();
        let mut first = self.strikes.iter().filter(|strike| seen.insert(&strike.kind));
        self.no_time_for.is_empty() && first.all(|strike| strike.at + strike.lasting <= length / 2)
    }
}

/// Plans a run of this length. `kinds` that cannot be had have been left out of the plan before.
pub fn draw(plan: &Plan, seed: u64) -> Schedule {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut strikes = Vec::new();
    foreground(plan, &mut dice, &mut strikes);
    for kind in &plan.background {
        background(plan, kind, &mut dice, &mut strikes);
    }
    strikes.sort_by_key(|strike: &Strike| strike.at);
    let had = |kind: &&Kind| !strikes.iter().any(|strike| strike.kind == kind.name);
    let all = plan.foreground.iter().chain(&plan.background);
    let no_time_for = all.filter(had).map(|kind| kind.name.clone()).collect();
    Schedule { strikes, no_time_for }
}

fn foreground(plan: &Plan, dice: &mut StdRng, strikes: &mut Vec<Strike>) {
    let mut turns: Vec<&Kind> = plan.foreground.iter().collect();
    turns.shuffle(dice);
    let mut at = plan.warm_up;
    while let Some(kind) = next(plan, &mut turns, dice) {
        // What does not fit is not made shorter than it was meant to be: something else may fit.
        if plan.length < at + kind.lasting.min {
            if turns.is_empty() {
                return;
            }
            continue;
        }
        let first = strike(kind, at, plan.length, dice);
        let mut end = at + first.lasting;
        let second = partner(plan, &first, dice);
        strikes.push(first);
        if let Some(second) = second {
            end = end.max(second.at + second.lasting);
            strikes.push(second);
        }
        at = end + within(plan.gap, dice);
    }
}

/// Each kind once, then by weight.
fn next<'a>(plan: &'a Plan, turns: &mut Vec<&'a Kind>, dice: &mut StdRng) -> Option<&'a Kind> {
    if let Some(kind) = turns.pop() {
        return Some(kind);
    }
    let total: u32 = plan.foreground.iter().map(|kind| kind.weight).sum();
    let mut left = if total == 0 { return None } else { dice.random_range(0..total) };
    plan.foreground.iter().find(|kind| {
        let hit = left < kind.weight;
        left = left.saturating_sub(kind.weight);
        hit
    })
}

/// A second fault within the first, if the first is the network's and the dice say so.
fn partner(plan: &Plan, first: &Strike, dice: &mut StdRng) -> Option<Strike> {
    let partners: Vec<&Kind> =
        plan.foreground.iter().filter(|kind| OF_A_PROCESS.contains(&kind.name.as_str())).collect();
    let wanted = dice.random_range(0..100) < plan.overlap_percent;
    if !wanted || partners.is_empty() || !OF_THE_NETWORK.contains(&first.kind.as_str()) {
        return None;
    }
    let kind = partners[dice.random_range(0..partners.len())];
    let at = first.at + first.lasting.mul_f64(dice.random_range(0.2..0.7));
    (at + kind.lasting.min <= plan.length).then(|| strike(kind, at, plan.length, dice))
}

/// From early on, with as much time between two as one lasts.
fn background(plan: &Plan, kind: &Kind, dice: &mut StdRng, strikes: &mut Vec<Strike>) {
    let mut at = plan.warm_up.mul_f64(dice.random_range(0.5..1.0)) + within(plan.gap, dice);
    while at + kind.lasting.min <= plan.length {
        let strike = strike(kind, at, plan.length, dice);
        at += strike.lasting + within(kind.lasting, dice) / kind.weight;
        strikes.push(strike);
    }
}

fn strike(kind: &Kind, at: Duration, length: Duration, dice: &mut StdRng) -> Strike {
    let lasting = within(kind.lasting, dice).min(length.saturating_sub(at));
    Strike { at, lasting, kind: kind.name.clone(), seed: dice.random() }
}

fn within(range: Range, dice: &mut StdRng) -> Duration {
    dice.random_range(range.min..=range.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["kill", "pause", "partition", "slow-network", "clock-jump"];

    fn range(min: u64, max: u64) -> Range {
        Range { min: Duration::from_secs(min), max: Duration::from_secs(max) }
    }

    fn plan(minutes: u64, overlap_percent: u32) -> Plan {
        let kind = |name: &&str| Kind { name: (*name).to_owned(), weight: 1, lasting: range(2, 5) };
        Plan {
            name: "test".to_owned(),
            about: "a test".to_owned(),
            members: 3,
            flags: Vec::new(),
            meerkat_flags: Vec::new(),
            length: Duration::from_secs(60 * minutes),
            warm_up: Duration::from_secs(3),
            gap: range(2, 4),
            overlap_percent,
            serve_within: Duration::from_secs(30),
            workloads: vec!["register".to_owned()],
            foreground: NAMES.iter().map(kind).collect(),
            background: vec![Kind { name: "compaction".to_owned(), weight: 1, lasting: range(10, 20) }],
        }
    }

    fn end(strike: &Strike) -> Duration {
        strike.at + strike.lasting
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_gives_another() {
        let plan = plan(5, 30);
        assert_eq!(draw(&plan, 7), draw(&plan, 7));
        assert_ne!(draw(&plan, 7), draw(&plan, 8));
    }

    #[test]
    fn every_kind_has_its_turn_within_the_time() {
        for seed in 0..50 {
            let plan = plan(3, 30);
            let schedule = draw(&plan, seed);
            assert!(schedule.no_time_for.is_empty(), "{:?}", schedule.no_time_for);
            for name in NAMES.iter().chain(&["compaction"]) {
                assert!(schedule.strikes.iter().any(|strike| strike.kind == *name), "{name}, seed {seed}");
            }
            for strike in &schedule.strikes {
                assert!(plan.warm_up / 2 <= strike.at && end(strike) <= plan.length, "{strike:?}");
                assert!(Duration::from_secs(2) <= strike.lasting, "{strike:?}");
            }
        }
    }

    #[test]
    fn without_overlaps_there_is_a_gap_after_every_fault() {
        for seed in 0..50 {
            let schedule = draw(&plan(5, 0), seed);
            let foreground: Vec<&Strike> =
                schedule.strikes.iter().filter(|strike| strike.kind != "compaction").collect();
            for pair in foreground.windows(2) {
                assert!(end(pair[0]) + Duration::from_secs(2) <= pair[1].at, "{pair:?}");
            }
        }
    }

    #[test]
    fn overlaps_are_of_a_process_within_the_networks_and_never_three_at_once() {
        let mut seen = 0;
        for seed in 0..50 {
            let schedule = draw(&plan(5, 100), seed);
            let foreground: Vec<&Strike> =
                schedule.strikes.iter().filter(|strike| strike.kind != "compaction").collect();
            for pair in foreground.windows(2).filter(|pair| pair[1].at < end(pair[0])) {
                assert!(OF_THE_NETWORK.contains(&pair[0].kind.as_str()), "{pair:?}");
                assert!(OF_A_PROCESS.contains(&pair[1].kind.as_str()), "{pair:?}");
                seen += 1;
            }
            for three in foreground.windows(3) {
                assert!(
                    end(three[0]).max(end(three[1])) < three[2].at || end(three[0]) < three[1].at,
                    "{three:?}"
                );
            }
        }
        assert!(100 < seen, "{seen}");
    }

    #[test]
    fn weights_decide_once_every_kind_has_been() {
        let mut plan = plan(600, 0);
        plan.foreground[0].weight = 8;
        let schedule = draw(&plan, 3);
        let count = |name: &str| schedule.strikes.iter().filter(|strike| strike.kind == name).count();
        assert!(4 * count("pause") < count("kill") && 50 < count("pause"), "{}", count("pause"));
    }

    #[test]
    fn a_run_too_short_for_all_says_for_what_there_was_no_time() {
        let mut plan = plan(1, 0);
        plan.length = Duration::from_secs(14);
        let schedule = draw(&plan, 1);
        assert!(!schedule.strikes.is_empty() && !schedule.no_time_for.is_empty(), "{schedule:?}");
        assert!(!schedule.has_time_for_all(plan.length));
    }

    #[test]
    fn a_long_run_has_time_for_all_and_one_that_is_just_long_enough_has_not() {
        let long = plan(10, 0);
        let schedule = draw(&long, 1);
        assert!(schedule.has_time_for_all(long.length), "{schedule:?}");
        assert!(!schedule.has_time_for_all(Duration::from_secs(30)), "{schedule:?}");
    }
}
