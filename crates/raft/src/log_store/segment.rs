//! A segment: one file of the log, its name and its header.
//!
//! The header names the cluster and the member the log belongs to, so that a directory moved or
//! restored to the wrong place is refused before a single record of it counts. It also carries the
//! segment's salt and the sequence of its first record; the latter shows when the end of the
//! segment before it is missing.
//!
//! A segment has its whole head from the moment it has its name: the header, a mark, and the vote,
//! purge position and commit position of that moment. It is made in one durable step, so a crash
//! can never leave a segment that stands for older ones without what they knew.

use super::disk::LogFile;
use meerkat_types::{ClusterId, LogIndex, MemberId};
use std::io;
use std::sync::Arc;

pub const SEGMENT_HEADER_BYTES: usize = 64;

/// The version this code writes. Older ones it reads; newer ones it refuses.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"MEERKATL";
const SUFFIX: &str = ".log";

/// What the first 64 bytes of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub cluster_id: ClusterId,
    pub member_id: MemberId,
    /// Position in the sequence of segments, from 1, without gaps.
    pub number: u64,
    pub first_sequence: u64,
    /// Random; seeds every record's checksum.
    pub salt: u64,
    /// Where the head ends. What is before this offset was durable before the segment had a name.
    pub head_bytes: u32,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.head_bytes.to_le_bytes());
        let numbers = [self.cluster_id.0, self.member_id.0, self.number, self.first_sequence, self.salt];
        for (i, number) in numbers.into_iter().enumerate() {
            bytes[16 + i * 8..24 + i * 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The error says what is wrong, for a caller who adds which file it is.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, String> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err("it is too short to hold a segment header".to_owned());
        };
        if bytes[..8] != MAGIC {
            return Err("it does not begin as a log segment does".to_owned());
        }
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if version > FORMAT_VERSION {
            return Err(format!(
                "it has format version {version}, this program reads up to {FORMAT_VERSION}: start a newer one"
            ));
        }
        let crc = u32::from_le_bytes(bytes[60..].try_into().expect("four bytes"));
        if crc != crc32c::crc32c(&bytes[..60]) {
            return Err("the checksum of its header does not match".to_owned());
        }
        let number =
            |i: usize| u64::from_le_bytes(bytes[16 + i * 8..24 + i * 8].try_into().expect("eight bytes"));
        Ok(SegmentHeader {
            cluster_id: ClusterId(number(0)),
            member_id: MemberId(number(1)),
            number: number(2),
            first_sequence: number(3),
            salt: number(4),
            head_bytes: u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")),
        })
    }
}

/// The name of a segment's file. Names sort as numbers do.
pub fn file_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The number of a segment's file, or `None` for any other file.
pub fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

/// A segment as the index knows it: its live entries and where they stand.
pub struct Segment {
    pub number: u64,
    pub salt: u64,
    /// `None` until the flush thread has made the file; its entries are all in the cache until then.
    pub file: Option<Arc<dyn LogFile>>,
    /// Log index of `offsets[0]`. Means nothing while `offsets` is empty.
    pub first_index: LogIndex,
    /// Where the record of each live entry begins. Consecutive entries; 4 bytes each, as a segment
    /// stays below 4 GiB.
    pub offsets: Vec<u32>,
    /// One past the last record.
    pub end: u64,
}

impl Segment {
    pub fn new(number: u64, salt: u64, file: Option<Arc<dyn LogFile>>) -> Segment {
        Segment {
            number,
            salt,
            file,
            first_index: LogIndex(0),
            offsets: Vec::new(),
            end: SEGMENT_HEADER_BYTES as u64,
        }
    }

    pub fn push(&mut self, index: LogIndex, offset: u64) {
        if self.offsets.is_empty() {
            self.first_index = index;
        }
        assert_eq!(index, self.end_index(), "entries of a segment are consecutive");
        self.offsets.push(u32::try_from(offset).expect("segments are below 4 GiB"));
    }

    /// One past the last live entry. Only of use when there is one.
    pub fn end_index(&self) -> LogIndex {
        self.first_index + self.offsets.len() as u64
    }

    /// Forgets the entries from `index` on.
    pub fn truncate_from(&mut self, index: LogIndex) {
        let keep = index.since(self.first_index).min(self.offsets.len() as u64);
        self.offsets.truncate(usize::try_from(keep).expect("at most the length"));
    }

    /// No entry above `purged` is in this segment.
    pub fn ends_within(&self, purged: LogIndex) -> bool {
        self.offsets.is_empty() || self.end_index() <= purged.next()
    }

    /// Bytes of records from the entry `index` on, or all when it is before this segment.
    pub fn bytes_from(&self, index: LogIndex) -> u64 {
        if self.offsets.is_empty() || index <= self.first_index {
            return self.end - SEGMENT_HEADER_BYTES as u64;
        }
        let place = usize::try_from(index.since(self.first_index)).unwrap_or(usize::MAX);
        self.offsets.get(place).map_or(0, |offset| self.end - u64::from(*offset))
    }

    /// The file, for reading entries that are no longer in memory.
    pub fn readable(&self) -> io::Result<Arc<dyn LogFile>> {
        let missing = || io::Error::other(format!("segment {} is read before it exists", self.number));
        self.file.clone().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        cluster_id: ClusterId(1),
        member_id: MemberId(2),
        number: 3,
        first_sequence: 4,
        salt: 5,
        head_bytes: 88,
    };

    #[test]
    fn a_header_reads_back() {
        assert_eq!(SegmentHeader::decode(&HEADER.encode()), Ok(HEADER));
    }

    #[test]
    fn any_flipped_bit_of_a_header_is_noticed() {
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut bytes = HEADER.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_its_version() {
        let mut bytes = HEADER.encode();
        bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
        let text = SegmentHeader::decode(&bytes).expect_err("newer");
        assert!(text.contains("format version 2"), "{text}");
    }

    #[test]
    fn only_segments_have_segment_names() {
        assert_eq!(number_of(&file_name(0xabc)), Some(0xabc));
        for name in ["1.log", "0000000000000001.log.tmp", "LOCK", "000000000000000A.log"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn bytes_are_counted_from_an_entry() {
        let mut segment = Segment::new(1, 0, None);
        segment.push(LogIndex(10), 64);
        segment.push(LogIndex(11), 100);
        segment.end = 164;
        for (index, bytes) in [(5, 100), (10, 100), (11, 64), (12, 0)] {
            assert_eq!(segment.bytes_from(LogIndex(index)), bytes, "from {index}");
        }
    }
}
