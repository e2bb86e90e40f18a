//! Watches of a client library while members are killed, frozen, cut off and outvoted.
//!
//! Every watcher is judged as if it had never lost a connection: the nine properties, against the
//! whole history, which is itself held against the writers' acknowledgements and a last read of
//! every member. How long each was without news is measured for every fault that met its member.
//!
//! Long runs are made of rounds, each on a cluster of its own, so that a record of everything fits
//! into memory.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use meerkat_client::Client;

use crate::Failure;
use crate::checker::watch_history::WatchHistory;
use crate::checker::watch_properties::{self, Demand};
use crate::driver::Product;
use crate::failover::pace::{Ack, Pace};
use crate::failover::resume::{self, Arrival, Hit, Times};
use crate::failover::schedule::{self, Fault, Kind};
use crate::failover::stage::{READY_WITHIN, Stage};
use crate::failover::tally::Tally;
use crate::failover::watcher::{Record, Spec, Watcher};
use crate::run::arguments::{seconds, some_seed};
use crate::watch::{Archive, WatchLog, WatchSpec};

use super::settle;

/// Faults of one round.
const ROUND: usize = 50;

/// After a fault is mended, every quick watcher must be level with the store within this time.
const LEVEL_WITHIN: Duration = Duration::from_secs(20);
/// After the last write, every watcher must have heard of everything within this time.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
/// What comes after the end would be something sent twice.
const LISTEN_ON: Duration = Duration::from_millis(500);

/// Whose client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// Ours.
    #[default]
    Meerkat,
    /// The `etcd-client` crate, its watch as it is.
    #[cfg(feature = "etcd-client")]
    EtcdClient,
    /// The `etcd-client` crate in a loop that watches again from the last revision on.
    #[cfg(feature = "etcd-client")]
    EtcdClientLoop,
}

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Client library under test
    #[arg(long = "client", value_enum, default_value_t)]
    pub library: Library,
    /// Faults
    #[arg(long, default_value_t = 1_000)]
    pub faults: usize,
    /// Only faults that close nothing, each for so long; 0: all kinds
    #[arg(long = "silent-seconds", value_parser = seconds, value_name = "SECONDS")]
    pub lasting: Option<Duration>,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

impl Plan {
    fn silence(&self) -> Option<Duration> {
        self.lasting.filter(|length| !length.is_zero())
    }

    /// Of these, faults are drawn.
    pub fn kinds(&self) -> &'static [Kind] {
        if self.silence().is_some() { &Kind::SILENT } else { &Kind::ALL }
    }

    /// Whether what is lost, repeated or late fails the run, or is only counted.
    fn is_strict(&self) -> bool {
        self.library == Library::Meerkat
    }
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Faults.
    pub faults: usize,
    /// How long watchers were without news.
    pub times: Times,
    /// What they lost.
    pub tally: Tally,
    /// How often the library went on elsewhere, as far as it says.
    pub resumes: u64,
    /// Writes that the pace makers had acknowledged.
    pub acknowledged: usize,
    /// What the checker found, when that does not fail the run.
    pub findings: Vec<String>,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "client-failover: {:?} on {:?}; again with: meerkat-chaos client-failover --faults {} --seed {}",
        plan.library, plan.product, plan.faults, plan.seed
    );
    let mut faults = schedule::schedule(plan.seed, plan.faults, plan.kinds());
    for fault in &mut faults {
        fault.lasts = plan.silence().unwrap_or(fault.lasts);
    }
    let mut report = Report::default();
    for (number, round) in faults.chunks(ROUND).enumerate() {
        let began = Instant::now();
        let one = Box::pin(Round::run(plan, round, plan.seed.wrapping_add(number as u64))).await?;
        println!(
            "client-failover: round {}: {} faults in {:.0} s; {}",
            number + 1,
            round.len(),
            began.elapsed().as_secs_f64(),
            one.tally
        );
        report.absorb(one);
    }
    println!("{report}");
    if plan.is_strict() {
        Failure::from_times("watches resume in time", report.times.over_bound())?;
    }
    Ok(report)
}

impl Report {
    fn absorb(&mut self, other: Report) {
        self.faults += other.faults;
        self.times.absorb(other.times);
        self.tally = self.tally + other.tally;
        self.resumes += other.resumes;
        self.acknowledged += other.acknowledged;
        self.findings.extend(other.findings);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} faults, {} writes acknowledged, {} resumes",
            self.faults, self.acknowledged, self.resumes
        )?;
        writeln!(f, "{}", self.tally)?;
        for finding in self.findings.iter().take(8) {
            writeln!(f, "  {finding}")?;
        }
        write!(f, "time without news, watches that hung on the member:\n{}", self.times.table())
    }
}

/// One cluster, its clients and its faults.
struct Round<'a> {
    plan: &'a Plan,
    stage: Stage,
    began: Instant,
    pace: Pace,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    hits: Vec<Hit>,
}

impl<'a> Round<'a> {
    async fn run(plan: &'a Plan, faults: &[Fault], seed: u64) -> Result<Report, Failure> {
        let (through_doors, direct) = match plan.library {
            Library::Meerkat => (3, 1),
            // One line for each watcher: only its traffic tells where it hangs.
            #[cfg(feature = "etcd-client")]
            Library::EtcdClient | Library::EtcdClientLoop => (RIVALS, 0),
        };
        let stage = Stage::start(plan.product, through_doors, direct).await?;
        let began = Instant::now();
        let pace = Pace::start(&stage.endpoints(), began, seed);
        let (clients, watchers, hits) = (Vec::new(), Vec::new(), Vec::new());
        let mut round = Self { plan, stage, began, pace, clients, watchers, hits };
        round.start_watchers(through_doors + direct).await?;
        for (number, fault) in faults.iter().enumerate() {
            round
                .fault(fault)
                .await
                .map_err(|failure| failure.during(&format!("fault {number}, {fault:?}")))?;
            if number == faults.len() / 3 || number == faults.len() * 2 / 3 {
                round.start_late().await?;
            }
        }
        round.finish(faults.len()).await
    }

    async fn start_watchers(&mut self, lines: usize) -> Result<(), Failure> {
        match self.plan.library {
            Library::Meerkat => {
                for line in 0..lines {
                    let urls = self.stage.urls(line);
                    let client = Client::connect(urls).await;
                    let client =
                        client.map_err(|error| Failure::broken(format!("cannot connect: {error}")))?;
                    for spec in first_specs(line) {
                        self.watchers.push(Watcher::start(&client, line, spec, self.began));
                    }
                    self.clients.push(client);
                }
            }
            #[cfg(feature = "etcd-client")]
            Library::EtcdClient | Library::EtcdClientLoop => {
                let careful = self.plan.library == Library::EtcdClientLoop;
                for line in 0..lines {
                    let spec = rival_spec(line);
                    let urls = self.stage.urls(line);
                    self.watchers.push(crate::failover::rival::start(urls, line, spec, careful, self.began));
                }
            }
        }
        self.level().await
    }

    /// Watchers that come in the middle: one has everything to catch up on, one nothing.
    async fn start_late(&mut self) -> Result<(), Failure> {
        for (line, client) in self.clients.iter().enumerate().skip(self.watchers.len() % 2) {
            let number = self.watchers.len();
            let spec = match line % 2 {
                0 => Spec::quick(format!("late {number}, from the start"), WatchSpec::of_all().from(2)),
                _ => Spec::quick(format!("late {number}, from now"), WatchSpec::of_all()),
            };
            self.watchers.push(Watcher::start(client, line, spec, self.began));
        }
        self.level().await
    }

    async fn fault(&mut self, fault: &Fault) -> Result<(), Failure> {
        // A first look, so that the second tells what came during the rest.
        self.seats();
        tokio::time::sleep(fault.rest).await;
        let seats = self.seats();
        let count = |member: usize| seats.iter().filter(|seat| **seat == Some(member)).count();
        let watched = (0..self.stage.cluster().members().len()).max_by_key(|member| count(*member));
        let victim = self.stage.victim(fault.aim, watched).await?;
        let struck = self.began.elapsed();
        let strike = self.stage.strike(fault, victim).await?;
        tokio::time::sleep(fault.lasts).await;
        self.stage.heal(&strike).await?;
        self.level().await?;
        let settled = self.began.elapsed();
        for (watcher, seat) in seats.iter().enumerate() {
            let hit = seat.is_some_and(|seat| strike.members.contains(&seat));
            if hit && self.watchers[watcher].spec().tells_time() {
                self.hits.push(Hit { kind: fault.kind, struck, settled, watcher });
            }
        }
        Ok(())
    }

    /// Which member each watcher hangs on.
    fn seats(&mut self) -> Vec<Option<usize>> {
        self.watchers.iter().map(|watcher| watcher.hangs_on(&mut self.stage)).collect()
    }

    /// Waits until every watcher that can be is level with the store.
    async fn level(&self) -> Result<(), Failure> {
        let revision = self.pace.next(self.began, READY_WITHIN).await?;
        let deadline = Instant::now() + LEVEL_WITHIN;
        loop {
            let behind = self.watchers.iter().filter(|one| one.spec().tells_time() && !one.is_over());
            let behind: Vec<&Watcher> = behind.filter(|one| one.last() < revision).collect();
            if behind.is_empty() {
                return Ok(());
            }
            if deadline < Instant::now() {
                let names: Vec<String> =
                    behind.iter().map(|one| format!("{} at {}", one.spec().name, one.last())).collect();
                let what =
                    format!("not at revision {revision} within {LEVEL_WITHIN:?}: {}", names.join(", "));
                return if self.plan.is_strict() { Err(Failure::broken(what)) } else { Ok(()) };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn finish(self, faults: usize) -> Result<Report, Failure> {
        let (writes, acks) = self.pace.finish().await?;
        let endpoints = self.stage.endpoints();
        let history = Archive::new(self.began).close(&endpoints, &writes).await?;
        let agreed = settle::agree(self.stage.cluster(), self.plan.product).await;
        let records = gather(self.watchers, &history, self.plan.is_strict()).await?;
        let mut report = judge(self.plan, &records, &history)?;
        agreed?;
        report.faults = faults;
        report.acknowledged = acks.len();
        report.times = times(&self.hits, &records, &acks);
        drop(self.clients);
        self.stage.finish()?;
        Ok(report)
    }
}

/// Waits until every watcher has heard of everything, then takes the records.
async fn gather(
    watchers: Vec<Watcher>,
    history: &WatchHistory,
    strict: bool,
) -> Result<Vec<Record>, Failure> {
    watchers.iter().for_each(Watcher::hurry);
    let within = if strict { HEARD_WITHIN } else { LEVEL_WITHIN };
    let deadline = Instant::now() + within;
    let has_heard = |one: &Watcher| one.is_over() || history.last_wanted(&one.spec().watch) <= one.last();
    // Once time is up, what is missing is for the checker to say.
    while Instant::now() < deadline && !watchers.iter().all(has_heard) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(LISTEN_ON).await;
    let mut records = Vec::with_capacity(watchers.len());
    for watcher in watchers {
        records.push(watcher.finish().await?);
    }
    Ok(records)
}

fn judge(plan: &Plan, records: &[Record], history: &WatchHistory) -> Result<Report, Failure> {
    let logs: Vec<WatchLog> = records.iter().map(|record| record.log.clone()).collect();
    let demand = Demand { complete: true, marks: plan.product == Product::Meerkat };
    let judged = watch_properties::check_all(&logs, history, demand);
    let mut report = Report {
        tally: records.iter().map(|record| Tally::of(&record.log, record.from, history)).sum(),
        resumes: records.iter().map(|record| record.resumes).sum(),
        ..Report::default()
    };
    match judged {
        Ok(()) => {}
        Err(failure) if plan.is_strict() => return Err(failure),
        Err(failure) => report.findings.push(failure.to_string()),
    }
    let ended = records.iter().filter_map(|record| Some((&record.log.name, record.ended.as_ref()?)));
    report.findings.extend(ended.map(|(name, why)| format!("watcher {name} ended: {why}")));
    Ok(report)
}

fn times(hits: &[Hit], records: &[Record], acks: &[Ack]) -> Times {
    let arrivals: Vec<Vec<Arrival>> = records
        .iter()
        .map(|record| {
            let told = record.log.replies().filter(|reply| !reply.events.is_empty());
            told.map(|reply| (reply.at, reply.revision)).collect()
        })
        .collect();
    let mut times = Times::default();
    for hit in hits {
        times.add(hit.kind, resume::resumed(hit, &arrivals[hit.watcher], acks));
    }
    times
}

/// The watchers that each client of ours starts with.
fn first_specs(line: usize) -> Vec<Spec> {
    let all = WatchSpec::of_all;
    let marked = WatchSpec { progress_notify: true, ..all().from(2) };
    let name = |what: &str| format!("{line}/{what}");
    let prefix = crate::failover::pace::PREFIXES[line % 3].as_bytes();
    let mut specs = vec![
        Spec::quick(name("all"), all().from(2)),
        Spec::quick(name("all with previous"), WatchSpec { prev_kv: true, ..all().from(2) }),
        Spec::quick(name("prefix"), WatchSpec { prev_kv: true, ..WatchSpec::of_prefix(prefix).from(2) }),
    ];
    specs.push(match line {
        0 => Spec::quick(name("marked"), marked),
        1 => Spec::slow(name("slow"), WatchSpec { prev_kv: true, ..all().from(2) }),
        2 => Spec::quick(name("deletions"), WatchSpec { no_put: true, prev_kv: true, ..all().from(2) }),
        _ => Spec::slow(name("slow and marked"), marked),
    });
    specs
}

/// Watchers of the other library in one run.
#[cfg(feature = "etcd-client")]
const RIVALS: usize = 8;

#[cfg(feature = "etcd-client")]
fn rival_spec(line: usize) -> Spec {
    let watch = WatchSpec { prev_kv: line % 2 == 1, ..WatchSpec::of_all().from(2) };
    Spec::quick(format!("{line}/all"), watch)
}
