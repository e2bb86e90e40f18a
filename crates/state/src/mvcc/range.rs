//! A range question answered from a [`Source`]: limit, order, bounds, count.
//!
//! Answers in key order are spliced from stored bytes; only a sort by something else decodes. The
//! order of limit, bounds and sort is etcd's, quirk included: without an explicit order, a limit cuts
//! in key order even when a sort by another target follows.

use crate::error::{StateError, damaged};
use crate::mvcc::source::Source;
use crate::mvcc::wire::{self, Tail};
use bytes::Bytes;
use meerkat_types::{
    KeyRange, KeyValue, KvPage, RangeAnswer, RangeQuery, Refusal, Revision, RevisionBounds, Sort, SortOrder,
    SortTarget,
};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// The revision to read at: the asked one if it is readable, else the current one if none was asked.
pub(crate) fn revision_to_read(
    at: Option<Revision>,
    current: Revision,
    compacted: Option<Revision>,
) -> Result<Revision, Refusal> {
    // The wire's zero and anything below it ask for the present.
    let Some(asked) = at.filter(|at| 0 < at.get()) else {
        return Ok(current);
    };
    if current < asked {
        return Err(Refusal::Future { asked, current });
    }
    match compacted {
        Some(oldest) if asked < oldest => Err(Refusal::Compacted { asked, oldest }),
        _ => Ok(asked),
    }
}

/// `revision` is what the answer reports: that of the state read from.
pub(crate) fn answer(
    source: &Source<'_>,
    query: &RangeQuery,
    revision: Revision,
) -> Result<RangeAnswer, StateError> {
    if query.count_only {
        let count = source.count(&query.keys)?;
        return Ok(RangeAnswer { kvs: KvPage::empty(), more: false, count, revision });
    }
    let limit = query.limit.filter(|limit| 0 < *limit);
    let (kvs, more, counted) =
        if sorts(query.sort) { sorted(source, query, limit)? } else { in_key_order(source, query, limit)? };
    let count = match counted {
        Some(count) => count,
        None => source.count(&query.keys)?,
    };
    Ok(RangeAnswer { kvs, more, count, revision })
}

fn sorts(sort: Sort) -> bool {
    sort.target != SortTarget::Key || sort.order == SortOrder::Descend
}

/// Whether a limit may end the scan: nothing after it can change which keys are answered.
fn limit_ends_scan(query: &RangeQuery) -> bool {
    let by_key = query.sort.target == SortTarget::Key && query.sort.order == SortOrder::Ascend;
    (query.sort.order == SortOrder::None || by_key) && query.bounds.is_unbounded()
}

/// The page, whether there is more, and the count if the scan happened to find it.
type Page = (KvPage, bool, Option<u64>);

fn in_key_order(source: &Source<'_>, query: &RangeQuery, limit: Option<usize>) -> Result<Page, StateError> {
    let stop_at_limit = limit_ends_scan(query);
    let mut bytes = Vec::new();
    let (mut len, mut more, mut seen, mut stopped) = (0, false, 0, false);
    source.scan(&query.keys, !query.keys_only, |key, tail| {
        seen += 1;
        if !admits(&query.bounds, tail)? {
            return Ok(ControlFlow::Continue(()));
        }
        if limit.is_some_and(|limit| limit <= len) {
            more = true;
            stopped = stop_at_limit;
            return Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        len += 1;
        put(&mut bytes, key, tail, query.keys_only)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((KvPage::Wire { bytes: bytes.into(), len }, more, (!stopped).then_some(seen)))
}

fn put(bytes: &mut Vec<u8>, key: &[u8], tail: &[u8], keys_only: bool) -> Result<(), StateError> {
    if keys_only {
        return wire::put_element_keys_only(bytes, key, tail).ok_or(damaged("head"));
    }
    wire::put_element(bytes, key, tail);
    Ok(())
}

fn admits(bounds: &RevisionBounds, tail: &[u8]) -> Result<bool, StateError> {
    if bounds.is_unbounded() {
        return Ok(true);
    }
    let tail = Tail::decode(tail).ok_or(damaged("head"))?;
    Ok(bounds.admits(tail.created, tail.modified))
}

fn sorted(source: &Source<'_>, query: &RangeQuery, limit: Option<usize>) -> Result<Page, StateError> {
    let values = !query.keys_only || query.sort.target == SortTarget::Value;
    // One more than asked for, to learn whether there is more.
    let keep = limit.map(|limit| limit.saturating_add(1));
    let stop_at = keep.filter(|_| limit_ends_scan(query));
    let mut best = Best { sort: query.sort, keep, kvs: Vec::new() };
    let (mut seen, mut stopped) = (0, false);
    source.scan(&query.keys, values, |key, tail| {
        seen += 1;
        if admits(&query.bounds, tail)? {
            let tail = Tail::decode(tail).ok_or(damaged("head"))?;
            best.push(tail.to_key_value(Bytes::copy_from_slice(key)));
        }
        stopped = stop_at.is_some_and(|stop_at| stop_at as u64 <= seen);
        Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let mut kvs = best.finish();
    let more = limit.is_some_and(|limit| limit < kvs.len());
    kvs.truncate(limit.unwrap_or(usize::MAX));
    if query.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    Ok((KvPage::Decoded(kvs), more, (!stopped).then_some(seen)))
}

/// Keeps the first few of a stream in sorted order, so that "the newest of a million" holds a
/// handful in memory. Equal ones stay in the order in which they came.
struct Best {
    sort: Sort,
    keep: Option<usize>,
    kvs: Vec<KeyValue>,
}

impl Best {
    fn push(&mut self, kv: KeyValue) {
        self.kvs.push(kv);
        // Sorting at twice the number kept costs each arrival a constant share.
        if let Some(keep) = self.keep.filter(|keep| keep.saturating_mul(2).max(64) <= self.kvs.len()) {
            self.sort();
            self.kvs.truncate(keep);
        }
    }

    fn sort(&mut self) {
        let sort = self.sort;
        self.kvs.sort_by(|a, b| {
            let ascending = compare(sort.target, a, b);
            if sort.order == SortOrder::Descend { ascending.reverse() } else { ascending }
        });
    }

    fn finish(mut self) -> Vec<KeyValue> {
        self.sort();
        self.kvs
    }
}

fn compare(target: SortTarget, a: &KeyValue, b: &KeyValue) -> Ordering {
    match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Created => a.created.cmp(&b.created),
        SortTarget::Modified => a.modified.cmp(&b.modified),
        SortTarget::Value => a.value.cmp(&b.value),
    }
}

/// A piece of a long answer in key order.
#[derive(Debug)]
pub(crate) struct Piece {
    pub kvs: KvPage,
    /// The last key in it; the next piece begins after it.
    pub last: Option<Bytes>,
    /// Nothing follows.
    pub finished: bool,
}

/// At most `keys_max` keys, and no more once they weigh `bytes_max`.
pub(crate) fn piece(
    source: &Source<'_>,
    keys: &KeyRange,
    keys_only: bool,
    keys_max: usize,
    bytes_max: usize,
) -> Result<Piece, StateError> {
    let mut bytes = Vec::new();
    let (mut len, mut last, mut finished) = (0, Vec::new(), true);
    source.scan(keys, !keys_only, |key, tail| {
        if keys_max <= len || (0 < len && bytes_max <= bytes.len()) {
            finished = false;
            return Ok(ControlFlow::Break(()));
        }
        len += 1;
        last.clear();
        last.extend_from_slice(key);
        put(&mut bytes, key, tail, keys_only)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let last = (0 < len).then(|| Bytes::from(last));
    Ok(Piece { kvs: KvPage::Wire { bytes: bytes.into(), len }, last, finished })
}
