//! Random sequences of several clients at the Lock and Election services of both, one step at a time.
//!
//! The clients' leases have ids of their own choice, so keys are the same on both; calls that wait are left
//! waiting while others go on. After each step both sides must come to the same: the same calls are
//! answered, with the same answers, and the stores hold the same. Only cluster, member and term are not
//! looked at.
//!
//! Allowed to differ: the answer to a call whose own key went away while it waited. Meerkat refuses it. etcd
//! lets a campaign win that way, and a lock if another call has created the key anew meanwhile. Such a call
//! is never cancelled here: etcd would then remove the key that is another call's by now, and Meerkat does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::differential::engine::{self, Both, Plan, Surface};
use meerkat_chaos::driver::{Cluster, Product};
use meerkat_proto::pb::election as epb;
use meerkat_proto::pb::election::election_client::ElectionClient;
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, RangeRequest};
use meerkat_proto::pb::lock as lpb;
use meerkat_proto::pb::lock::lock_client::LockClient;
use meerkat_proto::pb::mvcc::KeyValue;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

use super::{gateway, start};

const STEPS: usize = 150;
const WITHIN: Duration = Duration::from_secs(10);
/// How long both sides may take to come to the same.
const SAME_WITHIN: Duration = Duration::from_secs(30);
/// A lease that nobody grants.
const NO_LEASE: i64 = 0x99;
const LEASES: [i64; 6] = [0x11, 0x12, -0x13, 0x14, 0x7fff_ffff_ffff_ffff, NO_LEASE];
/// One of them is wanted more than the other.
const LOCKS: [&str; 3] = ["a", "a", "b"];
const ELECTION: &str = "e";
const TTL: i64 = 6_000;

#[derive(Clone, Debug)]
enum Step {
    Grant(i64),
    Revoke(i64),
    Lock(&'static str, i64),
    Unlock(Bytes),
    Campaign(i64, String),
    Proclaim(Option<epb::LeaderKey>, String),
    Resign(Option<epb::LeaderKey>),
    Leader,
    Observe,
    Cancel(usize),
}

/// What was answered, as far as it is compared.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Refused(i32, String),
    Lock(i64, Bytes),
    Campaign(i64, Option<epb::LeaderKey>),
    Done(i64),
    Leader(i64, Option<KeyValue>),
}

fn told<T>(answer: Result<tonic::Response<T>, Status>, read: impl FnOnce(T) -> Told) -> Told {
    match answer {
        Ok(answer) => read(answer.into_inner()),
        Err(status) => Told::Refused(status.code() as i32, status.message().to_owned()),
    }
}

fn revision(header: Option<meerkat_proto::pb::etcdserver::ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// One of the two, and the calls that wait there.
struct Side {
    cluster: Cluster,
    channel: Channel,
    waiting: BTreeMap<usize, JoinHandle<Told>>,
    observers: Vec<Observer>,
}

/// What an observer was told so far.
type Observer = Arc<Mutex<Vec<KeyValue>>>;

impl Side {
    async fn start(product: Product) -> Result<Side, Failure> {
        let cluster = start(product, &[]).await?;
        let url = format!("http://127.0.0.1:{}", gateway::port(&cluster));
        let channel = tonic::transport::Endpoint::from_shared(url)
            .map_err(|error| Failure::harness(error.to_string()))?
            .connect_lazy();
        Ok(Side { cluster, channel, waiting: BTreeMap::new(), observers: Vec::new() })
    }

    fn lock(&self) -> LockClient<Channel> {
        LockClient::new(self.channel.clone())
    }

    fn election(&self) -> ElectionClient<Channel> {
        ElectionClient::new(self.channel.clone())
    }

    /// Takes a step; what it is answered at once, if it is.
    async fn take(&mut self, number: usize, step: Step) -> Option<Told> {
        match step {
            Step::Grant(id) => {
                let endpoint = self.cluster.members()[0].endpoint();
                let granted = endpoint.lease_grant(LeaseGrantRequest { ttl: TTL, id }, WITHIN).await;
                Some(told(granted.map(tonic::Response::new), |granted| Told::Done(granted.ttl)))
            }
            Step::Revoke(id) => {
                let revoked = self.cluster.members()[0].endpoint().lease_revoke(id, WITHIN).await;
                Some(told(revoked.map(tonic::Response::new), |revoked| Told::Done(revision(revoked.header))))
            }
            Step::Lock(name, lease) => {
                let (mut client, request) =
                    (self.lock(), lpb::LockRequest { name: Bytes::from_static(name.as_bytes()), lease });
                self.wait(number, async move {
                    told(client.lock(request).await, |held| Told::Lock(revision(held.header), held.key))
                })
            }
            Step::Campaign(lease, value) => {
                let name = Bytes::from_static(ELECTION.as_bytes());
                let (mut client, request) =
                    (self.election(), epb::CampaignRequest { name, lease, value: value.into() });
                self.wait(number, async move {
                    told(client.campaign(request).await, |won| {
                        Told::Campaign(revision(won.header), won.leader)
                    })
                })
            }
            Step::Unlock(key) => {
                let answer = self.lock().unlock(lpb::UnlockRequest { key }).await;
                Some(told(answer, |done| Told::Done(revision(done.header))))
            }
            Step::Proclaim(leader, value) => {
                let request = epb::ProclaimRequest { leader, value: value.into() };
                let answer = self.election().proclaim(request).await;
                Some(told(answer, |done| Told::Done(revision(done.header))))
            }
            Step::Resign(leader) => {
                let answer = self.election().resign(epb::ResignRequest { leader }).await;
                Some(told(answer, |done| Told::Done(revision(done.header))))
            }
            Step::Leader => {
                let request = epb::LeaderRequest { name: Bytes::from_static(ELECTION.as_bytes()) };
                let answer = self.election().leader(request).await;
                Some(told(answer, |leader| Told::Leader(revision(leader.header), leader.kv)))
            }
            Step::Observe => {
                let request = epb::LeaderRequest { name: Bytes::from_static(ELECTION.as_bytes()) };
                let (mut client, observer) = (self.election(), Observer::default());
                self.observers.push(observer.clone());
                tokio::spawn(async move {
                    let Ok(leaders) = client.observe(request).await else { return };
                    let mut leaders = leaders.into_inner();
                    while let Ok(Some(leader)) = leaders.message().await {
                        observer.lock().extend(leader.kv);
                    }
                });
                None
            }
            Step::Cancel(which) => {
                if let Some(waiting) = self.waiting.remove(&which) {
                    waiting.abort();
                }
                None
            }
        }
    }

    fn wait(&mut self, number: usize, call: impl Future<Output = Told> + Send + 'static) -> Option<Told> {
        self.waiting.insert(number, tokio::spawn(call));
        None
    }

    fn finished(&self) -> Vec<usize> {
        self.waiting.iter().filter(|(_, call)| call.is_finished()).map(|(number, _)| *number).collect()
    }

    async fn store(&self) -> Result<Vec<KeyValue>, Failure> {
        let all = Bytes::from_static(b"\0");
        let request = RangeRequest { key: all.clone(), range_end: all, ..Default::default() };
        let answer = self.cluster.members()[0].endpoint().range(request, WITHIN).await;
        let answer = answer.map_err(|status| Failure::broken(format!("cannot read: {status}")))?;
        Ok(answer.kvs().to_vec())
    }
}

/// What the clients believe, to choose sensible steps.
struct Clients {
    random: StdRng,
    /// Calls under way: whose key they wait with.
    waiting: BTreeMap<usize, Bytes>,
    /// Those of them whose key went away.
    robbed: Vec<usize>,
    /// What campaigns won, in order.
    won: Vec<epb::LeaderKey>,
    observers: usize,
    /// The step under way.
    number: usize,
    /// How many calls had to wait.
    waited: usize,
    of_meerkat: bool,
}

fn key(name: &str, lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    format!("{name}/{sign}{:x}", lease.unsigned_abs()).into()
}

impl Clients {
    fn draw(&mut self, number: usize) -> Step {
        if number < LEASES.len() - 1 {
            return Step::Grant(LEASES[number]);
        }
        let lease = LEASES[self.random.random_range(0..LEASES.len())];
        let name = LOCKS[self.random.random_range(0..LOCKS.len())];
        let value = format!("v{}", self.random.random_range(0..3));
        match self.random.random_range(0..100) {
            0..9 if lease != NO_LEASE => Step::Grant(lease),
            9..11 => Step::Revoke(lease),
            11..35 => Step::Lock(name, lease),
            35..50 => Step::Unlock(key(name, lease)),
            50..51 => Step::Unlock(Bytes::new()),
            51..68 => Step::Campaign(lease, value),
            68..76 => Step::Proclaim(self.a_leader(), value),
            76..84 => Step::Resign(self.a_leader()),
            84..92 => {
                let mut which = self.waiting.keys().copied().filter(|call| !self.robbed.contains(call));
                let skipped = self.random.random_range(0..self.waiting.len().max(1));
                which.nth(skipped).map_or(Step::Leader, Step::Cancel)
            }
            92..94 if self.observers < 2 => Step::Observe,
            _ => Step::Leader,
        }
    }

    /// Now and then one that leads no longer, or none.
    fn a_leader(&mut self) -> Option<epb::LeaderKey> {
        match (self.random.random_range(0..10), self.won.len()) {
            (0, _) | (_, 0) => None,
            (1, some) => self.won.get(self.random.random_range(0..some)).cloned(),
            _ => self.won.last().cloned(),
        }
    }

    /// Notes whose keys a step may have taken away.
    fn note(&mut self, step: &Step) {
        let mut rob = |gone: &dyn Fn(&Bytes) -> bool| {
            let robbed = self.waiting.iter().filter(|(_, key)| gone(key)).map(|(number, _)| *number);
            self.robbed.extend(robbed.collect::<Vec<_>>());
        };
        match step {
            Step::Revoke(lease) => {
                let keys: Vec<Bytes> = ["a", "b", ELECTION].iter().map(|name| key(name, *lease)).collect();
                rob(&|key| keys.contains(key));
            }
            Step::Unlock(gone) => rob(&|key| key == gone),
            Step::Resign(Some(leader)) => rob(&|key| *key == leader.key),
            Step::Cancel(which) => {
                if let Some(gone) = self.waiting.remove(which) {
                    let robbed = self.waiting.iter().filter(|(_, key)| **key == gone).map(|(n, _)| *n);
                    self.robbed.extend(robbed.collect::<Vec<_>>());
                }
            }
            Step::Lock(name, lease) => drop(self.waiting.insert(self.number, key(name, *lease))),
            Step::Campaign(lease, _) => drop(self.waiting.insert(self.number, key(ELECTION, *lease))),
            Step::Observe => self.observers += 1,
            Step::Grant(_) | Step::Proclaim(..) | Step::Resign(None) | Step::Leader => {}
        }
    }
}

impl Surface for Clients {
    const NAME: &'static str = "lock differential";
    type Step = Step;
    type Answer = Option<Told>;
    type Side = Side;
    type Generator = ();

    async fn start(&self, product: Product, _: usize) -> Result<Side, Failure> {
        Side::start(product).await
    }

    fn cluster(side: Side) -> Cluster {
        side.cluster
    }

    async fn next(both: &mut Both<Self>, number: usize) -> Result<Step, Failure> {
        both.world.number = number;
        Ok(both.world.draw(number))
    }

    async fn take(both: &mut Both<Self>, step: &Step) -> Result<(), Failure> {
        let number = both.world.number;
        both.world.note(step);
        let (etcd, other) =
            tokio::join!(both.etcd.take(number, step.clone()), both.other.take(number, step.clone()));
        if etcd != other {
            both.differ("the answers differ", &etcd, &other)?;
            return both.verdict();
        }
        settle(&both.etcd, &both.other).await.map_err(Failure::broken)?;
        for call in both.other.finished() {
            let calls = (both.etcd.waiting.remove(&call), both.other.waiting.remove(&call));
            let (Some(etcd), Some(other)) = calls else { continue };
            let (etcd, other) = (etcd.await.ok(), other.await.ok());
            both.world.waited += usize::from(call < number);
            both.world.waiting.remove(&call);
            let robbed = both.world.robbed.contains(&call);
            let expired =
                matches!(&other, Some(Told::Refused(2, text)) if text.ends_with("session is expired"));
            if if robbed { !expired && both.world.of_meerkat } else { etcd != other } {
                both.differ(&format!("call {call}, whose key was lost: {robbed}"), &etcd, &other)?;
                return both.verdict();
            }
            if let Some(Told::Campaign(_, Some(leader))) = other {
                both.world.won.push(leader);
            }
        }
        Ok(())
    }

    async fn close(both: &mut Both<Self>) -> Result<(), Failure> {
        let Clients { waited, robbed, won, .. } = &both.world;
        println!("lock differential: {waited} calls waited; lost their keys meanwhile: {robbed:?}");
        if *waited == 0 || won.len() < 3 {
            return Err(Failure::harness("too little happened"));
        }
        compare_observers(&both.etcd, &both.other).await
    }
}

/// Runs the same on etcd and on a product.
pub async fn compare(seed: u64, product: Product) -> Result<(), Failure> {
    let plan = Plan { seed, steps: STEPS, members: 1, product };
    let (waiting, robbed, won) = Default::default();
    let (random, of_meerkat) = (StdRng::seed_from_u64(seed), product == Product::Meerkat);
    let clients = Clients { random, waiting, robbed, won, observers: 0, number: 0, waited: 0, of_meerkat };
    engine::run(&plan, clients, (), &format!("MEERKAT_SEED={seed}")).await.map(drop)
}

/// Waits until the same calls are answered on both and the stores are equal.
async fn settle(etcd: &Side, other: &Side) -> Result<(), String> {
    let deadline = Instant::now() + SAME_WITHIN;
    let mut equal_before = false;
    loop {
        let (one, two) = (etcd.finished(), other.finished());
        let stores = (etcd.store().await, other.store().await);
        let (Ok(etcd_store), Ok(other_store)) = stores else {
            return Err("a store cannot be read".to_owned());
        };
        let equal = one == two && etcd_store == other_store;
        // Twice in a row, so that nothing is under way.
        if equal && equal_before {
            return Ok(());
        }
        if deadline < Instant::now() {
            return Err(format!(
                "they do not come to the same\n    etcd:  {one:?} {etcd_store:?}\n    other: {two:?} {other_store:?}"
            ));
        }
        equal_before = equal;
        tokio::time::sleep(Duration::from_millis(if equal { 15 } else { 30 })).await;
    }
}

/// Both sides' observers were told the same leaders in the same order.
async fn compare_observers(etcd: &Side, other: &Side) -> Result<(), Failure> {
    let deadline = Instant::now() + SAME_WITHIN;
    loop {
        let seen = |side: &Side| side.observers.iter().map(|told| told.lock().clone()).collect::<Vec<_>>();
        let (one, two) = (seen(etcd), seen(other));
        if one == two {
            let told = one.iter().map(Vec::len).sum::<usize>();
            println!("lock differential: {} observers were told of {told} leaders and values", one.len());
            return Ok(());
        }
        if deadline < Instant::now() {
            return Err(Failure::broken(format!("observers\n    etcd:  {one:?}\n    other: {two:?}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn without_a_lease() -> Result<(), Failure> {
    for product in [Product::Etcd, Product::Meerkat] {
        let side = Side::start(product).await?;
        let refused = |status: Status| Failure::broken(format!("{product:?} refuses: {status}"));
        let request = lpb::LockRequest { name: Bytes::from_static(b"n"), lease: 0 };
        let first = side.lock().lock(request.clone()).await.map_err(refused)?.into_inner();
        let store = side.store().await?;
        let held = store.iter().find(|kv| kv.key == first.key);
        let lease = held.map_or(0, |kv| kv.lease);
        let left = side.cluster.members()[0].endpoint().lease_time_to_live(lease, true, WITHIN).await;
        let left = left.map_err(refused)?;
        if left.granted_ttl != 60 || left.keys != [first.key.clone()] {
            return Err(Failure::broken(format!("{product:?}: {left:?} for {first:?}")));
        }
        // A second one waits; once it has the lock, its token is greater.
        let (mut client, token) = (side.lock(), held.map_or(0, |kv| kv.create_revision));
        let second = tokio::spawn(async move { client.lock(request).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        if second.is_finished() {
            return Err(Failure::broken(format!("{product:?}: two have the lock")));
        }
        side.lock().unlock(lpb::UnlockRequest { key: first.key }).await.map_err(refused)?;
        let second = second.await.map_err(|error| Failure::harness(error.to_string()))?;
        let second = second.map_err(refused)?.into_inner();
        let store = side.store().await?;
        if !store.iter().any(|kv| kv.key == second.key && token < kv.create_revision) {
            return Err(Failure::broken(format!("{product:?}: {second:?} is not later than {token}")));
        }
        side.cluster.finish()?;
    }
    Ok(())
}
