//! RocksDB, or its twin in memory where the simulation chose it for the whole process. The choice costs
//! a member one branch that is always predicted.

use crate::{Column, DbOptions, EngineError, MemoryUsage, Size, Stats};
use crate::{batch, cursor, db, memory, view};
use std::ops::Deref;
use std::path::Path;

#[derive(Clone)]
pub struct Db(DbKind);

#[derive(Clone)]
enum DbKind {
    Disk(db::Db),
    Memory(memory::Db),
}

pub struct Batch(BatchKind);

enum BatchKind {
    Disk(batch::Batch),
    Memory(memory::Batch),
}

pub struct View(ViewKind);

enum ViewKind {
    Disk(view::View),
    Memory(memory::View),
}

pub struct Cursor<'a>(CursorKind<'a>);

enum CursorKind<'a> {
    Disk(cursor::Cursor<'a>),
    Memory(memory::Cursor<'a>),
}

pub struct PinnedRow<'a>(PinnedRowKind<'a>);

enum PinnedRowKind<'a> {
    Disk(view::PinnedRow<'a>),
    Memory(&'a [u8]),
}

impl Db {
    pub fn open(path: impl AsRef<Path>, options: &DbOptions) -> Result<Db, EngineError> {
        let kind = match memory::is_chosen() {
            true => DbKind::Memory(memory::Db::open(path.as_ref(), options)?),
            false => DbKind::Disk(db::Db::open(path, options)?),
        };
        Ok(Db(kind))
    }

    pub fn open_read_only(path: impl AsRef<Path>, options: &DbOptions) -> Result<Db, EngineError> {
        let kind = match memory::is_chosen() {
            true => DbKind::Memory(memory::Db::open_read_only(path.as_ref())?),
            false => DbKind::Disk(db::Db::open_read_only(path, options)?),
        };
        Ok(Db(kind))
    }

    pub fn path(&self) -> &Path {
        match &self.0 {
            DbKind::Disk(db) => db.path(),
            DbKind::Memory(db) => db.path(),
        }
    }

    pub fn write(&self, batch: Batch) -> Result<(), EngineError> {
        match (&self.0, batch.0) {
            (DbKind::Disk(db), BatchKind::Disk(batch)) => db.write(batch),
            (DbKind::Memory(db), BatchKind::Memory(batch)) => db.write(batch),
            _ => panic!("a batch is written to the database it was made for"),
        }
    }

    pub fn view(&self) -> View {
        View(match &self.0 {
            DbKind::Disk(db) => ViewKind::Disk(db.view()),
            DbKind::Memory(db) => ViewKind::Memory(db.view()),
        })
    }

    pub fn flush(&self) -> Result<(), EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.flush(),
            DbKind::Memory(db) => db.flush(),
        }
    }

    pub fn compact(&self, go_on: impl Fn() -> bool) -> Result<(), EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.compact(go_on),
            // Nothing deleted stays in memory.
            DbKind::Memory(db) => db.flush(),
        }
    }

    pub fn abandon_compaction(&self) {
        if let DbKind::Disk(db) = &self.0 {
            db.abandon_compaction();
        }
    }

    pub fn persisted_get(&self, column: Column, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.persisted_get(column, key),
            DbKind::Memory(db) => Ok(db.persisted_get(column, key)),
        }
    }

    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<(), EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.checkpoint(path),
            DbKind::Memory(db) => db.checkpoint(path.as_ref()),
        }
    }

    pub fn approximate_size(&self) -> Result<Size, EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.approximate_size(),
            DbKind::Memory(db) => Ok(db.approximate_size()),
        }
    }

    pub fn memory_usage(&self) -> Result<MemoryUsage, EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.memory_usage(),
            DbKind::Memory(_) => Ok(MemoryUsage::default()),
        }
    }

    pub fn stats(&self) -> Result<Stats, EngineError> {
        match &self.0 {
            DbKind::Disk(db) => db.stats(),
            DbKind::Memory(_) => Ok(Stats::default()),
        }
    }
}

impl Batch {
    pub fn new(db: &Db) -> Batch {
        Batch(match &db.0 {
            DbKind::Disk(db) => BatchKind::Disk(batch::Batch::new(db)),
            DbKind::Memory(db) => BatchKind::Memory(memory::Batch::new(db)),
        })
    }

    pub fn put(&mut self, column: Column, key: &[u8], value: &[u8]) {
        match &mut self.0 {
            BatchKind::Disk(batch) => batch.put(column, key, value),
            BatchKind::Memory(batch) => batch.change(column, key, Some(value)),
        }
    }

    pub fn delete(&mut self, column: Column, key: &[u8]) {
        match &mut self.0 {
            BatchKind::Disk(batch) => batch.delete(column, key),
            BatchKind::Memory(batch) => batch.change(column, key, None),
        }
    }

    pub fn is_empty(&self) -> bool {
        match &self.0 {
            BatchKind::Disk(batch) => batch.is_empty(),
            BatchKind::Memory(batch) => batch.is_empty(),
        }
    }

    pub fn bytes(&self) -> usize {
        match &self.0 {
            BatchKind::Disk(batch) => batch.bytes(),
            BatchKind::Memory(batch) => batch.bytes(),
        }
    }
}

impl View {
    pub fn get(&self, column: Column, key: &[u8]) -> Result<Option<PinnedRow<'_>>, EngineError> {
        let found = match &self.0 {
            ViewKind::Disk(view) => view.get(column, key)?.map(PinnedRowKind::Disk),
            ViewKind::Memory(view) => view.get(column, key).map(PinnedRowKind::Memory),
        };
        Ok(found.map(PinnedRow))
    }

    pub fn scan(&self, column: Column, first: &[u8], end: Option<&[u8]>) -> Cursor<'_> {
        Cursor(match &self.0 {
            ViewKind::Disk(view) => CursorKind::Disk(view.scan(column, first, end)),
            ViewKind::Memory(view) => CursorKind::Memory(view.scan(column, first, end)),
        })
    }

    pub fn scan_once(&self, column: Column, first: &[u8], end: Option<&[u8]>) -> Cursor<'_> {
        match &self.0 {
            ViewKind::Disk(view) => Cursor(CursorKind::Disk(view.scan_once(column, first, end))),
            ViewKind::Memory(_) => self.scan(column, first, end),
        }
    }
}

impl Deref for PinnedRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            PinnedRowKind::Disk(bytes) => bytes,
            PinnedRowKind::Memory(bytes) => bytes,
        }
    }
}

impl Cursor<'_> {
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            CursorKind::Disk(cursor) => cursor.row(),
            CursorKind::Memory(cursor) => cursor.row(),
        }
    }

    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            CursorKind::Disk(cursor) => cursor.key(),
            CursorKind::Memory(cursor) => cursor.row().map(|(key, _)| key),
        }
    }

    pub fn step(&mut self) {
        match &mut self.0 {
            CursorKind::Disk(cursor) => cursor.step(),
            CursorKind::Memory(cursor) => cursor.step(),
        }
    }

    pub fn seek(&mut self, key: &[u8]) {
        match &mut self.0 {
            CursorKind::Disk(cursor) => cursor.seek(key),
            CursorKind::Memory(cursor) => cursor.seek(key),
        }
    }

    pub fn seek_back(&mut self, key: &[u8]) {
        match &mut self.0 {
            CursorKind::Disk(cursor) => cursor.seek_back(key),
            CursorKind::Memory(cursor) => cursor.seek_back(key),
        }
    }

    pub fn finish(&self) -> Result<(), EngineError> {
        match &self.0 {
            CursorKind::Disk(cursor) => cursor.finish(),
            CursorKind::Memory(_) => Ok(()),
        }
    }
}
