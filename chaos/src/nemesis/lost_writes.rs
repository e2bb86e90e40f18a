//! Lost unsynced writes: a loss of power, after which nothing is there that was not synced.

use futures::FutureExt;
use futures::future::BoxFuture;
use rand::rngs::StdRng;

use super::{Blow, Nemesis, power_cut, sight};
use crate::Failure;
use crate::driver::power_loss::Loss;
use crate::ground::Ground;

/// Cuts the power, and turns it on again.
#[derive(Debug, Default)]
pub struct LostWrites {
    met: Vec<usize>,
}

impl Nemesis for LostWrites {
    fn strike<'a>(
        &'a mut self,
        ground: &'a mut dyn Ground,
        dice: &'a mut StdRng,
    ) -> BoxFuture<'a, Result<Blow, Failure>> {
        power_cut::cut(ground, dice, Loss::All, &mut self.met).boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> BoxFuture<'a, Result<(), Failure>> {
        async move { sight::start(ground, &std::mem::take(&mut self.met)).await }.boxed()
    }
}
