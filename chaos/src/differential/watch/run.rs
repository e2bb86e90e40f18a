//! What a run of watches is: the same steps to both clusters, and a comparison whenever all is quiet.
//!
//! Requests go out one at a time, and before any step whose outcome could depend on how far a
//! watcher has come, that watcher is waited for. So there is one right transcript for each stream,
//! however quick or slow either product is, and the two must become equal.

use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{
    PutRequest, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest,
};

use super::allow_list::Row;
use super::generator::Generator;
use super::side::Side;
use super::step::Step;
use super::transcript::{General, Life, NO_WATCHER, Transcript};
use super::wire::HEARD_WITHIN;
use super::world::{Phase, StreamState, Watcher, World};
use super::{compare, coverage, leaderless};
use crate::Failure;
use crate::differential::compare::{HiddenValues, difference};
use crate::differential::coverage::Coverage;
pub use crate::differential::engine::Plan;
use crate::differential::engine::{self, Both, Surface};
use crate::differential::members::Members;
use crate::differential::request::{Answer, Request};
use crate::driver::{Cluster, ClusterSpec, Product};

/// How often progress marks come. Both take etcd's flag.
const MARK_FLAG: &str = "--experimental-watch-progress-notify-interval=500ms";
/// How long two transcripts may take to become equal.
const EQUAL_WITHIN: Duration = Duration::from_secs(5);
/// How long nothing happens at the end: long enough for what nobody asked for to come, and for a
/// member that hears of its leader only through work to believe that it has none.
const IDLE: Duration = Duration::from_secs(5);
const PROBE_KEY: &[u8] = b"probe";
const NEGATIVE_START: &str = "etcdserver: mvcc: required revision has been compacted";

/// Runs it; what came up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let Plan { seed, steps, members, .. } = plan;
    let again = format!("meerkat-chaos watch-differential --seed {seed} --steps {steps} --members {members}");
    engine::run(plan, World::new(*members), Generator::new(*seed), &again).await
}

impl Surface for World {
    const NAME: &'static str = "watch differential";
    type Step = Step;
    type Answer = Answer;
    type Side = Side;
    type Generator = Generator;

    fn coverage(&self) -> Coverage {
        Coverage::of(coverage::KINDS)
    }

    fn at(&self) -> String {
        format!("at revision {}", self.revision)
    }

    async fn start(&self, product: Product, members: usize) -> Result<Side, Failure> {
        let spec = ClusterSpec::new(product, members).with_flags(&[MARK_FLAG]);
        Members::start(&spec).await.map(Side::new)
    }

    fn cluster(side: Side) -> Cluster {
        side.members.cluster
    }

    async fn next(both: &mut Both<Self>, number: usize) -> Result<Step, Failure> {
        if number == 0 {
            let reference = both.etcd.members.watch(0, false);
            let everything = WatchCreateRequest {
                range_end: "\0".into(),
                start_revision: 1,
                prev_kv: true,
                ..Default::default()
            };
            reference.send(RequestUnion::CreateRequest(everything)).await?;
            reference.await_heard("a reply", |heard| 0 < heard.replies).await?;
            both.world.reference = Some(reference);
        }
        Ok(both.generator.next(&both.world))
    }

    async fn take(both: &mut Both<Self>, step: &Step) -> Result<(), Failure> {
        coverage::note_step(&mut both.coverage, step, &both.world);
        match step {
            Step::Change { member, request } => both.change(*member, request).await,
            Step::Open { member, requires_leader } => {
                both.world.streams.push(StreamState::new(*member, *requires_leader));
                both.etcd.open(*member, *requires_leader);
                both.other.open(*member, *requires_leader);
                Ok(())
            }
            Step::Close { stream } => both.end(*stream).await,
            Step::HalfClose { stream } => {
                both.world.streams[*stream].phase = Phase::HalfClosed;
                both.etcd.half_close(*stream);
                both.other.half_close(*stream);
                Ok(())
            }
            Step::Create { stream, request } => both.create(*stream, request).await,
            Step::Cancel { stream, id } => both.cancel(*stream, *id).await,
            Step::Progress { stream } => both.progress(*stream).await,
            Step::Nonsense { stream, message } => {
                both.etcd.stream(*stream).send_raw(message.clone()).await?;
                both.other.stream(*stream).send_raw(message.clone()).await
            }
            Step::Compare => {
                let streams = both.world.heard_streams();
                both.settle(&streams).await?;
                both.compare(&streams).await
            }
        }
    }

    async fn close(both: &mut Both<Self>) -> Result<(), Failure> {
        both.compare_quiet().await?;
        if 1 < both.world.members {
            leaderless::compare(&mut both.etcd.members, &mut both.other.members).await?;
        }
        Ok(())
    }
}

impl Both<World> {
    async fn change(&mut self, member: usize, request: &Request) -> Result<(), Failure> {
        if matches!(request, Request::Compact(_)) {
            // A watcher still behind would be overtaken, on one side or on both.
            self.catch_up().await?;
        }
        if request.may_be_answered_locally() {
            self.level(member).await?;
        }
        let (etcd, other) = tokio::join!(
            self.etcd.members.change(member, request),
            self.other.members.change(member, request)
        );
        if let Some(what) = difference(request, &etcd, &other, &HiddenValues::new()) {
            // Nothing after it could be compared.
            self.differ(&what, &etcd, &other)?;
            return self.verdict();
        }
        if let Some(header) = etcd.header() {
            self.world.revision = self.world.revision.max(header.revision);
        }
        if let (Request::Compact(compaction), Answer::Compact(_)) = (request, &etcd) {
            self.world.compacted = compaction.revision;
        }
        Ok(())
    }

    /// Brings both members of a pair level before a request whose answer shows their revision.
    async fn level(&self, member: usize) -> Result<(), Failure> {
        let (etcd, other) = tokio::join!(self.etcd.members.level(member), self.other.members.level(member));
        let (etcd, other) = (etcd?, other?);
        if (etcd, other) != (self.world.revision, self.world.revision) {
            let expected = self.world.revision;
            return Err(Failure::broken(format!("at {expected}, etcd is at {etcd}, the other at {other}")));
        }
        Ok(())
    }

    async fn send_both(&self, stream: usize, union: RequestUnion) -> Result<(), Failure> {
        self.etcd.stream(stream).send(union.clone()).await?;
        self.other.stream(stream).send(union).await
    }

    async fn await_reply(&mut self, stream: usize) -> Result<(), Failure> {
        self.world.streams[stream].replies += 1;
        let count = self.world.streams[stream].replies;
        self.etcd.await_replies(stream, count).await?;
        self.other.await_replies(stream, count).await
    }

    async fn create(&mut self, stream: usize, request: &WatchCreateRequest) -> Result<(), Failure> {
        self.level(self.world.streams[stream].member).await?;
        if request.start_revision < 0 {
            return self.create_below_zero(stream, request).await;
        }
        self.send_both(stream, RequestUnion::CreateRequest(request.clone())).await?;
        self.await_reply(stream).await?;
        let id = self.etcd.stream(stream).look(|heard| heard.last_created);
        let other = self.other.stream(stream).look(|heard| heard.last_created);
        if id != other {
            return Err(Failure::broken(format!("a watcher on stream {stream} is {id} and {other}")));
        }
        if id != NO_WATCHER {
            let watcher = Watcher::new(request.clone(), self.world.revision, self.world.compacted);
            self.world.late_watchers |= watcher.first <= self.world.revision;
            self.world.streams[stream].watchers.entry(id).or_default().push(watcher);
        }
        Ok(())
    }

    /// See `Row::NegativeStart`.
    async fn create_below_zero(
        &mut self,
        stream: usize,
        request: &WatchCreateRequest,
    ) -> Result<(), Failure> {
        self.coverage.allow(Row::NegativeStart);
        let refusal = General::Refused { revision: self.world.revision, reason: NEGATIVE_START.to_owned() };
        for side in [&self.etcd, &self.other] {
            match side.members.product {
                Product::Meerkat => {
                    side.stream(stream).send(RequestUnion::CreateRequest(request.clone())).await?;
                }
                Product::Etcd => side.stream(stream).amend(|heard| {
                    heard.general.push(refusal.clone());
                    heard.replies += 1;
                }),
            }
        }
        self.await_reply(stream).await
    }

    async fn cancel(&mut self, stream: usize, id: i64) -> Result<(), Failure> {
        // Whether an event still on its way comes before the reply would be a matter of luck.
        self.settle(&[stream]).await?;
        self.level(self.world.streams[stream].member).await?;
        let known = self.world.streams[stream].holder(id).is_some();
        self.send_both(stream, RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })).await?;
        if !known {
            // A reply that should not come is found by the next comparison.
            return Ok(());
        }
        self.await_reply(stream).await?;
        if let Some(watcher) = self.world.streams[stream].watchers.get_mut(&id).and_then(|all| all.last_mut())
        {
            watcher.canceled = true;
        }
        Ok(())
    }

    async fn progress(&mut self, stream: usize) -> Result<(), Failure> {
        self.catch_up().await?;
        self.level(self.world.streams[stream].member).await?;
        self.send_both(stream, RequestUnion::ProgressRequest(WatchProgressRequest {})).await?;
        if self.world.answers_progress(stream) {
            return self.await_reply(stream).await;
        }
        // See `Row::ProgressAnsweredAlways`.
        for side in [&self.etcd, &self.other] {
            if side.members.product == Product::Etcd {
                side.await_replies(stream, self.world.streams[stream].replies + 1).await?;
                side.stream(stream).amend(|heard| {
                    heard.general.pop();
                    heard.replies -= 1;
                });
                self.coverage.allow(Row::ProgressAnsweredAlways);
            }
        }
        Ok(())
    }

    async fn end(&mut self, stream: usize) -> Result<(), Failure> {
        self.settle(&[stream]).await?;
        self.compare(&[stream]).await?;
        coverage::note_heard(&mut self.coverage, &self.etcd.heard(stream), self.world.streams[stream].phase);
        self.world.streams[stream].phase = Phase::Closed;
        self.etcd.close(stream);
        self.other.close(stream);
        Ok(())
    }

    /// Waits until every watcher has been given what it is owed, and counts as level where level
    /// watchers are treated in another way.
    async fn catch_up(&mut self) -> Result<(), Failure> {
        if self.world.late_watchers {
            let put = PutRequest { key: PROBE_KEY.into(), ..Default::default() };
            Box::pin(self.change(0, &Request::Put(put))).await?;
            let revision = self.world.revision;
            let probe =
                WatchCreateRequest { key: PROBE_KEY.into(), start_revision: revision, ..Default::default() };
            let probes = (0..self.world.members).flat_map(|member| {
                [&self.etcd, &self.other].map(|side| side.await_caught_up(member, &probe, revision))
            });
            futures::future::try_join_all(probes).await?;
            self.world.late_watchers = false;
        }
        self.settle(&self.world.heard_streams()).await
    }

    /// Waits until the watchers of some streams have been given what they are owed.
    async fn settle(&mut self, streams: &[usize]) -> Result<(), Failure> {
        let revision = self.world.revision;
        let reference = self.world.reference.as_ref().expect("opened before the first step");
        if 1 < revision {
            let first = |heard: &Transcript| heard.lives(0).first().map_or(0, Life::last_revision);
            reference.await_heard("all events", |heard| revision <= first(heard)).await?;
        }
        let known = self.world.history.len();
        self.world.history.extend(reference.look(|heard| {
            heard.lives(0).first().map(|life| life.events[known..].to_vec()).unwrap_or_default()
        }));
        for stream in streams {
            for (id, watchers) in &self.world.streams[*stream].watchers {
                let Some(watcher) = watchers.last() else { continue };
                let last = self.world.last_owed(watcher);
                let enough = |heard: &Transcript| {
                    let life = heard.lives(*id).last();
                    life.is_some_and(|life| life.is_canceled() || last <= life.last_revision())
                        && (!watcher.is_compacted() || life.is_some_and(|life| life.is_canceled()))
                };
                let what = format!("watcher {id} of stream {stream} everything up to {last}");
                self.etcd.stream(*stream).await_heard(&what, enough).await?;
                self.other.stream(*stream).await_heard(&what, enough).await?;
            }
        }
        Ok(())
    }

    /// Gives both a little time to become equal.
    async fn compare(&mut self, streams: &[usize]) -> Result<(), Failure> {
        let deadline = Instant::now() + EQUAL_WITHIN;
        loop {
            let mut findings = Vec::new();
            let mut allowed = Vec::new();
            for stream in streams {
                let (etcd, other) = (self.etcd.heard(*stream), self.other.heard(*stream));
                let state = &self.world.streams[*stream];
                let verdict = compare::streams(&self.world, state, &etcd, &other, self.other.members.product);
                findings.extend(verdict.findings.iter().map(|what| format!("stream {stream}: {what}")));
                allowed.extend(verdict.allowed);
            }
            if findings.is_empty() {
                allowed.into_iter().for_each(|row| self.coverage.allow(row));
                return Ok(());
            }
            if deadline < Instant::now() {
                return Failure::from_findings("both say the same", findings);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The end: nothing more may come, except progress marks, which must.
    async fn compare_quiet(&mut self) -> Result<(), Failure> {
        for member in 0..self.world.members {
            self.take(&Step::Open { member, requires_leader: true }).await?;
            let stream = self.world.streams.len() - 1;
            let request = WatchCreateRequest { progress_notify: true, ..Default::default() };
            self.take(&Step::Create { stream, request }).await?;
        }
        self.catch_up().await?;
        let streams = self.world.heard_streams();
        self.compare(&streams).await?;
        tokio::time::sleep(IDLE).await;
        let deadline = Instant::now() + HEARD_WITHIN;
        loop {
            let mut missing = Vec::new();
            for stream in &streams {
                for side in [&self.etcd, &self.other] {
                    let state = &self.world.streams[*stream];
                    let found = compare::marks_missing(&self.world, state, &side.heard(*stream));
                    missing.extend(
                        found
                            .iter()
                            .map(|what| format!("{:?}, stream {stream}: {what}", side.members.product)),
                    );
                }
            }
            if missing.is_empty() {
                break;
            }
            if deadline < Instant::now() {
                return Failure::from_findings("progress marks come when all is quiet", missing);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.compare(&streams).await?;
        for stream in &streams {
            coverage::note_heard(
                &mut self.coverage,
                &self.etcd.heard(*stream),
                self.world.streams[*stream].phase,
            );
        }
        Ok(())
    }
}
