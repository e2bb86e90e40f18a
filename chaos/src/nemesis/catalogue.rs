//! Every kind of fault by its name in the scenario files, and what each needs of the ground.
//!
//! A ground that lacks what a kind needs leaves it out and says so; see `suits`.

use super::power_cut::PowerCut;
use super::{
    Nemesis, black_hole, clock_jump, clock_skew, compaction, full_disk, kill, leader_transfer, lossy_network,
    membership, one_way, partition, pause, rolling_restart, slow_disk, slow_network, snapshot_storm,
    terminate,
};
use crate::driver::power_loss::Loss;
use crate::driver::{Product, interpose};
use crate::ground::{Ability, Ground};

/// What a kind of fault touches. Two of one family must not be at work at once: one could not undo
/// its own part without undoing the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Processes: ended, paused, started differently, started on other disks.
    Process,
    /// Links between members.
    Network,
    /// Requests beside the load, for as long as wanted.
    Background,
}

/// One kind of fault.
struct Kind {
    name: &'static str,
    family: Family,
    needs: &'static [Ability],
    /// Whether it works through the interposed library: etcd, being in Go, does not call through it.
    interposed: bool,
    make: fn() -> Box<dyn Nemesis>,
}

fn made<N: Nemesis + Default + 'static>() -> Box<dyn Nemesis> {
    Box::new(N::default())
}

const fn kind(
    name: &'static str,
    family: Family,
    needs: &'static [Ability],
    make: fn() -> Box<dyn Nemesis>,
) -> Kind {
    Kind { name, family, needs, interposed: false, make }
}

/// A fault of the hardware of one process.
const fn hardware(name: &'static str, make: fn() -> Box<dyn Nemesis>) -> Kind {
    Kind { name, family: Family::Process, needs: &[Ability::Changed], interposed: true, make }
}

const KINDS: &[Kind] = &[
    kind("kill", Family::Process, &[], made::<kill::Kill>),
    kind("terminate", Family::Process, &[Ability::Terminate], made::<terminate::Terminate>),
    kind("pause", Family::Process, &[Ability::Pause], made::<pause::Pause>),
    kind("rolling-restart", Family::Process, &[Ability::Terminate], made::<rolling_restart::RollingRestart>),
    kind("snapshot-storm", Family::Process, &[], made::<snapshot_storm::SnapshotStorm>),
    kind("membership", Family::Process, &[Ability::Membership], made::<membership::Membership>),
    kind("leader-transfer", Family::Process, &[], made::<leader_transfer::LeaderTransfer>),
    kind("full-disk", Family::Process, &[Ability::SmallDisk], made::<full_disk::FullDisk>),
    hardware("slow-disk", made::<slow_disk::SlowDisk>),
    hardware("torn-write", || Box::new(PowerCut::losing(Loss::Torn))),
    hardware("lost-writes", || Box::new(PowerCut::losing(Loss::All))),
    hardware("clock-jump", made::<clock_jump::ClockJump>),
    hardware("clock-skew", made::<clock_skew::ClockSkew>),
    kind("partition", Family::Network, &[Ability::Cut], made::<partition::Partition>),
    kind("one-way", Family::Network, &[Ability::OneWay], made::<one_way::OneWay>),
    kind("black-hole", Family::Network, &[Ability::Cut], made::<black_hole::BlackHole>),
    kind("slow-network", Family::Network, &[Ability::Slow], made::<slow_network::SlowNetwork>),
    kind("lossy-network", Family::Network, &[Ability::Lossy], made::<lossy_network::LossyNetwork>),
    kind("compaction", Family::Background, &[], made::<compaction::Compaction>),
];

/// Kinds whose members may be down from strike to heal. All others leave whom they met running, so a
/// member that is not there has ended by itself.
const LEAVE_DOWN: &[&str] = &["kill", "terminate", "lost-writes", "torn-write", "full-disk", "membership"];

fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// The names of all kinds.
pub fn all() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// A nemesis of this kind, if there is such a kind.
pub fn by_name(name: &str) -> Option<Box<dyn Nemesis>> {
    find(name).map(|kind| (kind.make)())
}

/// What this kind needs of the ground. Empty for a name that is not known.
pub fn needs(name: &str) -> &'static [Ability] {
    find(name).map_or(&[], |kind| kind.needs)
}

/// What this kind touches.
pub fn family(name: &str) -> Option<Family> {
    find(name).map(|kind| kind.family)
}

/// Whether whom it met may be down until it is healed.
pub fn leaves_down(name: &str) -> bool {
    LEAVE_DOWN.contains(&name)
}

/// Whether this kind can be had on this ground; if not, why.
pub fn suits(name: &str, ground: &dyn Ground) -> Result<(), String> {
    let kind = find(name).ok_or_else(|| format!("there is no {name:?}; there are: {}", all().join(", ")))?;
    judge(kind, ground.product(), |ability| ground.can(ability))?;
    if kind.interposed { interpose::available() } else { Ok(()) }
}

fn judge(kind: &Kind, product: Product, can: impl Fn(Ability) -> bool) -> Result<(), String> {
    if kind.interposed && product == Product::Etcd {
        return Err(format!(
            "{} works between a program and its C library, which etcd does not use",
            kind.name
        ));
    }
    match kind.needs.iter().find(|ability| !can(**ability)) {
        Some(lacking) => Err(format!("{} needs a ground with the ability {lacking:?}", kind.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_nemesis_once() {
        let names = all();
        for name in &names {
            assert!(by_name(name).is_some() && family(name).is_some(), "{name}");
            assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name}");
        }
        assert!(by_name("nonsense").is_none() && needs("nonsense").is_empty());
    }

    #[test]
    fn only_kinds_of_a_process_leave_members_down() {
        for name in LEAVE_DOWN {
            assert_eq!(family(name), Some(Family::Process), "{name}");
        }
        let up = ["pause", "rolling-restart", "snapshot-storm", "leader-transfer", "slow-disk", "clock-jump"];
        assert!(up.iter().all(|name| find(name).is_some() && !leaves_down(name)));
    }

    #[test]
    fn a_kind_is_left_out_where_its_needs_are_not_met() {
        let partition = find("partition").expect("it is there");
        assert!(judge(partition, Product::Etcd, |_| true).is_ok());
        let why = judge(partition, Product::Meerkat, |ability| ability != Ability::Cut).expect_err("no cuts");
        assert!(why.contains("partition") && why.contains("Cut"), "{why}");
        assert!(judge(find("torn-write").expect("it is there"), Product::Etcd, |_| true).is_err());
        assert!(judge(find("kill").expect("it is there"), Product::Meerkat, |_| false).is_ok());
    }
}
