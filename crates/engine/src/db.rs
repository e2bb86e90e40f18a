//! Opening, writing and flushing: the owner of the RocksDB handle.

use crate::batch::Batch;
use crate::error::EngineError;
use crate::poison::Poison;
use crate::view::View;
use crate::{Column, DbOptions, options};
use meerkat_fault as fault;
use rocksdb::{
    BottommostLevelCompaction, Cache, ColumnFamily, CompactOptions, DB, FlushOptions, ReadOptions, ReadTier,
    WriteOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database. Clones are handles to the same one; it closes with the last handle, view or batch.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) raw: DB,
    pub(crate) cache: Cache,
    pub(crate) path: PathBuf,
    pub(crate) poison: Poison,
    write_options: WriteOptions,
}

impl Inner {
    pub(crate) fn family(&self, column: Column) -> &ColumnFamily {
        self.raw.cf_handle(column.name()).expect("every column is opened with the database")
    }

    pub(crate) fn read_error(&self, reason: &rocksdb::Error) -> EngineError {
        EngineError::Read { path: self.path.clone(), reason: reason.to_string() }
    }

    /// Ends writing, since memory and disk may now disagree.
    pub(crate) fn write_error(&self, reason: &dyn std::fmt::Display) -> EngineError {
        let reason = reason.to_string();
        self.poison.set(&reason);
        EngineError::Write { path: self.path.clone(), reason }
    }

    pub(crate) fn check_poison(&self) -> Result<(), EngineError> {
        match self.poison.reason() {
            None => Ok(()),
            Some(reason) => Err(EngineError::Poisoned { path: self.path.clone(), reason: reason.to_owned() }),
        }
    }
}

impl Db {
    /// Opens the database in `path`, or makes one there.
    pub fn open(path: impl AsRef<Path>, options: &DbOptions) -> Result<Db, EngineError> {
        let path = path.as_ref();
        std::fs::create_dir_all(path).map_err(|error| open_error(path, &error))?;
        let cache = options::cache(options);
        let families = options::columns(options, &cache);
        let raw = options::database(options)
            .and_then(|database| DB::open_cf_descriptors(&database, path, families))
            .map_err(|error| open_error(path, &error))?;
        Ok(Db::own(raw, cache, path))
    }

    /// Opens what is in `path` without changing a byte of it, for example a checkpoint. Writes fail.
    pub fn open_read_only(path: impl AsRef<Path>, options: &DbOptions) -> Result<Db, EngineError> {
        let path = path.as_ref();
        let cache = options::cache(options);
        let families = options::columns(options, &cache);
        let raw = options::database(options)
            .and_then(|mut database| {
                database.create_if_missing(false);
                DB::open_cf_descriptors_read_only(&database, path, families, false)
            })
            .map_err(|error| open_error(path, &error))?;
        Ok(Db::own(raw, cache, path))
    }

    fn own(raw: DB, cache: Cache, path: &Path) -> Db {
        let mut write_options = WriteOptions::default();
        // The replicated log is the durable copy: what is lost here is replayed from there.
        write_options.disable_wal(true);
        Db {
            inner: Arc::new(Inner {
                raw,
                cache,
                path: path.to_owned(),
                poison: Poison::default(),
                write_options,
            }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Makes all changes of the batch visible at once. Not durable until flushed.
    pub fn write(&self, batch: Batch) -> Result<(), EngineError> {
        assert!(Arc::ptr_eq(&self.inner, &batch.inner), "a batch is written to the database it was made for");
        self.inner.check_poison()?;
        self.inner
            .raw
            .write_opt(batch.changes, &self.inner.write_options)
            .map_err(|error| self.inner.write_error(&error))
    }

    /// The state as it is now, to read from for as long as is needed.
    pub fn view(&self) -> View {
        View::new(&self.inner)
    }

    /// Puts everything written so far on disk, all columns at one point in time, and waits for it.
    pub fn flush(&self) -> Result<(), EngineError> {
        self.inner.check_poison()?;
        fault::point("before_state_flush").map_err(|error| self.inner.write_error(&error))?;
        let families = Column::ALL.map(|column| self.inner.family(column));
        let mut wait = FlushOptions::default();
        wait.set_wait(true);
        self.inner.raw.flush_cfs_opt(&families, &wait).map_err(|error| self.inner.write_error(&error))?;
        fault::point("after_state_flush").map_err(|error| self.inner.write_error(&error))
    }

    /// Rewrites all tables, so that what was deleted leaves the disk. Takes long; reads, writes and
    /// RocksDB's own compactions go on meanwhile. `go_on` is asked before each column.
    pub fn compact(&self, go_on: impl Fn() -> bool) -> Result<(), EngineError> {
        self.flush()?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        for column in Column::ALL {
            if !go_on() {
                break;
            }
            let family = self.inner.family(column);
            self.inner.raw.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
        }
        self.inner.check_poison()
    }

    /// Ends a [`Db::compact`] that runs. Nothing may be written or flushed afterwards.
    pub fn abandon_compaction(&self) {
        self.inner.raw.cancel_all_background_work(false);
    }

    /// Reads what a crash at this moment would leave: only what has been flushed.
    pub fn persisted_get(&self, column: Column, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut persisted = ReadOptions::default();
        persisted.set_read_tier(ReadTier::Persisted);
        self.inner
            .raw
            .get_cf_opt(self.inner.family(column), key, &persisted)
            .map_err(|error| self.inner.read_error(&error))
    }
}

/// Says what the operator can do, as far as RocksDB's text lets us tell the causes apart.
fn open_error(path: &Path, reason: &dyn std::fmt::Display) -> EngineError {
    let reason = reason.to_string();
    let next_step = if reason.contains("lock") || reason.contains("LOCK") {
        "Another process has it open: stop that one first, or give this one a directory of its own"
    } else if reason.contains("Column families not opened") || reason.contains("not supported") {
        "It was written by a newer release: start that release, or move the directory away and let this member catch up from the others"
    } else if reason.contains("Corruption") || reason.contains("No such file") {
        "Files in it are damaged or missing: move the directory away and let this member catch up from the others"
    } else {
        "Check that it is a directory which this user may read and write, and that its disk has room"
    };
    EngineError::Open { path: path.to_owned(), reason, next_step }
}

#[cfg(test)]
#[path = "db_tests.rs"]
mod tests;
