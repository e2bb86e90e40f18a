//! What the clients do in one run, and how it is judged: the workloads and checkers of the chaos
//! harness, over the simulated network.

use crate::member::CLIENT_PORT;
use crate::net::Net;
use crate::setup::{MEMBERS, Setup, Work};
use crate::stream::dial;
use hyper_util::rt::TokioIo;
use meerkat_chaos::Failure;
use meerkat_chaos::checker;
use meerkat_chaos::checker::agreement::{self, View};
use meerkat_chaos::checker::lease_bounds::{self, Bounds};
use meerkat_chaos::checker::watch_history::WatchHistory;
use meerkat_chaos::checker::watch_properties::{self, STRICT};
use meerkat_chaos::driver::Product;
use meerkat_chaos::endpoint::{Dialer, Endpoint};
use meerkat_chaos::lease::{Keepers, Witnesses};
use meerkat_chaos::outcome::{Outcome, describe};
use meerkat_chaos::record::Trace;
use meerkat_chaos::record::lease::LeaseHistory;
use meerkat_chaos::watch::fleet::Fleet;
use meerkat_chaos::watch::{Archive, writers};
use meerkat_chaos::workload::unique;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After the last fault, the cluster must serve again within this.
const SERVES_WITHIN: Duration = Duration::from_secs(20);
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How long load goes on after the faults.
const AFTERMATH: Duration = Duration::from_millis(300);
/// How often a quiet connection is asked whether it lives, and how long it may take to say so.
const PING: Duration = Duration::from_secs(2);
const HEARD_WITHIN: Duration = Duration::from_secs(20);
const LISTEN_ON: Duration = Duration::from_millis(200);

/// What was done, and what is wrong with it.
#[derive(Debug)]
pub struct Report {
    /// Everything the clients were told, as text.
    pub record: String,
    pub operations: u64,
    pub events: u64,
    pub failure: Option<String>,
}

pub async fn run(net: Net, setup: Setup) -> Report {
    let began = Instant::now();
    let mut report = Report { record: String::new(), operations: 0, events: 0, failure: None };
    let result = async {
        let endpoints = endpoints(&net)?;
        match setup.work {
            Work::Register => register(&setup, &endpoints, began, &mut report).await,
            Work::Watch => watch(&setup, &endpoints, began, &mut report).await,
            Work::Lease => lease(&setup, &endpoints, began, &mut report).await,
            Work::Steady => steady(&setup, &endpoints, began, &mut report).await,
        }
    };
    let result: Result<(), Failure> = result.await;
    report.failure = result.err().map(|failure| failure.to_string());
    report
}

fn endpoints(net: &Net) -> Result<Vec<Endpoint>, Failure> {
    let dialer = |net: Net| {
        Dialer(Arc::new(move |endpoint| {
            let net = net.clone();
            // A machine without power says nothing, and a watcher would wait for it for ever.
            let endpoint = endpoint
                .clone()
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PING)
                .keep_alive_while_idle(true);
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri| {
                let dialed = dial(net.clone(), 0, uri);
                async move { dialed.await.map(TokioIo::new) }
            }))
        }))
    };
    (1..=MEMBERS)
        .map(|machine| {
            Endpoint::through(&format!("http://10.0.0.{machine}:{CLIENT_PORT}"), dialer(net.clone()))
        })
        .collect()
}

async fn until(began: Instant, millis: u64) {
    let left = Duration::from_millis(millis).saturating_sub(began.elapsed());
    tokio::time::sleep(left).await;
}

/// Waits until every member answers a linearizable read.
async fn all_serve(endpoints: &[Endpoint]) -> Result<(), Failure> {
    let deadline = Instant::now() + SERVES_WITHIN;
    for endpoint in endpoints {
        loop {
            match endpoint.linearizable_probe(Duration::from_millis(1_000)).await {
                Ok(_) => break,
                Err(status) if deadline < Instant::now() => {
                    return Err(Failure::broken(format!(
                        "{} does not serve {SERVES_WITHIN:?} after the last fault: {}",
                        endpoint.url(),
                        describe(&status)
                    )));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}

async fn register(
    setup: &Setup,
    endpoints: &[Endpoint],
    began: Instant,
    report: &mut Report,
) -> Result<(), Failure> {
    let shape = unique::Shape { writers: 4, readers: 3, rest: Duration::from_millis(15), padding: 24 };
    until(began, setup.rough_from / 2).await;
    let load = unique::start(endpoints, shape, 1, &Trace::new(began));
    until(began, setup.rough_until).await;
    tokio::time::sleep(AFTERMATH).await;
    let history = load.finish().await?;
    report.operations = (history.writes.len() + history.reads.len()) as u64;
    report.record = format!("{history:?}");
    all_serve(endpoints).await?;
    for endpoint in endpoints {
        // Members publish themselves without a revision, so the first write makes the second.
        let state = unique::final_state(endpoint, 1).await?;
        checker::check_all(&history, &state).map_err(|failure| failure.during(endpoint.url()))?;
        report.record += &format!("{state:?}");
    }
    agree(endpoints).await
}

/// No stall that was too short for it has led to an election.
async fn steady(
    setup: &Setup,
    endpoints: &[Endpoint],
    began: Instant,
    report: &mut Report,
) -> Result<(), Failure> {
    until(began, setup.rough_from / 2).await;
    all_serve(endpoints).await?;
    let before = terms(endpoints).await?;
    register(setup, endpoints, began, report).await?;
    let after = terms(endpoints).await?;
    match before == after {
        true => Ok(()),
        false => Err(Failure::broken(format!("an election: the terms were {before:?}, and are {after:?}"))),
    }
}

async fn terms(endpoints: &[Endpoint]) -> Result<Vec<u64>, Failure> {
    let mut terms = Vec::new();
    for endpoint in endpoints {
        terms.push(endpoint.status(ASK_WITHIN).await?.raft_term);
    }
    Ok(terms)
}

async fn watch(
    setup: &Setup,
    endpoints: &[Endpoint],
    began: Instant,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut random = StdRng::seed_from_u64(setup.seed ^ 0x3a7c4);
    let mut fleet = Fleet::new(endpoints, Product::Meerkat, began);
    fleet.add_one_of_each(&mut random, 1)?;
    until(began, setup.rough_from / 2).await;
    let shape = writers::Shape {
        writers: 3,
        rest: Duration::from_millis(20),
        small: 30,
        large: 2_000,
        large_every: 40,
    };
    let writing = writers::start(endpoints, shape, setup.seed);
    let mut archive = Archive::new(began);
    let mut compacted = 1;
    let late = setup.rough_until / 2;
    let mut late_lot = true;
    while began.elapsed() < Duration::from_millis(setup.rough_until) {
        tokio::time::sleep(Duration::from_millis(random.random_range(100..700))).await;
        let endpoint = endpoints[random.random_range(0..endpoints.len())].clone();
        let Ok(now) = endpoint.linearizable_probe(Duration::from_millis(500)).await else { continue };
        if late_lot && Duration::from_millis(late) < began.elapsed() {
            late_lot = false;
            fleet.add_one_of_each(&mut random, now)?;
        }
        // What cannot be read now is read before the next compaction.
        if archive.extend(endpoints, now, SERVES_WITHIN).await.is_err() {
            continue;
        }
        let slowest = fleet.slowest().unwrap_or(1);
        let upto = if random.random_bool(0.3) { now } else { slowest.min(now) };
        if compacted + 1 < upto {
            compacted = random.random_range(compacted + 1..=upto);
            if let Outcome::Failed(why) = archive.compact(&endpoint, compacted).await {
                return Err(Failure::broken(format!(
                    "compaction at {compacted} of {now} was refused: {why}"
                )));
            }
        }
    }
    tokio::time::sleep(AFTERMATH).await;
    let writes = writing.finish().await?;
    report.operations = writes.len() as u64;
    report.record = format!("{writes:?}");
    all_serve(endpoints).await?;
    let history = archive.close(endpoints, &writes).await?;
    agree(endpoints).await?;
    let logs = hear(fleet, &history).await?;
    report.events = logs.iter().map(|log| log.events().count() as u64).sum();
    report.record += &format!("{logs:?}");
    watch_properties::check_all(&logs, &history, STRICT)
}

/// No lease may end before its time, whatever happens. How late one may end depends on who led when,
/// and is judged where leaders are watched, in the suites with processes; here it only has to end.
async fn lease(
    setup: &Setup,
    endpoints: &[Endpoint],
    began: Instant,
    report: &mut Report,
) -> Result<(), Failure> {
    const KEEPERS: usize = 6;
    const RUN_OUT: Duration = Duration::from_secs(14);
    const LATE: Duration = Duration::from_secs(3_600);
    until(began, setup.rough_from / 2).await;
    let witnesses = Witnesses::start(endpoints, began)?;
    let keepers = Keepers::start(endpoints, KEEPERS, setup.seed, began);
    until(began, setup.rough_until).await;
    tokio::time::sleep(AFTERMATH).await;
    let mut history = LeaseHistory { members: MEMBERS, ..LeaseHistory::default() };
    history.leases = keepers.finish().await?;
    report.operations = history.leases.iter().map(|lease| 1 + lease.renewals.len() as u64).sum();
    all_serve(endpoints).await?;
    tokio::time::sleep(RUN_OUT).await;
    agree(endpoints).await?;
    let left = endpoints[0].lease_leases(ASK_WITHIN).await;
    let left = left.map_err(|status| Failure::broken(describe(&status)))?.leases;
    let left: Vec<String> = left.iter().map(|lease| format!("lease {:x} never ends", lease.id)).collect();
    Failure::from_findings("leases end", left)?;
    history.ended = began.elapsed();
    history.stalls = witnesses.finish(&mut history.leases).await?;
    report.record = format!("{history:?}");
    let bounds = Bounds { lateness: LATE, checkpoint: None, election: LATE, straggle: LATE };
    Failure::from_findings("no lease ends before its time", lease_bounds::check(&history, &bounds))
}

async fn hear(fleet: Fleet, history: &WatchHistory) -> Result<Vec<meerkat_chaos::watch::WatchLog>, Failure> {
    fleet.hurry();
    let deadline = Instant::now() + HEARD_WITHIN;
    // Once time is up, what is missing is for the checker to say.
    while Instant::now() < deadline && !fleet.has_heard_all(history) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(LISTEN_ON).await;
    fleet.finish().await
}

async fn agree(endpoints: &[Endpoint]) -> Result<(), Failure> {
    let deadline = Instant::now() + SERVES_WITHIN;
    loop {
        let views = views(endpoints).await?;
        let level = views.windows(2).all(|pair| {
            pair[0].digest.as_ref().map(|(index, _)| index) == pair[1].digest.as_ref().map(|(index, _)| index)
        });
        if level || deadline < Instant::now() {
            return Failure::from_findings("members agree", agreement::check(&views));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn views(endpoints: &[Endpoint]) -> Result<Vec<View>, Failure> {
    let broken = |what: &str, endpoint: &Endpoint, status: &tonic::Status| {
        Failure::broken(format!("{what} of {}: {}", endpoint.url(), describe(status)))
    };
    let mut revision = i64::MAX;
    for endpoint in endpoints {
        let now = endpoint.linearizable_probe(ASK_WITHIN).await;
        revision = revision.min(now.map_err(|status| broken("a read", endpoint, &status))?);
    }
    let mut views = Vec::new();
    for endpoint in endpoints {
        let hash = endpoint.hash_kv(revision, ASK_WITHIN).await;
        let hash = hash.map_err(|status| broken("HashKV", endpoint, &status))?;
        let digest = endpoint.state_digest(ASK_WITHIN).await;
        let digest = digest.map_err(|status| broken("StateDigest", endpoint, &status))?;
        views.push(View {
            member: endpoint.url().to_owned(),
            hash: hash.hash,
            compacted: hash.compact_revision,
            digest: Some((digest.log_index, digest.digest.to_vec())),
        });
    }
    Ok(views)
}
