//! The wall clock jumps, by seconds or by years, forwards or back; and back again when healed.
//!
//! Nothing that is promised may rest on the wall clock, so nothing may come of it: leases and
//! elections go by the steady one.

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::clocks::Clocks;
use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::driver::interpose::Knob;
use crate::ground::{Done, Ground};

const AIMS: &[(Aim, u32)] = &[(Aim::One, 2), (Aim::All, 1)];
/// A slip, a wrong hour, a wrong day, a wrong battery.
const SECONDS: &[i64] = &[2, 60, 3_600, 86_400, 10 * 365 * 86_400];

/// By how many seconds.
pub fn draw(dice: &mut StdRng) -> i64 {
    let seconds = *SECONDS.choose(dice).expect("there are jumps");
    if dice.random_bool(0.5) { seconds } else { -seconds }
}

/// Jumps, and jumps back.
#[derive(Debug, Default)]
pub struct ClockJump {
    clocks: Clocks,
}

impl Nemesis for ClockJump {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            let jumps: Vec<(usize, i64)> = met.iter().map(|member| (*member, draw(dice))).collect();
            let nanos: Vec<(usize, i64)> =
                jumps.iter().map(|(member, seconds)| (*member, seconds * 1_000_000_000)).collect();
            self.clocks.set(ground, Knob::WallOffsetNanos, &nanos).await?;
            let told: Vec<String> = jumps
                .iter()
                .map(|(member, seconds)| format!("{} {seconds:+} s", ground.name(*member)))
                .collect();
            Ok(Blow::made(format!("wall clocks jump: {}", told.join(", ")), met))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        self.clocks.heal(ground).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn clocks_jump_both_ways_and_every_distance() {
        let drawn: std::collections::BTreeSet<i64> =
            (0..500).map(|seed| draw(&mut StdRng::seed_from_u64(seed))).collect();
        assert_eq!(drawn.len(), 2 * SECONDS.len());
    }
}
