//! What a snapshot holds, in the numbers that etcd's tools print.

use super::file::{SnapshotError, SnapshotFile};
use super::rows::{Change, STORAGE_VERSION, decode_event, decode_revision};
use crate::bbolt::Source;
use std::collections::HashSet;

/// Reading it walks every page, so that a file with a status is one that can be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// CRC-32C over every bucket's name and rows.
    pub hash: u32,
    /// Of the newest event.
    pub revision: i64,
    /// Keys that exist at that revision.
    pub total_keys: u64,
    pub total_bytes: u64,
    /// Of the layout; empty in files of before 3.6.
    pub version: String,
}

impl<S: Source> SnapshotFile<S> {
    pub fn status(&self) -> Result<SnapshotStatus, SnapshotError> {
        let mut status = SnapshotStatus { total_bytes: self.bolt.bytes(), ..SnapshotStatus::default() };
        let mut live = HashSet::new();
        for bucket in self.bolt.buckets().map_err(|source| self.bolt_error(source))? {
            status.hash = crc32c::crc32c_append(status.hash, bucket.name().as_bytes());
            let (is_history, is_meta) = (bucket.name() == "key", bucket.name() == "meta");
            let mut rows = self.bolt.rows_of(bucket).map_err(|source| self.bolt_error(source))?;
            while let Some((key, value)) = rows.next_row().map_err(|source| self.bolt_error(source))? {
                status.hash = crc32c::crc32c_append(crc32c::crc32c_append(status.hash, key), value);
                if is_history {
                    status.revision = self.take_event(key, value, &mut live)?;
                }
                if is_meta && key == STORAGE_VERSION {
                    status.version = version(value).unwrap_or_default();
                }
            }
        }
        status.total_keys = live.len() as u64;
        Ok(status)
    }

    /// The revision of an event, whose key then exists or does not.
    fn take_event(
        &self,
        key: &[u8],
        value: &[u8],
        live: &mut HashSet<Box<[u8]>>,
    ) -> Result<i64, SnapshotError> {
        let bad = |what| SnapshotError::Row { path: self.path.clone(), what };
        let Some((revision, _, _)) = decode_revision(key) else {
            return Err(bad(format!("the key {key:02x?} in bucket \"key\" is no revision")));
        };
        let event = decode_event(key, value)
            .ok_or_else(|| bad(format!("row {key:02x?} of bucket \"key\" is no event")))?;
        match event.change {
            Change::Put(kv) => drop(live.insert(kv.key.into())),
            Change::Delete { key } => drop(live.remove(key)),
            Change::Nothing => {}
        }
        Ok(revision)
    }
}

/// Three numbers, or what it says is nothing that is known.
fn version(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let numbers: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| part.parse::<u32>().is_ok();
    (numbers.len() == 3 && numbers.iter().all(is_number)).then(|| text.to_owned())
}
