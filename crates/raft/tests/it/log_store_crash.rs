//! After a crash the log is a prefix of what was asked for, with everything acknowledged in it.

use crate::log_driver::{append, entries, filled, id, last, open, read_all, roomy, small, submit};
use crate::sim_disk::SimDisk;
use meerkat_raft::log_store::LogOptions;
use meerkat_raft::type_config::{Entry, Vote};
use meerkat_types::MemberId;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Opens what a crash left: entries 1 to `acknowledged` must be there, then a prefix of the rest.
async fn check_prefix(after: &SimDisk, options: LogOptions, acknowledged: u64, all: &[Entry], what: &str) {
    let mut log = open(after, options.clone()).unwrap_or_else(|err| panic!("{what}: {err}"));
    let found = read_all(&mut log).await.expect("entries");
    assert!(found.len() as u64 >= acknowledged, "{what}: {} of {acknowledged} left", found.len());
    assert_eq!(found, all[..found.len()], "{what}");
    // It must go on from there, and what is written now must be there the next time.
    let next = found.len() as u64 + 1;
    append(&mut log, entries(9, next..=next + 2)).await.expect("append after the crash");
    drop(log);
    let mut log = open(after, options).expect("open again");
    assert_eq!(last(&mut log).await, Some(id(9, next + 2)), "{what}");
}

#[tokio::test]
async fn unsynced_writes_may_be_lost_from_any_byte_on() {
    let (disk, mut log) = filled(roomy(), 4).await;
    disk.hold_syncs();
    let mut done = vec![submit(&mut log, entries(1, 5..=9)).await.expect("submit")];
    disk.wait_for_held_sync();
    done.push(submit(&mut log, entries(1, 10..=12)).await.expect("submit"));
    let pending = disk.pending_bytes();
    assert!(pending > 300, "{pending}");
    for keep in 0..=pending {
        check_prefix(
            &disk.crash_keeping_bytes(keep),
            roomy(),
            4,
            &entries(1, 1..=12),
            &format!("{keep} bytes kept"),
        )
        .await;
    }
    disk.release_syncs();
    for done in done {
        done.await.expect("callback").expect("append");
    }
}

#[tokio::test]
async fn sectors_of_an_unsynced_write_may_arrive_in_any_order() {
    let (disk, mut log) = filled(roomy(), 4).await;
    disk.hold_syncs();
    let done = submit(&mut log, entries(1, 5..=100)).await.expect("submit");
    disk.wait_for_held_sync();
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let odds = rng.random_range(0.05..0.95);
        let after = disk.crash_keeping_sectors(|| rng.random_bool(odds));
        check_prefix(&after, roomy(), 4, &entries(1, 1..=100), &format!("seed {seed}")).await;
    }
    disk.release_syncs();
    done.await.expect("callback").expect("append");
}

#[tokio::test]
async fn a_crash_at_any_sync_over_many_segments_keeps_what_was_acknowledged() {
    let disk = SimDisk::default();
    let mut log = open(&disk, small()).expect("open");
    let all = entries(1, 1..=60);
    let mut rng = StdRng::seed_from_u64(7);
    let mut acknowledged = 0;
    while acknowledged < 57 {
        let upto = acknowledged + rng.random_range(1..=3_u64);
        disk.hold_syncs();
        let done = submit(&mut log, entries(1, acknowledged + 1..=upto)).await.expect("submit");
        disk.wait_for_held_sync();
        for _ in 0..5 {
            let after = disk.crash_keeping_sectors(|| rng.random_bool(0.5));
            check_prefix(&after, small(), acknowledged, &all, &format!("{acknowledged} acknowledged")).await;
        }
        disk.release_syncs();
        done.await.expect("callback").expect("append");
        acknowledged = upto;
        check_prefix(&disk.crash_keeping_bytes(0), small(), acknowledged, &all, "right after").await;
    }
}

#[tokio::test]
async fn a_truncate_that_returned_is_not_undone_by_a_crash() {
    for options in [small(), roomy()] {
        let (disk, mut log) = filled(options.clone(), 30).await;
        log.truncate_after(Some(id(1, 12))).await.expect("truncate");
        let after = disk.crash_keeping_bytes(0);
        let mut again = open(&after, options.clone()).expect("open");
        assert_eq!(read_all(&mut again).await.expect("entries"), entries(1, 1..=12));
        append(&mut again, entries(2, 13..=14)).await.expect("append");
        drop(again);
        let mut again = open(&after, options).expect("open again");
        let expected = [entries(1, 1..=12), entries(2, 13..=14)].concat();
        assert_eq!(read_all(&mut again).await.expect("entries"), expected);
    }
}

#[tokio::test]
async fn a_vote_that_was_saved_is_not_undone_by_a_crash() {
    let (disk, mut log) = filled(small(), 3).await;
    for term in 2..40 {
        log.save_vote(&Vote::new(term, MemberId(1))).await.expect("vote");
        let mut again = open(&disk.crash_keeping_bytes(0), small()).expect("open");
        let vote = again.get_log_reader().await.read_vote().await.expect("vote");
        assert_eq!(vote, Some(Vote::new(term, MemberId(1))));
    }
}

#[tokio::test]
async fn a_new_segment_that_lost_its_first_write_still_knows_the_vote() {
    let (disk, mut log) = filled(small(), 3).await;
    log.save_vote(&Vote::new(5, MemberId(1))).await.expect("vote");
    let before = disk.names().len();
    // Never synced, so the crash takes all of it but the new segment's head.
    while disk.names().len() == before {
        log.save_committed(Some(id(1, 3))).await.expect("committed");
    }
    let after = disk.crash_keeping_bytes(0);
    let mut again = open(&after, small()).expect("open");
    append(&mut again, entries(1, 4..=5)).await.expect("append");
    again.purge(id(1, 5)).await.expect("purge");
    drop(again);
    assert_eq!(after.names().len(), 1);
    let mut again = open(&after, small()).expect("open again");
    assert_eq!(
        again.get_log_reader().await.read_vote().await.expect("vote"),
        Some(Vote::new(5, MemberId(1)))
    );
}

#[tokio::test]
async fn a_crash_between_a_purge_and_the_removal_of_its_segments_is_harmless() {
    let (disk, mut log) = filled(small(), 60).await;
    let before = disk.copy();
    log.purge(id(1, 50)).await.expect("purge");
    log.sync_barrier().await.expect("barrier");
    log.close();
    // As if any number of the removals had not happened.
    let removed: Vec<String> =
        before.names().into_iter().filter(|name| !disk.names().contains(name)).collect();
    assert!(removed.len() > 3, "{removed:?}");
    for left in 0..=removed.len() {
        let after = disk.copy();
        for name in &removed[left..] {
            after.put(name, before.bytes(name));
        }
        let mut again = open(&after, small()).expect("open");
        assert_eq!(read_all(&mut again).await.expect("entries"), entries(1, 51..=60));
        again.purge(id(1, 51)).await.expect("purge");
        again.sync_barrier().await.expect("barrier");
        again.close();
        assert!(after.names().len() <= disk.names().len(), "leftovers go with the next purge");
    }
}

#[tokio::test]
async fn without_syncs_a_killed_process_loses_nothing() {
    let options = LogOptions { no_fsync: true, ..small() };
    let (disk, log) = filled(options.clone(), 50).await;
    let mut again = open(&disk.copy(), options).expect("open");
    assert_eq!(read_all(&mut again).await.expect("entries"), entries(1, 1..=50));
    assert!(log.stats().syncs() < 30, "only full segments are synced: {}", log.stats().syncs());
}
