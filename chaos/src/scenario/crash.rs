//! `kill -9` of random members, leader included, under load; afterwards nothing may be missing.
//!
//! One seed decides who is killed, together with whom, and for how long. Mostly one member dies,
//! now and then two, so that the cluster stops, and now and then all three, so that it has only
//! what it synced.

use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::settle;
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::outcome::describe;
use crate::run::arguments::some_seed;
use crate::workload::unique::{self, Shape};

const READY_WITHIN: Duration = Duration::from_secs(20);
const MEMBERS: usize = 3;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Processes to kill
    #[arg(long, default_value_t = 500)]
    pub kills: usize,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Flags for every member beyond the quick elections.
    #[arg(skip)]
    pub flags: Vec<String>,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// Processes killed, and how many of them led.
    pub kills: usize,
    /// Of those, leaders.
    pub leaders_killed: usize,
    /// Writes acknowledged, refused, unknown.
    pub writes: (usize, usize, usize),
    /// Linearizable reads answered.
    pub reads: usize,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "crash: seed {}; again with: meerkat-chaos crash --kills {} --seed {}",
        plan.seed, plan.kills, plan.seed
    );
    let flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections().with_flags(&flags);
    let mut cluster = Cluster::start(&spec).await?;
    let started_at = cluster.members()[0]
        .endpoint()
        .linearizable_probe(READY_WITHIN)
        .await
        .map_err(|status| Failure::broken(describe(&status)))?;

    let began = Instant::now();
    let load = unique::start(&cluster.endpoints(), Shape::default(), 1, began);
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut kills = 0;
    let mut leaders_killed = 0;
    while kills < plan.kills {
        let victims = choose(&mut random, &cluster).await?;
        leaders_killed += usize::from(victims.led);
        kills += victims.members.len();
        strike(&mut cluster, &victims, &mut random).await?;
        // Progress between blows, or the run would test a cluster that never serves.
        load.wait_for_more(20, READY_WITHIN).await?;
    }
    let history = load.finish().await?;
    cluster.revive(READY_WITHIN).await?;
    settle::judge(&cluster, plan.product, &history, started_at).await?;
    cluster.finish()?;
    Ok(Report { kills, leaders_killed, writes: history.counts(), reads: history.reads.len() })
}

struct Victims {
    members: Vec<usize>,
    led: bool,
}

async fn choose(random: &mut StdRng, cluster: &Cluster) -> Result<Victims, Failure> {
    let leader = cluster.leader(READY_WITHIN).await?;
    let count = match random.random_range(0..10) {
        0 => MEMBERS,
        1 | 2 => 2,
        _ => 1,
    };
    let mut members: Vec<usize> = (0..MEMBERS).collect();
    members.shuffle(random);
    // Leaders are what hurts: see to it that about half the blows hit one.
    if random.random_bool(0.4) {
        let at = members.iter().position(|member| *member == leader).unwrap_or(0);
        members.swap(0, at);
    }
    members.truncate(count);
    Ok(Victims { led: members.contains(&leader), members })
}

/// Kills the victims as nearly at once as signals go, rests, and brings them back.
async fn strike(cluster: &mut Cluster, victims: &Victims, random: &mut StdRng) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
    for victim in &victims.members {
        if !cluster.member(*victim).is_running()? {
            return Err(Failure::broken(format!(
                "{} ended without being killed: {}",
                cluster.members()[*victim].name(),
                cluster.members()[*victim].tail()
            )));
        }
        cluster.member(*victim).kill()?;
    }
    tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
    cluster.revive(READY_WITHIN).await
}
