//! A slow network: what goes over the links of one member, or of all, arrives late and unevenly so.
//!
//! Late enough that heartbeats are missed now and then, not so late that nothing could ever be
//! elected: the worst is a fifth of a second and as much again.

use std::time::Duration;

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::wires::{self, Wires};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground, Link};

const AIMS: &[(Aim, u32)] = &[(Aim::Leader, 2), (Aim::Follower, 1), (Aim::All, 2)];
const DELAY_MS: std::ops::RangeInclusive<u64> = 10..=200;

/// How late, and how unevenly.
pub fn draw(dice: &mut StdRng) -> (Duration, Duration) {
    let delay = dice.random_range(DELAY_MS);
    (Duration::from_millis(delay), Duration::from_millis(dice.random_range(0..=delay)))
}

/// Delays, and stops delaying.
#[derive(Debug, Default)]
pub struct SlowNetwork {
    wires: Wires,
}

impl Nemesis for SlowNetwork {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (delay, jitter) = draw(dice);
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            for (from, to) in wires::touching(&met, &members) {
                self.wires.set(ground, from, to, Link::Slow(delay, jitter)).await?;
            }
            let what = format!("links of {} {delay:?} ± {jitter:?} late", sight::names(ground, &met, leader));
            Ok(Blow::made(what, met))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        self.wires.heal(ground).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_delay_is_never_below_its_own_unevenness() {
        for seed in 0..200 {
            let (delay, jitter) = draw(&mut StdRng::seed_from_u64(seed));
            assert!(
                jitter <= delay && DELAY_MS.contains(&(delay.as_millis() as u64)),
                "{delay:?} {jitter:?}"
            );
        }
    }
}
