//! Any bytes at all in the log: refused, cut off or read as what was written, never a panic and never
//! anything else.

use crate::log_driver::{append, entries, id, open, read_all, roomy};
use crate::sim_disk::SimDisk;
use bytes::Bytes;
use meerkat_mangle::Fuzz;
use meerkat_raft::log_store::codec;
use meerkat_raft::type_config::{Entry, Membership, PeerNode, StoredMembership, Vote};
use meerkat_types::MemberId;
use openraft::EntryPayload;
use openraft::storage::RaftLogStorage;
use std::collections::{BTreeMap, BTreeSet};

const HEADER_BYTES: usize = 64;
const SALT_AT: usize = 48;
const ENTRIES: u64 = 6;

fn membership() -> Membership {
    let node = |name: &str| PeerNode {
        name: name.into(),
        peer_urls: vec![format!("http://{name}:2380")],
        becomes_voter: name == "b",
    };
    let nodes = BTreeMap::from([(MemberId(1), node("a")), (MemberId(2), node("b"))]);
    Membership::new(vec![BTreeSet::from([MemberId(1)]), BTreeSet::from([MemberId(1), MemberId(2)])], nodes)
        .expect("a membership")
}

fn encoded(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::put_entry(&mut bytes, entry);
    bytes
}

/// Everything that a record's payload can be.
fn payloads() -> Vec<Vec<u8>> {
    let mut payloads: Vec<Vec<u8>> = entries(1, 1..=2).iter().map(encoded).collect();
    payloads.push(encoded(&Entry { log_id: id(2, 3), payload: EntryPayload::Blank }));
    payloads.push(encoded(&Entry { log_id: id(2, 4), payload: EntryPayload::Membership(membership()) }));
    payloads.push(codec::encode_membership(&StoredMembership::new(Some(id(2, 4)), membership())).to_vec());
    payloads.push(codec::encode_vote(&Vote::new_committed(5, MemberId(6))).to_vec());
    payloads.push(codec::encode_log_id(&id(2, 3)).to_vec());
    for position in [None, Some(id(2, 3))] {
        let mut bytes = Vec::new();
        codec::put_optional_log_id(&mut bytes, position.as_ref());
        payloads.push(bytes);
    }
    payloads
}

/// What can be read reads the same when it is written again.
#[test]
fn a_mutated_payload_of_the_log_is_refused_or_read() {
    let fuzz = Fuzz::new("log payloads", include_str!("../../corpus/log_payloads.txt"), payloads());
    fuzz.run(20_000, |bytes| {
        let entry = codec::decode_entry(&Bytes::copy_from_slice(bytes));
        if let Ok(entry) = &entry {
            let again = encoded(entry);
            assert_eq!(again.len(), codec::entry_bytes(entry));
            assert_eq!(codec::decode_entry(&again.into()).expect("its own bytes"), *entry);
            assert_eq!(codec::decode_entry_log_id(bytes).expect("the same"), entry.log_id);
        }
        let membership = codec::decode_membership(bytes);
        if let Ok(membership) = &membership {
            let again = codec::encode_membership(membership);
            assert_eq!(codec::decode_membership(&again).expect("its own bytes"), *membership);
        }
        let vote = codec::decode_vote(bytes).inspect(|vote| assert_eq!(codec::encode_vote(vote), bytes));
        let place = codec::decode_log_id(bytes).inspect(|id| assert_eq!(codec::encode_log_id(id), bytes));
        let position = codec::decode_optional_log_id(bytes);
        entry.is_ok() || membership.is_ok() || vote.is_ok() || place.is_ok() || position.is_ok()
    });
}

/// A segment with every kind of record, as it stands after an orderly close, without the room behind it.
async fn segment() -> (SimDisk, String, Vec<u8>) {
    let disk = SimDisk::default();
    let mut log = open(&disk, roomy()).expect("opens");
    log.save_vote(&Vote::new_committed(1, MemberId(1))).await.expect("vote");
    append(&mut log, entries(1, 1..=ENTRIES + 2)).await.expect("append");
    log.truncate_after(Some(id(1, ENTRIES))).await.expect("truncate");
    log.save_committed(Some(id(1, 4))).await.expect("committed");
    log.purge(id(1, 2)).await.expect("purge");
    log.close();
    drop(log);
    let name = disk.last_file();
    let mut bytes = disk.bytes(&name);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 1).next_multiple_of(8));
    bytes.truncate(used);
    (disk, name, bytes)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Without its checksums nothing counts: whatever was done to the file, an entry that is read is one that
/// was written, in its place.
#[test]
fn a_mutated_segment_is_refused_or_holds_what_was_written() {
    let runtime = runtime();
    let (disk, name, whole) = runtime.block_on(segment());
    let written = entries(1, 1..=ENTRIES + 2);
    let fuzz = Fuzz::new("log segments", include_str!("../../corpus/log_segments.txt"), vec![whole]);
    fuzz.run(3_000, |bytes| {
        let damaged = disk.copy();
        damaged.put(&name, bytes.to_vec());
        let Ok(mut log) = open(&damaged, roomy()) else { return false };
        for entry in runtime.block_on(read_all(&mut log)).expect("what was recovered can be read") {
            assert!(written.contains(&entry), "never written: {entry:?}");
        }
        true
    });
}

/// Records that are whole, by their checksums, with payloads that make no sense: as a program with a bug
/// would write them.
#[test]
fn whole_records_of_mutated_payloads_are_refused_or_read() {
    let runtime = runtime();
    let (disk, name, whole) = runtime.block_on(segment());
    // Not those of the segment's head, which is durable as a whole.
    let head = u32::from_le_bytes(whole[12..16].try_into().expect("four bytes")) as usize;
    let records: Vec<_> = records(&whole).into_iter().filter(|record| head <= record.start).collect();
    // Which record's place it takes, and the record.
    let samples = records.iter().zip(0..).map(|(record, place)| [&[place], &whole[record.clone()]].concat());
    let fuzz = Fuzz::new("log records", include_str!("../../corpus/log_records.txt"), samples.collect());
    fuzz.run(4_000, |input| {
        let Some((place, record)) = input.split_first() else { return false };
        // What followed it is gone.
        let at = records[usize::from(*place) % records.len()].start;
        let mut bytes = whole[..at].to_vec();
        bytes.extend(sealed(record, &whole, at));
        bytes.resize(bytes.len().next_multiple_of(8) + 64, 0);
        let damaged = disk.copy();
        damaged.put(&name, bytes);
        let Ok(mut log) = open(&damaged, roomy()) else { return false };
        drop(runtime.block_on(read_all(&mut log)));
        true
    });
}

/// Where records begin and end, by their length fields, without padding.
fn records(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = HEADER_BYTES;
    while at + 16 <= bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        found.push(at..at + 16 + len);
        at = (at + 16 + len).next_multiple_of(8);
    }
    found
}

/// The record with the length that it has, the sequence that is due, and a checksum that fits.
fn sealed(record: &[u8], whole: &[u8], at: usize) -> Vec<u8> {
    let mut record = record.to_vec();
    record.resize(record.len().max(16), 0);
    let len = u32::try_from(record.len() - 16).expect("small");
    record[4..8].copy_from_slice(&len.to_le_bytes());
    // The kind stays what it was made; the sequence is that of the record whose place this is.
    record[8..15].copy_from_slice(&whole[at + 8..at + 15]);
    record.resize(record.len().next_multiple_of(8), 0);
    let mut seed = whole[SALT_AT..SALT_AT + 8].to_vec();
    seed.extend_from_slice(&(at as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&seed), &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record
}
