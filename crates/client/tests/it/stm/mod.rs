//! Transactions in plain code on real servers: serializable, whoever interferes and whatever dies.

mod faults;
mod lossy;
mod lost;
mod properties;

use crate::server::{BOTH, Cluster};
use meerkat_client::{Client, EtcdError, Fate, Keys, Stm, StmError, StmTxn};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A number behind a key; a missing one is zero.
async fn number(tx: &mut StmTxn, key: &str) -> Result<i64, StmError> {
    let value = tx.get(key.to_owned()).await?;
    Ok(value.map_or(0, |value| String::from_utf8_lossy(&value).parse().expect("a number")))
}

async fn stored(client: &Client, key: &str) -> Option<String> {
    let got = client.get(key).await.expect("a get");
    got.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_reads_one_revision_and_its_own_writes() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await.namespace("app/");
        client.put("a", "1").await.expect("a put");
        client.put("b", "1").await.expect("a put");
        let outside = client.clone();
        let read = client
            .transact(|tx| {
                let outside = outside.clone();
                Box::pin(async move {
                    let first = number(tx, "a").await?;
                    // A body that writes nothing is not disturbed by this, and does not see it.
                    outside.put("b", "2").await?;
                    Ok((first, number(tx, "b").await?, tx.range(Keys::all()).await?.len()))
                })
            })
            .await
            .expect("a read");
        assert_eq!((read.value, read.attempts), ((1, 1, 2), 1), "{kind:?}");
        assert_eq!(stored(&client, "b").await.as_deref(), Some("2"));

        let wrote = client
            .transact(|tx| {
                Box::pin(async move {
                    tx.put("c", "3");
                    tx.delete("a");
                    assert_eq!(tx.get("a").await?, None);
                    assert_eq!(tx.get("c").await?, Some("3".into()));
                    let keys: Vec<_> = tx.range(Keys::all()).await?.into_iter().map(|(key, _)| key).collect();
                    assert_eq!(keys, ["b", "c"]);
                    Ok(())
                })
            })
            .await
            .expect("a commit");
        let kv = client.get("c").await.expect("a get").kvs[0].clone();
        assert_eq!((wrote.attempts, wrote.revision), (1, kv.modified), "{kind:?}");
        assert_eq!(stored(&client, "a").await, None);

        let off = client
            .transact(|tx| {
                Box::pin(async move {
                    tx.put("c", "4");
                    Err::<(), _>(StmError::abort("not today"))
                })
            })
            .await
            .expect_err("called off");
        assert_eq!(off.fate(), Fate::Refused, "{kind:?}");
        assert_eq!(stored(&client, "c").await.as_deref(), Some("3"));
    }
}

/// What someone else does between a body's reads and its commit.
#[derive(Clone, Copy, Debug)]
enum Meddling {
    Put(&'static str),
    Delete(&'static str),
}

/// The body reads one key and the range `k/`, someone meddles in its first run, and it commits.
async fn check_meddling(client: &Client, meddling: Meddling, expected_attempts: u32) {
    client.delete(Keys::all()).await.expect("cleared");
    for key in ["k/a", "k/b", "one", "far"] {
        client.put(key, "0").await.expect("a put");
    }
    for witness in [None, Some("w")] {
        let stm = Stm::new(client);
        let stm = witness.into_iter().fold(stm, Stm::witness);
        let (outside, mut runs) = (client.clone(), 0);
        let done = stm
            .run(|tx| {
                runs += 1;
                let (outside, first) = (outside.clone(), runs == 1);
                Box::pin(async move {
                    tx.get("one").await?;
                    tx.get("none").await?;
                    let seen = tx.range(Keys::prefix("k/")).await?.len();
                    match meddling {
                        Meddling::Put(key) if first => drop(outside.put(key, "1").await?),
                        Meddling::Delete(key) if first => drop(outside.delete(key).await?),
                        Meddling::Put(_) | Meddling::Delete(_) => {}
                    }
                    tx.put("seen", seen.to_string());
                    Ok(seen)
                })
            })
            .await
            .expect("a commit");
        assert_eq!((done.attempts, runs), (expected_attempts, expected_attempts), "{meddling:?}");
        // What it saw is what there was at its commit.
        let there = client.get(Keys::prefix("k/")).revision(done.revision).await.expect("a get").kvs.len();
        assert_eq!(done.value, there, "{meddling:?}");
        if let Meddling::Delete(key) = meddling {
            client.put(key, "0").await.expect("put back");
        }
        if let Meddling::Put(key @ ("k/new" | "none")) = meddling {
            client.delete(key).await.expect("taken away");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_changes_what_was_read_makes_the_body_run_again() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await.namespace(format!("{kind:?}/"));
        for (meddling, attempts) in [
            (Meddling::Put("far"), 1),
            (Meddling::Put("seen"), 1),
            (Meddling::Put("one"), 2),
            (Meddling::Delete("one"), 2),
            (Meddling::Put("none"), 2),
            (Meddling::Put("k/a"), 2),
            // A phantom: no key that was read has changed.
            (Meddling::Put("k/new"), 2),
            // A key that a comparison over the range cannot see any more.
            (Meddling::Delete("k/b"), 2),
        ] {
            check_meddling(&client, meddling, attempts).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_range_is_guarded_against_the_first_key_in_it() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let mut runs = 0;
        let outside = client.clone();
        let done = client.transact(|tx| {
            runs += 1;
            let (outside, first) = (outside.clone(), runs == 1);
            Box::pin(async move {
                let seen = tx.range(Keys::prefix("empty/")).await?.len();
                if first {
                    outside.put("empty/a", "1").await?;
                }
                tx.put("seen", seen.to_string());
                Ok(seen)
            })
        });
        assert_eq!(done.await.expect("a commit").value, 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_whose_revision_is_compacted_under_it_runs_again() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        client.put("a", "1").await.expect("a put");
        let (outside, mut runs) = (client.clone(), 0);
        let done = client.transact(|tx| {
            runs += 1;
            let (outside, first) = (outside.clone(), runs == 1);
            Box::pin(async move {
                number(tx, "a").await?;
                if first {
                    outside.put("b", "1").await?;
                    let last = outside.put("b", "2").await?.revision;
                    outside.compact(last).await?;
                }
                number(tx, "b").await
            })
        });
        let done = done.await.expect("a read");
        assert_eq!((done.value, done.attempts), (2, 2), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_are_bounded_and_too_large_a_guard_is_refused() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let outside = client.clone();
        let stm = Stm::new(&client).attempts(3);
        let given_up = stm.run(|tx| {
            let outside = outside.clone();
            Box::pin(async move {
                let was = number(tx, "n").await?;
                outside.put("n", (was + 1).to_string()).await?;
                tx.put("n", "mine");
                Ok(())
            })
        });
        let given_up = given_up.await.expect_err("three conflicts");
        assert!(matches!(given_up, StmError::Conflict { attempts: 3 }), "{kind:?}: {given_up}");
        assert_eq!(stored(&client, "n").await.as_deref(), Some("3"));

        for index in 0..130 {
            client.put(format!("many/{index}"), "v").await.expect("a put");
        }
        let refused = client.transact(|tx| {
            Box::pin(async move {
                tx.range(Keys::prefix("many/")).await?;
                tx.put("n", "4");
                Ok(())
            })
        });
        let refused = refused.await.expect_err("too many comparisons");
        assert_eq!(refused.fate(), Fate::Refused, "{kind:?}");
        assert!(matches!(&refused, StmError::Client(error) if error.etcd() == Some(EtcdError::TooManyOps)));
    }
}
