//! A slow disk: every sync and write of one member takes longer, the leader's as soon as any.
//!
//! A slow follower must not slow the others; a slow leader must slow everybody and lose nothing.

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::grip::Grip;
use super::victims::{self, Aim};
use super::{Blow, Nemesis, leader_transfer, sight};
use crate::driver::interpose::Knob;
use crate::ground::{Done, Ground};

const SYNC_MS: std::ops::RangeInclusive<i64> = 5..=300;
const WRITE_MICROS: std::ops::RangeInclusive<i64> = 0..=2_000;

/// How slow: milliseconds of a sync, microseconds of a write.
pub fn draw(dice: &mut StdRng) -> (i64, i64) {
    // Halved a few times, so that a disk is bad more often than it is hopeless.
    let sync = dice.random_range(SYNC_MS) >> dice.random_range(0..4);
    (sync.max(*SYNC_MS.start()), dice.random_range(WRITE_MICROS))
}

/// Slows, and stops slowing.
#[derive(Debug, Default)]
pub struct SlowDisk {
    met: Vec<usize>,
    grip: Option<Grip>,
}

impl Nemesis for SlowDisk {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let (sync_ms, write_micros) = draw(dice);
            let leads = dice.random_bool(0.5);
            let (members, leader) = sight::members(ground).await;
            self.met = victims::choose(Aim::One, &members, leader, dice);
            for member in self.met.clone() {
                let grip = self.grip.insert(Grip::take(ground, member, &[]).await?);
                if leads {
                    // Where nobody can hand over, a slow follower is a fault too.
                    leader_transfer::hand_over(ground, member).await;
                }
                grip.control.set(Knob::SyncDelayMicros, sync_ms * 1_000)?;
                grip.control.set(Knob::WriteDelayMicros, write_micros)?;
            }
            let leader = sight::leader(ground).await;
            let names = sight::names(ground, &self.met, leader);
            let what = format!("{names} syncs {sync_ms} ms late, writes {write_micros} µs");
            Ok(Blow::made(what, self.met.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move {
            if let Some(grip) = self.grip.take() {
                grip.control.release()?;
            }
            sight::start(ground, &std::mem::take(&mut self.met)).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_disk_is_slow_within_bounds() {
        let drawn: Vec<(i64, i64)> = (0..300).map(|seed| draw(&mut StdRng::seed_from_u64(seed))).collect();
        assert!(drawn.iter().all(|(sync, write)| SYNC_MS.contains(sync) && WRITE_MICROS.contains(write)));
        assert!(drawn.iter().any(|(sync, _)| *sync < 20) && drawn.iter().any(|(sync, _)| 200 < *sync));
    }
}
