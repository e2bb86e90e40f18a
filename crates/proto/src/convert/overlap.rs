//! Whether a branch of a transaction would write one key twice.
//!
//! A branch is refused when two of its puts name one key, or a put names a key that the branch also
//! deletes. Nested transactions count with both of their branches, but their own two branches do
//! not clash with each other, since only one is ever taken.
//!
//! What clients can observe of etcd's order of search is kept: a nested put is compared with the
//! deletes of its parent and of the nested transactions *before* its own, not with those after; and
//! a delete without an upper end clashes with nothing.

use super::BadRequest;
use meerkat_types::{KeyRange, Txn, TxnOp};
use std::collections::{BTreeMap, HashSet};

/// Refuses a transaction in which either branch writes a key twice.
pub(super) fn check(txn: &Txn) -> Result<(), BadRequest> {
    branch(&txn.success)?;
    branch(&txn.failure)?;
    Ok(())
}

/// What a branch writes, on every path through it.
#[derive(Default)]
struct Writes<'a> {
    puts: HashSet<&'a [u8]>,
    deletes: Deletes<'a>,
}

fn branch(ops: &[TxnOp]) -> Result<Writes<'_>, BadRequest> {
    let mut writes = Writes::default();
    for op in ops {
        if let TxnOp::DeleteRange(delete) = op {
            writes.deletes.insert(&delete.keys);
        }
    }
    for op in ops {
        if let TxnOp::Txn(txn) = op {
            writes.add_nested(branch(&txn.success)?, branch(&txn.failure)?)?;
        }
    }
    for op in ops {
        if let TxnOp::Put(put) = op {
            writes.add_put(put.key.as_bytes())?;
        }
    }
    Ok(writes)
}

impl<'a> Writes<'a> {
    fn add_put(&mut self, key: &'a [u8]) -> Result<(), BadRequest> {
        if self.deletes.covers(key) || !self.puts.insert(key) {
            return Err(BadRequest::DuplicateKey);
        }
        Ok(())
    }

    /// Adds both branches of one nested transaction.
    fn add_nested(&mut self, success: Writes<'a>, failure: Writes<'a>) -> Result<(), BadRequest> {
        for key in &success.puts {
            self.add_put(key)?;
        }
        for key in &failure.puts {
            // Both branches may put it: one of them at most will run.
            if !success.puts.contains(key) {
                self.add_put(key)?;
            }
        }
        self.deletes.absorb(success.deletes);
        self.deletes.absorb(failure.deletes);
        Ok(())
    }
}

/// A set of deleted keys that answers quickly however many deletes made it: a request may hold a
/// hundred thousand of them.
#[derive(Default)]
struct Deletes<'a> {
    points: HashSet<&'a [u8]>,
    /// From first, inclusive, to end, exclusive. Disjoint: spans that touch are merged.
    spans: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Deletes<'a> {
    fn insert(&mut self, keys: &'a KeyRange) {
        match keys {
            KeyRange::One(key) => {
                self.points.insert(key.as_bytes());
            }
            KeyRange::Span { first, end } => self.insert_span(first.as_bytes(), end),
            // etcd reads the single zero byte as an end below every key, hence as nothing. Clients
            // that delete everything and put again in one transaction rely on it.
            KeyRange::From(_) => {}
        }
    }

    fn insert_span(&mut self, mut first: &'a [u8], mut end: &'a [u8]) {
        if end <= first {
            return;
        }
        if let Some((before_first, before_end)) = self.spans.range(..=first).next_back()
            && first <= *before_end
        {
            first = before_first;
            end = end.max(before_end);
        }
        while let Some((inside, inside_end)) = self.spans.range(first..=end).next() {
            let inside = *inside;
            end = end.max(inside_end);
            self.spans.remove(inside);
        }
        self.spans.insert(first, end);
    }

    fn absorb(&mut self, other: Deletes<'a>) {
        self.points.extend(other.points);
        for (first, end) in other.spans {
            self.insert_span(first, end);
        }
    }

    fn covers(&self, key: &[u8]) -> bool {
        let in_span = || self.spans.range(..=key).next_back().is_some_and(|(_, end)| key < *end);
        self.points.contains(key) || in_span()
    }
}

#[cfg(test)]
mod tests;
