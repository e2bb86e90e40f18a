//! After one failed write or sync the log takes nothing more, and everybody hears why.

use crate::log_driver::{append, entries, entry, filled, id, open, read_all, roomy, small, submit};
use crate::sim_disk::{Fault, Step};
use meerkat_raft::log_store::LogOptions;
use meerkat_raft::type_config::Vote;
use meerkat_types::MemberId;
use openraft::storage::RaftLogStorage;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

async fn check(options: LogOptions, step: Step, code: i32, doing: &str) {
    let (disk, mut log) = filled(options.clone(), 6).await;
    let mut failed = log.failed();
    assert_eq!(*failed.borrow_and_update(), None);
    disk.fail(Fault { step, code });
    let waiting = log.durable_log();
    // Enough to need a new segment where segments are small.
    let err = append(&mut log, entries(1, 7..=20)).await.expect_err("the disk fails");
    assert_eq!(err.kind(), std::io::Error::from_raw_os_error(code).kind(), "{err}");
    assert!(err.to_string().contains(doing), "{err}");

    failed.changed().await.expect("the member is told");
    let told = failed.borrow().clone().expect("a reason");
    assert!(told.contains(doing), "{told}");
    for later in [
        append(&mut log, vec![entry(1, 21)]).await,
        log.save_vote(&Vote::new(2, MemberId(1))).await,
        log.save_committed(Some(id(1, 6))).await,
        log.truncate_after(Some(id(1, 2))).await,
        log.purge(id(1, 2)).await,
        log.sync_barrier().await,
        waiting.wait_durable(&id(1, 20)),
    ] {
        assert!(later.expect_err("poisoned").to_string().contains(doing));
    }
    assert!(read_all(&mut log).await.is_err());
    waiting.wait_durable(&id(1, 6)).expect("what was durable still is");

    let mut again = open(&disk.crash_keeping_bytes(0), options).expect("what was acknowledged is there");
    let found = read_all(&mut again).await.expect("entries");
    assert!(found.len() >= 6);
    assert_eq!(found, entries(1, 1..=20)[..found.len()]);
}

#[tokio::test]
async fn a_full_disk_poisons_the_log() {
    check(roomy(), Step::Write, ENOSPC, "while writing").await;
}

#[tokio::test]
async fn a_failed_sync_poisons_the_log() {
    check(roomy(), Step::Sync, EIO, "while syncing").await;
}

#[tokio::test]
async fn a_segment_that_cannot_be_made_poisons_the_log() {
    check(small(), Step::Create, ENOSPC, "while making a segment").await;
}

#[tokio::test]
async fn a_failed_write_never_turns_into_success_by_itself() {
    let (disk, mut log) = filled(roomy(), 2).await;
    disk.fail(Fault { step: Step::Sync, code: EIO });
    append(&mut log, vec![entry(1, 3)]).await.expect_err("the disk fails");
    // The disk works again, but what the failed sync left of the page cache is unknown.
    disk.fail(Fault { step: Step::Remove, code: EIO });
    append(&mut log, vec![entry(1, 4)]).await.expect_err("still poisoned");
    assert_eq!(log.durable_log().durable(), Some(id(1, 2)));
}

#[tokio::test]
async fn everybody_queued_behind_a_failure_is_told() {
    let (disk, mut log) = filled(roomy(), 2).await;
    disk.hold_syncs();
    let mut waiting = vec![submit(&mut log, vec![entry(1, 3)]).await.expect("submit")];
    disk.wait_for_held_sync();
    for index in 4..10 {
        waiting.push(submit(&mut log, vec![entry(1, index)]).await.expect("submit"));
    }
    disk.fail(Fault { step: Step::Sync, code: EIO });
    disk.release_syncs();
    for waiting in waiting {
        waiting.await.expect("every callback is completed").expect_err("the disk failed");
    }
}

#[tokio::test]
async fn a_segment_that_cannot_be_removed_poisons_the_log_but_not_what_was_acknowledged() {
    let (disk, mut log) = filled(small(), 60).await;
    disk.fail(Fault { step: Step::Remove, code: EIO });
    let mut failed = log.failed();
    log.purge(id(1, 50)).await.expect("purge is accepted");
    failed.changed().await.expect("told");
    let mut again = open(&disk.crash_keeping_bytes(0), small()).expect("open");
    assert_eq!(read_all(&mut again).await.expect("entries"), entries(1, 51..=60));
}
