//! Writes a snapshot from rows that come in their order.

use super::other_rows::OtherRows;
use super::rows::{LeaseRow, Row, STORAGE_VERSION, deletion_key, deletion_value, revision_key};
use crate::bbolt::{BoltWriter, BucketWriter};
use std::fs::File;
use std::io;

/// What a snapshot says of the whole.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Nothing below is kept; `None` if nothing was ever compacted.
    pub compacted: Option<i64>,
    /// Where in the log the state was.
    pub applied_term: u64,
    pub applied_index: u64,
    /// Of the layout, as etcd counts it; `None` is a layout of before 3.6.
    pub storage_version: Option<&'static str>,
    pub leases: Vec<LeaseRow>,
    pub other: OtherRows,
}

/// Takes the history.
pub struct KeyRows<'a>(BucketWriter<'a>);

impl KeyRows<'_> {
    /// `key_value`: the protobuf message.
    pub fn put(&mut self, revision: i64, sub: u32, key_value: &[u8]) -> io::Result<()> {
        self.0.put(&revision_key(revision, i64::from(sub)), key_value)
    }

    pub fn delete(&mut self, revision: i64, sub: u32, key: &[u8]) -> io::Result<()> {
        self.0.put(&deletion_key(revision, i64::from(sub)), &deletion_value(key))
    }
}

/// Writes a database into an empty file, without the checksum, which is whose business it is to send or
/// store it. `history` hands in every event in ascending order.
pub fn write<E: From<io::Error>>(
    file: File,
    head: &Head,
    history: impl FnOnce(&mut KeyRows<'_>) -> Result<(), E>,
) -> Result<(File, u64), E> {
    let mut bolt = BoltWriter::new(file)?;
    let mut keys = KeyRows(bolt.bucket("key"));
    history(&mut keys)?;
    keys.0.finish()?;
    let mut leases: Vec<Row> =
        head.leases.iter().map(|lease| (lease.key().to_vec(), lease.value())).collect();
    leases.sort();
    let rest = [
        ("cluster", Vec::new()),
        ("lease", leases),
        ("members", Vec::new()),
        ("members_removed", Vec::new()),
        ("meta", meta(head)),
    ];
    for (name, rows) in head.other.buckets().into_iter().chain(rest) {
        let mut bucket = bolt.bucket(name);
        for (key, value) in &rows {
            bucket.put(key, value)?;
        }
        bucket.finish()?;
    }
    Ok(bolt.finish()?)
}

fn meta(head: &Head) -> Vec<Row> {
    let mut rows = vec![
        (b"consistent_index".to_vec(), head.applied_index.to_be_bytes().to_vec()),
        (b"term".to_vec(), head.applied_term.to_be_bytes().to_vec()),
    ];
    if let Some(version) = head.storage_version {
        rows.push((STORAGE_VERSION.to_vec(), version.as_bytes().to_vec()));
    }
    if let Some(compacted) = head.compacted {
        for name in [b"finishedCompactRev".as_slice(), b"scheduledCompactRev"] {
            rows.push((name.to_vec(), revision_key(compacted, 0).to_vec()));
        }
    }
    rows.sort();
    rows
}
