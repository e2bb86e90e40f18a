//! What a watch tells.

use crate::stage::{Stage, bytes, revision, row};
use meerkat_client::Op;
use meerkat_watchcache::store::{Batch, By, Change, Row, RowChange, Write};
use std::time::{Duration, Instant};

/// Far above what it takes, far below the second that a client asks by itself after.
const SOON: Duration = Duration::from_millis(800);

fn change(key: &str, after: Option<Row>) -> RowChange {
    RowChange { key: bytes(key), after }
}

pub async fn a_watch_tells_all_after_a_revision_once_and_in_order(stage: &Stage) {
    let key = "told/a";
    let first = stage.done(key, 0, "1").await;
    let second = stage.done(key, first, "2").await;
    stage.done("told", 0, "a neighbour").await;
    let deleted = revision(&stage.delete(key, second).await);
    let mut from_the_past = stage.watch("told/", first);
    let one = |revision, change| Batch { revision, changes: vec![change] };
    let replaced = one(second, change(key, Some(row(key, "2", second))));
    let gone = one(deleted, change(key, None));
    assert_eq!(from_the_past.changes().await, replaced, "{}", stage.name);
    assert_eq!(from_the_past.changes().await, gone);
    let mut from_now = stage.watch("told/", deleted);
    let again = stage.done(key, 0, "3").await;
    let created = one(again, change(key, Some(row(key, "3", again))));
    assert_eq!(from_now.changes().await, created);
    assert_eq!(from_the_past.changes().await, created);
    // Many, written while they are watched.
    let mut at = again;
    for number in 0..200 {
        let next = stage.done(key, at, &number.to_string()).await;
        let batch = from_now.changes().await;
        assert_eq!((batch.revision, batch.changes.len()), (next, 1));
        assert_eq!(batch.changes[0].after.as_ref().map(|after| after.modified), Some(next));
        at = next;
    }
    // And read at once by one who comes late.
    let mut late = stage.watch("told/", again);
    for number in 1..=200 {
        assert_eq!(late.changes().await.revision, again + number);
    }
}

pub async fn all_of_one_revision_comes_together(stage: &Stage) {
    let there = stage.done("together/d", 0, "0").await;
    let mut watch = stage.watch("together/", there);
    let puts = ["together/a", "together/b", "together/c", "elsewhere"].map(|key| Op::put(key, "1"));
    let ops = puts.into_iter().chain([Op::delete("together/d")]);
    let at = stage.other.txn().then(ops).await.expect("another writes").revision;
    let at = u64::try_from(at.get()).expect("a revision");
    let created = |key| change(key, Some(row(key, "1", at)));
    let batch = watch.changes().await;
    assert_eq!(batch.revision, at, "{}", stage.name);
    let expected =
        [created("together/a"), created("together/b"), created("together/c"), change("together/d", None)];
    assert_eq!(batch.changes, expected);
    let after = stage.done("together/a", at, "2").await;
    assert_eq!(watch.changes().await.revision, after, "nothing of the one before is left");
}

pub async fn a_quiet_watch_says_how_far_the_store_has_come(stage: &Stage) {
    let mut watch = stage.watch("quiet/", stage.now().await);
    let mut took = Vec::new();
    for _ in 0..5 {
        stage.other.put("foreign", "1").await.expect("another writes");
        let now = stage.now().await;
        let began = Instant::now();
        watch.await_revision(now);
        watch.quietly_reaches(now).await;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    println!("{}: a quiet watch was as far as `now` after {took:?}", stage.name);
    // The median: a machine that stands still for a moment says nothing of the store.
    assert!(took[2] < SOON, "{}: {took:?}", stage.name);
}

/// Nobody waits for it, so it need not be told often; a door has some forty of these.
pub async fn a_quiet_watch_is_told_little_while_others_write(stage: &Stage) {
    let mut watch = stage.watch("quiet/", stage.now().await);
    let (began, mut writes, mut marks) = (Instant::now(), 0, 0);
    while began.elapsed() < Duration::from_secs(3) {
        stage.other.put("foreign", "3").await.expect("another writes");
        writes += 1;
        marks += watch.has_told();
    }
    println!("{}: {marks} marks in three seconds and {writes} revisions", stage.name);
    assert!(marks <= 6, "{}: {marks} marks", stage.name);
}

/// A watch that begins at the newest revision must not keep its neighbours from hearing.
pub async fn a_store_that_stands_still_says_how_far_it_is_too(stage: &Stage) {
    let before = stage.now().await;
    for _ in 0..3 {
        stage.other.put("foreign", "2").await.expect("another writes");
    }
    let now = stage.now().await;
    let (mut level, mut behind) = (stage.watch("still/", now), stage.watch("still/", before));
    let quiet = tokio::time::timeout(Duration::from_millis(300), level.next());
    let (quiet, ()) = tokio::join!(quiet, async {
        assert_eq!(stage.now().await, now);
        let began = Instant::now();
        behind.await_revision(now);
        behind.quietly_reaches(now).await;
        println!("{}: a watch of the past was level after {:?}", stage.name, began.elapsed());
    });
    assert!(quiet.is_err(), "{}: there is nothing to say, and it said {quiet:?}", stage.name);
    let next = stage.done("still/a", 0, "1").await;
    assert_eq!(level.changes().await.revision, next);
    assert_eq!(behind.changes().await.revision, next);
}

pub async fn what_a_lease_takes_with_it_is_told(stage: &Stage) {
    let lease = stage.store.grant(10).await.expect("a lease");
    assert_ne!(lease, 0);
    let value = bytes("1");
    let put =
        Write { key: bytes("leased/a"), expected: 0, change: Change::Put { value, lease }, by: By::Door };
    let at = revision(&stage.store.write(put).await.expect("a write"));
    let leased = Row { lease, ..row("leased/a", "1", at) };
    assert_eq!(stage.store.get(bytes("leased/a")).await, Ok((Some(leased), at)), "{}", stage.name);
    let mut watch = stage.watch("leased/", at);
    let batch = watch.changes().await;
    assert!(at < batch.revision);
    assert_eq!(batch.changes, [change("leased/a", None)]);
}
