//! What serializable means, tried at random: money is neither made nor lost, no reader sees a
//! transfer half done, and no two decide on what the other just changed.

use super::{SECOND, number};
use crate::server::{BOTH, Cluster, Kind};
use meerkat_client::{Client, Keys, StmError, StmTxn};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const ACCOUNTS: u32 = 6;
const START: i64 = 100;

async fn balances(tx: &mut StmTxn) -> Result<Vec<i64>, StmError> {
    let all = tx.range(Keys::prefix("account/")).await?;
    Ok(all.iter().map(|(_, value)| String::from_utf8_lossy(value).parse().expect("a number")).collect())
}

/// Moves money between two accounts, reading them one by one or all at once.
async fn transfer(client: &Client, from: u32, to: u32, amount: i64, by_range: bool) -> Result<u32, StmError> {
    let done = client.transact(|tx| {
        Box::pin(async move {
            let (from, to) = (format!("account/{from}"), format!("account/{to}"));
            if by_range {
                balances(tx).await?;
            }
            let has = number(tx, &from).await?;
            if has < amount {
                return Ok(());
            }
            let left = has - amount;
            // An empty account is closed: deletions and creations take part too.
            match left {
                0 => tx.delete(from.clone()),
                _ => tx.put(from.clone(), left.to_string()),
            }
            let other = number(tx, &to).await?;
            tx.put(to, (other + amount).to_string());
            Ok(())
        })
    });
    done.await.map(|done| done.attempts)
}

async fn check_bank(kind: Kind, seed: u64) {
    let cluster = Cluster::start(kind, 3).await;
    let client = cluster.client_when_ready().await;
    for account in 0..ACCOUNTS {
        client.put(format!("account/{account}"), START.to_string()).await.expect("a put");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let auditor = tokio::spawn(audit(client.clone(), stop.clone()));
    let workers = (0..4u64).map(|worker| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(seed ^ worker);
            let (mut done, mut attempts) = (0u32, 0u32);
            let end = Instant::now() + 60 * SECOND;
            while done < 60 && Instant::now() < end {
                let from = random.random_range(0..ACCOUNTS);
                let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
                let (amount, by_range) = (random.random_range(1..=60), random.random_bool(0.3));
                match transfer(&client, from, to, amount, by_range).await {
                    Ok(runs) => attempts += runs,
                    Err(StmError::Conflict { attempts: runs }) => attempts += runs,
                    Err(error) => panic!("{error}"),
                }
                done += 1;
            }
            (done, attempts)
        })
    });
    let (mut done, mut attempts) = (0, 0);
    for worker in workers.collect::<Vec<_>>() {
        let (transfers, runs) = worker.await.expect("a worker");
        (done, attempts) = (done + transfers, attempts + runs);
    }
    stop.store(true, Ordering::SeqCst);
    let audits = auditor.await.expect("the auditor");
    println!("{kind:?}, seed {seed}: {done} transfers in {attempts} runs, {audits} audits");
    assert!(0 < audits && done < attempts, "{kind:?}: nobody met anybody");
    let last = client.transact(|tx| Box::pin(balances(tx))).await.expect("a read").value;
    assert_eq!(last.iter().sum::<i64>(), START * i64::from(ACCOUNTS), "{kind:?}, seed {seed}: {last:?}");
    assert!(last.iter().all(|balance| 0 < *balance), "{kind:?}, seed {seed}: {last:?}");
}

/// Reads all accounts, one way and the other, while money moves.
async fn audit(client: Client, stop: Arc<AtomicBool>) -> u32 {
    let mut audits = 0;
    while !stop.load(Ordering::SeqCst) {
        let seen = client.transact(|tx| {
            Box::pin(async move {
                let mut singly = 0;
                for account in 0..ACCOUNTS {
                    singly += number(tx, &format!("account/{account}")).await?;
                }
                Ok((singly, balances(tx).await?.iter().sum::<i64>()))
            })
        });
        let total = START * i64::from(ACCOUNTS);
        assert_eq!(seen.await.expect("a read").value, (total, total), "a transfer was seen half done");
        audits += 1;
    }
    audits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transfers_on_etcd_keep_the_total() {
    check_bank(Kind::Etcd, rand::random()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_transfers_on_meerkat_keep_the_total() {
    check_bank(Kind::Meerkat, rand::random()).await;
}

/// Two people are on duty, and each goes home if the other stays. The keys they write differ, so only
/// a guard on what they read keeps one of them there.
async fn go_home(client: &Client, who: &'static str, by_range: bool) -> bool {
    let done = client.transact(|tx| {
        Box::pin(async move {
            let on_duty = match by_range {
                true => tx.range(Keys::prefix("duty/")).await?.len(),
                false => {
                    let mut present = 0;
                    for key in ["duty/ann", "duty/bob"] {
                        present += usize::from(tx.get(key).await?.is_some());
                    }
                    present
                }
            };
            if 1 < on_duty {
                tx.delete(who);
            }
            Ok(1 < on_duty)
        })
    });
    done.await.expect("a commit").value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_write_skew() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        for round in 0..60 {
            client.put("duty/ann", "here").await.expect("a put");
            client.put("duty/bob", "here").await.expect("a put");
            let (ann, bob) = tokio::join!(
                go_home(&client, "duty/ann", round % 2 == 0),
                go_home(&client, "duty/bob", round % 3 == 0)
            );
            let left = client.get(Keys::prefix("duty/")).await.expect("a get").count;
            assert_eq!(left, 1, "{kind:?}, round {round}: ann went {ann}, bob went {bob}");
            assert_ne!(ann, bob, "{kind:?}, round {round}");
        }
    }
}

/// The other half of write skew: each puts a key into a range that it found empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_book_the_same_room() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        for round in 0..40 {
            let book = |who: &'static str| {
                client.transact(move |tx| {
                    Box::pin(async move {
                        let room = format!("room/{round}/");
                        let free = tx.range(Keys::prefix(&room)).await?.is_empty();
                        if free {
                            tx.put(format!("{room}{who}"), "booked");
                        }
                        Ok(free)
                    })
                })
            };
            let (a, b, c) = tokio::join!(book("a"), book("b"), book("c"));
            let booked = [a, b, c].map(|done| done.expect("a commit").value);
            assert_eq!(
                booked.iter().filter(|booked| **booked).count(),
                1,
                "{kind:?}, round {round}: {booked:?}"
            );
        }
    }
}
