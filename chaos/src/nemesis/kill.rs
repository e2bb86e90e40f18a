//! `kill -9`: of any member, of the leader, of so many that the rest stop, of all at once.

use futures::FutureExt;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground};

/// Leaders are what hurts; everybody at once leaves only what was synced.
const AIMS: &[(Aim, u32)] = &[(Aim::One, 4), (Aim::Leader, 4), (Aim::Majority, 2), (Aim::All, 1)];

/// Kills, and starts again.
#[derive(Debug, Default)]
pub struct Kill {
    down: Vec<usize>,
}

impl Nemesis for Kill {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            self.down = victims::choose(aim, &members, leader, dice);
            for member in &self.down {
                ground.kill(*member).await?;
            }
            let what = format!("{} killed", sight::names(ground, &self.down, leader));
            Ok(Blow::made(what, self.down.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move { sight::start(ground, &std::mem::take(&mut self.down)).await }.boxed()
    }
}
