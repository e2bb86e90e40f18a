//! Reads the segments back, and decides what of them counts.
//!
//! Records are taken in order until one is not whole. What that means depends on what follows:
//!
//! * Only zeros: the log ends here.
//! * In the last segment, behind its head, with no later mark that speaks for it: a write the crash cut short. Pages
//!   of one write may reach the disk in any order, so whole records behind the hole prove nothing.
//!   It was never acknowledged; it is cut off, durably, before anything new is written.
//! * Anything else: it had been synced, and is damaged. The log is refused, with the place named;
//!   to drop acknowledged entries in silence is the one thing a log must never do.
//!
//! What no scan can tell is damage to the very last synced write after a crash: no mark came after
//! it. After an orderly close there is always a later mark.

use super::LogOptions;
use super::codec;
use super::disk::{LogDisk, LogFile};
use super::record::{self, Found, Kind, MARK_BYTES, Record};
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, file_name, number_of};
use super::tail::Tail;
use super::writer::{WritePosition, Writer};
use meerkat_types::LogIndex;
use std::io;
use std::sync::Arc;

/// The log as it stood, and where to go on.
pub struct Recovered {
    pub tail: Tail,
    pub writer: Writer,
    /// The segment to go on in, if there is one.
    pub file: Option<Arc<dyn LogFile>>,
    pub last_sequence: u64,
}

pub fn recover(disk: &dyn LogDisk, options: &LogOptions) -> io::Result<Recovered> {
    let numbers = segment_numbers(disk)?;
    let mut scan = Scan {
        disk,
        tail: Tail::new(options.cache_bytes),
        next_sequence: 1,
        place: WritePosition::default(),
    };
    let mut last_file = None;
    for (i, number) in numbers.iter().enumerate() {
        let is_last = i + 1 == numbers.len();
        let file = disk.open(&file_name(*number))?;
        scan.segment(options, *number, &file, i == 0, is_last)?;
        if is_last {
            // A process that was killed may have left these bytes in memory only. From here on
            // they are called durable.
            file.sync_data()?;
            last_file = Some(file);
        }
    }
    scan.check_complete(numbers.first().copied())?;
    let writer = Writer::new(options, scan.place, scan.next_sequence);
    let last_sequence = scan.next_sequence - 1;
    Ok(Recovered { tail: scan.tail, writer, file: last_file, last_sequence })
}

fn segment_numbers(disk: &dyn LogDisk) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk.list()?.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    for pair in numbers.windows(2) {
        if pair[0] + 1 != pair[1] {
            let missing = disk.describe(&file_name(pair[0] + 1));
            return Err(refuse(format!("log segment {missing} is missing between two others; {WHAT_TO_DO}")));
        }
    }
    Ok(numbers)
}

const WHAT_TO_DO: &str = "do not start this member with this log: remove the member from the cluster \
     and add it again with an empty data directory, or restore the directory from a backup";

struct Scan<'a> {
    disk: &'a dyn LogDisk,
    tail: Tail,
    next_sequence: u64,
    place: WritePosition,
}

impl Scan<'_> {
    fn segment(
        &mut self,
        options: &LogOptions,
        number: u64,
        file: &Arc<dyn LogFile>,
        is_first: bool,
        is_last: bool,
    ) -> io::Result<()> {
        let len = file.len()?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        let header = SegmentHeader::decode(&bytes).map_err(|why| self.refuse_file(number, &why))?;
        self.check_header(options, &header, number, is_first)?;
        self.next_sequence = header.first_sequence;
        self.tail.segments.push_back(Segment::new(number, header.salt, Some(file.clone())));
        let mut at = SEGMENT_HEADER_BYTES;
        let end = loop {
            match record::find(&bytes[at..], header.salt, at as u64) {
                Found::Record(found) => {
                    self.record(&found, at, number)?;
                    at += found.bytes;
                }
                Found::UnknownKind(code) => {
                    let why = format!(
                        "the record at offset {at} has the unknown kind {code}: start a newer program"
                    );
                    return Err(refuse(format!("log segment {}: {why}", self.describe(number))));
                }
                Found::Nothing if is_zeros(&bytes[at..]) && at >= header.head_bytes as usize => break at,
                Found::Nothing => break self.broken(file, &bytes, at, &header, is_last, "missing")?,
                Found::Broken(why) => break self.broken(file, &bytes, at, &header, is_last, why)?,
            }
        };
        if let Some(segment) = self.tail.segments.back_mut() {
            segment.end = end as u64;
        }
        self.place = WritePosition { number, salt: header.salt, offset: end as u64, len };
        Ok(())
    }

    fn check_header(
        &self,
        options: &LogOptions,
        header: &SegmentHeader,
        number: u64,
        is_first: bool,
    ) -> io::Result<()> {
        if (header.cluster_id, header.member_id) != (options.cluster_id, options.member_id) {
            return Err(self.refuse_file(
                number,
                &format!(
                    "it belongs to member {} of cluster {}, not to member {} of cluster {}",
                    header.member_id, header.cluster_id, options.member_id, options.cluster_id
                ),
            ));
        }
        if header.number != number {
            return Err(self.refuse_file(number, &format!("it is segment {} by its header", header.number)));
        }
        if !is_first && header.first_sequence != self.next_sequence {
            let why = format!(
                "it begins with record {}, but the segment before it ends before record {}",
                header.first_sequence, self.next_sequence
            );
            return Err(self.refuse_file(number, &why));
        }
        Ok(())
    }

    fn record(&mut self, found: &Record<'_>, at: usize, number: u64) -> io::Result<()> {
        if found.sequence != self.next_sequence {
            let why = format!(
                "record {} stands at offset {at}, where record {} belongs",
                found.sequence, self.next_sequence
            );
            return Err(self.refuse_file(number, &why));
        }
        self.next_sequence += 1;
        self.replay(found, at)
            .map_err(|err| self.refuse_file(number, &format!("the record at offset {at} is wrong: {err}")))
    }

    fn replay(&mut self, found: &Record<'_>, at: usize) -> io::Result<()> {
        match found.kind {
            Kind::Mark => drop(record::mark_synced(found.payload)?),
            Kind::Vote => self.tail.positions.vote = Some(codec::decode_vote(found.payload)?),
            Kind::Committed => {
                self.tail.positions.committed = codec::decode_optional_log_id(found.payload)?;
            }
            Kind::Truncate => {
                self.tail.truncate_after(codec::decode_optional_log_id(found.payload)?.as_ref());
            }
            Kind::Purge => self.tail.purge(codec::decode_log_id(found.payload)?),
            Kind::Entry => {
                let log_id = codec::decode_entry_log_id(found.payload)?;
                // A log that begins with this segment may begin anywhere: the entries before it
                // are purged, as a later record will say.
                let expected = self.tail.expected_index().filter(|_| !self.tail.is_empty());
                if expected.is_some_and(|expected| expected != LogIndex(log_id.index)) {
                    return Err(refuse(format!("entry {log_id} is out of order")));
                }
                self.tail.push_indexed(log_id, at as u64);
            }
        }
        Ok(())
    }

    /// A record that is not whole: cuts off a torn write and answers where the log ends, or
    /// refuses a damaged log.
    fn broken(
        &self,
        file: &Arc<dyn LogFile>,
        bytes: &[u8],
        at: usize,
        header: &SegmentHeader,
        is_last: bool,
        why: &str,
    ) -> io::Result<usize> {
        let number = header.number;
        if !is_last {
            let why = format!("the record at offset {at} is damaged ({why}), though a later segment exists");
            return Err(self.refuse_file(number, &why));
        }
        if at < header.head_bytes as usize {
            let why = format!("the record at offset {at}, in the head of the segment, is damaged ({why})");
            return Err(self.refuse_file(number, &why));
        }
        if let Some(proof) = later_mark(bytes, at, header.salt, self.next_sequence) {
            let why = format!(
                "the record at offset {at} is damaged ({why}), though the mark at offset {proof} says it was synced"
            );
            return Err(self.refuse_file(number, &why));
        }
        let torn = bytes[at..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        tracing::warn!(
            segment = self.describe(number),
            offset = at,
            bytes = torn,
            "cutting off a write that a crash left unfinished ({why})"
        );
        file.clear_from(at as u64)?;
        Ok(at)
    }

    /// Entries missing at the front, which no single segment can show.
    fn check_complete(&self, first_number: Option<u64>) -> io::Result<()> {
        let purged = self.tail.positions.purged;
        let begins_right = match purged {
            Some(purged) => self.tail.first_index() == LogIndex(purged.index + 1),
            // Without a purge no segment was ever removed.
            None => first_number.is_none_or(|number| number == 1),
        };
        if begins_right {
            return Ok(());
        }
        let name = self.describe(first_number.unwrap_or(1));
        let first = self.tail.first_index();
        Err(refuse(format!(
            "the log begins at {name} with entry {first}, but entries are purged only up to {purged:?}: \
             older segments are missing; {WHAT_TO_DO}"
        )))
    }

    fn describe(&self, number: u64) -> String {
        self.disk.describe(&file_name(number))
    }

    fn refuse_file(&self, number: u64, why: &str) -> io::Error {
        refuse(format!("log segment {} cannot be used: {why}; {WHAT_TO_DO}", self.describe(number)))
    }
}

/// The offset of a mark behind `at` which says that the record with this sequence was synced.
fn later_mark(bytes: &[u8], at: usize, salt: u64, sequence: u64) -> Option<usize> {
    let places = (at + 8..).step_by(8).take_while(|place| place + MARK_BYTES <= bytes.len());
    places.into_iter().find(|place| {
        match record::find(&bytes[*place..*place + MARK_BYTES], salt, *place as u64) {
            Found::Record(Record { kind: Kind::Mark, payload, .. }) => {
                record::mark_synced(payload).is_ok_and(|synced| sequence <= synced)
            }
            _ => false,
        }
    })
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn refuse(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
