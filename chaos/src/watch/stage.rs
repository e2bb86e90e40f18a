//! A cluster with writers, an archive and any number of recorders, for tests that set up one
//! situation and then hold what watchers were sent against what happened.

use std::time::{Duration, Instant};

use super::archive::Archive;
use super::follower::{self, Following, Manner};
use super::pumps::Pumps;
use super::recorder::Recorder;
use super::writers::{self, Shape, Writing};
use crate::Failure;
use crate::checker::watch_history::{WatchHistory, Wrote};
use crate::checker::watch_properties::{self, Demand};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::Outcome;
use crate::record::watch::{SLOW, WatchLog, WatchSpec};

/// What may be on its way to a client that does not read: the least that HTTP/2 begins with.
const STALLED_WINDOW: u32 = 65_535;
/// Longer than any test.
const STALLED_FOR: Duration = Duration::from_secs(600);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const DRAIN_WITHIN: Duration = Duration::from_secs(20);
/// Writes that load a store quickly.
pub const QUICK: Shape = Shape { writers: 8, rest: Duration::ZERO, small: 100, large: 0, large_every: 0 };
/// Writes that leave the machine time for other things.
pub const STEADY: Shape =
    Shape { writers: 4, rest: Duration::from_millis(10), small: 100, large: 0, large_every: 0 };

/// The situation.
#[derive(Debug)]
pub struct Stage {
    /// The members.
    pub cluster: Cluster,
    /// What has been read of their past.
    pub archive: Archive,
    /// When all times begin.
    pub began: Instant,
    /// What was written, but for what writers still at work will report.
    pub writes: Vec<Wrote>,
    asleep: Option<usize>,
}

impl Stage {
    /// Starts members.
    pub async fn start(product: Product, members: usize, flags: &[&str]) -> Result<Self, Failure> {
        let spec = ClusterSpec::new(product, members).with_quick_elections().with_flags(flags);
        let cluster = Cluster::start(&spec).await?;
        let began = Instant::now();
        Ok(Self { cluster, archive: Archive::new(began), began, writes: Vec::new(), asleep: None })
    }

    /// The stubs of one member.
    pub fn endpoint(&self, member: usize) -> &Endpoint {
        self.cluster.members()[member].endpoint()
    }

    /// A stream to a member over a connection of its own.
    pub fn recorder(&self, member: usize, metadata: &[(&'static str, &str)]) -> Result<Recorder, Failure> {
        Recorder::open(&self.endpoint(member).apart(None)?, member, self.began, metadata)
    }

    /// The same with next to no room for what is not read.
    pub fn narrow_recorder(&self, member: usize) -> Result<Recorder, Failure> {
        self.narrow_recorder_with(member, &[])
    }

    /// The same with request metadata of the caller's choice.
    pub fn narrow_recorder_with(
        &self,
        member: usize,
        metadata: &[(&'static str, &str)],
    ) -> Result<Recorder, Failure> {
        let endpoint = self.endpoint(member).apart(Some(STALLED_WINDOW))?;
        Recorder::open(&endpoint, member, self.began, metadata)
    }

    /// A watcher that has next to no room for what is not read and reads no more than the answer to
    /// its create, until told to hurry. Whatever ends its connection then, it resumes.
    pub fn stalled(
        &self,
        name: impl Into<String>,
        spec: WatchSpec,
        metadata: &[(&'static str, &'static str)],
    ) -> Result<Following, Failure> {
        let manner = Manner {
            pause: STALLED_FOR,
            window: Some(STALLED_WINDOW),
            patience: STALLED_FOR,
            metadata: metadata.to_vec(),
            ..Manner::default()
        };
        let coalesces = metadata.contains(&(SLOW, "coalesce"));
        let log = WatchLog { coalesces, ..WatchLog::new(name, spec) };
        follower::start(&self.cluster.endpoints(), 0, self.began, log, manner)
    }

    /// Starts writers on all members that take writes.
    pub fn start_writing(&self, shape: Shape) -> Writing {
        let awake = |(member, _): &(usize, Endpoint)| Some(*member) != self.asleep;
        let endpoints: Vec<Endpoint> =
            self.cluster.endpoints().into_iter().enumerate().filter(awake).map(|(_, one)| one).collect();
        // Another seed each time, or the same values would be put again.
        writers::start(&endpoints, shape, self.writes.len() as u64)
    }

    /// Puts a member to sleep with SIGSTOP. Writers leave it alone until it wakes.
    pub fn put_to_sleep(&mut self, member: usize) -> Result<(), Failure> {
        self.asleep = Some(member);
        self.cluster.member(member).pause()
    }

    /// Wakes whoever sleeps, and waits until all serve.
    pub async fn wake(&mut self, within: Duration) -> Result<(), Failure> {
        if let Some(member) = self.asleep.take() {
            self.cluster.member(member).resume()?;
        }
        self.cluster.wait_until_ready(within).await
    }

    /// Keeps what writers did.
    pub async fn stop_writing(&mut self, writing: Writing) -> Result<(), Failure> {
        self.writes.extend(writing.finish().await?);
        Ok(())
    }

    /// Writes until so many are acknowledged.
    pub async fn write(&mut self, shape: Shape, count: u64) -> Result<(), Failure> {
        let writing = self.start_writing(shape);
        writing.wait_for_more(count, Duration::from_secs(60)).await?;
        self.stop_writing(writing).await
    }

    /// Makes one chosen write; its revision.
    pub async fn made(&mut self, wrote: Wrote) -> Result<i64, Failure> {
        let revision = match &wrote.outcome {
            Outcome::Ok(revision) => *revision,
            other => return Err(Failure::broken(format!("a write came to nothing: {other:?}"))),
        };
        self.writes.push(wrote);
        Ok(revision)
    }

    /// The revision of the store, by a linearizable read of a member.
    pub async fn revision(&self, member: usize) -> Result<i64, Failure> {
        let revision = self.endpoint(member).linearizable_probe(ANSWER_WITHIN).await;
        revision.map_err(Failure::from)
    }

    /// Reads all that happened so far and then compacts at a revision.
    pub async fn compact(&mut self, member: usize, revision: i64) -> Result<(), Failure> {
        let endpoint = self.endpoint(member).clone();
        let now = self.revision(member).await?;
        self.archive.extend(std::slice::from_ref(&endpoint), now, ANSWER_WITHIN).await?;
        match self.archive.compact(&endpoint, revision).await {
            Outcome::Ok(()) => Ok(()),
            other => Err(Failure::broken(format!("compaction at {revision}: {other:?}"))),
        }
    }

    /// The end: proves the history, waits until all watchers have theirs, and judges them. Members
    /// must run, and nobody may be writing.
    pub async fn judge(self, pumps: Pumps, demand: Demand) -> Result<(WatchHistory, Vec<WatchLog>), Failure> {
        self.judge_with(pumps, Vec::new(), demand).await
    }

    /// The same with followers, whose records come last, in their order.
    pub async fn judge_with(
        self,
        pumps: Pumps,
        followers: Vec<Following>,
        demand: Demand,
    ) -> Result<(WatchHistory, Vec<WatchLog>), Failure> {
        let history = self.archive.close(&self.cluster.endpoints(), &self.writes).await?;
        let mut logs = pumps.finish(&history, DRAIN_WITHIN).await?;
        let deadline = Instant::now() + DRAIN_WITHIN;
        // What has not come by then is for the checker to say.
        while Instant::now() < deadline && !followers.iter().all(|one| one.has_heard_all(&history)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for follower in followers {
            logs.push(follower.finish().await?);
        }
        watch_properties::check_all(&logs, &history, demand)?;
        self.cluster.finish()?;
        Ok((history, logs))
    }
}
