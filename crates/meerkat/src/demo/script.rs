//! Which faults happen, in which order, and whom each one strikes.
//!
//! A schedule comes from a seed alone, and a target from the schedule and the scene at that moment,
//! so a run can be told again. Every kind comes once before any comes twice.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

pub const MEMBERS: usize = 3;
pub const WATCHERS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// kill -9 of the member that a watcher hangs on.
    KillWatched,
    /// kill -9 of the leader.
    KillLeader,
    /// SIGSTOP, later SIGCONT, of the member that a watcher hangs on.
    Pause,
    /// Its clients' connections carry nothing any more, and are not closed either.
    Cut,
    /// kill -9 of two of the three: nothing can be written until one returns.
    Majority,
    /// SIGTERM and a new start.
    Restart,
}

/// The order in which a first round strikes.
pub const KINDS: [Kind; 6] =
    [Kind::KillWatched, Kind::KillLeader, Kind::Pause, Kind::Cut, Kind::Majority, Kind::Restart];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::KillWatched => "kill-watched",
            Kind::KillLeader => "kill-leader",
            Kind::Pause => "pause",
            Kind::Cut => "cut",
            Kind::Majority => "majority",
            Kind::Restart => "restart",
        }
    }

    /// For people, with room for the name of the member behind it.
    pub fn title(self) -> &'static str {
        match self {
            Kind::KillWatched => "kill -9 of a watcher's member",
            Kind::KillLeader => "kill -9 of the leader",
            Kind::Pause => "SIGSTOP, then SIGCONT",
            Kind::Cut => "network cut, nothing closed",
            Kind::Majority => "majority lost, then back",
            Kind::Restart => "SIGTERM and new start",
        }
    }

    /// Without a majority there is nothing to resume to, so that time counts from its return.
    pub fn counts_from_return(self) -> bool {
        self == Kind::Majority
    }

    /// How long it lasts at the least, once it has struck.
    pub fn hold(self) -> Duration {
        match self {
            Kind::Majority => Duration::from_secs(3),
            Kind::Restart => Duration::ZERO,
            Kind::KillWatched | Kind::KillLeader | Kind::Pause | Kind::Cut => Duration::from_secs(1),
        }
    }

    fn parse(text: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name() == text)
    }
}

/// One fault that is to happen: what, and the watcher it has in view where it has one in view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub watcher: usize,
}

/// What was asked for: so many, or just these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Count(usize),
    Kinds(Vec<Kind>),
}

/// More faults than this are a test and not a demo; the chaos suites do those.
pub const FAULTS_MAX: usize = 1_000;

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        if let Ok(count) = text.parse::<usize>() {
            return match count {
                1..=FAULTS_MAX => Ok(Choice::Count(count)),
                _ => Err(format!("a number from 1 to {FAULTS_MAX}")),
            };
        }
        let kinds: Option<Vec<Kind>> = text.split(',').map(|name| Kind::parse(name.trim())).collect();
        let names = || KINDS.map(Kind::name).join(", ");
        kinds.map(Choice::Kinds).ok_or_else(|| format!("a number, or names out of: {}", names()))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Count(count) => count.fmt(f),
            Choice::Kinds(kinds) => {
                f.write_str(&kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The faults of a run. The first round is in a set order; later rounds are shuffled.
pub fn schedule(choice: &Choice, seed: u64) -> Vec<Fault> {
    let mut chance = StdRng::seed_from_u64(seed);
    let kinds = match choice {
        Choice::Kinds(kinds) => kinds.clone(),
        Choice::Count(count) => rounds(*count, &mut chance),
    };
    kinds.into_iter().map(|kind| Fault { kind, watcher: chance.random_range(0..WATCHERS) }).collect()
}

fn rounds(count: usize, chance: &mut StdRng) -> Vec<Kind> {
    let mut kinds = KINDS.to_vec();
    while kinds.len() < count {
        let mut round = KINDS;
        round.shuffle(chance);
        kinds.extend(round);
    }
    kinds.truncate(count);
    kinds
}

/// What aiming needs to know of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    pub leader: Option<usize>,
    /// The member each watcher hangs on.
    pub hangs_on: [Option<usize>; WATCHERS],
}

/// The members a fault strikes: one, or two of three for a majority. Nothing while the scene does
/// not say enough.
pub fn aim(fault: Fault, sight: &Sight) -> Option<Vec<usize>> {
    let watched = sight.hangs_on[fault.watcher];
    match fault.kind {
        Kind::KillLeader => Some(vec![sight.leader?]),
        Kind::KillWatched | Kind::Pause | Kind::Cut | Kind::Restart => Some(vec![watched?]),
        Kind::Majority => {
            let leader = sight.leader?;
            // The watched member dies too, so that the watcher has to hold on to a lone one.
            let other = watched.filter(|member| *member != leader).unwrap_or((leader + 1) % MEMBERS);
            Some(vec![leader, other])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_schedule() {
        let many = Choice::Count(40);
        assert_eq!(schedule(&many, 7), schedule(&many, 7));
        assert_ne!(schedule(&many, 7), schedule(&many, 8));
    }

    #[test]
    fn every_kind_comes_once_before_any_comes_twice() {
        let faults = schedule(&Choice::Count(18), 3);
        assert_eq!(faults[..6].iter().map(|fault| fault.kind).collect::<Vec<_>>(), KINDS);
        for round in faults.chunks(6) {
            for kind in KINDS {
                assert_eq!(round.iter().filter(|fault| fault.kind == kind).count(), 1, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_choice_is_a_number_or_names() {
        assert_eq!("12".parse(), Ok(Choice::Count(12)));
        assert_eq!("cut, pause".parse(), Ok(Choice::Kinds(vec![Kind::Cut, Kind::Pause])));
        for text in ["0", "1001", "-1", "", "cut,flood"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
        assert_eq!(Choice::Kinds(vec![Kind::Cut, Kind::Pause]).to_string(), "cut,pause");
    }

    fn check(kind: Kind, watcher: usize, sight: Sight, struck: Option<&[usize]>) {
        assert_eq!(aim(Fault { kind, watcher }, &sight).as_deref(), struck, "{kind:?} {sight:?}");
    }

    #[test]
    fn a_fault_strikes_the_leader_or_the_member_of_its_watcher() {
        let sight = Sight { leader: Some(2), hangs_on: [Some(0), Some(1), None] };
        check(Kind::KillLeader, 0, sight, Some(&[2]));
        check(Kind::KillWatched, 1, sight, Some(&[1]));
        check(Kind::Pause, 0, sight, Some(&[0]));
        check(Kind::Cut, 2, sight, None);
        check(Kind::KillLeader, 0, Sight { leader: None, ..sight }, None);
    }

    #[test]
    fn a_majority_is_the_leader_and_one_other() {
        let sight = Sight { leader: Some(2), hangs_on: [Some(0), Some(2), None] };
        check(Kind::Majority, 0, sight, Some(&[2, 0]));
        check(Kind::Majority, 1, sight, Some(&[2, 0]));
        check(Kind::Majority, 2, Sight { leader: Some(0), ..sight }, Some(&[0, 1]));
    }
}
