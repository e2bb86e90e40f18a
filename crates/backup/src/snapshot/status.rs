//! What a snapshot holds, in the numbers that etcd's tools print.

use super::file::{SnapshotError, SnapshotFile};
use super::rows::decode_revision;
use crate::bbolt::Source;

/// Reading it walks every page, so that a file with a status is one that can be restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// CRC-32C over every bucket's name and rows.
    pub hash: u32,
    /// Of the newest event.
    pub revision: i64,
    /// Rows of all buckets.
    pub total_keys: u64,
    pub total_bytes: u64,
}

impl<S: Source> SnapshotFile<S> {
    pub fn status(&self) -> Result<SnapshotStatus, SnapshotError> {
        let mut status = SnapshotStatus { total_bytes: self.bolt.bytes(), ..SnapshotStatus::default() };
        for bucket in self.bolt.buckets().map_err(|source| self.bolt_error(source))? {
            status.hash = crc32c::crc32c_append(status.hash, bucket.name().as_bytes());
            let is_history = bucket.name() == "key";
            let mut rows = self.bolt.rows_of(bucket).map_err(|source| self.bolt_error(source))?;
            while let Some((key, value)) = rows.next_row().map_err(|source| self.bolt_error(source))? {
                status.hash = crc32c::crc32c_append(crc32c::crc32c_append(status.hash, key), value);
                status.total_keys += 1;
                if is_history {
                    let revision = decode_revision(key).map(|(revision, _, _)| revision);
                    status.revision = revision.ok_or_else(|| SnapshotError::Row {
                        path: self.path.clone(),
                        what: format!("the key {key:02x?} in bucket \"key\" is no revision"),
                    })?;
                }
            }
        }
        Ok(status)
    }
}
