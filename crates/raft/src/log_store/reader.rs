//! Reads entries: from memory where they are recent, else from their segment.
//!
//! A read decides what it will answer under the ledger's lock, so it is atomic, and does its file
//! I/O after releasing it, off the async threads. Every record read from disk is checked against
//! its checksum and its index: a damaged entry is an error, never data. Segments purged meanwhile
//! stay readable for the reads that were planned before, as their files are open.

use super::codec;
use super::disk::LogFile;
use super::flusher::LogShared;
use super::record::{self, Found, HEADER_BYTES, Kind, record_bytes};
use super::tail::{Limit, Plan, Span};
use crate::type_config::{Entry, TypeConfig, Vote};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use meerkat_types::LogIndex;
use openraft::{OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

/// What one answer to replication or apply may weigh. A message to a peer carries one answer.
const ANSWER: Limit = Limit { bytes: 2 << 20, entries: 4096 };

/// Reads the log. Clones are cheap.
#[derive(Clone)]
pub struct LogReader {
    pub(super) shared: Arc<LogShared>,
}

impl LogReader {
    async fn read(&self, range: Range<LogIndex>, limit: Limit) -> io::Result<Vec<Entry>> {
        let plan = {
            let ledger = self.shared.ledger.lock();
            if let Some(failure) = &ledger.failure {
                return Err(failure.to_error());
            }
            ledger.tail.plan(range, limit)?
        };
        if plan.spans.is_empty() {
            return Ok(plan.cached);
        }
        let read = crate::threads::spawn_blocking_part("raft", move || read_plan(plan));
        read.await.map_err(io::Error::other)?
    }
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        self.read(half_open(&range), Limit::NONE).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.ledger.lock().tail.positions.vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(LogIndex(start)..LogIndex(end), ANSWER).await
    }

    /// In bounded pieces: what is applied after a restart may be larger than memory.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let state = (self.clone(), half_open(&range));
        stream::try_unfold(state, |(reader, range)| async move {
            let entries = reader.read(range.clone(), ANSWER).await?;
            let Some(last) = entries.last() else {
                return Ok::<_, io::Error>(None);
            };
            let rest = LogIndex(last.log_id.index + 1)..range.end;
            Ok(Some((stream::iter(entries).map(Ok::<_, io::Error>), (reader, rest))))
        })
        .try_flatten()
        .boxed()
    }
}

fn half_open(range: &impl RangeBounds<u64>) -> Range<LogIndex> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    LogIndex(start)..LogIndex(end)
}

fn read_plan(plan: Plan) -> io::Result<Vec<Entry>> {
    let count = plan.spans.iter().map(|span| span.offsets.len()).sum::<usize>() + plan.cached.len();
    let mut entries = Vec::with_capacity(count);
    for span in &plan.spans {
        read_span(span, &mut entries)?;
    }
    entries.extend(plan.cached);
    Ok(entries)
}

fn read_span(span: &Span, entries: &mut Vec<Entry>) -> io::Result<()> {
    let start = u64::from(span.offsets[0]);
    let last = u64::from(span.offsets[span.offsets.len() - 1]);
    let end = record_end(span.file.as_ref(), last, span.end)?;
    let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    span.file.read_exact_at(&mut bytes, start)?;
    let bytes = Bytes::from(bytes);
    for (i, offset) in span.offsets.iter().enumerate() {
        let index = span.first_index + i as u64;
        let place = usize::try_from(u64::from(*offset) - start).map_err(io::Error::other)?;
        let Found::Record(found) = record::find(&bytes[place..], span.salt, u64::from(*offset)) else {
            return Err(damaged(span, *offset, index));
        };
        let entry = codec::decode_entry(&bytes.slice_ref(found.payload))?;
        if found.kind != Kind::Entry || entry.log_id.index != index.0 {
            return Err(damaged(span, *offset, index));
        }
        entries.push(entry);
    }
    Ok(())
}

/// Where the record at `at` ends by its own word, which its checksum will confirm or not. What
/// follows an entry may be long and dead, so it is not read.
fn record_end(file: &dyn LogFile, at: u64, at_most: u64) -> io::Result<u64> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, at)?;
    let len = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
    Ok(at_most.min(at + record_bytes(len as usize) as u64))
}

fn damaged(span: &Span, offset: u32, index: LogIndex) -> io::Error {
    let text = format!(
        "entry {index} of the log is damaged on disk, in segment {:016x} at offset {offset}",
        span.number
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
