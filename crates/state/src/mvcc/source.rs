//! The keys of a range at one revision, whichever way they are had.

use crate::error::{StateError, damaged};
use crate::mvcc::head_row::HeadRow;
use crate::mvcc::past::{self, Plan};
use crate::mvcc::present::Present;
use crate::mvcc::wire::Tail;
use meerkat_types::{Key, KeyRange, Revision};
use std::ops::ControlFlow;

pub(crate) struct Source<'a> {
    pub present: Present<'a>,
    pub plan: &'a Plan,
}

impl Source<'_> {
    /// Shows key and tail of each key that lives at the revision, in key order, until told to stop.
    /// With `values` false the tails may come without their values.
    pub(crate) fn scan(
        &self,
        keys: &KeyRange,
        values: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        match (self.plan, keys) {
            (Plan::Present, KeyRange::One(key)) => {
                self.show_head(key, None, &mut visit)?;
                Ok(())
            }
            (Plan::Present, _) => {
                let (first, end) = (keys.first().as_bytes(), keys.end());
                self.present.rows.scan(first, end.as_deref(), |key, row| visit(key, row.tail))
            }
            (Plan::Undo(undo), _) => undo.scan(&self.present, keys, visit),
            // Most keys have not changed since: one look-up then tells it.
            (Plan::Walk(at), KeyRange::One(key)) if self.show_head(key, Some(*at), &mut visit)? => Ok(()),
            (Plan::Walk(at), _) => past::walk(self.present.rows.view, keys, *at, values, visit),
        }
    }

    /// Shows the key's newest version, if it has one, and if that was there at the given revision.
    fn show_head(
        &self,
        key: &Key,
        at: Option<Revision>,
        visit: &mut impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<bool, StateError> {
        let Some(row) = self.present.rows.get(key.as_bytes())? else {
            return Ok(false);
        };
        let tail = HeadRow::decode(&row).ok_or(damaged("head"))?.tail;
        if let Some(at) = at
            && at < Tail::decode(tail).ok_or(damaged("head"))?.modified
        {
            return Ok(false);
        }
        let _: ControlFlow<()> = visit(key.as_bytes(), tail)?;
        Ok(true)
    }

    /// How many keys of the range live at the revision.
    pub(crate) fn count(&self, keys: &KeyRange) -> Result<u64, StateError> {
        match (self.plan, keys) {
            (Plan::Present, KeyRange::One(key)) => {
                Ok(u64::from(self.present.rows.get(key.as_bytes())?.is_some()))
            }
            (Plan::Present, _) => self.present.count(keys),
            (Plan::Undo(undo), _) => undo.count(&self.present, keys),
            (Plan::Walk(_), _) => {
                let mut count = 0;
                self.scan(keys, false, |_, _| {
                    count += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(count)
            }
        }
    }
}
