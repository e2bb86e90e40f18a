//! Damaged bytes are refused or cut off; they are never read as data.

use crate::log_driver::{append, entries, entry, filled, id, last, open, read_all, roomy, small};
use meerkat_types::MemberId;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::io::ErrorKind;

/// Where the records of a segment begin and end, by their length fields.
fn records(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = 64;
    while at + 16 <= bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        if bytes[at..at + 16].iter().all(|byte| *byte == 0) {
            break;
        }
        let end = (at + 16 + len).next_multiple_of(8);
        found.push(at..end);
        at = end;
    }
    found
}

#[tokio::test]
async fn a_write_torn_at_any_byte_is_cut_off_and_the_log_goes_on() {
    let (disk, log) = filled(roomy(), 5).await;
    // Before the close: no mark follows the last write.
    let image = disk.copy();
    drop(log);
    let name = image.last_file();
    let whole = image.bytes(&name);
    let records = records(&whole);
    let [.., mark, entry_5] = &records[..] else {
        panic!("a mark and an entry: {records:?}");
    };
    for cut in mark.start..=entry_5.end {
        let torn = image.copy();
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        torn.put(&name, bytes);
        let mut log = open(&torn, roomy()).unwrap_or_else(|err| panic!("cut at {cut}: {err}"));
        // Padding is zeros anyway: losing it loses nothing.
        let padding = usize::from(cut < entry_5.end) * zeros_at_end(&whole[..entry_5.end]);
        let left = if cut + padding >= entry_5.end { 5 } else { 4 };
        assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 1..=left), "cut at {cut}");
        append(&mut log, vec![entry(2, left + 1)]).await.expect("append after the cut");
        drop(log);
        let mut log = open(&torn, roomy()).expect("open again");
        assert_eq!(last(&mut log).await, Some(id(2, left + 1)), "cut at {cut}");
    }
}

fn zeros_at_end(bytes: &[u8]) -> usize {
    bytes.iter().rev().take_while(|byte| **byte == 0).count()
}

#[tokio::test]
async fn any_flipped_bit_of_a_synced_record_is_refused() {
    let (disk, log) = filled(roomy(), 5).await;
    let image = disk.copy();
    drop(log);
    let name = image.last_file();
    let whole = image.bytes(&name);
    // Everything but the last write, which the next test is about.
    let synced_end = records(&whole).iter().rev().nth(1).expect("the last mark").start;
    for bit in 0..synced_end * 8 {
        let damaged = image.copy();
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        damaged.put(&name, bytes);
        let err = open(&damaged, roomy()).err().unwrap_or_else(|| panic!("opened with bit {bit} flipped"));
        assert_eq!(err.kind(), ErrorKind::InvalidData, "{err}");
        assert!(err.to_string().contains(&name), "{err}");
    }
}

#[tokio::test]
async fn damage_to_the_last_write_is_never_read_and_refused_after_an_orderly_close() {
    let (disk, log) = filled(roomy(), 5).await;
    let crashed = disk.copy();
    drop(log);
    let name = disk.last_file();
    let last_write = records(&crashed.bytes(&name)).last().expect("the last entry").clone();
    for at in last_write {
        let flip = |disk: &crate::sim_disk::SimDisk| {
            let damaged = disk.copy();
            let mut bytes = disk.bytes(&name);
            bytes[at] ^= 0x10;
            damaged.put(&name, bytes);
            damaged
        };
        assert!(open(&flip(&disk), roomy()).is_err(), "closed in order, byte {at}");
        // After a crash it cannot be told from a torn write, but it is not taken for data either.
        let mut log = open(&flip(&crashed), roomy()).expect("open");
        assert_eq!(read_all(&mut log).await.expect("entries"), entries(1, 1..=4), "byte {at}");
    }
}

#[tokio::test]
async fn damage_to_the_head_of_a_segment_is_refused_even_when_nothing_follows_it() {
    let (disk, mut log) = filled(roomy(), 0).await;
    log.save_vote(&meerkat_raft::type_config::Vote::new(1, MemberId(1))).await.expect("vote");
    append(&mut log, vec![entry(1, 1)]).await.expect("append");
    let first = disk.last_file();
    let filler = entries(1, 2..=2000);
    for some in filler.chunks(10) {
        if disk.last_file() != first {
            break;
        }
        append(&mut log, some.to_vec()).await.expect("append");
    }
    let name = disk.last_file();
    assert_ne!(name, first);
    let mut whole = disk.bytes(&name);
    let head = u32::from_le_bytes(whole[12..16].try_into().expect("four bytes")) as usize;
    assert!(head > 64 + 24, "a mark and a vote");
    whole[head..].fill(0);
    for at in 64..head {
        let damaged = disk.copy();
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        damaged.put(&name, bytes.clone());
        assert!(open(&damaged, roomy()).is_err(), "byte {at}");
        bytes[at / 8 * 8..].fill(0);
        // Padding is zeros to begin with.
        let unharmed = bytes == whole;
        damaged.put(&name, bytes);
        assert_eq!(open(&damaged, roomy()).is_ok(), unharmed, "zeros from {at}");
    }
}

#[tokio::test]
async fn damage_in_an_older_segment_is_refused_and_names_the_place() {
    let (disk, log) = filled(small(), 40).await;
    drop(log);
    let names = disk.names();
    let name = &names[names.len() / 2];
    let whole = disk.bytes(name);
    let record = records(&whole).last().expect("a record").clone();
    let mut wiped = whole.clone();
    wiped[record.start..].fill(0);
    let mut flipped = whole.clone();
    flipped[record.end - 9] ^= 1;
    for bytes in [wiped, flipped] {
        let damaged = disk.copy();
        damaged.put(name, bytes);
        let err = open(&damaged, small()).err().expect("refused");
        let text = err.to_string();
        assert!(text.contains("sim/0") && text.contains("remove the member"), "{text}");
    }
}

#[tokio::test]
async fn a_value_that_looks_like_a_mark_proves_nothing() {
    // A client stores the bytes of a real mark, taken from this very segment.
    let (disk, mut log) = filled(roomy(), 2).await;
    let name = disk.last_file();
    let bytes = disk.bytes(&name);
    let mark = records(&bytes)
        .into_iter()
        .rev()
        .find(|record| record.len() == 24)
        .map(|record| bytes[record].to_vec())
        .expect("a mark");
    let mut tricky = entry(1, 3);
    let payload = mark.repeat(20).into();
    tricky.payload = openraft::EntryPayload::Normal(meerkat_raft::type_config::EncodedProposal(payload));
    append(&mut log, vec![tricky]).await.expect("append");
    let image = disk.copy();
    drop(log);
    let mut bytes = image.bytes(&name);
    let last_write = records(&bytes).last().expect("the entry").clone();
    bytes[last_write.start + 20] ^= 1;
    image.put(&name, bytes);
    let mut log = open(&image, roomy()).expect("a torn write, not a damaged log");
    assert_eq!(last(&mut log).await, Some(id(1, 2)));
}

#[tokio::test]
async fn an_entry_damaged_under_a_running_log_is_an_error_to_read() {
    let (disk, mut log) = filled(roomy(), 5).await;
    let name = disk.last_file();
    let mut bytes = disk.bytes(&name);
    let third = records(&bytes).into_iter().filter(|record| record.len() > 24).nth(2).expect("entry 3");
    bytes[third.start + 45] ^= 1;
    disk.put(&name, bytes);
    let mut reader = log.get_log_reader().await;
    let err = reader.try_get_log_entries(1..6).await.expect_err("damaged");
    assert!(err.to_string().contains("entry 3"), "{err}");
    assert_eq!(reader.try_get_log_entries(4..6).await.expect("the others"), entries(1, 4..=5));
}
