//! The newest version of each key: `head`, with what the current batch has changed laid over it.

use crate::error::{StateError, damaged};
use crate::mvcc::counts::Counts;
use crate::mvcc::head_row::HeadRow;
use bytes::Bytes;
use meerkat_engine::{Column, PinnedRow, View};
use meerkat_types::KeyRange;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, Deref};

/// Keys that the unwritten batch touched: their `head` row, or `None` for deleted ones.
pub(crate) type Overlay = BTreeMap<Bytes, Option<Bytes>>;

/// Rows of `head` as they will be once the batch is written.
#[derive(Clone, Copy)]
pub(crate) struct HeadRows<'a> {
    pub view: &'a View,
    pub overlay: Option<&'a Overlay>,
}

/// Rows and how many there are.
#[derive(Clone, Copy)]
pub(crate) struct Present<'a> {
    pub rows: HeadRows<'a>,
    pub counts: &'a Counts,
}

/// A row, wherever it was found.
pub(crate) enum Found<'a> {
    Stored(PinnedRow<'a>),
    Pending(&'a Bytes),
}

impl Deref for Found<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Found::Stored(row) => row,
            Found::Pending(row) => row,
        }
    }
}

impl<'a> HeadRows<'a> {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Found<'a>>, StateError> {
        if let Some(pending) = self.overlay.and_then(|overlay| overlay.get(key)) {
            return Ok(pending.as_ref().map(Found::Pending));
        }
        Ok(self.view.get(Column::Head, key)?.map(Found::Stored))
    }

    /// Shows each live key from `first`, inclusive, to `end`, exclusive, in order, until told to
    /// stop.
    pub(crate) fn scan(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], HeadRow<'_>) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        if end.is_some_and(|end| end <= first) {
            return Ok(());
        }
        let mut stored = self.view.scan(Column::Head, first, end);
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut pending = self
            .overlay
            .filter(|overlay| !overlay.is_empty())
            .map(|overlay| overlay.range::<[u8], _>((Bound::Included(first), upper)).peekable());
        loop {
            let next_pending = pending.as_mut().and_then(|pending| pending.peek().copied());
            let flow = match (stored.row(), next_pending) {
                (None, None) => break,
                (Some((key, row)), over) if over.is_none_or(|(over_key, _)| key < over_key.as_ref()) => {
                    let flow = visit(key, HeadRow::decode(row).ok_or(damaged("head"))?)?;
                    stored.step();
                    flow
                }
                (row, Some((over_key, over_row))) => {
                    // The overlay hides the stored row of the same key.
                    if row.is_some_and(|(key, _)| key == over_key.as_ref()) {
                        stored.step();
                    }
                    pending.as_mut().and_then(Iterator::next);
                    match over_row {
                        None => ControlFlow::Continue(()),
                        Some(row) => visit(over_key, HeadRow::decode(row).ok_or(damaged("head"))?)?,
                    }
                }
                (Some(_), None) => unreachable!("the guard above holds without a pending row"),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        Ok(stored.finish()?)
    }

    fn count(&self, first: &[u8], end: Option<&[u8]>) -> Result<u64, StateError> {
        let mut keys = 0;
        self.scan(first, end, |_, _| {
            keys += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(keys)
    }
}

impl Present<'_> {
    /// Live keys in the range: a walk of at most one bucket at each of its ends.
    pub(crate) fn count(&self, keys: &KeyRange) -> Result<u64, StateError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let first = keys.first().as_bytes();
        let end = keys.end();
        let from = self.counts.place(first);
        let to = end.as_deref().map(|end| (end, self.counts.place(end)));
        if let Some((end, to)) = &to
            && from.first == to.first
        {
            return self.rows.count(first, Some(end));
        }
        let below_first = from.keys_before + self.rows.count(from.first, Some(first))?;
        let below_end = match to {
            None => self.counts.keys(),
            Some((end, to)) => to.keys_before + self.rows.count(to.first, Some(end))?,
        };
        below_end.checked_sub(below_first).ok_or(damaged("count"))
    }
}
