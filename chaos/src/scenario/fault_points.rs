//! Stops one member at each named fault point under load, brings it back, and judges.
//!
//! The points are the product's; the way to reach each is ours: some are passed by any write, some
//! need an election, a purge, a compaction, or a member so far behind that it gets a snapshot. A
//! point that is never reached fails the run: a fault that did not happen proves nothing.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use meerkat_proto::pb::etcdserver::CompactionRequest;

use super::account::Account;
use super::snapshot::short_log_flags;
use super::stage::{READY_WITHIN, Stage};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::report::Story;
use crate::workload::unique::{Running, Shape};
use crate::{Failure, Patience};

const STRUCK_WITHIN: Duration = Duration::from_secs(30);
const VICTIM: usize = 1;
/// Writes after which the others have surely purged what a sleeper lacks.
const PURGED_AFTER: u64 = 6_000;
/// How long these may take, or the purging itself.
const PURGED_WITHIN: Duration = Duration::from_secs(180);

/// What brings a member to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    /// Any load.
    Writes,
    /// A change of leader.
    Election,
    /// Compactions beside the load.
    Compactions,
    /// Waking up behind a purged log.
    Snapshot,
}

/// A point, how often it is passed before it strikes, and how it is reached.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Its name.
    pub name: &'static str,
    /// The pass at which it strikes.
    pub pass: u32,
    /// What brings the member there.
    pub road: Road,
}

const fn point(name: &'static str, pass: u32, road: Road) -> Point {
    Point { name, pass, road }
}

/// Every fault point of the product. Passes differ, so that not every point strikes at start.
pub const POINTS: &[Point] = &[
    point("before_log_write", 40, Road::Writes),
    point("before_log_sync", 25, Road::Writes),
    point("after_log_sync", 33, Road::Writes),
    point("before_vote_sync", 1, Road::Election),
    point("after_vote_sync", 1, Road::Election),
    point("before_apply_batch", 30, Road::Writes),
    point("after_apply_batch", 45, Road::Writes),
    point("before_state_flush", 2, Road::Writes),
    point("after_state_flush", 2, Road::Writes),
    point("before_purge", 1, Road::Writes),
    point("after_purge", 1, Road::Writes),
    point("before_snapshot_rename", 1, Road::Snapshot),
    point("after_snapshot_rename", 1, Road::Snapshot),
    point("before_compaction_step", 2, Road::Compactions),
    point("after_compaction_step", 2, Road::Compactions),
];

/// What a point does when it strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Strike {
    /// Ends the process as `kill -9` would.
    #[default]
    Kill,
    /// The step fails with EIO.
    Eio,
    /// The step fails with ENOSPC.
    Enospc,
}

impl Strike {
    /// The points where it may strike: steps that can fail are those of the log.
    pub fn points(self) -> Vec<Point> {
        let suits = |point: &&Point| self == Self::Kill || point.name.starts_with("before_log");
        POINTS.iter().filter(suits).copied().collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Eio => "eio",
            Self::Enospc => "enospc",
        }
    }

    /// What the member's log must say for the operator to understand why it stopped.
    fn explanation(self) -> Option<&'static str> {
        match self {
            Self::Kill => None,
            Self::Eio => Some("Input/output error"),
            Self::Enospc => Some("No space left on device"),
        }
    }
}

/// Walks the given points on one cluster, one after the other, under continuous load.
pub async fn run(points: &[Point], strike: Strike) -> Result<Story, Failure> {
    let replay = format!("meerkat-chaos faults --action {}", strike.name());
    let account = Account::open("faults", Product::Meerkat, 0, replay);
    let flags = short_log_flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let spec = ClusterSpec::new(Product::Meerkat, 3).with_quick_elections().with_flags(&flags);
    let shape = Shape { rest: Duration::ZERO, padding: 512, ..Shape::default() };
    let mut stage = Stage::set(&spec, shape, account).await?;
    for point in points {
        let began = Instant::now();
        let what = format!("{}={}", point.name, strike.name());
        let fault = stage.account.struck("fault-point", &what, vec![VICTIM]);
        walk(&mut stage.cluster, &stage.load, point, strike)
            .await
            .map_err(|failure| failure.during(&what))?;
        stage.account.trace.healed(fault);
        println!("  {what}: struck and recovered in {:?}", began.elapsed());
    }
    stage.judge().await
}

async fn walk(cluster: &mut Cluster, load: &Running, point: &Point, strike: Strike) -> Result<(), Failure> {
    cluster.member(VICTIM).kill()?;
    if point.road == Road::Snapshot {
        fall_behind(cluster, load).await?;
    }
    let printed_before = cluster.members()[VICTIM].printed()?.len();
    let plan = format!("{}={}@{}", point.name, strike.name(), point.pass);
    cluster.member(VICTIM).start_with(&[("MEERKAT_FAULTS", &plan)])?;
    let status = until_struck(cluster, point).await?;
    match strike.explanation() {
        None if status.signal() != Some(libc::SIGKILL) => {
            return Err(Failure::broken(format!("ended with {status} instead of being killed")));
        }
        None => {}
        Some(words) => require_loud_end(cluster, printed_before, status, words)?,
    }
    cluster.revive(READY_WITHIN).await?;
    load.wait_for_more(20, READY_WITHIN).await
}

/// Waits until the others have purged what the sleeper lacks. That is seen when the segments are gone
/// that they wrote to while it slept.
async fn fall_behind(cluster: &Cluster, load: &Running) -> Result<(), Failure> {
    load.wait_for_more(100, READY_WITHIN).await?;
    let (segments, enough) = (newest_segments(cluster, VICTIM)?, load.acknowledged() + PURGED_AFTER);
    let is_purged = || {
        let missing = enough.saturating_sub(load.acknowledged());
        let is_kept = 0 < missing && segments.iter().any(|segment| segment.exists());
        if is_kept { Err(format!("{missing} of {PURGED_AFTER} writes are missing")) } else { Ok(()) }
    };
    let patience = Patience::of("the log is purged", PURGED_WITHIN);
    patience.until(Duration::from_millis(20), is_purged).await.map(drop)
}

/// The segments that the members' logs are being written to, but for one member's. When they are gone, that
/// one cannot be sent what it lacked when they were asked for.
pub fn newest_segments(cluster: &Cluster, but: usize) -> Result<Vec<PathBuf>, Failure> {
    let others = cluster.members().iter().enumerate().filter(|(index, _)| *index != but);
    others.map(|(_, member)| newest_segment(&member.data_dir().join("member/wal"))).collect()
}

fn newest_segment(dir: &Path) -> Result<PathBuf, Failure> {
    let mut newest = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            newest = newest.max(Some(path));
        }
    }
    newest.ok_or_else(|| Failure::harness(format!("no log segment in {}", dir.display())))
}

/// Drives the member down its road until it ends.
async fn until_struck(cluster: &mut Cluster, point: &Point) -> Result<std::process::ExitStatus, Failure> {
    let deadline = Instant::now() + STRUCK_WITHIN;
    let mut next_push = Instant::now() + Duration::from_millis(500);
    while Instant::now() < deadline {
        if !cluster.member(VICTIM).is_running()? {
            return cluster.member(VICTIM).wait_for_exit(Duration::from_secs(1));
        }
        if next_push < Instant::now() {
            push(cluster, point.road).await?;
            next_push = Instant::now() + Duration::from_secs(2);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Failure::harness(format!("the point was not reached within {STRUCK_WITHIN:?}")))
}

async fn push(cluster: &mut Cluster, road: Road) -> Result<(), Failure> {
    match road {
        Road::Writes | Road::Snapshot => Ok(()),
        Road::Election => unseat_leader(cluster).await,
        Road::Compactions => compact_behind(cluster).await,
    }
}

/// Kills the leader, whoever it is but the victim, and brings it back.
async fn unseat_leader(cluster: &mut Cluster) -> Result<(), Failure> {
    let leader = cluster.leader(READY_WITHIN).await?;
    if leader != VICTIM {
        cluster.member(leader).kill()?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        cluster.member(leader).start()?;
    }
    Ok(())
}

/// Compacts to a little below the present. Refusals are fine: the load may not have moved on.
async fn compact_behind(cluster: &Cluster) -> Result<(), Failure> {
    let endpoint = cluster.members()[0].endpoint();
    let Ok(revision) = endpoint.linearizable_probe(Duration::from_secs(2)).await else { return Ok(()) };
    let request = CompactionRequest { revision: (revision - 50).max(1), physical: false };
    let _refused = endpoint.compact(request, Duration::from_secs(2)).await.is_err();
    Ok(())
}

/// A member that cannot keep its promise must stop with an error that names the cause.
fn require_loud_end(
    cluster: &Cluster,
    printed_before: usize,
    status: std::process::ExitStatus,
    words: &str,
) -> Result<(), Failure> {
    let member = &cluster.members()[VICTIM];
    if status.success() {
        return Err(Failure::broken("the member ended as if nothing had happened"));
    }
    if !member.printed()?[printed_before..].contains(words) {
        return Err(Failure::broken(format!("the log does not say {words:?}: {}", member.tail())));
    }
    Ok(())
}
