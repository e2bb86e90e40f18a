//! Steady clocks that run fast or slow, each member's at a rate of its own.
//!
//! Far more than an oscillator does, up to one in twenty: within the seconds that a fault lasts, less
//! would be less than what requests take. A lease granted by one clock and watched by another can be
//! kept no more exactly than the two agree, so leases that meet such a clock are not judged. All else
//! that is promised rests on no clock's rate.

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::clocks::Clocks;
use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::driver::interpose::Knob;
use crate::ground::{Done, Ground};

const AIMS: &[(Aim, u32)] = &[(Aim::One, 1), (Aim::All, 1)];
const PER_MILLION: std::ops::RangeInclusive<i64> = 100..=50_000;

/// How much too fast, in millionths; below zero for too slow.
pub fn draw(dice: &mut StdRng) -> i64 {
    let rate = dice.random_range(PER_MILLION);
    if dice.random_bool(0.5) { rate } else { -rate }
}

/// Skews, and runs right again from where the clock then is.
#[derive(Debug, Default)]
pub struct ClockSkew {
    clocks: Clocks,
}

impl Nemesis for ClockSkew {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            let rates: Vec<(usize, i64)> = met.iter().map(|member| (*member, draw(dice))).collect();
            self.clocks.set(ground, Knob::RatePerMillion, &rates).await?;
            let told: Vec<String> =
                rates.iter().map(|(member, rate)| format!("{} {rate:+} ppm", ground.name(*member))).collect();
            Ok(Blow::made(format!("steady clocks run wrong: {}", told.join(", ")), met))
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
    fn clocks_run_fast_and_slow_within_reason() {
        let drawn: Vec<i64> = (0..200).map(|seed| draw(&mut StdRng::seed_from_u64(seed))).collect();
        assert!(drawn.iter().all(|rate| PER_MILLION.contains(&rate.abs())));
        assert!(drawn.iter().any(|rate| *rate < 0) && drawn.iter().any(|rate| 0 < *rate));
    }
}
