//! How RocksDB is set up, and why each number is what it is.
//!
//! Memory is the scarce thing: one cache and one budget for unflushed writes bound the whole
//! database, whatever its size on disk. The settings may change from release to release; only what
//! [`crate::Column`] names is format.

use crate::Column;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DataBlockIndexType, LogLevel,
    Options,
};

/// What may differ from one database to another.
#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Uncompressed blocks, indexes and filters kept in memory.
    pub block_cache_bytes: usize,
    /// Writes kept in memory until a flush, over all columns.
    pub write_buffer_bytes: usize,
    /// Whether closing puts what was written on disk first. Without it closing loses what was not
    /// flushed, as a crash does.
    pub flush_on_close: bool,
    /// Files of tables and blobs that are open at a time; `None`: all there are.
    pub open_files_max: Option<u32>,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            block_cache_bytes: 64 << 20,
            write_buffer_bytes: 64 << 20,
            flush_on_close: true,
            open_files_max: None,
        }
    }
}

/// A value at least this large lives in a blob file, so that scans and compactions of keys do not
/// drag it along.
const BLOB_BYTES_MIN: u64 = 1024;

/// A table file in which this many of any `DELETIONS_WINDOW` neighbouring rows are deletions is
/// compacted early: a scan would otherwise step over each of them.
const DELETIONS_WINDOW: usize = 1024;
const DELETIONS_TRIGGER: usize = 512;
const DELETIONS_RATIO: f64 = 0.5;

/// Of a write buffer, for the filter over its keys.
const MEMTABLE_FILTER_SHARE: f64 = 0.02;

/// RocksDB's own diary: enough for a post-mortem, bounded.
const DIARY_FILES_MAX: usize = 4;
const DIARY_FILE_BYTES_MAX: usize = 4 << 20;

/// The setter for this one exists only in RocksDB's own option syntax.
const LOSE_ON_CLOSE: &str = "avoid_flush_during_shutdown=true";

pub(crate) fn database(options: &DbOptions) -> Result<Options, rocksdb::Error> {
    let mut db = Options::default();
    if !options.flush_on_close {
        db = db.get_options_from_string(LOSE_ON_CLOSE)?;
    }
    db.create_if_missing(true);
    db.create_missing_column_families(true);
    // With the write-ahead log off this is what makes a flush one point in time for all columns.
    db.set_atomic_flush(true);
    db.set_db_write_buffer_size(options.write_buffer_bytes);
    db.set_max_background_jobs(2);
    if let Some(max) = options.open_files_max {
        db.set_max_open_files(i32::try_from(max).unwrap_or(i32::MAX));
    }
    // One thread applies; the concurrent path only adds atomics to each insert.
    db.set_allow_concurrent_memtable_write(false);
    // Hands dirty pages to the disk steadily instead of all at once at the end of a file.
    db.set_bytes_per_sync(1 << 20);
    db.set_keep_log_file_num(DIARY_FILES_MAX);
    db.set_max_log_file_size(DIARY_FILE_BYTES_MAX);
    db.set_log_level(LogLevel::Warn);
    db.set_stats_dump_period_sec(0);
    // Opening reads the manifest only; statistics of each table would cost a read per file.
    db.set_skip_stats_update_on_db_open(true);
    Ok(db)
}

/// Lock-free on a hit, which nearly every read is. 0 lets it learn the size of entries by itself.
pub(crate) fn cache(options: &DbOptions) -> Cache {
    Cache::new_hyper_clock_cache(options.block_cache_bytes, 0)
}

pub(crate) fn columns(options: &DbOptions, cache: &Cache) -> Vec<ColumnFamilyDescriptor> {
    Column::ALL
        .into_iter()
        .map(|column| ColumnFamilyDescriptor::new(column.name(), family(column, options, cache)))
        .collect()
}

fn family(column: Column, options: &DbOptions, cache: &Cache) -> Options {
    let mut family = Options::default();
    family.set_block_based_table_factory(&tables(column, cache));
    family.set_compression_type(DBCompressionType::Lz4);
    // What nobody has touched for long is mostly history; the present is read at any age.
    family.set_bottommost_compression_type(match column {
        Column::Head => DBCompressionType::Lz4,
        Column::Log | Column::Versions | Column::Counts | Column::Leases | Column::Meta => {
            DBCompressionType::Zstd
        }
    });
    family.set_level_compaction_dynamic_level_bytes(true);
    family.set_max_write_buffer_number(4);
    family.set_write_buffer_size(match column {
        // A quarter each: the shared budget trips first when two of them grow together.
        Column::Head | Column::Log | Column::Versions => (options.write_buffer_bytes / 4).max(1 << 20),
        Column::Counts | Column::Leases | Column::Meta => (options.write_buffer_bytes / 16).max(1 << 20),
    });
    if matches!(column, Column::Head | Column::Log) {
        family.set_enable_blob_files(true);
        family.set_min_blob_size(BLOB_BYTES_MIN);
        family.set_blob_compression_type(DBCompressionType::Lz4);
        family.set_enable_blob_gc(true);
        family.set_blob_gc_age_cutoff(0.25);
    }
    if matches!(column, Column::Head | Column::Log | Column::Versions) {
        family.add_compact_on_deletion_collector_factory(
            DELETIONS_WINDOW,
            DELETIONS_TRIGGER,
            DELETIONS_RATIO,
        );
    }
    if matches!(column, Column::Head) {
        // A filter over unflushed rows too: most look-ups are for a key that is not among them.
        family.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_SHARE);
        family.set_memtable_whole_key_filtering(true);
    }
    if matches!(column, Column::Log) {
        // Every point read of the log follows a link to a row that exists.
        family.set_optimize_filters_for_hits(true);
    }
    family
}

fn tables(column: Column, cache: &Cache) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_format_version(6);
    match column {
        Column::Head => {
            // A put of a new key asks for it first: the filter answers "absent" without a read.
            tables.set_bloom_filter(10.0, false);
            tables.set_whole_key_filtering(true);
            tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            // A list opens a quarter of the blocks; a point read finds its row by the block's hash.
            tables.set_block_size(16 << 10);
        }
        Column::Log => tables.set_block_size(16 << 10),
        Column::Versions | Column::Counts | Column::Leases | Column::Meta => {}
    }
    tables
}
