//! SIGSTOP: a member that is there, holds its connections, and does nothing; then goes on as if no
//! time had passed. A leader that wakes must not answer from what it believed before.

use futures::FutureExt;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground};

const AIMS: &[(Aim, u32)] = &[(Aim::Leader, 4), (Aim::One, 2), (Aim::Majority, 1)];

/// Pauses, and resumes.
#[derive(Debug, Default)]
pub struct Pause {
    asleep: Vec<usize>,
}

impl Nemesis for Pause {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let aim = victims::aim(AIMS, dice);
            let (members, leader) = sight::members(ground).await;
            for member in victims::choose(aim, &members, leader, dice) {
                if ground.is_running(member).await? {
                    self.asleep.push(member);
                    ground.pause(member).await?;
                }
            }
            let what = format!("{} paused", sight::names(ground, &self.asleep, leader));
            Ok(Blow::made(what, self.asleep.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move {
            for member in std::mem::take(&mut self.asleep) {
                if ground.is_running(member).await? {
                    ground.resume(member).await?;
                }
            }
            Ok(())
        }
        .boxed()
    }
}
