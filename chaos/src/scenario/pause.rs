//! SIGSTOP of the leader under load: another must serve soon, and the sleeper, once awake, must
//! never answer a linearizable read from its dream.

use std::time::{Duration, Instant};

use clap::Args;

use super::settle;
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::run::arguments::seconds;
use crate::workload::counter::{self, Counter};

const READY_WITHIN: Duration = Duration::from_secs(20);
const READERS: usize = 8;

/// How to run it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Time that the leader sleeps
    #[arg(long = "seconds", value_parser = seconds, default_value = "10")]
    pub pause: Duration,
    /// Leaders paused, one after the other
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Within which time another member must acknowledge writes.
    #[arg(skip = Duration::from_secs(2))]
    pub serve_within: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// The longest time without an acknowledgement after each pause.
    pub silences: Vec<Duration>,
    /// Reads that the paused members answered.
    pub answered: u64,
    /// Reads that they refused or left unanswered.
    pub unanswered: u64,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut cluster = Cluster::start(&ClusterSpec::new(plan.product, 3)).await?;
    let mut report = Report { silences: Vec::new(), answered: 0, unanswered: 0 };
    for _ in 0..plan.rounds {
        round(&mut cluster, plan, &mut report).await?;
        cluster.wait_until_ready(READY_WITHIN).await?;
    }
    settle::agree(&cluster, plan.product).await?;
    cluster.finish()?;
    Ok(report)
}

async fn round(cluster: &mut Cluster, plan: &Plan, report: &mut Report) -> Result<(), Failure> {
    let leader = cluster.leader(READY_WITHIN).await?;
    let endpoints = cluster.endpoints();
    let others: Vec<_> = endpoints
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != leader)
        .map(|(_, one)| one.clone())
        .collect();
    let counter = Counter::default();
    // Writes go through the others, with a short deadline: one stuck behind the sleeping leader
    // must not hide that a new one already serves.
    let writer = counter.write_through(others, Duration::from_millis(500));
    let pinned: Vec<_> = (0..READERS)
        .map(|_| counter.read_through(endpoints[leader].clone(), plan.pause + Duration::from_secs(10)))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let paused_at = Instant::now();
    cluster.member(leader).pause()?;
    tokio::time::sleep(plan.pause).await;
    let woken_at = Instant::now();
    cluster.member(leader).resume()?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    counter.stop();
    let written = writer.await.map_err(|error| Failure::harness(error.to_string()))?;
    for reader in pinned {
        let seen = reader.await.map_err(|error| Failure::harness(error.to_string()))?;
        report.answered += seen.answered;
        report.unanswered += seen.unanswered;
        Failure::from_findings("no stale linearizable read", seen.stale)?;
    }
    let silence = counter::longest_silence(&written, paused_at, woken_at)?;
    report.silences.push(silence);
    if plan.serve_within < silence {
        return Err(Failure::slow(format!(
            "after the leader was paused nothing was acknowledged for {silence:?}; allowed are {:?}",
            plan.serve_within
        )));
    }
    Ok(())
}
