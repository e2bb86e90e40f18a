//! How long nobody can write after a leader was killed, here and on etcd, in one run.
//!
//! Both clusters have the same heartbeat and election settings and stand side by side; their leaders
//! are killed in turn, so that whatever else the machine does meets both alike. What is measured is
//! what the most eager of clients sees: from the kill to the first acknowledged write, among writes
//! sent to all members every few milliseconds, each left to wait. Every such write is read again
//! once the cluster is whole.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use meerkat_proto::pb::etcdserver::{PutRequest, RangeRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::checker::not_worse::{self, Spread, Tolerance};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::run::arguments::{self, millis, some_seed};
use crate::{Failure, Patience};

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(20);
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);
/// Between two attempts at one member: also how finely this measures.
const EAGERNESS: Duration = Duration::from_millis(10);
/// Longer than either server lets a proposal wait for a leader.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How to run it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Plan {
    /// Leaders to kill on each side
    #[arg(long, default_value_t = 100)]
    pub kills: usize,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
    /// `--heartbeat-interval` of both
    #[arg(long = "heartbeat-ms", value_parser = millis, default_value = "100")]
    pub heartbeat: Duration,
    /// `--election-timeout` of both
    #[arg(long = "election-ms", value_parser = millis, default_value = "1000")]
    pub election: Duration,
}

impl Plan {
    /// The long form: enough kills for a p99, with the settings that etcd has by default.
    pub fn full(seed: u64) -> Self {
        Self { seed, ..arguments::full() }
    }

    /// Few kills, and a wider tolerance with them.
    pub fn short(seed: u64) -> Self {
        Self { kills: 8, ..Self::full(seed) }
    }
}

/// What was measured on each side, one time for each kill.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// On Meerkat.
    pub meerkat: Vec<Duration>,
    /// On etcd.
    pub etcd: Vec<Duration>,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "failover-time: seed {}; again with: meerkat-chaos failover-time --kills {} --seed {} \
         --heartbeat-ms {} --election-ms {}",
        plan.seed,
        plan.kills,
        plan.seed,
        plan.heartbeat.as_millis(),
        plan.election.as_millis()
    );
    let mut meerkat = Side::start(Product::Meerkat, plan).await?;
    let mut etcd = Side::start(Product::Etcd, plan).await?;
    let mut dice = StdRng::seed_from_u64(plan.seed);
    for kill in 0..plan.kills {
        // Who goes first changes, so that neither always has the machine as the other left it.
        let (first, second) =
            if kill % 2 == 0 { (&mut meerkat, &mut etcd) } else { (&mut etcd, &mut meerkat) };
        first.round(kill, rest(&mut dice, plan)).await?;
        second.round(kill, rest(&mut dice, plan)).await?;
    }
    let report = Report { meerkat: meerkat.finish().await?, etcd: etcd.finish().await? };
    println!("{}", table(plan, &report));
    let findings = not_worse::check(&report.meerkat, &report.etcd, Tolerance::of(plan.kills));
    Failure::from_times("writes are possible again as soon as on etcd", findings)?;
    Ok(report)
}

/// Any moment between two heartbeats, once the cluster has been whole for a while.
fn rest(dice: &mut StdRng, plan: &Plan) -> Duration {
    plan.election / 2 + plan.heartbeat.mul_f64(dice.random_range(0.0..2.0))
}

/// The measurements as a table for a document.
pub fn table(plan: &Plan, report: &Report) -> String {
    let mut lines = vec![
        format!(
            "{} leaders killed on each side, heartbeat {} ms, election timeout {} ms:",
            plan.kills,
            plan.heartbeat.as_millis(),
            plan.election.as_millis()
        ),
        String::new(),
        "| no write acknowledged for | min | p50 | p90 | p99 | max |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for (name, times) in [("Meerkat", &report.meerkat), ("etcd", &report.etcd)] {
        let spread = Spread::of(times);
        let cells = [spread.min, spread.p50, spread.p90, spread.p99, spread.max];
        let cells: Vec<String> = cells.iter().map(|time| format!("{} ms", time.as_millis())).collect();
        lines.push(format!("| {name} | {} |", cells.join(" | ")));
    }
    lines.join("\n")
}

/// One of the two clusters.
struct Side {
    product: Product,
    cluster: Cluster,
    times: Vec<Duration>,
    written: Vec<Bytes>,
}

impl Side {
    async fn start(product: Product, plan: &Plan) -> Result<Self, Failure> {
        let heartbeat = format!("--heartbeat-interval={}", plan.heartbeat.as_millis());
        let election = format!("--election-timeout={}", plan.election.as_millis());
        let spec = ClusterSpec::new(product, MEMBERS).with_flags(&[&heartbeat, &election]);
        let cluster = Cluster::start(&spec).await?;
        Ok(Self { product, cluster, times: Vec::new(), written: Vec::new() })
    }

    /// Kills the leader, measures, and makes the cluster whole again.
    async fn round(&mut self, number: usize, rest: Duration) -> Result<(), Failure> {
        let what = format!("kill {number} on {:?}", self.product);
        self.kill_and_measure(number, rest).await.map_err(|failure| failure.during(&what))
    }

    async fn kill_and_measure(&mut self, number: usize, rest: Duration) -> Result<(), Failure> {
        tokio::time::sleep(rest).await;
        let leader = self.cluster.leader(READY_WITHIN).await?;
        let struck = Instant::now();
        self.cluster.member(leader).kill()?;
        let (at, key) = first_write(&self.cluster.endpoints(), number).await?;
        self.times.push(at.saturating_duration_since(struck));
        self.written.push(key);
        self.cluster.revive(READY_WITHIN).await
    }

    /// Looks for every write that was acknowledged, on every member.
    async fn finish(self) -> Result<Vec<Duration>, Failure> {
        for member in self.cluster.members() {
            for key in &self.written {
                let request = RangeRequest { key: key.clone(), ..Default::default() };
                let answer = member.endpoint().range(request, ANSWER_WITHIN).await?;
                if answer.kvs.len() != 1 {
                    let what = format!("{:?} acknowledged {key:?}; {} lacks it", self.product, member.name());
                    return Err(Failure::broken(what));
                }
            }
        }
        self.cluster.finish()?;
        Ok(self.times)
    }
}

/// Writes to every member, again and again, until one of these writes is acknowledged: when and
/// which.
async fn first_write(endpoints: &[Endpoint], round: usize) -> Result<(Instant, Bytes), Failure> {
    let (done, mut acknowledged) = mpsc::unbounded_channel();
    let patience = Patience::of("a write is acknowledged", WRITTEN_WITHIN);
    let mut ticks = tokio::time::interval(EAGERNESS);
    // Dropped with this function, and with it every attempt that still waits.
    let mut attempts = JoinSet::new();
    for attempt in 0.. {
        tokio::select! {
            biased;
            Some(first) = acknowledged.recv() => return patience.came().map(|_| first),
            _ = ticks.tick() => {}
        }
        patience.lasts("none")?;
        for (member, endpoint) in endpoints.iter().enumerate() {
            let key = Bytes::from(format!("failover/{round}/{attempt}/{member}"));
            let (endpoint, done) = (endpoint.clone(), done.clone());
            attempts.spawn(async move {
                let request = PutRequest { key: key.clone(), value: key.clone(), ..Default::default() };
                if endpoint.put(request, ANSWER_WITHIN).await.is_ok() {
                    // Nobody listens once the first has come.
                    let _ = done.send((Instant::now(), key));
                }
            });
        }
        while attempts.try_join_next().is_some() {}
    }
    unreachable!("attempts have no end")
}
