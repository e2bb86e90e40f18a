//! Everything that happens to the log, in one order, under one lock.
//!
//! A call changes the picture in memory ([`Tail`]), places its record ([`Writer`]) and queues what
//! is to be told when the record is safe. The flush thread takes all that is queued as one
//! [`Batch`] and reports back when it is synced. No call here waits or does I/O, so the lock is
//! held for the time it takes to copy an entry.

use super::codec;
use super::disk::LogFile;
use super::durable::{DurableLog, lower_of};
use super::failure::Failure;
use super::record::Kind;
use super::segment::Segment;
use super::tail::Tail;
use super::writer::{Opened, Placed, Step, Writer};
use crate::type_config::{Entry, LogId, TypeConfig, Vote};
use meerkat_types::LogIndex;
use openraft::storage::IOFlushed;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;

pub struct Ledger {
    pub tail: Tail,
    writer: Writer,
    completions: Vec<Completion>,
    /// Something queued must be synced before it counts.
    needs_sync: bool,
    has_vote: bool,
    /// Segments to remove once what is queued is synced.
    removals: Vec<u64>,
    /// The shortest the log was made by a truncate since the last batch was taken.
    truncated_to: Option<Option<LogId>>,
    durable: DurableLog,
    pub closing: bool,
    pub failure: Option<Failure>,
}

/// Who is told that a batch is safe, or why it is not.
pub enum Completion {
    Append(IOFlushed<TypeConfig>),
    Waiter(oneshot::Sender<io::Result<()>>),
}

impl Completion {
    pub fn tell(self, result: Result<(), &Failure>) {
        let result = result.map_err(Failure::to_error);
        match self {
            Completion::Append(callback) => callback.io_completed(result),
            // A caller that stopped waiting is no error: its record is in the log all the same.
            Completion::Waiter(sender) => drop(sender.send(result)),
        }
    }
}

/// What the flush thread does in one go.
pub struct Batch {
    pub steps: Vec<Step>,
    pub completions: Vec<Completion>,
    pub needs_sync: bool,
    pub has_vote: bool,
    pub removals: Vec<u64>,
    /// The end of the log once this batch is on disk.
    last: Option<LogId>,
    last_sequence: u64,
}

impl Ledger {
    pub fn new(tail: Tail, writer: Writer, durable: DurableLog) -> Ledger {
        Ledger {
            tail,
            writer,
            completions: Vec::new(),
            needs_sync: false,
            has_vote: false,
            removals: Vec::new(),
            truncated_to: None,
            durable,
            closing: false,
            failure: None,
        }
    }

    /// Refuses when the log has failed or is closing.
    pub fn check(&self) -> io::Result<()> {
        match (&self.failure, self.closing) {
            (Some(failure), _) => Err(failure.to_error()),
            (None, true) => Err(Failure::closed().to_error()),
            (None, false) => Ok(()),
        }
    }

    pub fn queued_bytes(&self) -> usize {
        self.writer.queued_bytes()
    }

    pub fn append(&mut self, entry: Entry) -> io::Result<()> {
        let log_id = entry.log_id;
        if let Some(expected) =
            self.tail.expected_index().filter(|expected| *expected != LogIndex(log_id.index))
        {
            let text = format!("entry {log_id} was appended where index {expected} is next");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let len = codec::entry_bytes(&entry);
        let placed = self.put(Kind::Entry, len, |out| codec::put_entry(out, &entry))?;
        self.tail.push_indexed(log_id, placed.offset);
        self.tail.push_cached(entry, placed.sequence);
        self.needs_sync = true;
        Ok(())
    }

    pub fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.put(Kind::Vote, codec::VOTE_BYTES, |out| codec::put_vote(out, vote))?;
        self.tail.positions.vote = Some(*vote);
        self.needs_sync = true;
        self.has_vote = true;
        Ok(())
    }

    /// Ordered with everything else, but never a reason to sync: it is only a hint for restart.
    pub fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let len = codec::optional_log_id_bytes(committed.as_ref());
        self.put(Kind::Committed, len, |out| codec::put_optional_log_id(out, committed.as_ref()))?;
        self.tail.positions.committed = committed;
        Ok(())
    }

    /// Says nothing, durably: a log that is there is told from one that was lost by its first segment.
    pub fn begin(&mut self) -> io::Result<()> {
        self.save_committed(None)?;
        self.needs_sync = true;
        Ok(())
    }

    pub fn truncate_after(&mut self, keep: Option<LogId>) -> io::Result<()> {
        let len = codec::optional_log_id_bytes(keep.as_ref());
        self.put(Kind::Truncate, len, |out| codec::put_optional_log_id(out, keep.as_ref()))?;
        self.tail.truncate_after(keep.as_ref());
        let last = self.tail.last();
        self.truncated_to = Some(match self.truncated_to {
            None => last,
            Some(earlier) => lower_of(earlier, last),
        });
        self.durable.lower(last);
        self.needs_sync = true;
        Ok(())
    }

    pub fn purge(&mut self, upto: LogId) -> io::Result<()> {
        if self.tail.positions.purged.is_some_and(|purged| upto.index <= purged.index) {
            return Ok(());
        }
        self.put(Kind::Purge, codec::LOG_ID_BYTES, |out| codec::put_log_id(out, &upto))?;
        self.tail.purge(upto);
        self.removals.extend(self.tail.take_unneeded_segments());
        self.needs_sync = true;
        Ok(())
    }

    /// Tells `completion` once everything before it is safe.
    pub fn when_synced(&mut self, completion: Completion) {
        self.completions.push(completion);
        self.needs_sync = true;
    }

    /// One last write after the last batch, see [`Writer::seal`].
    pub fn seal(&mut self) {
        self.writer.seal();
        self.needs_sync = self.writer.has_steps();
    }

    pub fn has_work(&self) -> bool {
        self.writer.has_steps() || !self.completions.is_empty()
    }

    pub fn take_batch(&mut self) -> Batch {
        self.truncated_to = None;
        Batch {
            steps: self.writer.take_steps(),
            completions: std::mem::take(&mut self.completions),
            needs_sync: std::mem::take(&mut self.needs_sync),
            has_vote: std::mem::take(&mut self.has_vote),
            removals: std::mem::take(&mut self.removals),
            last: self.tail.last(),
            last_sequence: self.writer.last_sequence(),
        }
    }

    /// New segments have files now, and can be read.
    pub fn created(&mut self, files: Vec<(u64, Arc<dyn LogFile>)>) {
        for (number, file) in files {
            // Gone already if it was purged in the meantime.
            if let Some(segment) = self.tail.segments.iter_mut().find(|segment| segment.number == number) {
                segment.file = Some(file);
            }
        }
    }

    /// A batch that needed a sync has had it.
    pub fn synced(&mut self, batch: &Batch) {
        self.tail.evict(batch.last_sequence);
        let durable = match self.truncated_to {
            None => batch.last,
            Some(last) => lower_of(last, batch.last),
        };
        self.durable.synced(durable);
    }

    /// Takes everybody who is still waiting, to be told of the failure.
    pub fn fail(&mut self, failure: Failure) -> Vec<Completion> {
        self.durable.end(failure.clone());
        self.failure.get_or_insert(failure);
        std::mem::take(&mut self.completions)
    }

    /// The log is closed: nobody need wait for more to become durable.
    pub fn end(&mut self) {
        self.durable.end(Failure::closed());
    }

    fn put(&mut self, kind: Kind, len: usize, payload: impl FnOnce(&mut Vec<u8>)) -> io::Result<Placed> {
        let placed = self.writer.put(kind, len, &self.tail.positions, payload)?;
        if let Some(Opened { number, salt }) = placed.opened {
            self.tail.segments.push_back(Segment::new(number, salt, None));
        }
        let segment = self.tail.segments.back_mut().expect("the record's segment");
        segment.end = self.writer.end();
        Ok(placed)
    }
}
