//! A full disk: one member's data moves to a small file system, which is then filled to the last byte.
//!
//! The member may stop, loudly, or refuse to write; it must not acknowledge what it could not keep.
//! When there is room again it is started, whatever it did.

use futures::FutureExt;
use rand::Rng;
use rand::rngs::StdRng;

use super::victims::{self, Aim};
use super::{Blow, Nemesis, leader_transfer, sight};
use crate::Failure;
use crate::driver::small_disk::{self, SmallDisk};
use crate::driver::usage::mib;
use crate::ground::{Done, Ground};

/// Room to start in before it is filled, mebibytes.
const SPARE_MIB: std::ops::RangeInclusive<u64> = 80..=112;
/// The small disk is memory: what is larger stays where it is.
const DATA_BYTES_MAX: u64 = 1 << 30;
const SERVES_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);

/// Fills, frees, and moves back.
#[derive(Debug, Default)]
pub struct FullDisk {
    met: Vec<usize>,
    disk: Option<SmallDisk>,
}

impl Nemesis for FullDisk {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let spare = dice.random_range(SPARE_MIB) << 20;
            let leads = dice.random_bool(0.5);
            let (members, leader) = sight::members(ground).await;
            self.met = victims::choose(Aim::One, &members, leader, dice);
            let mut filled = 0;
            for member in self.met.clone() {
                let dir = ground
                    .data_dir(member)
                    .ok_or_else(|| Failure::harness("a data directory that cannot be reached from here"))?;
                ground.kill(member).await?;
                let bytes = small_disk::bytes_in(&dir)?;
                if DATA_BYTES_MAX < bytes {
                    let what = format!(
                        "{} killed only: its {} are too much to move",
                        ground.name(member),
                        mib(bytes)
                    );
                    return Ok(Blow::made(what, self.met.clone()));
                }
                let disk = self.disk.insert(SmallDisk::under(&dir, spare)?);
                sight::start(ground, &[member]).await?;
                sight::serves(ground, member, SERVES_WITHIN).await?;
                if leads {
                    leader_transfer::hand_over(ground, member).await;
                }
                filled = disk.fill()?;
            }
            let leader = sight::leader(ground).await;
            let names = sight::names(ground, &self.met, leader);
            let what = format!("the disk of {names} full, the last {} of it ballast", mib(filled));
            Ok(Blow::made(what, self.met.clone()))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move {
            let met = std::mem::take(&mut self.met);
            if let Some(disk) = self.disk.take() {
                for member in &met {
                    ground.kill(*member).await?;
                }
                disk.retire()?;
            }
            sight::start(ground, &met).await
        }
        .boxed()
    }
}
