//! Clients that come and go, to see whether anything of them stays behind.
//!
//! Each visit has a connection of its own: it overwrites a key, opens watches and sees to it that
//! they tell it of a write, cancels some and abandons the others, takes a lease, renews it and gives
//! it back or lets it run out, and leaves. Compaction follows behind, so that the store itself stays
//! the same size. Afterwards none of these watches and leases may be left, and memory and open files
//! must have stayed level, as far as the run was long enough to tell.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, LeaseGrantRequest, PutRequest, WatchCancelRequest, WatchCreateRequest, WatchRequest,
    WatchResponse, watch_request,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tonic::Status;

use super::{Setting, Workload};
use crate::Failure;
use crate::checker::flat;
use crate::driver::Product;
use crate::endpoint::watch::{Next, WatchStream};
use crate::endpoint::{Endpoint, Roster, keep_alive::Next as Renewal};
use crate::outcome::{self, Outcome};
use crate::record::Verdict;
use crate::record::trace::{Client, Ended};

const NAME: &str = "churn";
const VISITORS: u64 = 4;
/// Watches that each visit opens on its stream; half of them are canceled, half abandoned.
const WATCHES: usize = 6;
/// Keys that are overwritten for ever.
const KEYS: u32 = 500;
const REST: Duration = Duration::from_millis(120);
const REST_AFTER_LOSS: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A watch on the member that acknowledged the write has no reason to take longer, ever.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
const COMPACT_EVERY: Duration = Duration::from_secs(5);
/// Revisions that stay behind the newest.
const KEPT: i64 = 2_000;
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Nobody revokes some leases: they end by themselves, soon.
const TTL_S: i64 = 5;

/// Starts it. Must be called on a runtime.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let stop = Arc::new(AtomicBool::new(false));
    let visitors = (0..VISITORS).map(|number| {
        let visitor = Visitor {
            number,
            dice: StdRng::seed_from_u64(setting.seed.wrapping_mul(VISITORS).wrapping_add(number)),
            roster: setting.roster.clone(),
            prefix: setting.prefix.clone(),
            client: setting.trace.client(format!("{NAME}/{number}")),
            tally: Tally::default(),
        };
        tokio::spawn(visitor.come_and_go(stop.clone()))
    });
    let visitors = visitors.collect();
    let sweeper = tokio::spawn(sweep(setting.clone(), stop.clone()));
    Box::new(Churn { setting, stop, visitors, sweeper })
}

struct Churn {
    setting: Setting,
    stop: Arc<AtomicBool>,
    visitors: Vec<JoinHandle<Tally>>,
    sweeper: JoinHandle<()>,
}

/// What visitors did.
#[derive(Debug, Default)]
struct Tally {
    visits: u64,
    watches: u64,
    told: u64,
    /// Leases that were given back, as the server said.
    revoked: Vec<i64>,
    /// Leases that were left to run out.
    left: Vec<i64>,
    untold: Vec<String>,
}

impl Workload for Churn {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(self.judge())
    }
}

impl Churn {
    async fn judge(self) -> Result<Vec<Verdict>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |error: tokio::task::JoinError| Failure::harness(format!("a client ended: {error}"));
        let mut all = Tally::default();
        for visitor in self.visitors {
            all.absorb(visitor.await.map_err(ended)?);
        }
        self.sweeper.await.map_err(ended)?;
        println!(
            "{NAME}: {} visits, {} watches, {} leases given back, {} left to run out",
            all.visits,
            all.watches,
            all.revoked.len(),
            all.left.len()
        );
        let held = self.setting.trace.record().held;
        let flat = flat::check(&held, &flat::Demand::default());
        for level in &flat.levels {
            println!("{NAME}: {level}");
        }
        let remains = remains(&self.setting, &all).await?;
        let verdict = |promise: &str, judged, findings| Verdict {
            workload: NAME.to_owned(),
            promise: promise.to_owned(),
            judged,
            findings,
        };
        Ok(vec![
            verdict("a watch that is confirmed tells of the next write", all.told, all.untold),
            verdict(
                "nothing is left of clients that went: no watch, no lease",
                all.watches + (all.revoked.len() + all.left.len()) as u64,
                remains,
            ),
            verdict("memory and file descriptors are flat", flat.judged, flat.findings),
        ])
    }
}

impl Tally {
    fn absorb(&mut self, other: Self) {
        self.visits += other.visits;
        self.watches += other.watches;
        self.told += other.told;
        self.left.extend(other.left);
        self.revoked.extend(other.revoked);
        self.untold.extend(other.untold);
    }
}

struct Visitor {
    number: u64,
    dice: StdRng,
    roster: Roster,
    prefix: String,
    client: Client,
    tally: Tally,
}

impl Visitor {
    async fn come_and_go(mut self, stop: Arc<AtomicBool>) -> Tally {
        while !stop.load(Ordering::Relaxed) {
            // An answer that was lost ends the visit; the next one may be to another member.
            let rest = if self.visit().await.is_some() { REST } else { REST_AFTER_LOSS };
            tokio::time::sleep(rest.mul_f64(self.dice.random_range(0.5..1.5))).await;
        }
        self.tally
    }

    async fn visit(&mut self) -> Option<()> {
        let contact = self.roster.any(&mut self.dice);
        let endpoint = contact.endpoint.apart(None).ok()?;
        self.tally.visits += 1;
        let key = format!("{}k/{:04}", self.prefix, self.dice.random_range(0..KEYS));
        self.put(&endpoint, key, 0).await?;
        self.watch(&endpoint, contact.member).await?;
        self.lease(&endpoint).await
    }

    async fn put(&mut self, endpoint: &Endpoint, key: String, lease: i64) -> Option<i64> {
        let value = vec![b'v'; self.dice.random_range(64..1_024)];
        let request = PutRequest { key: key.into(), value: value.into(), lease, ..Default::default() };
        let answer = self.told(Instant::now(), endpoint.put(request, ANSWER_WITHIN).await)?;
        Some(answer.header.map_or(0, |header| header.revision))
    }

    /// Tells the trace how a write ended; its answer, if there was one.
    fn told<T>(&self, invoked: Instant, answer: Result<T, Status>) -> Option<T> {
        let (ended, answer) = match outcome::of_write(answer) {
            Outcome::Ok(answer) => (Ended::Ok, Some(answer)),
            Outcome::Failed(_) => (Ended::Failed, None),
            Outcome::Unknown(_) => (Ended::Unknown, None),
        };
        self.client.op(true, invoked, ended);
        answer
    }

    /// Opens watches, has each of them tell of one write, cancels half and abandons the rest.
    async fn watch(&mut self, endpoint: &Endpoint, member: usize) -> Option<()> {
        let key = format!("{}w/{}", self.prefix, self.number);
        let mut stream = endpoint.watch(&[]).ok()?;
        for _ in 0..WATCHES {
            stream.send(create(&key)).await;
        }
        let confirmed = gather(&mut stream, ANSWER_WITHIN, |response| response.created).await.ok()?;
        self.tally.watches += confirmed.len() as u64;
        let revision = self.put(endpoint, key, 0).await?;
        let tells = |response: &WatchResponse| {
            response
                .events
                .iter()
                .any(|event| event.kv.as_ref().is_some_and(|kv| revision <= kv.mod_revision))
        };
        match gather(&mut stream, TOLD_WITHIN, tells).await {
            Ok(told) => self.tally.told += told.len() as u64,
            Err(Missed::Ended) => return None,
            Err(Missed::Silent(told)) => {
                let what = format!(
                    "member {member} confirmed {WATCHES} watches, acknowledged revision {revision} and told \
                     {told} of them of it within {TOLD_WITHIN:?}"
                );
                self.tally.untold.push(what);
                return None;
            }
        }
        for watch_id in confirmed.iter().take(WATCHES / 2) {
            stream.send(cancel(*watch_id)).await;
        }
        let (mut ended, deadline) = (0, Instant::now() + ANSWER_WITHIN);
        while ended < WATCHES / 2 {
            match stream.next(deadline.saturating_duration_since(Instant::now())).await {
                Next::Response(response) => ended += usize::from(response.canceled),
                Next::Nothing | Next::Ended(_) => return None,
            }
        }
        Some(())
    }

    /// Takes a lease, hangs a key on it, renews it once; then gives it back, or lets it run out.
    async fn lease(&mut self, endpoint: &Endpoint) -> Option<()> {
        let request = LeaseGrantRequest { ttl: TTL_S, id: 0 };
        let id = self.told(Instant::now(), endpoint.lease_grant(request, ANSWER_WITHIN).await)?.id;
        let key = format!("{}l/{}", self.prefix, self.number);
        self.put(endpoint, key, id).await?;
        let mut renewals = endpoint.keep_alive();
        renewals.send(id).await;
        let Renewal::Answer(_) = renewals.next(ANSWER_WITHIN).await else { return None };
        if self.dice.random_ratio(1, 8) {
            self.tally.left.push(id);
            return Some(());
        }
        self.told(Instant::now(), endpoint.lease_revoke(id, ANSWER_WITHIN).await)?;
        self.tally.revoked.push(id);
        Some(())
    }
}

/// Why not all watches of a stream were heard.
enum Missed {
    /// The stream ended.
    Ended,
    /// It is there and says nothing more; so many were heard.
    Silent(usize),
}

/// Waits until so many responses as there are watches are of the wanted kind: their ids.
async fn gather(
    stream: &mut WatchStream,
    within: Duration,
    wanted: impl Fn(&WatchResponse) -> bool,
) -> Result<HashSet<i64>, Missed> {
    let deadline = Instant::now() + within;
    let mut heard = HashSet::new();
    while heard.len() < WATCHES {
        match stream.next(deadline.saturating_duration_since(Instant::now())).await {
            Next::Response(response) if response.canceled => return Err(Missed::Ended),
            Next::Response(response) => {
                if wanted(&response) {
                    heard.insert(response.watch_id);
                }
            }
            Next::Nothing => return Err(Missed::Silent(heard.len())),
            Next::Ended(_) => return Err(Missed::Ended),
        }
    }
    Ok(heard)
}

fn create(key: &str) -> WatchRequest {
    let create = WatchCreateRequest { key: Bytes::copy_from_slice(key.as_bytes()), ..Default::default() };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) }
}

fn cancel(watch_id: i64) -> WatchRequest {
    let cancel = WatchCancelRequest { watch_id };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CancelRequest(cancel)) }
}

/// Compacts behind the visitors. What fails is tried again the next time.
async fn sweep(setting: Setting, stop: Arc<AtomicBool>) {
    let mut dice = StdRng::seed_from_u64(setting.seed);
    let mut swept = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if swept.elapsed() < COMPACT_EVERY {
            continue;
        }
        swept = Instant::now();
        let endpoint = setting.roster.any(&mut dice).endpoint;
        let Ok(newest) = endpoint.linearizable_probe(ANSWER_WITHIN).await else { continue };
        if KEPT < newest {
            let request = CompactionRequest { revision: newest - KEPT, physical: false };
            let _ = endpoint.compact(request, ANSWER_WITHIN).await;
        }
    }
}

/// What is left of the visitors on the members, once there was time for it to go.
async fn remains(setting: &Setting, tally: &Tally) -> Result<Vec<String>, Failure> {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let mut left = Vec::new();
        for contact in setting.roster.all() {
            left.extend(remains_on(setting, contact.member, &contact.endpoint, tally).await?);
        }
        if left.is_empty() || deadline < Instant::now() {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn remains_on(
    setting: &Setting,
    member: usize,
    endpoint: &Endpoint,
    tally: &Tally,
) -> Result<Vec<String>, Failure> {
    let refused = Failure::from;
    let mut left = Vec::new();
    if setting.product == Product::Meerkat {
        let pages = endpoint.list_watchers(ANSWER_WITHIN).await.map_err(refused)?;
        let own = pages.iter().flat_map(|page| &page.watchers);
        let own = own.filter(|watcher| watcher.key.starts_with(setting.prefix.as_bytes())).count();
        if 0 < own {
            left.push(format!("member {member} still has {own} watches of clients that went"));
        }
    }
    let leases = endpoint.lease_leases(ANSWER_WITHIN).await.map_err(refused)?;
    for (ids, what) in [(&tally.revoked, "were given back"), (&tally.left, "nobody renewed")] {
        let ids: HashSet<i64> = ids.iter().copied().collect();
        let alive = leases.leases.iter().filter(|lease| ids.contains(&lease.id)).count();
        if 0 < alive {
            left.push(format!("member {member} still has {alive} leases that {what}"));
        }
    }
    Ok(left)
}
