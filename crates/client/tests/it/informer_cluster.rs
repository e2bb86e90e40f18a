//! Informers of real members that are killed, frozen and cut off while history is compacted behind
//! them: at every look the cache is what a list at the revision it claims gives.

use crate::server::{BOTH, Kind};
use crate::watch_cluster::Cluster;
use bytes::Bytes;
use meerkat_client::informer::{Delta, Informer, Snapshot};
use meerkat_client::{Client, EtcdError, Keys, Op, Revision};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Transactions of one to three keys, and every 300 revisions a compaction, until told to stop.
fn write(client: Client, stop: Arc<AtomicBool>, seed: u64) -> JoinHandle<u64> {
    tokio::spawn(async move {
        let mut draws = StdRng::seed_from_u64(seed);
        let (mut written, mut compacted) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let first = draws.random_range(0..40);
            let ops: Vec<Op> = (0..draws.random_range(1..4))
                .map(|offset| {
                    let key = format!("{PREFIX}{:02}", first + offset);
                    if draws.random_bool(0.3) { Op::delete(key) } else { Op::put(key, format!("{written}")) }
                })
                .collect();
            // What happened to a write that failed does not matter here.
            let Ok(done) = client.txn().then(ops).timeout(Duration::from_secs(3)).await else { continue };
            written += 1;
            if compacted + 300 < done.revision.get() {
                compacted = done.revision.get() - 100;
                drop(client.compact(Revision::new(compacted)).await);
            }
        }
        written
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

/// Compares the cache with a list at the revision it claims, again and again. Says how often it could.
fn compare(client: Client, informer: Informer<Bytes>, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    let store = informer.store();
    tokio::spawn(async move {
        let mut compared = 0;
        while !stop.load(Ordering::Relaxed) {
            let snapshot = store.snapshot();
            let Some(revision) = snapshot.revision() else { continue };
            if let Some(list) = listed(&client, revision).await {
                assert_eq!(view(&snapshot), list, "broken promise: a cache at revision {revision}");
                compared += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        compared
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
    tokio::time::sleep(ms(300)).await;
}

async fn chaos(kind: Kind) {
    let mut cluster = Cluster::start(kind, 3).await;
    let client = Client::connect(cluster.endpoints()).await.expect("a client");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2).map(|seed| write(client.clone(), Arc::clone(&stop), seed)).collect();
    let informer = Informer::builder(&client, Keys::prefix(PREFIX)).bytes().page_size(7).start();
    let comparing = compare(client.clone(), informer.clone(), Arc::clone(&stop));
    let mut handlers = vec![follow(&informer, 1024, Duration::ZERO)];
    informer.wait_for_sync().await.expect("it lists");
    for number in 0..FAULTS {
        harm(&mut cluster, number).await;
        if number == 4 {
            handlers.push(follow(&informer, 4, Duration::from_millis(3)));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("no panic");
    }
    let compared = comparing.await.expect("the cache was right at every look");
    let last = client.put(format!("{PREFIX}end"), "").await.expect("all members are back").revision;
    let reached = tokio::time::timeout(Duration::from_secs(30), informer.wait_for_revision(last)).await;
    reached.expect("in time").expect("it runs");
    let ended = view(&informer.store().snapshot());
    assert_eq!(Some(&ended), listed(&client, last).await.as_ref());
    println!("{kind:?}: {written} writes, {FAULTS} faults, {compared} looks, {:?}", informer.status());
    informer.stop().await;
    for handler in handlers {
        assert_eq!(handler.await.expect("a legal sequence"), ended, "a final state was missed");
    }
    assert!(50 < written && 20 < compared, "too little happened to show anything");
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
        // Long enough for the client to give the connection up: what lay in it would be delivered.
        tokio::time::sleep(Duration::from_secs(8)).await;
        cluster.mend(0);
        let reached = tokio::time::timeout(Duration::from_secs(30), informer.wait_for_revision(last)).await;
        reached.expect("in time").expect("it runs");
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
