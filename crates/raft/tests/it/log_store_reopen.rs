//! What was written is there after the log is opened again, and only its owner can open it.

use crate::log_driver::{
    CLUSTER, MEMBER, append, entries, entry, filled, id, last, open, purged, read_all, roomy, small, submit,
};
use crate::sim_disk::SimDisk;
use futures::TryStreamExt;
use meerkat_raft::log_store::{LogOptions, LogStore};
use meerkat_raft::type_config::{EncodedProposal, Entry, Vote};
use meerkat_types::{ClusterId, LogIndex, MemberId};
use openraft::storage::RaftLogStorage;
use openraft::{EntryPayload, RaftLogReader};

fn on_disk(dir: &tempfile::TempDir) -> LogOptions {
    LogOptions { segment_bytes: 4096, cache_bytes: 0, ..LogOptions::new(dir.path(), CLUSTER, MEMBER) }
}

#[tokio::test]
async fn a_real_directory_keeps_everything_over_many_segments() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut log = LogStore::open(on_disk(&dir)).expect("open");
    log.save_vote(&Vote::new_committed(3, MEMBER)).await.expect("vote");
    append(&mut log, entries(1, 1..=400)).await.expect("append");
    log.save_committed(Some(id(1, 390))).await.expect("committed");
    log.purge(id(1, 100)).await.expect("purge");
    log.close();
    let segments = std::fs::read_dir(dir.path()).expect("directory").count();
    assert!(segments > 5, "{segments} files");
    drop(log);

    let mut log = LogStore::open(on_disk(&dir)).expect("open again");
    assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 101..=400));
    assert_eq!(purged(&mut log).await, Some(id(1, 100)));
    assert_eq!(log.read_committed().await.expect("committed"), Some(id(1, 390)));
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.expect("vote"), Some(Vote::new_committed(3, MEMBER)));
    assert_eq!(log.durable_log().durable(), Some(id(1, 400)));
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let _first = LogStore::open(on_disk(&dir)).expect("open");
    let err = LogStore::open(on_disk(&dir)).err().expect("refused");
    assert!(err.to_string().contains("in use"), "{err}");
}

#[tokio::test]
async fn a_file_cut_short_anywhere_still_opens_with_what_is_whole() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut log = LogStore::open(on_disk(&dir)).expect("open");
    append(&mut log, vec![entry(1, 1)]).await.expect("append");
    append(&mut log, vec![entry(1, 2)]).await.expect("append");
    let used = 64 + log.total_bytes();
    drop(log);
    let path = dir.path().join("0000000000000001.log");
    let bytes = std::fs::read(&path).expect("segment");
    for len in [used - 1, used - 40, used, used + 1, used + 17] {
        std::fs::write(&path, &bytes[..usize::try_from(len).expect("small")]).expect("cut");
        let mut log = LogStore::open(on_disk(&dir)).expect("open after the cut");
        let left = last(&mut log).await.expect("an entry").index;
        append(&mut log, vec![entry(2, left + 1)]).await.expect("append after the cut");
        drop(log);
        let mut log = LogStore::open(on_disk(&dir)).expect("open again");
        assert_eq!(last(&mut log).await, Some(id(2, left + 1)), "cut at {len}");
        drop(log);
        for number in 2..9 {
            // Absent unless the cut made the log roll over.
            let _ = std::fs::remove_file(dir.path().join(format!("{number:016x}.log")));
        }
    }
}

#[tokio::test]
async fn another_members_or_clusters_log_is_refused() {
    let (disk, log) = filled(small(), 3).await;
    drop(log);
    for options in
        [LogOptions { member_id: MemberId(9), ..small() }, LogOptions { cluster_id: ClusterId(9), ..small() }]
    {
        let err = open(&disk, options).err().expect("refused");
        assert!(err.to_string().contains("belongs to member a1 of cluster c1"), "{err}");
    }
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let (disk, log) = filled(small(), 1).await;
    drop(log);
    let name = disk.last_file();
    let mut bytes = disk.bytes(&name);
    bytes[8] += 1;
    disk.put(&name, bytes);
    let err = open(&disk, small()).err().expect("refused");
    assert!(err.to_string().contains("format version 2"), "{err}");
}

#[tokio::test]
async fn a_missing_segment_is_noticed_wherever_it_was() {
    let (disk, log) = filled(small(), 60).await;
    drop(log);
    let names = disk.names();
    assert!(names.len() > 4, "{names:?}");
    for missing in &names[..names.len() - 1] {
        let damaged = disk.copy();
        damaged.delete(missing);
        let err = open(&damaged, small()).err().unwrap_or_else(|| panic!("opened without {missing}"));
        assert!(err.to_string().contains("missing"), "{err}");
    }
}

#[tokio::test]
async fn a_purge_removes_old_segments_and_survives_a_reopen() {
    let (disk, mut log) = filled(small(), 60).await;
    let before = disk.names().len();
    log.save_vote(&Vote::new(7, MEMBER)).await.expect("vote");
    log.purge(id(1, 50)).await.expect("purge");
    log.sync_barrier().await.expect("barrier");
    drop(log);
    assert!(disk.names().len() < before / 2, "{before} segments, then {}", disk.names().len());
    let mut log = open(&disk, small()).expect("open again");
    assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 51..=60));
    assert_eq!(log.get_log_reader().await.read_vote().await.expect("vote"), Some(Vote::new(7, MEMBER)));
}

#[tokio::test]
async fn a_vote_outlives_the_segment_it_was_written_to() {
    let disk = SimDisk::default();
    let mut log = open(&disk, small()).expect("open");
    log.save_vote(&Vote::new_committed(4, MEMBER)).await.expect("vote");
    log.save_committed(Some(id(1, 5))).await.expect("committed");
    append(&mut log, entries(1, 1..=80)).await.expect("append");
    log.purge(id(1, 80)).await.expect("purge");
    drop(log);
    assert_eq!(disk.names().len(), 1);
    let mut log = open(&disk, small()).expect("open again");
    let vote = log.get_log_reader().await.read_vote().await.expect("vote");
    assert_eq!(vote, Some(Vote::new_committed(4, MEMBER)));
    assert_eq!(log.read_committed().await.expect("committed"), Some(id(1, 5)));
    assert_eq!(last(&mut log).await, Some(id(1, 80)));
}

#[tokio::test]
async fn a_purge_above_the_log_moves_its_start() {
    let (disk, mut log) = filled(small(), 10).await;
    log.purge(id(5, 1000)).await.expect("purge");
    append(&mut log, entries(5, 1001..=1010)).await.expect("append");
    drop(log);
    let mut log = open(&disk, small()).expect("open again");
    assert_eq!(read_all(&mut log).await.expect("entries"), entries(5, 1001..=1010));
    assert_eq!(purged(&mut log).await, Some(id(5, 1000)));
}

#[tokio::test]
async fn a_record_larger_than_a_segment_gets_a_larger_one() {
    let disk = SimDisk::default();
    let mut log = open(&disk, small()).expect("open");
    let mut big = entry(1, 2);
    let payload = vec![7; 10_000];
    big.payload = EntryPayload::Normal(EncodedProposal(payload.into()));
    append(&mut log, vec![entry(1, 1), big.clone(), entry(1, 3)]).await.expect("append");
    drop(log);
    let mut log = open(&disk, small()).expect("open again");
    assert_eq!(read_all(&mut log).await.expect("entries"), [entry(1, 1), big, entry(1, 3)]);
}

#[tokio::test]
async fn answers_are_bounded_but_never_empty_and_streams_give_everything() {
    let disk = SimDisk::default();
    let mut log = open(&disk, LogOptions { segment_bytes: 4 << 20, ..small() }).expect("open");
    let mut written = Vec::new();
    for index in 1..=8 {
        let mut big = entry(1, index);
        let payload = vec![u8::try_from(index).expect("small"); if index == 4 { 3 << 20 } else { 900_000 }];
        big.payload = EntryPayload::Normal(EncodedProposal(payload.into()));
        written.push(big);
    }
    // Unsynced entries are answered from memory, synced ones from the disk: the same either way.
    disk.hold_syncs();
    let done = submit(&mut log, written.clone()).await.expect("submit");
    check_answers(&mut log, &written).await;
    disk.release_syncs();
    done.await.expect("callback").expect("append");
    check_answers(&mut log, &written).await;
}

async fn check_answers(log: &mut LogStore, written: &[Entry]) {
    let mut reader = log.get_log_reader().await;
    let mut lengths = Vec::new();
    for start in 1..=8 {
        lengths.push(reader.limited_get_log_entries(start, 9).await.expect("entries").len());
    }
    assert_eq!(lengths, [2, 2, 1, 1, 2, 2, 2, 1]);
    let streamed: Vec<Entry> = reader.entries_stream(1..9).await.try_collect().await.expect("stream");
    assert_eq!(streamed, written);
}

#[tokio::test]
async fn bytes_are_counted_since_an_entry_and_in_total() {
    let (_, mut log) = filled(small(), 40).await;
    let total = log.total_bytes();
    assert_eq!(log.bytes_since(LogIndex(0)), total);
    let mut earlier = u64::MAX;
    for index in 0..=40 {
        let since = log.bytes_since(LogIndex(index));
        assert!(since < earlier || since == 0, "bytes since {index}");
        earlier = since;
    }
    assert!(log.bytes_since(LogIndex(40)) < 64, "only what is no entry may follow the last one");
    drop(submit(&mut log, entries(1, 41..=41)).await.expect("submit"));
    assert!(log.total_bytes() > total);
}

#[tokio::test]
async fn entries_out_of_order_are_refused() {
    let (_, mut log) = filled(roomy(), 3).await;
    for index in [3, 5] {
        let err = append(&mut log, vec![entry(1, index)]).await.expect_err("refused");
        assert!(err.to_string().contains("index 4 is next"), "{err}");
    }
    append(&mut log, vec![entry(1, 4)]).await.expect("the right one");
}

#[tokio::test]
async fn a_closed_log_refuses_writes_and_still_reads() {
    let (_, mut log) = filled(roomy(), 3).await;
    log.close();
    log.close();
    assert!(append(&mut log, vec![entry(1, 4)]).await.is_err());
    assert!(log.save_vote(&Vote::new(1, MemberId(1))).await.is_err());
    assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 1..=3));
    assert!(log.durable_log().wait_durable(&id(1, 4)).is_err());
    assert_eq!(*log.failed().borrow(), None, "closing is no failure");
}
