//! The one place where the log's tests touch its API: short words for what openraft does with it.

use crate::sim_disk::SimDisk;
use meerkat_raft::log_store::disk::LogDisk;
use meerkat_raft::log_store::{LogOptions, LogStore, codec};
use meerkat_raft::type_config::{EncodedProposal, Entry, LogId, TypeConfig};
use meerkat_types::{ClusterId, MemberId};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader};
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

pub const CLUSTER: ClusterId = ClusterId(0xc1);
pub const MEMBER: MemberId = MemberId(0xa1);

/// Small segments and nothing cached, so that every test crosses segments and reads the disk.
pub fn small() -> LogOptions {
    LogOptions { segment_bytes: 1024, cache_bytes: 0, ..LogOptions::new("unused", CLUSTER, MEMBER) }
}

/// One segment that holds all a test writes.
pub fn roomy() -> LogOptions {
    LogOptions { segment_bytes: 1 << 16, ..small() }
}

pub fn open(disk: &SimDisk, options: LogOptions) -> io::Result<LogStore> {
    let disk: Arc<dyn LogDisk> = Arc::new(disk.clone());
    LogStore::open_on(disk, options)
}

pub fn id(term: u64, index: u64) -> LogId {
    let mut bytes = Vec::new();
    for number in [term, MEMBER.0, index] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    codec::decode_log_id(&bytes).expect("three numbers are a log id")
}

/// An entry whose payload tells which one it is.
pub fn entry(term: u64, index: u64) -> Entry {
    let text =
        format!("term {term} index {index} {}", "x".repeat(usize::try_from(index % 50).expect("small")));
    Entry {
        log_id: id(term, index),
        payload: EntryPayload::Normal(EncodedProposal(text.into_bytes().into())),
    }
}

pub fn entries(term: u64, indexes: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    indexes.map(|index| entry(term, index)).collect()
}

/// Hands the entries over; the receiver hears when they are durable.
pub async fn submit(
    log: &mut LogStore,
    entries: Vec<Entry>,
) -> io::Result<oneshot::Receiver<io::Result<()>>> {
    let (sender, receiver) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(sender)).await?;
    Ok(receiver)
}

/// Appends and waits until it is durable.
pub async fn append(log: &mut LogStore, entries: Vec<Entry>) -> io::Result<()> {
    submit(log, entries).await?.await.expect("every callback is completed")
}

pub async fn read_all(log: &mut LogStore) -> io::Result<Vec<Entry>> {
    log.get_log_reader().await.try_get_log_entries(..).await
}

pub async fn last(log: &mut LogStore) -> Option<LogId> {
    log.get_log_state().await.expect("log state").last_log_id
}

pub async fn purged(log: &mut LogStore) -> Option<LogId> {
    log.get_log_state().await.expect("log state").last_purged_log_id
}

/// A log with these entries of term 1, each in a write of its own, and nothing unsynced.
pub async fn filled(options: LogOptions, count: u64) -> (SimDisk, LogStore) {
    let disk = SimDisk::default();
    let mut log = open(&disk, options).expect("an empty disk opens");
    for index in 1..=count {
        append(&mut log, vec![entry(1, index)]).await.expect("append");
    }
    (disk, log)
}
