//! Leaders killed and stopped at random while many clients hold leases: no key dies before its
//! time, and none lives much longer.
//!
//! Some clients renew, some let go at random, some revoke. A watcher on every member sees when keys
//! go. At the end everybody lets go, the last leases run out, and the checker `lease_bounds` judges
//! the whole record.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, PutRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::settle;
use crate::checker::lease_bounds::{self, Bounds, Margins};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::lease::keeper::PREFIX;
use crate::lease::{self, Keepers, LeaderWatch, Witnesses};
use crate::record::lease::{LeaseHistory, RenewalEnd, Span};
use crate::run::arguments::{millis, some_seed};
use crate::{Failure, Patience};

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The longest TTL of any keeper, the lateness and what the last change of leader may add.
const RUN_OUT: Duration = Duration::from_secs(18);
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// As `with_quick_elections` sets it.
const ELECTION: Duration = Duration::from_millis(500);

/// How to run it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Times that a leader is struck
    #[arg(long, default_value_t = 100)]
    pub faults: usize,
    /// Stop it sometimes rather than kill it
    #[arg(long, default_value = "1", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub pauses: bool,
    /// Clients that hold leases
    #[arg(long, default_value_t = 40)]
    pub keepers: usize,
    /// Interval in which remaining TTLs are recorded; etcd of this age never does
    #[arg(long = "checkpoint-ms", value_parser = millis, default_value = "1000")]
    pub checkpoint: Duration,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Leaders killed.
    pub kills: usize,
    /// Leaders stopped for a while.
    pub pauses: usize,
    /// Changes of leader that were seen.
    pub leader_changes: usize,
    /// The longest of them.
    pub leaderless_max: Duration,
    /// Times in which nobody was proved to lead, though the leader did not change, and how long they
    /// were together.
    pub outages: (usize, Duration),
    /// Leases granted.
    pub leases: usize,
    /// Leases that were revoked by their clients, as far as these know.
    pub revoked: usize,
    /// Renewals: acknowledged, of a lease that was gone, unknown.
    pub renewals: (usize, usize, usize),
    /// Stretches in which this program could not see, and how long they were together.
    pub stalls: (usize, Duration),
    /// How close to the bounds it came.
    pub margins: Margins,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "lease-precision: seed {}; again with: meerkat-chaos lease-precision --faults {} --seed {}",
        plan.seed, plan.faults, plan.seed
    );
    let mut cluster = Cluster::start(&spec(plan)).await?;
    let endpoints = cluster.endpoints();
    let began = Instant::now();
    let leaders = LeaderWatch::start(&endpoints, began);
    let witnesses = Witnesses::start(&endpoints, began)?;
    let keepers = Keepers::start(&endpoints, plan.keepers, plan.seed, began);
    let mut report = Report::default();
    let mut history = LeaseHistory { members: MEMBERS, ..LeaseHistory::default() };
    let mut random = StdRng::seed_from_u64(plan.seed);
    keepers.wait_for_more(plan.keepers as u64, READY_WITHIN).await?;
    while report.kills + report.pauses < plan.faults {
        let strike = Strike::choose(&mut random, plan.pauses);
        tokio::time::sleep(strike.before).await;
        strike.carry_out(&mut cluster, began, &mut history, &mut report).await?;
        // Progress between blows, or the run would test a cluster that never serves.
        keepers.wait_for_more(plan.keepers as u64 / 2, READY_WITHIN).await?;
    }
    history.leases = keepers.finish().await?;
    tokio::time::sleep(RUN_OUT).await;
    let last = last_deletion(&endpoints[0]).await?;
    let told = await_told(&witnesses, last).await;
    history.ended = began.elapsed();
    history.stalls = witnesses.finish(&mut history.leases).await?;
    let reign = leaders.finish().await?;
    (history.leader_changes, history.outages) = (reign.changes, reign.outages);
    let agreed = settle::agree(&cluster, plan.product).await;
    judge(plan, &history, &mut report)?;
    told.and(agreed)?;
    cluster.finish()?;
    Ok(report)
}

fn spec(plan: &Plan) -> ClusterSpec {
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections();
    match plan.product {
        Product::Etcd => spec,
        Product::Meerkat => {
            let flag = format!("--meerkat-lease-checkpoint-interval-ms={}", plan.checkpoint.as_millis());
            spec.with_flags(&[&flag])
        }
    }
}

/// Notes come once an interval, but some in a row may not reach the log (the track record has such a case).
const UNRECORDED_INTERVALS: u32 = 4;

fn bounds(plan: &Plan) -> Bounds {
    Bounds {
        lateness: lease::lateness(),
        checkpoint: (plan.product == Product::Meerkat).then_some(UNRECORDED_INTERVALS * plan.checkpoint),
        election: ELECTION,
        straggle: Duration::from_millis(500),
    }
}

/// One blow to whoever leads.
#[derive(Clone, Copy, Debug)]
struct Strike {
    before: Duration,
    lasting: Duration,
    stops: bool,
}

impl Strike {
    fn choose(random: &mut StdRng, pauses: bool) -> Self {
        let stops = pauses && random.random_ratio(2, 5);
        // A stop may be shorter than an election, so that the leader stays, or outlast any TTL.
        let lasting = match (stops, random.random_range(0..3)) {
            (true, 0) => random.random_range(100..500),
            (true, 1) => random.random_range(500..3_000),
            (true, _) => random.random_range(3_000..12_000),
            (false, _) => random.random_range(0..2_000),
        };
        let before = Duration::from_millis(random.random_range(300..3_000));
        Self { before, lasting: Duration::from_millis(lasting), stops }
    }

    async fn carry_out(
        self,
        cluster: &mut Cluster,
        began: Instant,
        history: &mut LeaseHistory,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let leader = cluster.leader(READY_WITHIN).await?;
        if !cluster.member(leader).is_running()? {
            let tail = cluster.members()[leader].tail();
            return Err(Failure::broken(format!("a member ended without being killed: {tail}")));
        }
        if self.stops {
            let from = began.elapsed();
            cluster.member(leader).pause()?;
            tokio::time::sleep(self.lasting).await;
            cluster.member(leader).resume()?;
            history.pauses.push(Span { from, until: began.elapsed() });
            report.pauses += 1;
            return cluster.wait_until_ready(READY_WITHIN).await;
        }
        cluster.member(leader).kill()?;
        report.kills += 1;
        tokio::time::sleep(self.lasting).await;
        cluster.revive(READY_WITHIN).await
    }
}

/// Puts and deletes one more key, so that watchers have something to be level with; its revision.
async fn last_deletion(endpoint: &Endpoint) -> Result<i64, Failure> {
    let key: Bytes = [PREFIX, b"~last"].concat().into();
    let put = PutRequest { key: key.clone(), ..Default::default() };
    let refused = Failure::from;
    endpoint.put(put, ANSWER_WITHIN).await.map_err(refused)?;
    let delete = DeleteRangeRequest { key, ..Default::default() };
    let deleted = endpoint.delete(delete, ANSWER_WITHIN).await.map_err(refused)?;
    Ok(deleted.header.map_or(0, |header| header.revision))
}

async fn await_told(witnesses: &Witnesses, revision: i64) -> Result<(), Failure> {
    let patience = Patience::of(format!("all witnesses are told revision {revision}"), TOLD_WITHIN);
    let are_told = || if witnesses.have_seen(revision) { Ok(()) } else { Err("one was not told".to_owned()) };
    patience.until(Duration::from_millis(20), are_told).await.map(drop)
}

fn judge(plan: &Plan, history: &LeaseHistory, report: &mut Report) -> Result<(), Failure> {
    let bounds = bounds(plan);
    let ended = |wanted: fn(RenewalEnd) -> bool| {
        let renewals = history.leases.iter().flat_map(|lease| &lease.renewals);
        renewals.filter(|renewal| wanted(renewal.end)).count()
    };
    report.leader_changes = history.leader_changes.len();
    report.leaderless_max = history.leader_changes.iter().map(Span::length).max().unwrap_or_default();
    report.leases = history.leases.len();
    report.revoked = history.leases.iter().filter(|lease| lease.revoke.is_some()).count();
    report.renewals = (
        ended(|end| matches!(end, RenewalEnd::Renewed(_))),
        ended(|end| end == RenewalEnd::Gone),
        ended(|end| end == RenewalEnd::Unknown),
    );
    report.outages = (history.outages.len(), history.outages.iter().map(Span::length).sum());
    report.stalls = (history.stalls.len(), history.stalls.iter().map(Span::length).sum());
    report.margins = lease_bounds::margins(history, &bounds);
    println!("lease-precision: {report:?}");
    Failure::from_findings("leases end in their time", lease_bounds::check(history, &bounds))?;
    match lease_bounds::undecided(history, &bounds) {
        0 => Ok(()),
        count => Err(Failure::harness(format!("the run ended before {count} lease(s) were overdue"))),
    }
}
