//! How many keys live in a range, without walking them.
//!
//! The key space is cut into buckets of a few hundred live keys; each knows its number. The keys
//! below some key are those of the buckets before it, added up, and a walk of part of one bucket.
//! Buckets stand in chunks that know their sums, so adding up is short even over many.
//!
//! ```text
//! chunk (3 buckets, 700 keys)              chunk (2 buckets, 500 keys)
//! [""..d: 200] [d..m: 300] [m..p: 200]     [p..t: 250] [t..: 250]
//! ```
//!
//! Always true: bucket 0 begins at the empty key and is never removed; a bucket's number is exactly
//! the number of its rows in `head`, checked whenever one is split. Where the borders lie depends on
//! how the log was cut into batches and so differs between members; no answer depends on it.
//!
//! A copy shares all its chunks: that is how a reader has the counts of its own point in time.

use crate::error::{StateError, damaged};
use crate::mvcc::present::HeadRows;
use bytes::Bytes;
use meerkat_engine::{Column, View};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A bucket above this is split. A count walks at most this many rows at each end of its range.
const BUCKET_KEYS_MAX: u64 = 512;
/// What a split leaves in each part.
const BUCKET_KEYS_SPLIT: u64 = 256;
/// Two neighbours that have no more than this together become one.
const BUCKET_KEYS_MERGE: u64 = 128;
/// No bucket holds so many, and the sum of any number of them is a number.
const KEYS_END: u64 = 1 << 32;
const CHUNK_BUCKETS_MAX: usize = 256;
const CHUNK_BUCKETS_SPLIT: usize = 128;

const _: () = assert!(BUCKET_KEYS_MERGE < BUCKET_KEYS_SPLIT && 2 * BUCKET_KEYS_SPLIT <= BUCKET_KEYS_MAX);

/// Every row's key begins with this, since the first bucket's own key is empty.
const BUCKET_ROW: u8 = b'b';

#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Never empty, and no chunk in it is.
    chunks: Vec<Arc<Chunk>>,
    keys: u64,
}

#[derive(Clone, Debug)]
struct Chunk {
    keys: u64,
    buckets: Vec<Bucket>,
}

#[derive(Clone, Debug)]
struct Bucket {
    first: Bytes,
    keys: u64,
}

/// The bucket that a key falls into, as seen from it.
pub(crate) struct Place<'a> {
    pub keys_before: u64,
    pub first: &'a Bytes,
}

/// A bucket's row after a change; `None` when the bucket is gone.
pub(crate) type BucketChange = (Bytes, Option<u64>);

impl Counts {
    pub(crate) fn empty() -> Counts {
        let bucket = Bucket { first: Bytes::new(), keys: 0 };
        Counts { chunks: vec![Arc::new(Chunk { keys: 0, buckets: vec![bucket] })], keys: 0 }
    }

    pub(crate) fn load(view: &View) -> Result<Counts, StateError> {
        let mut buckets = Vec::new();
        let mut rows = view.scan(Column::Counts, &[BUCKET_ROW], Some(&[BUCKET_ROW + 1]));
        while let Some((key, value)) = rows.row() {
            let keys = value.try_into().ok().map(u64::from_be_bytes).filter(|keys| *keys < KEYS_END);
            let keys = keys.ok_or(damaged("count"))?;
            buckets.push(Bucket { first: Bytes::copy_from_slice(&key[1..]), keys });
            rows.step();
        }
        rows.finish()?;
        match buckets.first() {
            None => Ok(Counts::empty()),
            Some(bucket) if bucket.first.is_empty() => {
                let chunks: Vec<_> = buckets
                    .chunks(CHUNK_BUCKETS_SPLIT)
                    .map(|part| Arc::new(Chunk::of(part.to_vec())))
                    .collect();
                let keys = chunks.iter().map(|chunk| chunk.keys).sum();
                Ok(Counts { chunks, keys })
            }
            Some(_) => Err(damaged("count")),
        }
    }

    /// The key and value of a bucket's row.
    pub(crate) fn row_key(first: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(first.len() + 1);
        key.push(BUCKET_ROW);
        key.extend_from_slice(first);
        key
    }

    pub(crate) const fn keys(&self) -> u64 {
        self.keys
    }

    pub(crate) fn place(&self, key: &[u8]) -> Place<'_> {
        let (c, b) = self.locate(key);
        let chunk = &self.chunks[c];
        let in_chunks: u64 = self.chunks[..c].iter().map(|chunk| chunk.keys).sum();
        let in_buckets: u64 = chunk.buckets[..b].iter().map(|bucket| bucket.keys).sum();
        Place { keys_before: in_chunks + in_buckets, first: &chunk.buckets[b].first }
    }

    /// Notes that `key` was born; returns its bucket's first key.
    pub(crate) fn born(&mut self, key: &[u8]) -> Bytes {
        let (c, b) = self.locate(key);
        let chunk = Arc::make_mut(&mut self.chunks[c]);
        chunk.buckets[b].keys += 1;
        chunk.keys += 1;
        self.keys += 1;
        chunk.buckets[b].first.clone()
    }

    /// Notes that `key` has died; returns its bucket's first key.
    pub(crate) fn died(&mut self, key: &[u8]) -> Result<Bytes, StateError> {
        let (c, b) = self.locate(key);
        let chunk = Arc::make_mut(&mut self.chunks[c]);
        if chunk.buckets[b].keys == 0 {
            return Err(damaged("count"));
        }
        chunk.buckets[b].keys -= 1;
        chunk.keys -= 1;
        self.keys -= 1;
        Ok(chunk.buckets[b].first.clone())
    }

    /// Splits and merges the buckets that changed, and says how their rows must change.
    pub(crate) fn settle(
        &mut self,
        changed: BTreeSet<Bytes>,
        rows: &HeadRows<'_>,
    ) -> Result<Vec<BucketChange>, StateError> {
        let mut changes = Vec::with_capacity(changed.len());
        for first in changed {
            let (c, b) = self.locate(&first);
            let bucket = &self.chunks[c].buckets[b];
            // An earlier one of this round may have taken it in.
            if bucket.first != first {
                continue;
            }
            if BUCKET_KEYS_MAX < bucket.keys {
                self.split(c, b, rows, &mut changes)?;
            } else if !self.merge(c, b, &mut changes) {
                changes.push((first, Some(self.chunks[c].buckets[b].keys)));
            }
        }
        Ok(changes)
    }

    fn split(
        &mut self,
        c: usize,
        b: usize,
        rows: &HeadRows<'_>,
        changes: &mut Vec<BucketChange>,
    ) -> Result<(), StateError> {
        let Bucket { first, keys } = self.chunks[c].buckets[b].clone();
        let mut parts = vec![Bucket { first: first.clone(), keys: 0 }];
        let mut left = keys;
        rows.scan(&first, self.end(c, b).as_deref(), |key, _| {
            let full = parts.last().is_some_and(|part| part.keys == BUCKET_KEYS_SPLIT);
            // A rest too small to stand alone stays with the last part.
            if full && BUCKET_KEYS_MERGE < left {
                parts.push(Bucket { first: Bytes::copy_from_slice(key), keys: 0 });
            }
            if let Some(part) = parts.last_mut() {
                part.keys += 1;
            }
            left = left.saturating_sub(1);
            Ok(ControlFlow::Continue(()))
        })?;
        let walked: u64 = parts.iter().map(|part| part.keys).sum();
        if walked != keys {
            return Err(damaged("count"));
        }
        changes.extend(parts.iter().map(|part| (part.first.clone(), Some(part.keys))));
        let chunk = Arc::make_mut(&mut self.chunks[c]);
        chunk.buckets.splice(b..=b, parts);
        if CHUNK_BUCKETS_MAX < chunk.buckets.len() {
            let buckets = std::mem::take(&mut chunk.buckets);
            let parts = buckets.chunks(CHUNK_BUCKETS_SPLIT).map(|part| Arc::new(Chunk::of(part.to_vec())));
            let parts: Vec<_> = parts.collect();
            self.chunks.splice(c..=c, parts);
        }
        Ok(())
    }

    /// Joins a nearly empty bucket with the one before it. False when it stays.
    fn merge(&mut self, c: usize, b: usize, changes: &mut Vec<BucketChange>) -> bool {
        let (pc, pb) = match (c, b) {
            (0, 0) => return false,
            (_, 0) => (c - 1, self.chunks[c - 1].buckets.len() - 1),
            _ => (c, b - 1),
        };
        let keys = self.chunks[c].buckets[b].keys;
        let together = keys + self.chunks[pc].buckets[pb].keys;
        if 0 < keys && BUCKET_KEYS_MERGE < together {
            return false;
        }
        let chunk = Arc::make_mut(&mut self.chunks[c]);
        let gone = chunk.buckets.remove(b);
        chunk.keys -= keys;
        let previous = Arc::make_mut(&mut self.chunks[pc]);
        previous.buckets[pb].keys = together;
        previous.keys += keys;
        changes.push((gone.first, None));
        changes.push((previous.buckets[pb].first.clone(), Some(together)));
        if self.chunks[c].buckets.is_empty() {
            self.chunks.remove(c);
        }
        true
    }

    /// Where the bucket ends: at the next one's first key.
    fn end(&self, c: usize, b: usize) -> Option<Bytes> {
        let next = match self.chunks[c].buckets.get(b + 1) {
            Some(bucket) => Some(bucket),
            None => self.chunks.get(c + 1).and_then(|chunk| chunk.buckets.first()),
        };
        next.map(|bucket| bucket.first.clone())
    }

    fn locate(&self, key: &[u8]) -> (usize, usize) {
        let c = self.chunks.partition_point(|chunk| chunk.buckets[0].first.as_ref() <= key);
        let c = c.checked_sub(1).expect("the first bucket begins at the empty key");
        let b = self.chunks[c].buckets.partition_point(|bucket| bucket.first.as_ref() <= key);
        (c, b.checked_sub(1).expect("a chunk was chosen by its first bucket"))
    }
}

impl Chunk {
    fn of(buckets: Vec<Bucket>) -> Chunk {
        Chunk { keys: buckets.iter().map(|bucket| bucket.keys).sum(), buckets }
    }
}
