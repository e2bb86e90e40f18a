//! A rolling upgrade: one member after the other is told to end, started again, and waited for until
//! it serves. Clients must notice nothing but a short pause at the leader's turn.

use std::time::Duration;

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Blow, Nemesis, sight};
use crate::Failure;
use crate::ground::{self, Change, Done, Ground};

/// After this the round ends, as an operator's would: it was not made then, and nothing is proved.
const SERVES_WITHIN: Duration = Duration::from_secs(30);

/// Restarts all, one after the other.
#[derive(Debug, Default)]
pub struct RollingRestart {
    round: Vec<usize>,
}

impl Nemesis for RollingRestart {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            self.round = ground::enlisted(ground);
            self.round.shuffle(dice);
            let names = sight::names(ground, &self.round, None);
            for member in &self.round {
                // A round takes long enough for one to end before its turn.
                if !ground.is_running(*member).await? {
                    return Err(sight::ended_by_itself(ground, *member));
                }
                ground.terminate(*member).await?;
                ground.start(*member, Change::default()).await?;
                if !sight::comes_back(ground, *member, SERVES_WITHIN).await? {
                    let name = ground.name(*member);
                    return Err(Failure::harness(format!("{name} does not serve after {SERVES_WITHIN:?}")));
                }
            }
            Ok(Blow::made(format!("{names} restarted in turn"), self.round.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move { sight::start(ground, &std::mem::take(&mut self.round)).await }.boxed()
    }
}
