//! Acknowledgement, durability and group commit: what is told when.

use crate::log_driver::{append, entries, entry, filled, id, last, open, read_all, roomy, small, submit};
use crate::sim_disk::SimDisk;
use meerkat_raft::log_store::LogOptions;
use meerkat_raft::type_config::Vote;
use meerkat_types::MemberId;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use tokio::sync::oneshot::error::TryRecvError;

#[tokio::test]
async fn appended_entries_are_readable_before_they_are_durable() {
    let (disk, mut log) = filled(small(), 3).await;
    disk.hold_syncs();
    let mut done = submit(&mut log, entries(1, 4..=40)).await.expect("submit");
    disk.wait_for_held_sync();
    assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 1..=40));
    assert_eq!(done.try_recv().expect_err("not synced yet"), TryRecvError::Empty);
    assert!(log.durable_log().durable() < Some(id(1, 40)));
    disk.release_syncs();
    done.await.expect("callback").expect("append");
    assert_eq!(log.durable_log().durable(), Some(id(1, 40)));
}

#[tokio::test]
async fn whatever_gathers_during_a_sync_shares_the_next_one() {
    let (disk, mut log) = filled(roomy(), 1).await;
    let before = log.stats().syncs();
    disk.hold_syncs();
    let mut done = vec![submit(&mut log, vec![entry(1, 2)]).await.expect("submit")];
    disk.wait_for_held_sync();
    for index in 3..=100 {
        done.push(submit(&mut log, vec![entry(1, index)]).await.expect("submit"));
    }
    disk.release_syncs();
    for done in done {
        done.await.expect("callback").expect("append");
    }
    assert_eq!(log.stats().syncs() - before, 2, "one sync was running, one more for all the rest");
}

#[tokio::test]
async fn a_commit_position_is_never_a_reason_to_sync() {
    let (disk, mut log) = filled(roomy(), 20).await;
    let before = log.stats().syncs();
    for index in 1..=20 {
        log.save_committed(Some(id(1, index))).await.expect("committed");
    }
    // It reaches the file without one.
    while disk.pending_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(log.stats().syncs(), before);
    assert_eq!(log.read_committed().await.expect("committed"), Some(id(1, 20)));
}

#[tokio::test]
async fn a_truncate_lowers_the_mark_before_it_returns_and_an_older_sync_does_not_raise_it() {
    let (disk, mut log) = filled(roomy(), 10).await;
    let durable = log.durable_log();
    disk.hold_syncs();
    let done = submit(&mut log, entries(1, 11..=15)).await.expect("submit");
    disk.wait_for_held_sync();
    let truncating = {
        let mut log = log.clone();
        tokio::spawn(async move { log.truncate_after(Some(id(1, 4))).await })
    };
    while last(&mut log).await != Some(id(1, 4)) {
        tokio::task::yield_now().await;
    }
    assert_eq!(durable.durable(), Some(id(1, 4)));
    disk.release_syncs();
    done.await.expect("callback").expect("append");
    truncating.await.expect("task").expect("truncate");
    assert_eq!(durable.durable(), Some(id(1, 4)));
    append(&mut log, entries(2, 5..=5)).await.expect("append");
    assert_eq!(durable.durable(), Some(id(2, 5)));
    durable.wait_durable(&id(2, 5)).expect("covered");
}

#[tokio::test]
async fn an_apply_thread_waits_for_its_entry() {
    let (disk, mut log) = filled(roomy(), 1).await;
    disk.hold_syncs();
    let done = submit(&mut log, vec![entry(1, 2)]).await.expect("submit");
    let waiter = {
        let durable = log.durable_log();
        std::thread::spawn(move || {
            durable.wait_durable(&id(1, 2)).expect("becomes durable");
            durable.durable()
        })
    };
    disk.wait_for_held_sync();
    assert!(!waiter.is_finished());
    disk.release_syncs();
    assert_eq!(waiter.join().expect("waiter"), Some(id(1, 2)));
    done.await.expect("callback").expect("append");
}

#[tokio::test]
async fn a_barrier_waits_for_everything_before_it() {
    let disk = SimDisk::default();
    let mut log = open(&disk, small()).expect("open");
    log.sync_barrier().await.expect("nothing to wait for");
    drop(submit(&mut log, entries(1, 1..=9)).await.expect("submit"));
    log.purge(id(1, 3)).await.expect("purge");
    log.sync_barrier().await.expect("barrier");
    let mut again = open(&disk.crash_keeping_bytes(0), small()).expect("open");
    assert_eq!(read_all(&mut again).await.expect("entries"), entries(1, 4..=9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_follow_a_log_that_grows_truncates_and_purges() {
    let disk = SimDisk::default();
    let mut log = open(&disk, LogOptions { cache_bytes: 2000, ..small() }).expect("open");
    let mut reader = log.get_log_reader().await;
    let reading = tokio::spawn(async move {
        let mut reads = 0_u64;
        loop {
            let found = reader.try_get_log_entries(..).await.expect("read");
            assert!(found.windows(2).all(|pair| pair[0].log_id.index + 1 == pair[1].log_id.index));
            reads += 1;
            if reader.read_vote().await.expect("vote").is_some() {
                return reads;
            }
        }
    });
    let mut next = 1;
    for round in 1..=200_u64 {
        append(&mut log, entries(round, next..=next + 4)).await.expect("append");
        next += 5;
        if round % 10 == 0 {
            log.truncate_after(Some(id(round, next - 3))).await.expect("truncate");
            next -= 2;
        }
        if round % 25 == 0 {
            log.purge(id(round - 10, next - 40)).await.expect("purge");
        }
    }
    log.save_vote(&Vote::new(1, MemberId(1))).await.expect("vote");
    assert!(reading.await.expect("reader") > 0);
}
