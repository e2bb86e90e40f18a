//! Which fault comes when: pure, and the same for the same seed.
//!
//! Kinds are dealt like cards, so that every kind comes about equally often however short the run.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// What is done to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kill -9`, and started again when the fault is over.
    Kill,
    /// SIGTERM, and started again when the fault is over.
    Term,
    /// SIGTERM, and started again at once.
    Restart,
    /// SIGSTOP, then SIGCONT.
    Freeze,
    /// Nothing goes through between the clients and the member; nothing is closed.
    ClientHole,
    /// The clients' connections to the member are broken, and new ones too.
    ClientCut,
    /// Nothing goes through between the member and the other members; clients still reach it.
    PeerHole,
    /// Everything between the clients and the member arrives late.
    Slow,
    /// This member and another are killed: nobody can write until they are back.
    MajorityLoss,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Kill,
        Kind::Term,
        Kind::Restart,
        Kind::Freeze,
        Kind::ClientHole,
        Kind::ClientCut,
        Kind::PeerHole,
        Kind::Slow,
        Kind::MajorityLoss,
    ];

    /// Those that close nothing, so that only silence tells of them.
    pub const SILENT: [Kind; 3] = [Kind::Freeze, Kind::ClientHole, Kind::PeerHole];

    /// How soon a watch that hung on the member must go on, not counting the time in which nobody
    /// could write: a dead member shows at once, a silent one only by its silence.
    pub fn resumes_within(self) -> Duration {
        match self {
            Kind::Kill | Kind::Term | Kind::Restart | Kind::ClientCut => Duration::from_secs(2),
            Kind::Freeze | Kind::ClientHole | Kind::PeerHole | Kind::Slow | Kind::MajorityLoss => {
                Duration::from_secs(5)
            }
        }
    }

    /// How long it lasts, in milliseconds. Silent ones from too short to notice to noticed for sure.
    fn lasts_ms(self) -> Range<u64> {
        match self {
            Kind::Kill | Kind::Term | Kind::ClientCut => 0..1_200,
            Kind::Restart => 0..1,
            Kind::Freeze | Kind::ClientHole | Kind::PeerHole => 300..5_500,
            Kind::Slow => 200..1_000,
            Kind::MajorityLoss => 200..1_500,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Kill => "kill -9",
            Kind::Term => "SIGTERM",
            Kind::Restart => "restart",
            Kind::Freeze => "SIGSTOP",
            Kind::ClientHole => "black hole to clients",
            Kind::ClientCut => "connections broken",
            Kind::PeerHole => "cut off from majority",
            Kind::Slow => "slow network",
            Kind::MajorityLoss => "majority lost",
        })
    }
}

/// Which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The one that leads.
    Leader,
    /// The one that most watches hang on.
    Watched,
    /// Any; this number taken modulo their count.
    Any(usize),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// To whom.
    pub aim: Aim,
    /// For how long.
    pub lasts: Duration,
    /// Calm before it.
    pub rest: Duration,
}

/// The faults of a run.
pub fn schedule(seed: u64, count: usize, kinds: &[Kind]) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut deck: Vec<Kind> = Vec::new();
    let mut faults = Vec::with_capacity(count);
    while faults.len() < count && !kinds.is_empty() {
        if deck.is_empty() {
            deck.extend(kinds);
            deck.shuffle(&mut random);
        }
        let Some(kind) = deck.pop() else { break };
        let aim = match random.random_range(0..10) {
            0..4 => Aim::Watched,
            4..7 => Aim::Leader,
            _ => Aim::Any(random.random_range(0..1_000)),
        };
        let lasts = Duration::from_millis(random.random_range(kind.lasts_ms()));
        let rest = Duration::from_millis(random.random_range(100..400));
        faults.push(Fault { kind, aim, lasts, rest });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_gives_others() {
        assert_eq!(schedule(7, 60, &Kind::ALL), schedule(7, 60, &Kind::ALL));
        assert_ne!(schedule(7, 60, &Kind::ALL), schedule(8, 60, &Kind::ALL));
        assert_eq!(schedule(7, 60, &Kind::ALL)[..30], schedule(7, 30, &Kind::ALL)[..]);
    }

    #[test]
    fn every_kind_comes_about_equally_often() {
        for seed in 0..20 {
            let faults = schedule(seed, 50, &Kind::ALL);
            for kind in Kind::ALL {
                let count = faults.iter().filter(|fault| fault.kind == kind).count();
                assert!((5..=6).contains(&count), "{kind}: {count}");
            }
        }
    }

    #[test]
    fn leaders_and_watched_members_are_aimed_at() {
        let faults = schedule(1, 200, &Kind::ALL);
        let leaders = faults.iter().filter(|fault| fault.aim == Aim::Leader).count();
        let watched = faults.iter().filter(|fault| fault.aim == Aim::Watched).count();
        assert!(30 < leaders && 40 < watched, "{leaders} {watched}");
        assert_eq!(schedule(1, 5, &[]), Vec::new());
    }
}
