//! The faults, one file each.
//!
//! A nemesis strikes once and heals what it struck; it keeps in itself what it needs for that. It
//! draws only from the dice it is given, so that a seed repeats a run. What it did is told in a
//! `Blow`, which the report shows.
//!
//! Two may be at work at once. So each undoes only what it did itself, and takes members as it finds
//! them: one that it meant to start may run already, one that it meant to resume may be gone.

pub mod black_hole;
pub mod catalogue;
pub mod clock_jump;
pub mod clock_skew;
pub mod clocks;
pub mod compaction;
pub mod full_disk;
pub mod grip;
pub mod kill;
pub mod leader_transfer;
pub mod lossy_network;
pub mod membership;
pub mod one_way;
pub mod partition;
pub mod pause;
pub mod power_cut;
pub mod rolling_restart;
pub mod sight;
pub mod slow_disk;
pub mod slow_network;
pub mod snapshot_storm;
pub mod terminate;
pub mod victims;
pub mod wires;

use rand::rngs::StdRng;

use crate::ground::{Done, Ground};
pub use crate::record::trace::Blow;

/// One kind of fault.
pub trait Nemesis: Send {
    /// Does harm.
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow>;

    /// Undoes it: afterwards every enlisted member runs and every link is up, though members may
    /// still be starting. Called exactly once after each strike, after the time that the schedule
    /// gives, even when the strike failed half way.
    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a>;
}
