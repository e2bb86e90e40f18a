//! Changes that happen together or not at all.

use crate::Column;
use crate::db::Db;
use crate::db::Inner;
use rocksdb::WriteBatch;
use std::sync::Arc;

/// Collects changes for one [`Db::write`]. A later change of a key replaces an earlier one. Belongs
/// to the database it was made for, and must not be written to another.
pub struct Batch {
    pub(crate) inner: Arc<Inner>,
    pub(crate) changes: WriteBatch,
}

impl Batch {
    pub fn new(db: &Db) -> Batch {
        Batch { inner: Arc::clone(&db.inner), changes: WriteBatch::default() }
    }

    pub fn put(&mut self, column: Column, key: &[u8], value: &[u8]) {
        self.changes.put_cf(self.inner.family(column), key, value);
    }

    pub fn delete(&mut self, column: Column, key: &[u8]) {
        self.changes.delete_cf(self.inner.family(column), key);
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What the batch weighs in memory.
    pub fn bytes(&self) -> usize {
        self.changes.size_in_bytes()
    }
}
