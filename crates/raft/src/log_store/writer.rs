//! Chooses where each record goes and encodes it there, without touching a disk.
//!
//! What it makes is a list of [`Step`]s that the flush thread carries out in order. Every write
//! begins with a mark whose number only the flush thread can know (what is synced by then), so room
//! is left for it. Every segment is made with the vote, the purge position and the commit position
//! of that moment in its head, so that the segments before it can go once their entries are purged.
//! Positions given out here are final: a step that is taken must be carried out or the log is lost.

use super::LogOptions;
use super::codec;
use super::record::{self, Kind, MARK_BYTES, record_bytes};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::type_config::{LogId, Vote};
use meerkat_types::{ClusterId, MemberId};
use std::io;

/// What is not an entry, and must survive the removal of old segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    pub committed: Option<LogId>,
}

pub enum Step {
    Create(Create),
    Write(Write),
}

/// A new segment, with its head.
pub struct Create {
    pub number: u64,
    pub len: u64,
    /// The header, then what a [`Write`] holds.
    header: SegmentHeader,
    records: Write,
}

impl Create {
    pub fn last_sequence(&self) -> u64 {
        self.records.last_sequence
    }

    /// The bytes the file begins with.
    pub fn head(mut self, synced: u64) -> Vec<u8> {
        self.records.fill_mark(synced);
        [&self.header.encode()[..], &self.records.bytes].concat()
    }
}

/// One write to one segment.
pub struct Write {
    pub salt: u64,
    pub at: u64,
    pub mark_sequence: u64,
    pub last_sequence: u64,
    pub bytes: Vec<u8>,
}

impl Write {
    /// Puts the number into the mark this write begins with.
    pub fn fill_mark(&mut self, synced: u64) {
        record::fill_mark(&mut self.bytes[..MARK_BYTES], self.salt, self.at, self.mark_sequence, synced);
    }
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub offset: u64,
    pub sequence: u64,
    /// The segment this record opened, if it did.
    pub opened: Option<Opened>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub number: u64,
    pub salt: u64,
}

pub struct Writer {
    cluster_id: ClusterId,
    member_id: MemberId,
    segment_bytes: u64,
    place: WritePosition,
    next_sequence: u64,
    steps: Vec<Step>,
    /// The last step is a write that more records may join.
    open: bool,
    queued_bytes: usize,
}

/// Where the next record goes. Before the first segment there is no room at all, so that the first
/// record opens one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WritePosition {
    pub number: u64,
    pub salt: u64,
    pub offset: u64,
    pub len: u64,
}

impl Writer {
    pub fn new(options: &LogOptions, place: WritePosition, next_sequence: u64) -> Writer {
        Writer {
            cluster_id: options.cluster_id,
            member_id: options.member_id,
            segment_bytes: options.segment_bytes,
            place,
            next_sequence,
            steps: Vec::new(),
            open: false,
            queued_bytes: 0,
        }
    }

    pub fn end(&self) -> u64 {
        self.place.offset
    }

    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Everything to do, in order. Later records begin a new write.
    pub fn take_steps(&mut self) -> Vec<Step> {
        self.open = false;
        self.queued_bytes = 0;
        std::mem::take(&mut self.steps)
    }

    /// Places one record of exactly `len` bytes of payload. `positions` are those from before this
    /// record. On an error nothing has changed.
    pub fn put(
        &mut self,
        kind: Kind,
        len: usize,
        positions: &Positions,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Placed> {
        if len > record::PAYLOAD_BYTES_MAX {
            let max = record::PAYLOAD_BYTES_MAX;
            let text = format!("a log record of {len} bytes is above the limit of {max}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let opened = (!self.fits(len)).then(|| self.roll(len, positions));
        self.ensure_open();
        let (offset, sequence) = self.put_here(kind, len, payload);
        Ok(Placed { offset, sequence, opened })
    }

    /// A last write that says everything before it is synced, if there is room for one: after an
    /// orderly end no damage can pass for a torn write.
    pub fn seal(&mut self) {
        if self.place.offset + MARK_BYTES as u64 <= self.place.len {
            self.ensure_open();
        }
    }

    fn fits(&self, len: usize) -> bool {
        let mark = if self.open { 0 } else { MARK_BYTES };
        self.place.offset + (mark + record_bytes(len)) as u64 <= self.place.len
    }

    fn roll(&mut self, len: usize, positions: &Positions) -> Opened {
        let head = SEGMENT_HEADER_BYTES + MARK_BYTES + positions_bytes(positions);
        let least = head + MARK_BYTES + record_bytes(len);
        let number = self.place.number + 1;
        let salt = rand::random();
        let first_sequence = self.next_sequence;
        self.place = WritePosition {
            number,
            salt,
            offset: SEGMENT_HEADER_BYTES as u64,
            len: self.segment_bytes.max(least as u64),
        };
        self.open = false;
        self.ensure_open();
        self.put_positions(positions);
        self.open = false;
        assert_eq!(self.place.offset, head as u64, "a head is as long as it was said to be");
        let Some(Step::Write(records)) = self.steps.pop() else {
            unreachable!("just opened");
        };
        let header = SegmentHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            number,
            first_sequence,
            salt,
            head_bytes: u32::try_from(head).expect("a few hundred bytes"),
        };
        self.steps.push(Step::Create(Create { number, len: self.place.len, header, records }));
        Opened { number, salt }
    }

    fn put_positions(&mut self, positions: &Positions) {
        if let Some(vote) = &positions.vote {
            self.put_here(Kind::Vote, codec::VOTE_BYTES, |out| codec::put_vote(out, vote));
        }
        if let Some(purged) = &positions.purged {
            self.put_here(Kind::Purge, codec::LOG_ID_BYTES, |out| codec::put_log_id(out, purged));
        }
        if positions.committed.is_some() {
            let committed = positions.committed.as_ref();
            let len = codec::optional_log_id_bytes(committed);
            self.put_here(Kind::Committed, len, |out| codec::put_optional_log_id(out, committed));
        }
    }

    fn ensure_open(&mut self) {
        if self.open {
            return;
        }
        let mark_sequence = self.next_sequence;
        self.steps.push(Step::Write(Write {
            salt: self.place.salt,
            at: self.place.offset,
            mark_sequence,
            last_sequence: mark_sequence,
            bytes: Vec::new(),
        }));
        self.open = true;
        self.put_here(Kind::Mark, 8, |out| out.extend_from_slice(&[0; 8]));
    }

    fn put_here(&mut self, kind: Kind, len: usize, payload: impl FnOnce(&mut Vec<u8>)) -> (u64, u64) {
        let Some(Step::Write(write)) = self.steps.last_mut() else {
            unreachable!("a write is open");
        };
        let (offset, sequence) = (self.place.offset, self.next_sequence);
        let before = write.bytes.len();
        write.bytes.reserve(record_bytes(len));
        record::put(&mut write.bytes, self.place.salt, offset, kind, sequence, payload);
        let took = write.bytes.len() - before;
        assert_eq!(took, record_bytes(len), "a record is as long as it was said to be");
        write.last_sequence = sequence;
        self.place.offset += took as u64;
        self.next_sequence += 1;
        self.queued_bytes += took;
        assert!(self.place.offset <= self.place.len, "a record stays inside its segment");
        (offset, sequence)
    }
}

fn positions_bytes(positions: &Positions) -> usize {
    positions.vote.map_or(0, |_| record_bytes(codec::VOTE_BYTES))
        + positions.purged.map_or(0, |_| record_bytes(codec::LOG_ID_BYTES))
        + positions.committed.map_or(0, |id| record_bytes(codec::optional_log_id_bytes(Some(&id))))
}
