//! The log as memory knows it: where every entry stands on disk, and the recent ones themselves.
//!
//! ```text
//!   purged │ first ……………… cached ……………… next        first ≤ cached ≤ next
//!          │ on disk only  │ in memory too │
//! ```
//!
//! An entry leaves memory only when the cache is above its bound *and* the entry is synced, so a
//! reader is never sent to bytes that are not on disk yet. Replication and apply follow the end of
//! the log and are served from memory. Nothing here touches a file: a read that needs one is given
//! a [`Plan`] to carry out after the lock is released.

use super::codec;
use super::disk::LogFile;
use super::segment::Segment;
use super::writer::Positions;
use crate::type_config::{Entry, LogId};
use meerkat_types::LogIndex;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes read from a file at once, unless one entry is longer: what one entry read from it
/// can keep in memory.
const SPAN_BYTES_MAX: u64 = 1 << 20;

/// What an entry costs in memory besides its payload.
const ENTRY_OVERHEAD_BYTES: usize = 96;

pub struct Tail {
    pub positions: Positions,
    pub segments: VecDeque<Segment>,
    first: LogIndex,
    next: LogIndex,
    /// The last entry, or the purge position when there is none.
    last: Option<LogId>,
    cache: VecDeque<Cached>,
    cache_bytes: usize,
    cache_bytes_max: usize,
}

struct Cached {
    entry: Entry,
    sequence: u64,
    bytes: usize,
}

/// How much a read may answer with.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub bytes: u64,
    pub entries: u64,
}

impl Limit {
    pub const NONE: Limit = Limit { bytes: u64::MAX, entries: u64::MAX };
}

/// A read: first what is on disk, then what was in memory when it was planned.
pub struct Plan {
    pub spans: Vec<Span>,
    pub cached: Vec<Entry>,
}

/// Neighbouring entries of one segment.
pub struct Span {
    pub file: Arc<dyn LogFile>,
    pub number: u64,
    pub salt: u64,
    pub first_index: LogIndex,
    /// Where each entry's record begins. Never empty.
    pub offsets: Vec<u32>,
    /// The last one ends here at the latest.
    pub end: u64,
}

impl Tail {
    pub fn new(cache_bytes_max: usize) -> Tail {
        Tail {
            positions: Positions::default(),
            segments: VecDeque::new(),
            first: LogIndex(0),
            next: LogIndex(0),
            last: None,
            cache: VecDeque::new(),
            cache_bytes: 0,
            cache_bytes_max,
        }
    }

    pub fn last(&self) -> Option<LogId> {
        self.last
    }

    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    pub fn first_index(&self) -> LogIndex {
        self.first
    }

    /// Which index an appended entry must have; `None` when any will do, in a log that never had one.
    pub fn expected_index(&self) -> Option<LogIndex> {
        self.last.map(|last| after(Some(&last)))
    }

    /// Adds an entry whose record stands in the last segment.
    pub fn push_indexed(&mut self, log_id: LogId, offset: u64) {
        let index = LogIndex(log_id.index);
        if self.is_empty() {
            self.first = index;
            self.next = index;
        }
        assert_eq!(index, self.next, "entries are consecutive");
        let segment = self.segments.back_mut().expect("a record stands in a segment");
        segment.push(index, offset);
        self.next = index.next();
        self.last = Some(log_id);
    }

    /// Keeps in memory the entry that was just pushed.
    pub fn push_cached(&mut self, entry: Entry, sequence: u64) {
        assert_eq!(after(Some(&entry.log_id)), self.next, "the entry just indexed");
        let bytes = codec::entry_bytes(&entry) + ENTRY_OVERHEAD_BYTES;
        self.cache_bytes += bytes;
        self.cache.push_back(Cached { entry, sequence, bytes });
    }

    /// Drops entries from memory, oldest first, as far as they are synced and the bound asks for it.
    pub fn evict(&mut self, synced: u64) {
        while self.cache_bytes > self.cache_bytes_max {
            match self.cache.front() {
                Some(oldest) if oldest.sequence <= synced => self.pop_cached_front(),
                _ => return,
            }
        }
    }

    /// Forgets every entry above `keep`.
    pub fn truncate_after(&mut self, keep: Option<&LogId>) {
        let end = after(keep);
        if self.next <= end {
            return;
        }
        for segment in &mut self.segments {
            segment.truncate_from(end);
        }
        while self.cache.back().is_some_and(|cached| end <= LogIndex(cached.entry.log_id.index)) {
            let cached = self.cache.pop_back().expect("just seen");
            self.cache_bytes -= cached.bytes;
        }
        if self.first < end {
            self.next = end;
            self.last = keep.copied();
        } else {
            // Nothing is left; the log goes on after what was purged.
            self.last = self.positions.purged;
            self.first = after(self.last.as_ref());
            self.next = self.first;
        }
    }

    /// Forgets every entry up to `upto`, which may be above the last one: then the log goes on
    /// after it.
    pub fn purge(&mut self, upto: LogId) {
        self.positions.purged = Some(upto);
        while self.cache.front().is_some_and(|cached| cached.entry.log_id.index <= upto.index) {
            self.pop_cached_front();
        }
        let first = after(Some(&upto));
        if first < self.next {
            self.first = self.first.max(first);
            return;
        }
        for segment in &mut self.segments {
            segment.offsets.clear();
        }
        self.first = first;
        self.next = first;
        self.last = Some(upto);
    }

    /// Takes out the oldest segments that hold nothing above the purge position. The last segment
    /// always stays.
    pub fn take_unneeded_segments(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let Some(purged) = self.positions.purged else {
            return numbers;
        };
        while self.segments.len() > 1 && self.segments[0].ends_within(LogIndex(purged.index)) {
            numbers.extend(self.segments.pop_front().map(|segment| segment.number));
        }
        numbers
    }

    /// Bytes of records on disk.
    pub fn total_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes_from(LogIndex(0))).sum()
    }

    /// Bytes of records written after the entry at `index`.
    pub fn bytes_since(&self, index: LogIndex) -> u64 {
        let from = LogIndex(index.0.saturating_add(1));
        let newer = self.segments.iter().rev();
        // The first segment, from the end, that begins at or before the entry is the last to count.
        let mut bytes = 0;
        for segment in newer {
            bytes += segment.bytes_from(from);
            if !segment.offsets.is_empty() && segment.first_index <= from {
                break;
            }
        }
        bytes
    }

    /// Plans a read of what there is in `range`, up to a limit but at least one entry.
    pub fn plan(&self, range: Range<LogIndex>, limit: Limit) -> io::Result<Plan> {
        let mut plan = Plan { spans: Vec::new(), cached: Vec::new() };
        let start = range.start.max(self.first);
        let end = range.end.min(self.next);
        if end <= start {
            return Ok(plan);
        }
        let end = end.min(LogIndex(start.0.saturating_add(limit.entries.max(1))));
        let cached_first = LogIndex(self.next.0 - self.cache.len() as u64);
        let disk_end = end.min(cached_first);
        let mut left = limit.bytes;
        if start < disk_end && !self.plan_spans(start..disk_end, &mut left, &mut plan.spans)? {
            return Ok(plan);
        }
        let mut index = start.max(cached_first);
        while index < end {
            let cached = &self.cache[usize::try_from(index.since(cached_first)).expect("in the cache")];
            let bytes = cached.bytes as u64;
            if left < bytes && start < index {
                break;
            }
            left = left.saturating_sub(bytes);
            plan.cached.push(cached.entry.clone());
            index = index.next();
        }
        Ok(plan)
    }

    /// Whether all of `range` fitted into the limit.
    fn plan_spans(&self, range: Range<LogIndex>, left: &mut u64, spans: &mut Vec<Span>) -> io::Result<bool> {
        let mut index = range.start;
        let begins_after =
            |segment: &Segment| segment.offsets.is_empty() || segment.end_index() <= range.start;
        for segment in self.segments.iter().skip_while(|segment| begins_after(segment)) {
            while index < range.end && !segment.offsets.is_empty() && index < segment.end_index() {
                let place = usize::try_from(index.since(segment.first_index)).expect("in the segment");
                let most = usize::try_from(range.end.since(index)).unwrap_or(usize::MAX);
                let count = segment.entries_within(place, most, SPAN_BYTES_MAX.min(*left));
                if count == 0 && !spans.is_empty() {
                    return Ok(false);
                }
                let span = segment.span(place, count.max(1))?;
                *left = left.saturating_sub(span.end - u64::from(span.offsets[0]));
                index = index + span.offsets.len() as u64;
                spans.push(span);
            }
        }
        if index < range.end {
            return Err(io::Error::other(format!("entry {index} is in no segment")));
        }
        Ok(true)
    }

    fn pop_cached_front(&mut self) {
        if let Some(cached) = self.cache.pop_front() {
            self.cache_bytes -= cached.bytes;
        }
    }
}

/// The index after this position; 0 after none.
fn after(id: Option<&LogId>) -> LogIndex {
    id.map_or(LogIndex(0), |id| LogIndex(id.index + 1))
}

impl Segment {
    /// How many entries from `place` on, at most `most`, fit into this many bytes.
    fn entries_within(&self, place: usize, most: usize, bytes: u64) -> usize {
        let start = u64::from(self.offsets[place]);
        let last = self.offsets.len().min(place.saturating_add(most));
        (place..last).take_while(|i| self.entry_end(*i) - start <= bytes).count()
    }

    /// Where the record at `place` ends at the latest.
    fn entry_end(&self, place: usize) -> u64 {
        self.offsets.get(place + 1).map_or(self.end, |next| u64::from(*next))
    }

    fn span(&self, place: usize, count: usize) -> io::Result<Span> {
        Ok(Span {
            file: self.readable()?,
            number: self.number,
            salt: self.salt,
            first_index: self.first_index + place as u64,
            offsets: self.offsets[place..place + count].to_vec(),
            end: self.entry_end(place + count - 1),
        })
    }
}
