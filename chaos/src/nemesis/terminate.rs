//! SIGTERM: a member is asked to end, does, and comes back later.

use futures::FutureExt;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground};

const AIMS: &[(Aim, u32)] = &[(Aim::One, 3), (Aim::Leader, 3), (Aim::All, 1)];

/// Ends members in good order, and starts them again.
#[derive(Debug, Default)]
pub struct Terminate {
    down: Vec<usize>,
}

impl Nemesis for Terminate {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            self.down = victims::choose(aim, &members, leader, dice);
            for member in &self.down {
                if ground.is_running(*member).await? {
                    ground.terminate(*member).await?;
                }
            }
            let what = format!("{} told to end", sight::names(ground, &self.down, leader));
            Ok(Blow::made(what, self.down.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move { sight::start(ground, &std::mem::take(&mut self.down)).await }.boxed()
    }
}
