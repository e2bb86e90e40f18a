//! HashKV: one number over the stored history, for members to compare at leisure.
//!
//! It covers every event that a reader at some live revision could see, and passes over what
//! compaction may remove, removed or not: members whose compactors are not equally far agree. Its
//! cost is that of reading the whole `log`.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::event_id::EventId;
use crate::mvcc::log_row::LogRow;
use crate::mvcc::range;
use crate::mvcc::store::Committed;
use crate::reader::Pages;
use crate::schema::Removed;
use meerkat_engine::{Column, View};
use meerkat_types::{Consistency, Key, KeyRange, KvPage, RangeQuery, Revision, RevisionBounds, Sort};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKv {
    pub hash: u32,
    /// The newest revision that is in the hash.
    pub hash_revision: Revision,
    /// Hashes are comparable if this and `hash_revision` agree.
    pub compacted: Option<Revision>,
}

/// What a member has stored as of one revision: its history, and the keys that lived then, which are
/// kept apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredHash {
    pub history: HashKv,
    pub present: u32,
}

/// Read in pieces of this many keys and bytes, to hold little memory.
const PIECE_KEYS: usize = 256;
const PIECE_BYTES: usize = 1 << 20;

pub(crate) fn every_key(at: Revision) -> Result<RangeQuery, StateError> {
    let first = Key::new(bytes::Bytes::from_static(&[0])).ok_or(damaged("head"))?;
    Ok(RangeQuery {
        keys: KeyRange::From(first),
        at: Some(at),
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    })
}

/// A hash of every key-value that is left in the pages.
pub(crate) fn hash_pages(mut pages: Pages) -> Result<u32, ReadError> {
    let mut hash = crc32c::crc32c(b"meerkat present 1");
    while let Some(page) = pages.next_page(PIECE_KEYS, PIECE_BYTES)? {
        match page {
            KvPage::Wire { bytes, .. } => hash = crc32c::crc32c_append(hash, &bytes),
            KvPage::Decoded(_) => unreachable!("pages are made in their wire form"),
        }
    }
    Ok(hash)
}

pub(crate) fn hash_kv(committed: &Committed, at: Option<Revision>) -> Result<HashKv, ReadError> {
    let Committed { view, revision, compacted, .. } = committed;
    let at = range::revision_to_read(at, *revision, *compacted)?;
    let removable = removable(view, *compacted)?;
    let hash = hash_log(view, at, *compacted, &removable)?;
    Ok(HashKv { hash, hash_revision: at, compacted: *compacted })
}

/// Events that were superseded at the compacted revision and may still be there. After the compactor
/// has finished these are only what the events at exactly that revision replaced.
pub(crate) fn removable(view: &View, compacted: Option<Revision>) -> Result<BTreeSet<EventId>, StateError> {
    let mut found = BTreeSet::new();
    let first = Removed::load(view)?.next;
    let end = EventId::first_of(compacted.unwrap_or(Revision::new(0)).next());
    if end <= first {
        return Ok(found);
    }
    let mut rows = view.scan_once(Column::Log, &first.to_bytes(), Some(&end.to_bytes()));
    while let Some((key, row)) = rows.row() {
        let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
        let row = LogRow::decode(row).ok_or(damaged("log"))?;
        found.extend(row.link);
        found.extend(row.shadows.map(|sub| EventId { revision: id.revision, sub }));
        rows.step();
    }
    rows.finish()?;
    Ok(found)
}

fn hash_log(
    view: &View,
    at: Revision,
    compacted: Option<Revision>,
    removable: &BTreeSet<EventId>,
) -> Result<u32, StateError> {
    let mut hash = crc32c::crc32c(b"meerkat hashkv 1");
    let end = EventId::first_of(at.next()).to_bytes();
    let mut rows = view.scan_once(Column::Log, &[], Some(&end));
    while let Some((key, row)) = rows.row() {
        let id = EventId::from_bytes(key).ok_or(damaged("log"))?;
        let tombstone = LogRow::decode(row).ok_or(damaged("log"))?.tombstone;
        let compactable = Some(id.revision) <= compacted && (tombstone || removable.contains(&id));
        if !compactable {
            hash = crc32c::crc32c_append(hash, key);
            hash = crc32c::crc32c_append(hash, row);
        }
        rows.step();
    }
    rows.finish()?;
    Ok(hash)
}
