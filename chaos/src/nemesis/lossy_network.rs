//! A lossy network: some of what is sent is lost, which over TCP is a stall or a broken connection.

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::wires::{self, Wires};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground, Link};

const AIMS: &[(Aim, u32)] = &[(Aim::Leader, 2), (Aim::Follower, 1), (Aim::All, 2)];
/// From a bad cable to a link that is worse than none.
const PER_THOUSAND: std::ops::RangeInclusive<u32> = 5..=200;

/// How many in a thousand pieces are lost; small numbers are as likely as large ones.
pub fn draw(dice: &mut StdRng) -> u32 {
    let (least, most) = (f64::from(*PER_THOUSAND.start()).ln(), f64::from(*PER_THOUSAND.end()).ln());
    (dice.random_range(least..=most).exp().round() as u32).clamp(*PER_THOUSAND.start(), *PER_THOUSAND.end())
}

/// Loses, and stops losing.
#[derive(Debug, Default)]
pub struct LossyNetwork {
    wires: Wires,
}

impl Nemesis for LossyNetwork {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let lost = draw(dice);
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            for (from, to) in wires::touching(&met, &members) {
                self.wires.set(ground, from, to, Link::Lossy(lost)).await?;
            }
            let what = format!("links of {} lose {lost} ‰", sight::names(ground, &met, leader));
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
    fn a_loss_is_within_its_bounds_and_both_ends_occur() {
        let drawn: Vec<u32> = (0..500).map(|seed| draw(&mut StdRng::seed_from_u64(seed))).collect();
        assert!(drawn.iter().all(|lost| PER_THOUSAND.contains(lost)));
        assert!(drawn.iter().any(|lost| *lost < 10) && drawn.iter().any(|lost| 100 < *lost));
    }
}
