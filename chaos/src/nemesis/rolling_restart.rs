//! A rolling upgrade: one member after the other is told to end, started again, and waited for until
//! it serves. Clients must notice nothing but a short pause at the leader's turn.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{Blow, Nemesis, sight};
use crate::Failure;
use crate::ground::{self, Change, Ground};

/// Beside another fault it may be longer; then the round ends there, as an operator's would.
const SERVES_WITHIN: Duration = Duration::from_secs(20);

/// Restarts all, one after the other.
#[derive(Debug, Default)]
pub struct RollingRestart {
    round: Vec<usize>,
}

impl Nemesis for RollingRestart {
    fn strike<'a>(
        &'a mut self,
        ground: &'a mut dyn Ground,
        dice: &'a mut StdRng,
    ) -> BoxFuture<'a, Result<Blow, Failure>> {
        async move {
            self.round = ground::enlisted(ground);
            self.round.shuffle(dice);
            let names = sight::names(ground, &self.round, None);
            for (done, member) in self.round.iter().enumerate() {
                if ground.is_running(*member).await? {
                    ground.terminate(*member).await?;
                }
                ground.start(*member, Change::default()).await?;
                if !sight::serves(ground, *member, SERVES_WITHIN).await? {
                    let what = format!("{names} restarted in turn, as far as {}", ground.name(*member));
                    return Ok(Blow { what, members: self.round[..=done].to_vec() });
                }
            }
            Ok(Blow { what: format!("{names} restarted in turn"), members: self.round.clone() })
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> BoxFuture<'a, Result<(), Failure>> {
        async move { sight::start(ground, &std::mem::take(&mut self.round)).await }.boxed()
    }
}
