//! `kill -9` of random members, leader included, under load; afterwards nothing may be missing.
//!
//! One seed decides who is killed, together with whom, and for how long. Mostly one member dies,
//! now and then two, so that the cluster stops, and now and then all three, so that it has only
//! what it synced.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::account::Account;
use super::stage::Stage;
use crate::Failure;
use crate::driver::{ClusterSpec, Product};
use crate::report::Story;
use crate::run::arguments::some_seed;
use crate::workload::unique::Shape;

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
    /// File of the report; the record goes beside it
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Flags for every member beyond the quick elections.
    #[arg(skip)]
    pub flags: Vec<String>,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Story, Failure> {
    let replay =
        format!("meerkat-chaos crash --kills {} --seed {} --product {}", plan.kills, plan.seed, plan.product);
    let account = Account::open("crash", plan.product, plan.seed, replay).reporting(plan.report.clone());
    let flags: Vec<&str> = plan.flags.iter().map(String::as_str).collect();
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections().with_flags(&flags);
    let mut stage = Stage::set(&spec, Shape::default(), account).await?;
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut kills = 0;
    while kills < plan.kills {
        let leader = stage.cluster.leader(READY_WITHIN).await?;
        let victims = choose(&mut random, leader);
        kills += victims.len();
        strike(&mut stage, leader, victims, &mut random).await?;
        // Progress between blows, or the run would test a cluster that never serves.
        stage.load.wait_for_more(20, READY_WITHIN).await?;
    }
    stage.judge().await
}

fn choose(random: &mut StdRng, leader: usize) -> Vec<usize> {
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
    members
}

/// Kills the victims as nearly at once as signals go, rests, and brings them back.
async fn strike(
    stage: &mut Stage,
    leader: usize,
    victims: Vec<usize>,
    random: &mut StdRng,
) -> Result<(), Failure> {
    let cluster = &mut stage.cluster;
    tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
    for victim in &victims {
        if !cluster.member(*victim).is_running()? {
            return Err(Failure::broken(format!(
                "{} ended without being killed: {}",
                cluster.members()[*victim].name(),
                cluster.members()[*victim].tail()
            )));
        }
        cluster.member(*victim).kill()?;
    }
    let led = if victims.contains(&leader) { " (leader)" } else { "" };
    let fault = stage.account.struck("kill", format!("{} killed{led}", victims.len()), victims);
    tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
    cluster.revive(READY_WITHIN).await?;
    stage.account.trace.healed(fault);
    Ok(())
}
