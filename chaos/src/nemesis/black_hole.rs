//! A black hole: one member's whole traffic with the others goes nowhere, and nothing is closed, as
//! when a cable is pulled. Nobody is told; everybody must find out by time alone.

use futures::FutureExt;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::wires::{self, Wires};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground, Link};

const AIMS: &[(Aim, u32)] = &[(Aim::Leader, 1), (Aim::Follower, 1)];

/// Swallows, and stops swallowing.
#[derive(Debug, Default)]
pub struct BlackHole {
    wires: Wires,
}

impl Nemesis for BlackHole {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            let met = victims::choose(aim, &members, leader, dice);
            for (from, to) in wires::touching(&met, &members) {
                self.wires.set(ground, from, to, Link::Down).await?;
            }
            let what = format!("{} in a black hole", sight::names(ground, &met, leader));
            Ok(Blow::made(what, met))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        self.wires.heal(ground).boxed()
    }
}
