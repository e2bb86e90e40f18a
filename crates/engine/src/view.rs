//! A fixed point in time to read from.

use crate::cursor::Cursor;
use crate::db::Inner;
use crate::{Column, EngineError};
use rocksdb::{DBPinnableSlice, ReadOptions, Snapshot};
use std::ops::Deref;
use std::sync::Arc;

/// The database as it was when the view was made, whatever has been written since. Holding one for
/// long keeps superseded rows on disk, so hold it for a request and not for a connection.
pub struct View {
    /// Declared, and so dropped, before `inner`: it points into the database that `inner` keeps
    /// open.
    snapshot: Snapshot<'static>,
    inner: Arc<Inner>,
}

/// A value read in place, without a copy.
pub struct PinnedRow<'a>(DBPinnableSlice<'a>);

impl Deref for PinnedRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl View {
    pub(crate) fn new(inner: &Arc<Inner>) -> View {
        let inner = Arc::clone(inner);
        let snapshot = inner.raw.snapshot();
        // SAFETY: the snapshot borrows `inner.raw`, which lives on the heap behind the `Arc` stored
        // next to it: it does not move when the view moves, and is not dropped before the snapshot
        // (fields drop in the order of their declaration). The 'static never leaves this struct:
        // every public method hands out data bound to `&self`.
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        View { snapshot, inner }
    }

    pub fn get(&self, column: Column, key: &[u8]) -> Result<Option<PinnedRow<'_>>, EngineError> {
        let found = self
            .snapshot
            .get_pinned_cf(self.inner.family(column), key)
            .map_err(|error| self.inner.read_error(&error))?;
        Ok(found.map(PinnedRow))
    }

    /// A cursor over the rows from `first`, inclusive, to `end`, exclusive (`None`: to the last).
    /// It stands on the first of them.
    pub fn scan(&self, column: Column, first: &[u8], end: Option<&[u8]>) -> Cursor<'_> {
        self.cursor(column, first, end, true)
    }

    /// As [`View::scan`], for a long walk that will not be repeated soon: it leaves the cache to
    /// those who need it.
    pub fn scan_once(&self, column: Column, first: &[u8], end: Option<&[u8]>) -> Cursor<'_> {
        self.cursor(column, first, end, false)
    }

    fn cursor(&self, column: Column, first: &[u8], end: Option<&[u8]>, keep: bool) -> Cursor<'_> {
        let mut bounds = ReadOptions::default();
        bounds.fill_cache(keep);
        if let Some(end) = end {
            bounds.set_iterate_upper_bound(end);
        }
        // Readahead then never runs past the upper bound.
        bounds.set_auto_readahead_size(true);
        let mut rows = self.snapshot.raw_iterator_cf_opt(self.inner.family(column), bounds);
        rows.seek(first);
        Cursor::new(rows, &self.inner)
    }
}
