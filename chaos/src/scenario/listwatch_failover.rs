//! Informers of the list-watch door while members are killed: none notices more than a pause.
//!
//! Twelve of them follow one resource through the doors of three members and through a program that
//! only has the door: with lists or initial events, with and without a selector. Writers create,
//! patch and delete meanwhile. Who loses its stream goes on elsewhere after the last revision it
//! knows, and may neither miss nor repeat anything, nor be told to list again.

use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::checker::list_watch::{self, Truth};
use crate::driver::Cluster;
use crate::listwatch::informer::{Informer, Spec};
use crate::listwatch::tier::Tier;
use crate::listwatch::writers::{self, Writers};
use crate::listwatch::{self, truth};
use crate::run::arguments::some_seed;
use crate::{Failure, Patience, binary};

const INFORMERS: usize = 12;
const WRITERS: usize = 4;
const DOWN_FOR: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(400);
const READY_WITHIN: Duration = Duration::from_secs(20);
const LEVEL_WITHIN: Duration = Duration::from_secs(30);
/// How long a door may put off who asks it while its member finds its place in the cluster.
const BEACON_WITHIN: Duration = Duration::from_secs(20);
/// What comes after the end would be something sent twice.
const LISTEN_ON: Duration = Duration::from_millis(500);
/// Of those informers whose watches end by themselves.
const WATCH_LASTS: Duration = Duration::from_secs(5);
/// One kill in so many meets the program without a store too.
const TIER_EVERY: usize = 3;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Members to kill
    #[arg(long, default_value_t = 200)]
    pub kills: usize,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

impl Plan {
    /// What the test suite runs, with its budget.
    pub fn for_suite(seed: u64) -> (Plan, Duration) {
        match binary::long_forms_wanted() {
            true => (Plan { kills: 200, seed }, Duration::from_secs(1_800)),
            false => (Plan { kills: 10, seed }, Duration::from_secs(180)),
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    pub kills: usize,
    pub answered: usize,
    pub unknown: usize,
    pub resumes: u64,
    /// Events told, of all informers.
    pub told: usize,
    pub bookmarks: usize,
    /// The longest time from a kill to every informer at a revision written after it.
    pub level_in_max: Duration,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!("listwatch-failover: again with: --kills {} --seed {}", plan.kills, plan.seed);
    let mut cluster = listwatch::start(3).await?;
    let endpoints: Vec<String> = cluster.endpoints().iter().map(|one| one.url().to_owned()).collect();
    let mut tier = Tier::start(&endpoints, cluster.dir()).await?;
    let servers: Vec<String> = cluster.members().iter().map(|member| member.listwatch_url()).collect();
    let writers = Writers::start(&servers, WRITERS, plan.seed);
    let informers: Vec<Informer> =
        (0..INFORMERS).map(|number| Informer::start(spec(number, &servers, &tier))).collect();
    wait_until(&informers, "its first list", Informer::is_level).await?;

    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut level_in_max = Duration::ZERO;
    for kill in 0..plan.kills {
        let struck = Instant::now();
        let victim = victim(&cluster, &mut random).await?;
        let with_tier = kill % TIER_EVERY == TIER_EVERY - 1;
        strike(&mut cluster, &mut tier, victim, with_tier)
            .await
            .map_err(|failure| failure.during(&format!("kill {kill}, of member {victim}")))?;
        let (level, what) = (level(&cluster, &informers).await?, format!("kill {kill}"));
        wait_until(&informers, &what, |one| level <= one.position() || one.spec().selector.is_some()).await?;
        level_in_max = level_in_max.max(struck.elapsed());
        tokio::time::sleep(REST).await;
    }
    let ledger = writers.finish().await?;
    let truth = truth::read(cluster.members()[0].endpoint(), truth::CONFIG_MAPS).await?;
    let report = judge(informers, &truth, plan.kills, level_in_max).await?;
    Failure::from_findings("what HTTP acknowledged is in the store", writers::compare(&ledger, &truth))?;
    tier.kill()?;
    cluster.finish()?;
    let report = Report { answered: ledger.answers.len(), unknown: ledger.unknown, ..report };
    println!(
        "listwatch-failover: {} kills, {} writes answered, {} unknown; {} informers told {} events and {} \
         bookmarks over {} resumes, none lost, repeated or expired; level again in {:?} at most",
        report.kills,
        report.answered,
        report.unknown,
        INFORMERS,
        report.told,
        report.bookmarks,
        report.resumes,
        report.level_in_max
    );
    Ok(report)
}

/// Members' doors for nine, the tier for three; a third with initial events, half with a selector.
fn spec(number: usize, servers: &[String], tier: &Tier) -> Spec {
    let through_tier = number % 4 == 3;
    let initial_events = number % 3 == 1;
    let color = ["red", "green", "blue"][number / 2 % 3];
    let selector = (number % 2 == 1).then(|| ("color".to_owned(), color.to_owned()));
    let name = format!(
        "informer {number} ({}, {}, {})",
        if through_tier { "tier" } else { "members" },
        if initial_events { "initial events" } else { "list" },
        selector.as_ref().map_or("all", |(_, color)| color),
    );
    let servers = if through_tier { vec![tier.url()] } else { servers.to_vec() };
    let lasts = (number % 4 < 2).then_some(WATCH_LASTS);
    Spec { name, servers, first: number, selector, initial_events, lasts }
}

/// The leader every other time, else anybody.
async fn victim(cluster: &Cluster, random: &mut StdRng) -> Result<usize, Failure> {
    if random.random_bool(0.5) {
        return cluster.leader(READY_WITHIN).await;
    }
    Ok(random.random_range(0..cluster.members().len()))
}

async fn strike(
    cluster: &mut Cluster,
    tier: &mut Tier,
    victim: usize,
    with_tier: bool,
) -> Result<(), Failure> {
    cluster.member(victim).kill()?;
    if with_tier {
        tier.kill()?;
    }
    tokio::time::sleep(DOWN_FOR).await;
    if with_tier {
        // Two of three members are enough for it.
        tier.revive().await?;
    }
    cluster.revive(READY_WITHIN).await?;
    listwatch::wait_until_open(cluster, victim).await
}

/// A revision at which an object changed that every informer without a selector must hear of.
async fn level(cluster: &Cluster, informers: &[Informer]) -> Result<u64, Failure> {
    let known = informers.iter().map(Informer::position).max().unwrap_or(0);
    let url = cluster.members()[0].listwatch_url();
    let path = "/api/v1/namespaces/default/configmaps/beacon";
    let change = serde_json::json!({"data": {"after": known.to_string()}});
    let beacon = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beacon"},
    });
    let began = Instant::now();
    loop {
        let mut answered = listwatch::http::ask(&url, "PATCH", path, Some(&change)).await?;
        let missing = answered.status == 404;
        if missing {
            let collection = "/api/v1/namespaces/default/configmaps";
            answered = listwatch::http::ask(&url, "POST", collection, Some(&beacon)).await?;
        }
        let put_off = match answered.status {
            429 | 500 | 503 | 504 => true,
            // What was put off before may have been done all the same.
            409 => missing,
            _ => false,
        };
        match answered.status {
            200 | 201 => return resource_version(&answered.json()?),
            _ if put_off && began.elapsed() < BEACON_WITHIN => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            status => {
                let body = String::from_utf8_lossy(&answered.body).into_owned();
                return Err(Failure::broken(format!("the beacon is refused: {status}: {body}")));
            }
        }
    }
}

fn resource_version(object: &serde_json::Value) -> Result<u64, Failure> {
    let rv = object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
    rv.ok_or_else(|| Failure::broken(format!("no resourceVersion: {object}")))
}

async fn wait_until(
    informers: &[Informer],
    what: &str,
    is_there: impl Fn(&Informer) -> bool,
) -> Result<(), Failure> {
    let are_level = || {
        let behind = informers.iter().filter(|one| !is_there(one));
        let behind: Vec<String> =
            behind.map(|one| format!("{} at {}", one.spec().name, one.position())).collect();
        if behind.is_empty() { Ok(()) } else { Err(format!("behind are {}", behind.join(", "))) }
    };
    let patience = Patience::of(format!("{what} is told to every informer"), LEVEL_WITHIN);
    patience.until(Duration::from_millis(20), are_level).await.map(drop)
}

async fn judge(
    informers: Vec<Informer>,
    truth: &Truth,
    kills: usize,
    level_in_max: Duration,
) -> Result<Report, Failure> {
    let reached = wait_until(&informers, "the last write", |one| {
        truth.owed(&one.spec().selector, 0).last().is_none_or(|last| last.rv <= one.position())
    });
    // Once time is up, what is missing is for the checker to say.
    let late = reached.await.err();
    tokio::time::sleep(LISTEN_ON).await;
    let resumes: u64 = informers.iter().map(Informer::resumes).sum();
    let (mut findings, mut told, mut bookmarks) = (Vec::new(), 0, 0);
    for informer in informers {
        let record = informer.finish().await?;
        findings.extend(list_watch::check(&record, truth, 0));
        told += record.notes.iter().filter(|note| matches!(note, list_watch::Note::Told(_))).count();
        bookmarks +=
            record.notes.iter().filter(|note| matches!(note, list_watch::Note::Bookmark { .. })).count();
    }
    Failure::from_findings("an informer is told what happened", findings)?;
    late.map_or(Ok(()), Err)?;
    if told == 0 || bookmarks == 0 {
        return Err(Failure::harness(format!("{told} events and {bookmarks} bookmarks prove too little")));
    }
    if resumes == 0 {
        return Err(Failure::harness("nobody ever resumed".to_owned()));
    }
    Ok(Report { kills, answered: 0, unknown: 0, resumes, told, bookmarks, level_in_max })
}
