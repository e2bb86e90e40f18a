//! One conditional write of one key.

use crate::stage::{PATIENCE, Stage, bytes, revision, row};
use meerkat_watchcache::store::{By, Change, StoreError, Write, Written};
use std::time::Duration;

pub async fn revisions_are_dense_and_now_covers_them(stage: &Stage) {
    let first = stage.done("dense/a", 0, "1").await;
    assert_eq!(stage.now().await, first, "{}", stage.name);
    assert_eq!(stage.done("dense/b", 0, "1").await, first + 1);
    assert_eq!(stage.done("dense/a", first, "2").await, first + 2);
    let by_another = stage.other.put("dense/c", "1").await.expect("another writes").revision.get();
    assert_eq!(u64::try_from(by_another), Ok(first + 3));
    assert_eq!(stage.now().await, first + 3);
    let (found, at) = stage.store.get(bytes("dense/c")).await.expect("a read");
    assert_eq!((found, at), (Some(row("dense/c", "1", first + 3)), first + 3));
}

pub async fn a_write_is_done_only_if_the_key_is_as_believed(stage: &Stage) {
    let key = "cas/a";
    let created = stage.done(key, 0, "1").await;
    let there = Written::Otherwise { found: Some(row(key, "1", created)), revision: created };
    assert_eq!(stage.put(key, 0, "2").await, there, "{}: it is there already", stage.name);
    assert_eq!(stage.put(key, created - 1, "2").await, there);
    assert_eq!(stage.delete(key, created - 1).await, there);
    let replaced = stage.done(key, created, "2").await;
    assert_eq!(replaced, created + 1);
    let there = Written::Otherwise { found: Some(row(key, "2", replaced)), revision: replaced };
    assert_eq!(stage.put(key, created, "3").await, there, "it was replaced");
    assert_eq!(stage.delete(key, created).await, there);
    let deleted = revision(&stage.delete(key, replaced).await);
    assert_eq!(deleted, replaced + 1);
    let gone = Written::Otherwise { found: None, revision: deleted };
    assert_eq!(stage.delete(key, replaced).await, gone, "it is gone");
    assert_eq!(stage.put(key, replaced, "3").await, gone);
    assert_eq!(stage.store.get(bytes(key)).await, Ok((None, deleted)));
    assert_eq!(stage.done(key, 0, "again").await, deleted + 1);
}

pub async fn of_two_who_believe_the_same_one_is_right(stage: &Stage) {
    let key = "race/a";
    let at = stage.done(key, 0, "0").await;
    let attempts = (0..8).map(|_| stage.put(key, at, "mine"));
    let outcomes = futures::future::join_all(attempts).await;
    let done: Vec<&Written> =
        outcomes.iter().filter(|outcome| matches!(outcome, Written::Done { .. })).collect();
    assert_eq!(done, [&Written::Done { revision: at + 1 }], "{}", stage.name);
    assert_eq!(stage.now().await, at + 1);
}

pub async fn what_is_too_large_or_on_no_lease_is_not_done(stage: &Stage) {
    let before = stage.now().await;
    let put = |value: String, lease| Write {
        key: bytes("refused/a"),
        expected: 0,
        change: Change::Put { value: value.into(), lease },
        by: By::Door,
    };
    let large = stage.store.write(put("x".repeat(2 << 20), 0)).await;
    assert_eq!(large, Err(StoreError::TooLarge), "{}", stage.name);
    let on_no_lease = stage.store.write(put(String::new(), 12_345)).await;
    assert!(matches!(on_no_lease, Err(StoreError::Unavailable(_))), "{on_no_lease:?}");
    assert_eq!(stage.now().await, before);
    // What is almost too large is not.
    let fits = stage.store.write(put("x".repeat(1 << 20), 0)).await;
    assert_eq!(fits, Ok(Written::Done { revision: before + 1 }));
}

pub async fn a_lease_lives_on_as_long_as_it_is_renewed_and_nothing_is_written_for_it(stage: &Stage) {
    let (store, name) = (&stage.store, stage.name);
    let lease = store.grant(8).await.expect("a lease");
    let key = bytes("renewed/a");
    let change = Change::Put { value: bytes("x"), lease };
    store.write(Write { key: key.clone(), expected: 0, change, by: By::Door }).await.expect("written");
    let before = stage.now().await;
    for _ in 0..8 {
        assert_eq!(store.renew(lease).await, Ok(true), "{name}");
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    assert_eq!(stage.now().await, before, "{name}");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while store.get(key.clone()).await.expect("read").0.is_some() {
        assert!(tokio::time::Instant::now() < deadline, "{name}: it outlives its lease");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(stage.now().await, before + 1, "{name}");
    assert_eq!(store.renew(lease).await, Ok(false), "{name}");
}
