//! SIGSTOP of the leader under load: another must serve soon, and the sleeper, once awake, must
//! never answer a linearizable read from its dream.

use std::time::{Duration, Instant};

use clap::Args;

use super::account::{Account, members_of};
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Roster;
use crate::record::Verdict;
use crate::report::Story;
use crate::run::arguments::seconds;
use crate::run::settle::agreement;
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

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Story, Failure> {
    let replay = format!(
        "meerkat-chaos pause --seconds {} --rounds {} --product {}",
        plan.pause.as_secs(),
        plan.rounds,
        plan.product
    );
    let mut account = Account::open("pause", plan.product, 0, replay);
    let mut cluster = Cluster::start(&ClusterSpec::new(plan.product, 3)).await?;
    account.look(&Roster::of(&cluster.endpoints()));
    let mut reads = Verdict::new("counter", "no stale linearizable read", 0, Vec::new());
    let mut late = Vec::new();
    let rounds = async {
        for _ in 0..plan.rounds {
            let silence = round(&mut cluster, plan, &account, &mut reads).await?;
            if plan.serve_within < silence {
                late.push(format!("{silence:?}; allowed are {:?}", plan.serve_within));
            }
            cluster.wait_until_ready(READY_WITHIN).await?;
        }
        Ok(())
    };
    let ended = rounds.await;
    account.ended(ended);
    account.ended(Failure::from_times("writes are acknowledged soon after the leader was paused", late));
    account.verdicts([reads]);
    let members = members_of(&cluster);
    match agreement(&members, plan.product).await {
        Ok(verdict) => account.verdicts([verdict]),
        Err(failure) => account.ended(Err(failure)),
    }
    let story = account.close(members).await?;
    cluster.finish()?;
    Ok(story)
}

/// One pause: judges what was read through the member that slept; how long nothing was acknowledged.
async fn round(
    cluster: &mut Cluster,
    plan: &Plan,
    account: &Account,
    reads: &mut Verdict,
) -> Result<Duration, Failure> {
    let leader = cluster.leader(READY_WITHIN).await?;
    let endpoints = cluster.endpoints();
    let others: Vec<_> = endpoints
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != leader)
        .map(|(_, one)| one.clone())
        .collect();
    let counter = Counter::told(&account.trace);
    // Writes go through the others, with a short deadline: one stuck behind the sleeping leader
    // must not hide that a new one already serves.
    let writer = counter.write_through(others, Duration::from_millis(500));
    let pinned: Vec<_> = (0..READERS)
        .map(|_| counter.read_through(endpoints[leader].clone(), plan.pause + Duration::from_secs(10)))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let paused_at = Instant::now();
    cluster.member(leader).pause()?;
    let fault = account.struck("pause", "the leader stopped", vec![leader]);
    tokio::time::sleep(plan.pause).await;
    let woken_at = Instant::now();
    cluster.member(leader).resume()?;
    account.trace.healed(fault);
    tokio::time::sleep(Duration::from_secs(3)).await;

    counter.stop();
    let written = writer.await.map_err(|error| Failure::harness(error.to_string()))?;
    for reader in pinned {
        let seen = reader.await.map_err(|error| Failure::harness(error.to_string()))?;
        reads.judged += seen.answered as u64;
        reads.findings.extend(seen.stale);
    }
    let silence = counter::longest_silence(&written, paused_at, woken_at)?;
    println!("  nothing was acknowledged for {silence:?}");
    Ok(silence)
}
