//! Commits while members are killed: with a witness each counts once; without one, those in doubt say
//! so, and the store confirms every claim.

use super::{number, stored};
use crate::patience::until;
use crate::server::{Cluster, Kind};
use meerkat_client::{Client, Fate, Stm};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How a worker's increments ended.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    done: i64,
    unknown: i64,
    not_done: i64,
}

/// How many increments of all workers were done so far, until they are told to stop.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Work {
    async fn goes_on(&self) {
        let enough = self.done.load(Ordering::SeqCst) + 10;
        until("increments go on", || enough < self.done.load(Ordering::SeqCst)).await;
    }
}

async fn count(client: Client, witness: Option<String>, work: Arc<Work>) -> Tally {
    let stm = Stm::new(&client);
    let stm = witness.into_iter().fold(stm, Stm::witness);
    let mut tally = Tally::default();
    while !work.stop.load(Ordering::SeqCst) {
        let added = stm.run(|tx| {
            Box::pin(async move {
                let was = number(tx, "n").await?;
                tx.put("n", (was + 1).to_string());
                Ok(())
            })
        });
        match added.await {
            Ok(_) => {
                tally.done += 1;
                work.done.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) if error.fate() == Fate::Unknown => tally.unknown += 1,
            Err(_) => tally.not_done += 1,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tally
}

async fn check(kind: Kind, with_witness: bool) {
    let mut cluster = Cluster::start(kind, 3).await;
    let client = cluster.client_when_ready().await;
    let work = Arc::new(Work::default());
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let witness = with_witness.then(|| format!("witness/{worker}"));
            tokio::spawn(count(client.clone(), witness, work.clone()))
        })
        .collect();
    for _ in 0..4 {
        work.goes_on().await;
        // The leader has every write in hand, whomever the client talks to.
        let (leader, _) = cluster.leader_and_another(&client).await;
        cluster.members[leader].kill();
        // Long enough for commits to be cut short and asked about again.
        tokio::time::sleep(Duration::from_secs(1)).await;
        work.goes_on().await;
        cluster.bring_back(leader, &client).await;
    }
    work.goes_on().await;
    work.stop.store(true, Ordering::SeqCst);
    let mut sum = Tally::default();
    for worker in workers {
        let tally = worker.await.expect("a worker");
        sum.done += tally.done;
        sum.unknown += tally.unknown;
        sum.not_done += tally.not_done;
    }
    let counted: i64 = stored(&client, "n").await.expect("a count").parse().expect("a number");
    println!("{kind:?}, witness {with_witness}: {sum:?}, counted {counted}");
    let is_right = sum.done <= counted && counted <= sum.done + sum.unknown;
    assert!(is_right, "{}: {kind:?}: {sum:?}, counted {counted}", kind.breach());
    if with_witness {
        assert_eq!(sum.unknown, 0, "{kind:?}: a witness decides");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_witness_every_commit_on_etcd_counts_once_while_members_are_killed() {
    check(Kind::Etcd, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_witness_every_commit_on_meerkat_counts_once_while_members_are_killed() {
    check(Kind::Meerkat, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_witness_a_commit_on_etcd_in_doubt_says_so() {
    check(Kind::Etcd, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_witness_a_commit_on_meerkat_in_doubt_says_so() {
    check(Kind::Meerkat, false).await;
}
