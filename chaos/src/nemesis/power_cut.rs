//! The power goes: members are killed, and what they had written and not synced goes with it: all of it
//! (`lost-writes`), or some sectors in no order (`torn-write`): a log must find its end by itself.
//!
//! They run under load for a moment first, so that there is something to lose. When all lose power
//! at once, nothing is left but what each has synced: all that was acknowledged must be in that.

use std::time::Duration;

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::grip::Grip;
use super::victims::{self, Aim};
use super::{Blow, Nemesis, sight};
use crate::Failure;
use crate::driver::interpose::Knob;
use crate::driver::power_loss::{self, Loss, Lost};
use crate::ground::{Done, Ground};

const AIMS: &[(Aim, u32)] = &[(Aim::One, 1), (Aim::All, 1)];
const UNDER_LOAD_MS: std::ops::RangeInclusive<u64> = 300..=2_500;

/// Cuts the power, and turns it on again.
#[derive(Debug)]
pub struct PowerCut {
    loss: Loss,
    met: Vec<usize>,
}

impl PowerCut {
    /// One that loses so much.
    pub fn losing(loss: Loss) -> Self {
        Self { loss, met: Vec::new() }
    }
}

impl Nemesis for PowerCut {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        cut(ground, dice, self.loss, &mut self.met).boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move { sight::start(ground, &std::mem::take(&mut self.met)).await }.boxed()
    }
}

/// Cuts the power of some; adds whom it met to `met` before it touches anybody.
async fn cut(
    ground: &mut dyn Ground,
    dice: &mut StdRng,
    loss: Loss,
    met: &mut Vec<usize>,
) -> Result<Blow, Failure> {
    let aim = victims::aim(AIMS, dice);
    let moment = Duration::from_millis(dice.random_range(UNDER_LOAD_MS));
    let (members, leader) = sight::members(ground).await;
    *met = victims::choose(aim, &members, leader, dice);
    let mut grips = Vec::new();
    for member in met.iter() {
        grips.push(Grip::take(ground, *member, &[(Knob::Journal, 1)]).await?);
    }
    tokio::time::sleep(moment).await;
    let mut held = Vec::new();
    for grip in &grips {
        held.push(grip.holds(ground)?);
        ground.kill(grip.member).await?;
    }
    let mut lost = Lost::default();
    for (grip, held) in grips.iter().zip(held) {
        // Another life has written since: its bytes are not in this journal.
        if held && let Some(dir) = ground.data_dir(grip.member) {
            let own = power_loss::undo(&grip.control.journal(), &dir, loss, dice)?;
            lost.files += own.files;
            lost.bytes += own.bytes;
        }
    }
    let what = format!(
        "{} lost power, and {} bytes in {} files that were not synced{}",
        sight::names(ground, met, leader),
        lost.bytes,
        lost.files,
        if loss == Loss::Torn { ", in part" } else { "" }
    );
    Ok(Blow::made(what, met.clone()))
}
