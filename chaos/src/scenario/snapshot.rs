//! A member that slept through more than the log keeps comes back by snapshot, under load, and
//! neither side's memory grows with the size of the store.

use std::time::{Duration, Instant};

use clap::Args;

use super::settle;
use crate::Failure;
use crate::driver::usage;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::ground::Usage;
use crate::outcome::describe;
use crate::run::arguments::mebibytes;
use crate::workload::fill;
use crate::workload::unique::{self, Shape};

const READY_WITHIN: Duration = Duration::from_secs(60);
const SLEEPER: usize = 2;
const FILL_CLIENTS: usize = 128;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Writes made while the member is down
    #[arg(long, default_value_t = 200_000)]
    pub writes: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 256)]
    pub value_bytes: usize,
    /// What each member's memory may peak at
    #[arg(long = "rss-max-mib", value_parser = mebibytes, default_value = "512")]
    pub rss_max_bytes: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the start of the sleeper to its first linearizable answer.
    pub caught_up_in: Duration,
    /// Memory of the member that caught up.
    pub receiver: Usage,
    /// Memory of the member that led meanwhile.
    pub sender: Usage,
    /// Whether the sleeper says that it installed a snapshot.
    pub by_snapshot: bool,
}

/// Flags for a log that keeps next to nothing.
pub fn short_log_flags() -> Vec<String> {
    [
        "--snapshot-count=2000",
        "--snapshot-catchup-entries=500",
        "--meerkat-log-segment-bytes=262144",
        "--meerkat-flush-log-bytes=262144",
        "--meerkat-flush-interval-ms=200",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut spec = ClusterSpec::new(plan.product, 3);
    spec.flags = match plan.product {
        Product::Meerkat => short_log_flags(),
        Product::Etcd => vec!["--snapshot-count=2000".to_owned()],
    };
    let mut cluster = Cluster::start(&spec).await?;
    let awake: Vec<_> = cluster.endpoints().into_iter().take(SLEEPER).collect();

    cluster.member(SLEEPER).kill()?;
    let printed_before = cluster.members()[SLEEPER].printed()?.len();
    fill::write_singly(&awake, 0..plan.writes, plan.value_bytes, FILL_CLIENTS).await?;
    let started_at = awake[0]
        .linearizable_probe(READY_WITHIN)
        .await
        .map_err(|status| Failure::broken(describe(&status)))?;

    let load = unique::start(&awake, Shape { writers: 4, ..Shape::default() }, 1, Instant::now());
    cluster.member(SLEEPER).start()?;
    let caught_up_in = cluster.member(SLEEPER).wait_until_ready(READY_WITHIN).await?;
    load.wait_for_more(50, READY_WITHIN).await?;
    let history = load.finish().await?;

    let leader = cluster.leader(READY_WITHIN).await?;
    let report = Report {
        caught_up_in,
        receiver: cluster.members()[SLEEPER].usage()?,
        sender: cluster.members()[leader].usage()?,
        by_snapshot: installed_snapshot(&cluster.members()[SLEEPER].printed()?[printed_before..]),
    };
    println!(
        "snapshot: caught up in {:?}; receiver peak {}, sender peak {}; by snapshot: {}",
        report.caught_up_in,
        usage::mib(report.receiver.peak_rss_bytes),
        usage::mib(report.sender.peak_rss_bytes),
        report.by_snapshot
    );
    settle::judge(&cluster, plan.product, &history, started_at).await?;
    require_bounds(plan, &report)?;
    cluster.finish()?;
    Ok(report)
}

fn require_bounds(plan: &Plan, report: &Report) -> Result<(), Failure> {
    if !report.by_snapshot {
        return Err(Failure::harness(
            "the member caught up without a snapshot: the log was not short enough",
        ));
    }
    for (side, usage) in [("receiver", report.receiver), ("sender", report.sender)] {
        if plan.rss_max_bytes < usage.peak_rss_bytes {
            return Err(Failure::broken(format!(
                "the {side} peaked at {}, allowed are {}",
                usage::mib(usage.peak_rss_bytes),
                usage::mib(plan.rss_max_bytes)
            )));
        }
    }
    Ok(())
}

/// Both products say so in their logs, in words of their own.
fn installed_snapshot(printed: &str) -> bool {
    printed.contains("\"installing a snapshot\"") || printed.contains("\"applied snapshot\"")
}
