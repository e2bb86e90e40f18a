//! Disks that go bad under one member or all, under load: full, failing, torn, forgetful, damaged.
//!
//! What must hold is always the same: a member that cannot keep its promise stops and says why, or
//! refuses; the others go on; after repair it is back; and nothing acknowledged is missing anywhere.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::account::Account;
use super::snapshot::short_log_flags;
use super::stage::{READY_WITHIN, Stage};
use crate::Failure;
use crate::driver::growth::Role;
use crate::driver::interpose::{Control, Knob};
use crate::driver::power_loss::{self, Loss, Lost};
use crate::driver::small_disk::{self, SmallDisk};
use crate::driver::{ClusterSpec, Product};
use crate::report::Story;
use crate::workload::unique::Shape;

const MEMBERS: usize = 3;
const VICTIM: usize = 1;
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
const SPARE_BYTES: u64 = 16 << 20;

/// Short logs and frequent flushes: every kind of file is written all the time.
async fn set(seed: u64) -> Result<Stage, Failure> {
    set_with(&short_log_flags(), seed).await
}

async fn set_with(flags: &[String], seed: u64) -> Result<Stage, Failure> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let spec = ClusterSpec::new(Product::Meerkat, MEMBERS).with_quick_elections().with_flags(&flags);
    let shape = Shape { rest: Duration::ZERO, padding: 512, ..Shape::default() };
    let replay = format!("MEERKAT_SEED={seed} scripts/test disks");
    Stage::set(&spec, shape, Account::open("disks", Product::Meerkat, seed, replay)).await
}

impl Stage {
    fn data_dir(&self, member: usize) -> PathBuf {
        self.cluster.members()[member].data_dir().to_owned()
    }

    /// Restarts a member on hardware that can be made to fail.
    fn restart_gripped(&mut self, member: usize, faults: &[(Knob, i64)]) -> Result<Control, Failure> {
        self.cluster.member(member).kill()?;
        let control = Control::new(&self.data_dir(member))?;
        for (knob, value) in faults {
            control.set(*knob, *value)?;
        }
        let env = control.env();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.cluster.member(member).start_with(&env)?;
        Ok(control)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.cluster.wait_until_ready(READY_WITHIN).await
    }

    /// The victim must end by itself, not as if all were well, and say these words.
    async fn stops_loudly(&mut self, printed_before: usize, words: &str) -> Result<(), Failure> {
        let began = Instant::now();
        while self.cluster.member(VICTIM).is_running()? {
            if STOPPED_WITHIN < began.elapsed() {
                let tail = self.cluster.members()[VICTIM].tail();
                return Err(Failure::broken(format!("the member goes on on a bad disk: {tail}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = self.cluster.member(VICTIM).wait_for_exit(Duration::from_secs(1))?;
        let member = &self.cluster.members()[VICTIM];
        if status.success() {
            return Err(Failure::broken("the member ended as if nothing had happened"));
        }
        if !member.printed()?[printed_before..].contains(words) {
            return Err(Failure::broken(format!("the log does not say {words:?}: {}", member.tail())));
        }
        println!("  stopped loudly ({status}) after {:?}", began.elapsed());
        Ok(())
    }

    fn printed(&self) -> Result<usize, Failure> {
        Ok(self.cluster.members()[VICTIM].printed()?.len())
    }
}

/// A disk fills up, and is freed after the member has stopped.
pub async fn full() -> Result<Story, Failure> {
    small_disk::available().map_err(Failure::Missing)?;
    let mut stage = set(0).await?;
    stage.load.wait_for_more(200, READY_WITHIN).await?;
    stage.cluster.member(VICTIM).kill()?;
    let disk = SmallDisk::under(&stage.data_dir(VICTIM), SPARE_BYTES)?;
    stage.cluster.member(VICTIM).start()?;
    stage.ready().await?;
    let printed = stage.printed()?;
    println!("  filled the last {} bytes", disk.fill()?);
    let fault = stage.account.struck("full-disk", "filled under one member", vec![VICTIM]);
    stage.stops_loudly(printed, "No space left on device").await?;
    stage.load.wait_for_more(50, READY_WITHIN).await.map_err(|why| why.during("while one is down"))?;
    disk.free()?;
    stage.account.trace.healed(fault);
    stage.cluster.revive(READY_WITHIN).await?;
    stage.load.wait_for_more(50, READY_WITHIN).await?;
    // Off the small disk again before it is judged, so that nothing of the run stays mounted.
    stage.cluster.member(VICTIM).kill()?;
    disk.retire()?;
    stage.judge().await
}

/// A sync fails once and for all; the disk is replaced by one that works, with the same bytes.
pub async fn failing_sync() -> Result<Story, Failure> {
    let mut stage = set(0).await?;
    let control = stage.restart_gripped(VICTIM, &[])?;
    stage.ready().await?;
    stage.load.wait_for_more(100, READY_WITHIN).await?;
    if control.synced()? == 0 {
        return Err(Failure::harness("no sync of the member went through the interposed library"));
    }
    let printed = stage.printed()?;
    control.set(Knob::SyncError, libc::EIO.into())?;
    stage.account.struck("failing-sync", "a sync of one member fails", vec![VICTIM]);
    stage.stops_loudly(printed, "Input/output error").await?;
    stage.load.wait_for_more(50, READY_WITHIN).await.map_err(|why| why.during("while one is down"))?;
    stage.judge().await
}

/// All members lose power at once, several times, and with it what they had not synced.
pub async fn power_cuts(loss: Loss, rounds: usize, seed: u64) -> Result<Lost, Failure> {
    let dice = &mut StdRng::seed_from_u64(seed);
    let mut stage = set(seed).await?;
    let mut lost = Lost::default();
    for _ in 0..rounds {
        let once = power_cut(&mut stage, loss, &[], dice).await?;
        let fault = stage.account.struck("power-cut", format!("all: {once:?}"), (0..MEMBERS).collect());
        stage.cluster.revive(READY_WITHIN).await?;
        stage.account.trace.healed(fault);
        lost = Lost { files: lost.files + once.files, bytes: lost.bytes + once.bytes };
    }
    stage.judge().await?;
    Ok(lost)
}

/// The same with disks whose syncs do nothing: what was acknowledged is lost. Answers with what was
/// found about that.
pub async fn power_cut_on_lying_disks(seed: u64) -> Result<String, Failure> {
    let dice = &mut StdRng::seed_from_u64(seed);
    // One long segment and no flush: members start again, and simply know less.
    let flags = ["--meerkat-flush-interval-ms=60000", "--meerkat-log-segment-bytes=8388608"];
    let mut stage = set_with(&flags.map(str::to_owned), seed).await?;
    power_cut(&mut stage, Loss::All, &[(Knob::SyncLies, 1)], dice).await?;
    match stage.judged().await {
        (cluster, Err(Failure::Broken(why))) => cluster.finish().map(|()| why),
        (_, Err(other)) => Err(other),
        (_, Ok(_)) => Err(Failure::harness("acknowledged writes must be gone, and nobody has noticed")),
    }
}

async fn power_cut(
    stage: &mut Stage,
    loss: Loss,
    faults: &[(Knob, i64)],
    dice: &mut StdRng,
) -> Result<Lost, Failure> {
    let mut controls = Vec::new();
    for member in 0..MEMBERS {
        controls.push(stage.restart_gripped(member, &[(Knob::Journal, 1)])?);
        stage.ready().await?;
    }
    for (control, (knob, value)) in
        controls.iter().flat_map(|control| faults.iter().map(move |it| (control, it)))
    {
        control.set(*knob, *value)?;
    }
    stage.load.wait_for_more(200, READY_WITHIN).await?;
    tokio::time::sleep(Duration::from_millis(dice.random_range(0..500))).await;
    for member in 0..MEMBERS {
        stage.cluster.member(member).kill()?;
    }
    let mut lost = Lost::default();
    for (member, control) in controls.iter().enumerate() {
        let own = power_loss::undo(&control.journal(), &stage.data_dir(member), loss, dice)?;
        lost = Lost { files: lost.files + own.files, bytes: lost.bytes + own.bytes };
    }
    Ok(lost)
}

/// What is done about a member whose log is damaged; its error names both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Its directory is restored from a copy.
    Restore,
    /// It is removed, and a new one added in its place.
    Replace,
}

/// Bytes in the middle of the log, long synced, go bad while the member is down: it must refuse to
/// start, and after the repair there are as many members as before.
pub async fn damaged_middle(repair: Repair, seed: u64) -> Result<Story, Failure> {
    let dice = &mut StdRng::seed_from_u64(seed);
    let mut stage = set(seed).await?;
    stage.load.wait_for_more(500, READY_WITHIN).await?;
    stage.cluster.member(VICTIM).kill()?;
    let dir = stage.data_dir(VICTIM);
    let copy = stage.cluster.dir().join("copy");
    copy_dir(&dir, &copy)?;
    stage.account.struck("damaged-log", damage(&dir, dice)?, vec![VICTIM]);
    let printed = stage.printed()?;
    stage.cluster.member(VICTIM).start()?;
    stage.stops_loudly(printed, "cannot be used").await?;
    stage.load.wait_for_more(50, READY_WITHIN).await.map_err(|why| why.during("while one is down"))?;
    match repair {
        Repair::Restore => {
            std::fs::remove_dir_all(&dir)?;
            std::fs::rename(&copy, &dir)?;
        }
        Repair::Replace => {
            stage.cluster.forget(VICTIM, READY_WITHIN).await?;
            stage.cluster.join(Role::Voter, READY_WITHIN).await?;
        }
    }
    stage.judge().await
}

/// Flips one bit in the first half of what the oldest segment of the log holds.
fn damage(data_dir: &Path, dice: &mut StdRng) -> Result<String, Failure> {
    let wal = data_dir.join("member/wal");
    let mut segments: Vec<PathBuf> = std::fs::read_dir(&wal)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let oldest = segments.first().ok_or_else(|| Failure::harness("the member has no log"))?;
    let mut bytes = std::fs::read(oldest)?;
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let at = dice.random_range(used / 8..used / 2);
    bytes[at] ^= 1 << dice.random_range(0..8);
    std::fs::write(oldest, &bytes)?;
    Ok(format!("byte {at} of the {used} in {}", oldest.display()))
}

fn copy_dir(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
