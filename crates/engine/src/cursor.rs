//! Walking neighbouring rows of one column without copying them.

use crate::EngineError;
use crate::db::Inner;
use rocksdb::{DB, DBRawIteratorWithThreadMode};

/// Stands on a row, or past the last one. Past the end, ask [`Cursor::finish`] whether the end was
/// reached or the disk failed.
pub struct Cursor<'a> {
    rows: DBRawIteratorWithThreadMode<'a, DB>,
    inner: &'a Inner,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(rows: DBRawIteratorWithThreadMode<'a, DB>, inner: &'a Inner) -> Cursor<'a> {
        Cursor { rows, inner }
    }

    /// Key and value of the row under the cursor; `None` past the end. Valid until it moves.
    #[inline]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        self.rows.item()
    }

    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.rows.key()
    }

    /// To the next row. Must not be called past the end.
    #[inline]
    pub fn step(&mut self) {
        self.rows.next();
    }

    /// To the first row at or after `key`.
    pub fn seek(&mut self, key: &[u8]) {
        self.rows.seek(key);
    }

    /// To the last row at or before `key`.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.rows.seek_for_prev(key);
    }

    /// Whether the walk ended because there were no more rows, and not for a failed read.
    pub fn finish(&self) -> Result<(), EngineError> {
        self.rows.status().map_err(|error| self.inner.read_error(&error))
    }
}
