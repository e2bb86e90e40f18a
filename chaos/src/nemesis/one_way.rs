//! A network that carries one direction only: a member that is not heard, one that does not hear, or
//! a single link with one way gone.
//!
//! A leader that is heard and does not hear keeps its followers quiet while it can commit nothing;
//! it must step down by itself.

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::victims::{self, Aim};
use super::wires::Wires;
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground, Link};

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// What it sends.
    Mute,
    /// What it is sent.
    Deaf,
    /// What it sends one other.
    OneEar,
}

const LOSSES: &[Loss] = &[Loss::Mute, Loss::Deaf, Loss::OneEar];
const AIMS: &[(Aim, u32)] = &[(Aim::Leader, 2), (Aim::One, 1)];

/// The directions that go down.
pub fn directions(loss: Loss, member: usize, members: &[usize], dice: &mut StdRng) -> Vec<(usize, usize)> {
    let others: Vec<usize> = members.iter().copied().filter(|other| *other != member).collect();
    match loss {
        Loss::Mute => others.into_iter().map(|other| (member, other)).collect(),
        Loss::Deaf => others.into_iter().map(|other| (other, member)).collect(),
        Loss::OneEar => others.choose(dice).map(|other| (member, *other)).into_iter().collect(),
    }
}

/// Cuts one way, and mends.
#[derive(Debug, Default)]
pub struct OneWay {
    wires: Wires,
}

impl Nemesis for OneWay {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let loss = *LOSSES.choose(dice).expect("there are losses");
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            for member in &met {
                for (from, to) in directions(loss, *member, &members, dice) {
                    self.wires.set(ground, from, to, Link::Down).await?;
                }
            }
            let loss = match loss {
                Loss::Mute => "is not heard",
                Loss::Deaf => "does not hear",
                Loss::OneEar => "is not heard by one other",
            };
            Ok(Blow::made(format!("{} {loss}", sight::names(ground, &met, leader)), met))
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
    fn only_one_way_goes_down() {
        let dice = &mut StdRng::seed_from_u64(1);
        assert_eq!(directions(Loss::Mute, 1, &[0, 1, 2], dice), [(1, 0), (1, 2)]);
        assert_eq!(directions(Loss::Deaf, 1, &[0, 1, 2], dice), [(0, 1), (2, 1)]);
        let one = directions(Loss::OneEar, 1, &[0, 1, 2], dice);
        assert!(one == [(1, 0)] || one == [(1, 2)], "{one:?}");
        assert!(directions(Loss::OneEar, 1, &[1], dice).is_empty());
    }
}
