//! `kill -9` and SIGSTOP of random members while a fleet of watchers looks on: every watcher must
//! be sent exactly what happened, over however many connections.
//!
//! Watchers go from member to member as these die, each asking for what it has not had. Compactions
//! follow them, mostly behind the slowest, now and then past it: then it must be told so. Before
//! each compaction everything up to it is read and kept, so that at the end the whole history is
//! known, is held against what the writers were told, and judges all that the watchers were sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::sync::Mutex;

use super::settle;
use crate::Failure;
use crate::checker::watch_history::WatchHistory;
use crate::checker::watch_properties::{self, Demand};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::Outcome;
use crate::run::arguments::{seconds, some_seed};
use crate::watch::fleet::Fleet;
use crate::watch::{Archive, Kind, WatchLog, writers};

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(20);
/// What the watchers may take at the end to hear of the last event.
const HEARD_WITHIN: Duration = Duration::from_secs(20);
/// After the last event is due, so that one too many can still arrive.
const LISTEN_ON: Duration = Duration::from_millis(500);

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Time that members are struck
    #[arg(long = "seconds", value_parser = seconds, default_value = "120")]
    pub lasting: Duration,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Whether members are struck at all.
    #[arg(skip = true)]
    pub strikes: bool,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Processes killed.
    pub kills: usize,
    /// Members put to sleep for a while.
    pub pauses: usize,
    /// Watchers.
    pub watchers: usize,
    /// Their connections.
    pub connections: usize,
    /// Events they were sent.
    pub events: usize,
    /// Responses that came in pieces.
    pub pieces: usize,
    /// Marks they were sent.
    pub marks: usize,
    /// Times that one was told of compaction.
    pub told_compacted: usize,
    /// Compactions that were acknowledged.
    pub compactions: usize,
    /// The store's revision at the end.
    pub revision: i64,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "watch-crash: seed {}; again with: meerkat-chaos watch-crash --seconds {} --seed {}",
        plan.seed,
        plan.lasting.as_secs(),
        plan.seed
    );
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections();
    let mut cluster = Cluster::start(&spec).await?;
    let endpoints = cluster.endpoints();
    let began = Instant::now();
    let mut random = StdRng::seed_from_u64(plan.seed);
    let mut report = Report::default();

    let fleet = Arc::new(Mutex::new(Fleet::new(&endpoints, plan.product, began)));
    fleet.lock().await.add_one_of_each(&mut random, 1)?;
    let writing = writers::start(&endpoints, writers::Shape::default(), plan.seed);
    let stop = Arc::new(AtomicBool::new(false));
    let keeper = tokio::spawn(
        Keeper {
            archive: Archive::new(began),
            endpoints: endpoints.clone(),
            fleet: fleet.clone(),
            product: plan.product,
            random: StdRng::seed_from_u64(plan.seed ^ 0x5eed),
            compactions: 0,
            stop: stop.clone(),
        }
        .keep(),
    );

    let mut late_lots = 2;
    while began.elapsed() < plan.lasting {
        if plan.strikes {
            strike(&mut cluster, &mut random, &mut report).await?;
        }
        // Progress between blows, or the run would test a cluster that never serves.
        writing.wait_for_more(30, READY_WITHIN).await?;
        if 0 < late_lots {
            late_lots -= 1;
            let now = endpoints[0].linearizable_probe(READY_WITHIN).await.unwrap_or(1);
            fleet.lock().await.add_one_of_each(&mut random, now)?;
        }
    }

    cluster.revive(READY_WITHIN).await?;
    let writes = writing.finish().await?;
    stop.store(true, Ordering::Relaxed);
    let (archive, compactions) =
        keeper.await.map_err(|error| Failure::harness(format!("the archive's keeper ended: {error}")))??;
    report.compactions = compactions;
    let history = archive.close(&endpoints, &writes).await?;
    let agreed = settle::agree(&cluster, plan.product).await;
    let fleet = Arc::into_inner(fleet).ok_or_else(|| Failure::harness("the fleet is still shared"))?;
    let logs = gather(fleet.into_inner(), &history).await?;
    judge(plan, &logs, &history, &mut report)?;
    agreed?;
    cluster.finish()?;
    Ok(report)
}

/// Kills or pauses some members and brings them back.
async fn strike(cluster: &mut Cluster, random: &mut StdRng, report: &mut Report) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
    let mut members: Vec<usize> = (0..MEMBERS).collect();
    members.shuffle(random);
    if random.random_bool(0.25) {
        let sleeper = members[0];
        cluster.member(sleeper).pause()?;
        tokio::time::sleep(Duration::from_millis(random.random_range(200..2_500))).await;
        cluster.member(sleeper).resume()?;
        report.pauses += 1;
        return cluster.wait_until_ready(READY_WITHIN).await;
    }
    members.truncate(match random.random_range(0..12) {
        0 => MEMBERS,
        1 | 2 => 2,
        _ => 1,
    });
    for victim in &members {
        if !cluster.member(*victim).is_running()? {
            let tail = cluster.members()[*victim].tail();
            return Err(Failure::broken(format!("a member ended without being killed: {tail}")));
        }
        cluster.member(*victim).kill()?;
        report.kills += 1;
    }
    tokio::time::sleep(Duration::from_millis(random.random_range(0..600))).await;
    cluster.revive(READY_WITHIN).await
}

/// Keeps the archive, and compacts what it has.
struct Keeper {
    archive: Archive,
    endpoints: Vec<Endpoint>,
    fleet: Arc<Mutex<Fleet>>,
    product: Product,
    random: StdRng,
    compactions: usize,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    async fn keep(mut self) -> Result<(Archive, usize), Failure> {
        let mut compacted = 1;
        while !self.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(self.random.random_range(300..1_200))).await;
            let at = self.random.random_range(0..self.endpoints.len());
            let endpoint = self.endpoints[at].clone();
            let Ok(now) = endpoint.linearizable_probe(Duration::from_secs(2)).await else { continue };
            self.archive.extend(&self.endpoints, now, READY_WITHIN).await?;
            let Some(bound) = self.choose(compacted, now).await else { continue };
            compacted = bound;
            match self.archive.compact(&endpoint, bound).await {
                Outcome::Ok(()) => self.compactions += 1,
                Outcome::Unknown(_) => {}
                Outcome::Failed(why) => {
                    return Err(Failure::broken(format!(
                        "compaction at {bound} of {now} was refused: {why}"
                    )));
                }
            }
        }
        Ok((self.archive, self.compactions))
    }

    /// Where to compact: at or behind the slowest watcher, now and then past it.
    async fn choose(&mut self, compacted: i64, now: i64) -> Option<i64> {
        let slowest = self.fleet.lock().await.slowest()?;
        // The control loses events when compaction overtakes a watcher, or a deletion lies at the
        // bound; that is known, and not what it is here to show.
        let fragile = self.product == Product::Etcd;
        let upto = if self.random.random_bool(0.3) && !fragile { now } else { slowest.min(now) };
        if upto <= compacted + 1 {
            return None;
        }
        let bound = self.random.random_range(compacted + 1..=upto);
        let deletes = self.archive.history().at(bound).iter().any(|event| event.kind == Kind::Delete);
        (!fragile || !deletes).then_some(bound)
    }
}

/// Waits until every watcher has heard of the last event it is owed, then takes the records.
async fn gather(fleet: Fleet, history: &WatchHistory) -> Result<Vec<WatchLog>, Failure> {
    fleet.hurry();
    let deadline = Instant::now() + HEARD_WITHIN;
    // Once time is up, what is missing is for the checker to say.
    while Instant::now() < deadline && !fleet.has_heard_all(history) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(LISTEN_ON).await;
    fleet.finish().await
}

fn judge(plan: &Plan, logs: &[WatchLog], history: &WatchHistory, report: &mut Report) -> Result<(), Failure> {
    report.watchers = logs.len();
    report.connections = logs.iter().map(|log| log.sessions.len()).sum();
    report.events = logs.iter().map(|log| log.events().count()).sum();
    let count = |wanted: fn(&crate::watch::Reply) -> bool| {
        logs.iter().map(|log| log.replies().filter(|reply| wanted(reply)).count()).sum::<usize>()
    };
    report.pieces = count(|reply| reply.fragment);
    report.marks = count(crate::watch::Reply::is_mark);
    report.told_compacted = count(|reply| reply.compact_revision != 0);
    report.revision = history.last_revision();
    println!("watch-crash: {report:?}");
    let demand = Demand { complete: true, marks: plan.product == Product::Meerkat };
    watch_properties::check_all(logs, history, demand)
}
