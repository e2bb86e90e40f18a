//! How large the database is and how it fares, for quotas and metrics. Never for decisions that
//! members must take alike: each member has its own numbers.

use crate::db::Db;
use crate::{Column, EngineError};
use rocksdb::properties;

/// Bytes on disk and in memory that belong to data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Everything the database occupies.
    pub total_bytes: u64,
    /// An estimate of what a full compaction would leave of it.
    pub live_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    pub write_buffer_bytes: u64,
    pub block_cache_bytes: u64,
    /// Indexes and filters that are held outside the cache.
    pub table_reader_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub background_errors: u64,
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
    pub running_flushes: u64,
    pub write_stopped: bool,
    pub delayed_write_bytes_per_second: u64,
    pub snapshots: u64,
}

impl Db {
    pub fn approximate_size(&self) -> Result<Size, EngineError> {
        let memory = self.sum(properties::CUR_SIZE_ALL_MEM_TABLES)?;
        let tables = self.sum(properties::TOTAL_SST_FILES_SIZE)?;
        let blobs = self.sum(BLOB_TOTAL)?;
        let live_tables = self.sum(properties::ESTIMATE_LIVE_DATA_SIZE)?;
        let garbage = self.sum(BLOB_GARBAGE)?;
        let total_bytes = memory + tables + blobs;
        let live_bytes = (memory + live_tables + blobs.saturating_sub(garbage)).min(total_bytes);
        Ok(Size { total_bytes, live_bytes })
    }

    pub fn memory_usage(&self) -> Result<MemoryUsage, EngineError> {
        Ok(MemoryUsage {
            write_buffer_bytes: self.sum(properties::CUR_SIZE_ALL_MEM_TABLES)?,
            block_cache_bytes: self.inner.cache.get_usage() as u64,
            table_reader_bytes: self.sum(properties::ESTIMATE_TABLE_READERS_MEM)?,
        })
    }

    pub fn stats(&self) -> Result<Stats, EngineError> {
        Ok(Stats {
            background_errors: self.any(properties::BACKGROUND_ERRORS)?,
            pending_compaction_bytes: self.sum(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?,
            running_compactions: self.any(properties::NUM_RUNNING_COMPACTIONS)?,
            running_flushes: self.any(properties::NUM_RUNNING_FLUSHES)?,
            write_stopped: self.any(properties::IS_WRITE_STOPPED)? != 0,
            delayed_write_bytes_per_second: self.any(properties::ACTUAL_DELAYED_WRITE_RATE)?,
            snapshots: self.any(properties::NUM_SNAPSHOTS)?,
        })
    }

    /// Adds a per-column number up.
    fn sum(&self, property: impl Property) -> Result<u64, EngineError> {
        let mut sum = 0;
        for column in Column::ALL {
            sum += self.number(column, &property)?;
        }
        Ok(sum)
    }

    /// A number that is the same whichever column is asked.
    fn any(&self, property: impl Property) -> Result<u64, EngineError> {
        self.number(Column::Head, &property)
    }

    fn number(&self, column: Column, property: &impl Property) -> Result<u64, EngineError> {
        self.inner
            .raw
            .property_int_value_cf(self.inner.family(column), property.text())
            .map(Option::unwrap_or_default)
            .map_err(|error| self.inner.read_error(&error))
    }
}

/// Properties the RocksDB crate has no constants for.
const BLOB_TOTAL: &str = "rocksdb.total-blob-file-size";
const BLOB_GARBAGE: &str = "rocksdb.live-blob-file-garbage-size";

/// A property by whichever name type it comes in.
trait Property {
    fn text(&self) -> &str;
}

impl Property for &'static str {
    fn text(&self) -> &str {
        self
    }
}

impl Property for &'static properties::PropName {
    fn text(&self) -> &str {
        self.as_str()
    }
}
