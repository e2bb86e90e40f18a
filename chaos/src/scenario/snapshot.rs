//! A member that slept through more than the log keeps comes back by snapshot, under load, and
//! neither side's memory grows with the size of the store.

use std::time::Duration;

use clap::Args;

use super::account::{Account, members_of};
use super::stage::first_revision;
use crate::Failure;
use crate::driver::usage::mib;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::record::Verdict;
use crate::report::Story;
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
pub async fn run(plan: &Plan) -> Result<Story, Failure> {
    let replay = format!("meerkat-chaos snapshot --writes {} --product {}", plan.writes, plan.product);
    let mut account = Account::open("snapshot", plan.product, 0, replay);
    let mut spec = ClusterSpec::new(plan.product, 3);
    spec.flags = match plan.product {
        Product::Meerkat => short_log_flags(),
        Product::Etcd => vec!["--snapshot-count=2000".to_owned()],
    };
    let mut cluster = Cluster::start(&spec).await?;
    let awake: Vec<_> = cluster.endpoints().into_iter().take(SLEEPER).collect();

    cluster.member(SLEEPER).kill()?;
    let fault = account.struck("kill", "one member sleeps through a purged log", vec![SLEEPER]);
    let printed_before = cluster.members()[SLEEPER].printed()?.len();
    fill::write_singly(&awake, 0..plan.writes, plan.value_bytes, FILL_CLIENTS).await?;
    let started_at = first_revision(&awake[0]).await?;

    let load = unique::start(&awake, Shape { writers: 4, ..Shape::default() }, 1, &account.trace);
    cluster.member(SLEEPER).start()?;
    let caught_up_in = cluster.member(SLEEPER).wait_until_ready(READY_WITHIN).await?;
    account.trace.healed(fault);
    load.wait_for_more(50, READY_WITHIN).await?;
    let history = load.finish().await?;

    if !installed_snapshot(&cluster.members()[SLEEPER].printed()?[printed_before..]) {
        account.trouble("the member caught up without a snapshot: the log was not short enough");
    }
    let leader = cluster.leader(READY_WITHIN).await?;
    let mut unbounded = Vec::new();
    for (side, member) in [("receiver", SLEEPER), ("sender", leader)] {
        let peak = cluster.members()[member].usage()?.peak_rss_bytes;
        println!("  caught up in {caught_up_in:?}; {side} peak {}", mib(peak));
        if plan.rss_max_bytes < peak {
            let allowed = mib(plan.rss_max_bytes);
            unbounded.push(format!("the {side} peaked at {}, allowed are {allowed}", mib(peak)));
        }
    }
    account.verdicts([Verdict::new("cluster", "a snapshot is sent in bounded memory", 2, unbounded)]);
    let members = members_of(&cluster);
    account.judge(&members, &history, started_at).await;
    let story = account.close(members).await?;
    cluster.finish()?;
    Ok(story)
}

/// Both products say so in their logs, in words of their own.
fn installed_snapshot(printed: &str) -> bool {
    printed.contains("\"installing a snapshot\"") || printed.contains("\"applied snapshot\"")
}
