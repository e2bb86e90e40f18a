//! Informers of real members that are killed, frozen and cut off while history is compacted behind
//! them: at every look the cache is what a list at the revision it claims gives.

use crate::patience::{until, within};
use crate::server::{BOTH, Kind};
use crate::watch_cluster::Cluster;
use bytes::Bytes;
use meerkat_client::informer::{Delta, Informer, Snapshot};
use meerkat_client::{Client, EtcdError, Keys, Op, Revision};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const PREFIX: &str = "informed/";
const FAULTS: usize = 9;

/// Key and revision of the state it is in.
type View = BTreeMap<Bytes, Revision>;

fn view(snapshot: &Snapshot<Bytes>) -> View {
    snapshot.iter().map(|object| (object.key.clone(), object.modified)).collect()
}

/// What a fresh list at this revision gives. Nothing if that has been compacted.
async fn listed(client: &Client, at: Revision) -> Option<View> {
    for _ in 0..100 {
        match client.get(Keys::prefix(PREFIX)).revision(at).timeout(Duration::from_secs(5)).await {
            Ok(list) => return Some(list.kvs.into_iter().map(|kv| (kv.key, kv.modified)).collect()),
            Err(error) if error.etcd() == Some(EtcdError::Compacted) => return None,
            // Between leaders.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("no list at {at} in a hundred attempts");
}

/// What those that write and compare have done so far, until they are told to stop.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    written: AtomicU64,
    compared: AtomicU64,
}

/// Transactions of one to three keys, and every 300 revisions a compaction, until told to stop.
fn write(client: Client, work: Arc<Work>, seed: u64) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut draws = StdRng::seed_from_u64(seed);
        let mut compacted = 0;
        while !work.stop.load(Ordering::Relaxed) {
            let written = work.written.load(Ordering::Relaxed);
            let first = draws.random_range(0..40);
            let ops: Vec<Op> = (0..draws.random_range(1..4))
                .map(|offset| {
                    let key = format!("{PREFIX}{:02}", first + offset);
                    if draws.random_bool(0.3) { Op::delete(key) } else { Op::put(key, format!("{written}")) }
                })
                .collect();
            // What happened to a write that failed does not matter here.
            let Ok(done) = client.txn().then(ops).timeout(Duration::from_secs(3)).await else { continue };
            work.written.fetch_add(1, Ordering::Relaxed);
            if compacted + 300 < done.revision.get() {
                compacted = done.revision.get() - 100;
                drop(client.compact(Revision::new(compacted)).await);
            }
        }
    })
}

/// Follows what a handler is told. Panics if it does not follow from what it was told before.
fn follow(informer: &Informer<Bytes>, queue: usize, pace: Duration) -> JoinHandle<View> {
    let mut subscription = informer.subscription().queue(queue).start();
    tokio::spawn(async move {
        let mut view = View::new();
        while let Some(delta) = subscription.next().await {
            let key = delta.key().clone();
            let (past, now) = match &delta {
                Delta::Added(new) => (None, Some(new.modified)),
                Delta::Updated { old, new } => (Some(old.modified), Some(new.modified)),
                Delta::Deleted { last, .. } => (Some(last.modified), None),
                Delta::Undecodable { last: same, .. } | Delta::Resync(same) => {
                    (Some(same.modified), Some(same.modified))
                }
            };
            assert_eq!(view.remove(&key), past, "{delta:?}");
            if let Some(now) = now {
                view.insert(key, now);
            }
            tokio::time::sleep(pace).await;
        }
        view
    })
}

/// Compares the cache with a list at the revision it claims, again and again.
fn compare(client: Client, informer: Informer<Bytes>, work: Arc<Work>) -> JoinHandle<()> {
    let store = informer.store();
    tokio::spawn(async move {
        while !work.stop.load(Ordering::Relaxed) {
            let snapshot = store.snapshot();
            let Some(revision) = snapshot.revision() else {
                tokio::task::yield_now().await;
                continue;
            };
            if let Some(list) = listed(&client, revision).await {
                assert_eq!(view(&snapshot), list, "broken promise: a cache at revision {revision}");
                work.compared.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

async fn harm(cluster: &mut Cluster, number: usize) {
    let member = number % 3;
    let ms = Duration::from_millis;
    match number / 3 {
        0 => {
            cluster.kill(member);
            tokio::time::sleep(ms(700)).await;
            cluster.revive(member);
        }
        1 => {
            cluster.cut(member);
            tokio::time::sleep(ms(2_500)).await;
            cluster.mend(member);
        }
        _ => {
            cluster.pause(member);
            tokio::time::sleep(ms(2_500)).await;
            cluster.resume(member);
        }
    }
    cluster.wait_until_ready().await;
}

async fn chaos(kind: Kind) {
    let mut cluster = Cluster::start(kind, 3).await;
    let client = Client::connect(cluster.endpoints()).await.expect("a client");
    let work = Arc::new(Work::default());
    let writers: Vec<_> = (0..2).map(|seed| write(client.clone(), Arc::clone(&work), seed)).collect();
    let informer = Informer::builder(&client, Keys::prefix(PREFIX)).bytes().page_size(7).start();
    let comparing = compare(client.clone(), informer.clone(), Arc::clone(&work));
    let mut handlers = vec![follow(&informer, 1024, Duration::ZERO)];
    informer.wait_for_sync().await.expect("it lists");
    let done = || (work.written.load(Ordering::Relaxed), work.compared.load(Ordering::Relaxed));
    for number in 0..FAULTS {
        let (written, compared) = done();
        let goes_on = || written + 5 < done().0 && compared + 2 < done().1;
        until("writes and looks go on", || goes_on() || comparing.is_finished()).await;
        harm(&mut cluster, number).await;
        if number == 4 {
            handlers.push(follow(&informer, 4, Duration::from_millis(3)));
        }
    }
    let is_enough = || 50 < done().0 && 20 < done().1;
    until("enough happened to show something", || is_enough() || comparing.is_finished()).await;
    work.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("no panic");
    }
    comparing.await.expect("the cache was right at every look");
    let last = client.put(format!("{PREFIX}end"), "").await.expect("all members are back").revision;
    within("the last revision", informer.wait_for_revision(last)).await.expect("it runs");
    let ended = view(&informer.store().snapshot());
    assert_eq!(Some(&ended), listed(&client, last).await.as_ref());
    println!("{kind:?}: {FAULTS} faults, (writes, looks) {:?}, {:?}", done(), informer.status());
    informer.stop().await;
    for handler in handlers {
        assert_eq!(handler.await.expect("a legal sequence"), ended, "a final state was missed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_faults_the_cache_is_always_a_list_at_the_revision_it_claims() {
    for kind in BOTH {
        chaos(kind).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_compacted_while_cut_off_costs_one_list_and_tells_unseen_deletes() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 3).await;
        // The informer knows one member, which will be cut off; writes go to the others.
        let client = Client::connect(cluster.endpoints().drain(..1)).await.expect("a client");
        let beside = Client::connect(cluster.endpoints().drain(1..)).await.expect("a client");
        for key in ["kept", "gone", "changed"] {
            client.put(format!("{PREFIX}{key}"), "1").await.expect("a put");
        }
        let informer = Informer::builder(&client, Keys::prefix(PREFIX)).text().start();
        // On the same connection.
        let beside_it = client.watch("other").start();
        beside_it.live().await;
        let mut told = informer.subscribe();
        for _ in 0..3 {
            assert!(matches!(told.next().await, Some(Delta::Added(_))));
        }
        cluster.cut(0);
        beside.delete(format!("{PREFIX}gone")).await.expect("a delete");
        beside.put(format!("{PREFIX}changed"), "2").await.expect("a put");
        let last = beside.put(format!("{PREFIX}new"), "3").await.expect("a put").revision;
        beside.compact(last).await.expect("a compaction");
        assert_eq!(informer.store().len(), 3, "it shows what it knew");
        // What lay in the connection would be delivered, had the client not given it up.
        until("the client gives the connection up", || beside_it.status().endpoint.is_none()).await;
        cluster.mend(0);
        within("the last revision", informer.wait_for_revision(last)).await.expect("it runs");
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(format!("{:?}", told.next().await.expect("it runs")));
        }
        let short: Vec<&str> = seen.iter().filter_map(|delta| delta.split('@').next()).collect();
        let status = informer.status();
        println!("{kind:?}: {seen:?}, {status:?}");
        assert_eq!(short, ["Deleted unseen(informed/gone", "Updated(informed/changed", "Added(informed/new"]);
        assert_eq!(status.relists(), 1);
    }
}
