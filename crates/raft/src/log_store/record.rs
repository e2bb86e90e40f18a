//! The framing of one record in a segment: where it ends, and whether it is whole.
//!
//! ```text
//! 0        4        8                16
//! +--------+--------+------+---------+---------+---------+
//! | crc    | len    | kind | sequence| payload | padding |     little endian, 8-byte aligned
//! +--------+--------+------+---------+---------+---------+
//!   u32      u32      u8     u56       len       0..7 zeros
//! ```
//!
//! The checksum (CRC32C) covers everything after itself, padding included, and is seeded with the
//! segment's random salt and the record's offset. So bytes that look like a record but were
//! carried inside a client's value, moved, or left from another segment, never pass for one.
//! Sequences are dense over all segments. A reader must never use a payload this module did not
//! hand out.

use std::io;

/// Length of crc, length, kind and sequence together.
pub const HEADER_BYTES: usize = 16;

/// Largest payload of one record. A proposal is at most a few MiB; this bounds what a damaged
/// length can make recovery believe.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// A mark is a record whose payload is one number, see [`Kind::Mark`].
pub const MARK_BYTES: usize = record_bytes(8);

const SEQUENCE_BITS: u32 = 56;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

const _: () = assert!(HEADER_BYTES.is_multiple_of(8));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Begins every write: the sequence up to which all records were synced when it was written.
    /// A later mark is the proof that an earlier record had been safe on disk.
    Mark,
    Vote,
    Entry,
    Committed,
    Truncate,
    Purge,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Kind::Mark => 1,
            Kind::Vote => 2,
            Kind::Entry => 3,
            Kind::Committed => 4,
            Kind::Truncate => 5,
            Kind::Purge => 6,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        [Kind::Mark, Kind::Vote, Kind::Entry, Kind::Committed, Kind::Truncate, Kind::Purge]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// What a record takes on disk for a payload of this length.
pub const fn record_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(8)
}

/// Appends a record to `buffer`, which will be written so that the record begins at `at`.
pub fn put(
    buffer: &mut Vec<u8>,
    salt: u64,
    at: u64,
    kind: Kind,
    sequence: u64,
    payload: impl FnOnce(&mut Vec<u8>),
) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER_BYTES]);
    payload(buffer);
    let len = buffer.len() - start - HEADER_BYTES;
    assert!(len <= PAYLOAD_BYTES_MAX, "the writer refuses longer ones");
    buffer.resize(start + record_bytes(len), 0);
    fill_header(&mut buffer[start..], salt, at, kind, sequence, len);
}

/// Rewrites the number of a mark that `put` made room for.
pub fn fill_mark(record: &mut [u8], salt: u64, at: u64, sequence: u64, synced: u64) {
    assert_eq!(record.len(), MARK_BYTES, "a mark has one size");
    record[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&synced.to_le_bytes());
    fill_header(record, salt, at, Kind::Mark, sequence, 8);
}

fn fill_header(record: &mut [u8], salt: u64, at: u64, kind: Kind, sequence: u64, len: usize) {
    assert!(sequence <= SEQUENCE_MASK, "sequences fit 56 bits");
    let tagged = (u64::from(kind.code()) << SEQUENCE_BITS) | sequence;
    record[4..8].copy_from_slice(&u32::try_from(len).expect("below the payload limit").to_le_bytes());
    record[8..16].copy_from_slice(&tagged.to_le_bytes());
    let crc = checksum(salt, at, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(salt: u64, at: u64, covered: &[u8]) -> u32 {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&salt.to_le_bytes());
    seed[8..].copy_from_slice(&at.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&seed), covered)
}

/// A whole record, its payload in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub kind: Kind,
    pub sequence: u64,
    pub payload: &'a [u8],
    /// On disk, header and padding included.
    pub bytes: usize,
}

/// What stands where a record could begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Record(Record<'a>),
    /// Never written, as far as these 16 bytes tell; or the end of the file.
    Nothing,
    /// Not a whole record: torn, or damaged.
    Broken(&'static str),
    /// Whole, but of a kind this version does not know.
    UnknownKind(u8),
}

/// Looks for a record at the start of `bytes`, which stand at offset `at` of the segment.
pub fn find(bytes: &[u8], salt: u64, at: u64) -> Found<'_> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return if bytes.iter().all(|byte| *byte == 0) {
            Found::Nothing
        } else {
            Found::Broken("cut off in its header")
        };
    };
    if header.iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    let len = u32_at(header, 4) as usize;
    if len > PAYLOAD_BYTES_MAX {
        return Found::Broken("impossible length");
    }
    let Some(record) = bytes.get(..record_bytes(len)) else {
        return Found::Broken("longer than what is left of the file");
    };
    if checksum(salt, at, &record[4..]) != u32_at(record, 0) {
        return Found::Broken("checksum mismatch");
    }
    let tagged = u64_at(record, 8);
    let code = (tagged >> SEQUENCE_BITS) as u8;
    let Some(kind) = Kind::from_code(code) else {
        return Found::UnknownKind(code);
    };
    Found::Record(Record {
        kind,
        sequence: tagged & SEQUENCE_MASK,
        payload: &record[HEADER_BYTES..HEADER_BYTES + len],
        bytes: record.len(),
    })
}

/// The number a mark carries.
pub fn mark_synced(payload: &[u8]) -> io::Result<u64> {
    match payload.try_into() {
        Ok(number) => Ok(u64::from_le_bytes(number)),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a mark that is not 8 bytes long")),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x1234_5678_9abc_def0;

    fn encode(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, SALT, 64, Kind::Entry, 7, |out| out.extend_from_slice(payload));
        bytes
    }

    #[test]
    fn a_record_is_found_where_it_was_put() {
        for len in 0..40 {
            let bytes = encode(&vec![b'x'; len]);
            let Found::Record(record) = find(&bytes, SALT, 64) else {
                panic!("no record of {len} bytes");
            };
            assert_eq!(
                (record.kind, record.sequence, record.payload.len(), record.bytes),
                (Kind::Entry, 7, len, bytes.len())
            );
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = encode(b"a payload that needs padding");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(find(&flipped, SALT, 64), Found::Broken(_)), "bit {bit}");
        }
    }

    #[test]
    fn a_record_moved_or_from_another_segment_does_not_count() {
        let bytes = encode(b"x");
        assert!(matches!(find(&bytes, SALT, 72), Found::Broken(_)));
        assert!(matches!(find(&bytes, SALT + 1, 64), Found::Broken(_)));
    }

    #[test]
    fn zeros_are_nothing() {
        assert_eq!(find(&[0; 64], SALT, 64), Found::Nothing);
        assert_eq!(find(&[], SALT, 64), Found::Nothing);
    }

    #[test]
    fn a_mark_is_filled_in_place() {
        let mut bytes = Vec::new();
        put(&mut bytes, SALT, 64, Kind::Mark, 3, |out| out.extend_from_slice(&[0; 8]));
        fill_mark(&mut bytes, SALT, 64, 3, 99);
        let Found::Record(record) = find(&bytes, SALT, 64) else {
            panic!("no mark");
        };
        assert_eq!(mark_synced(record.payload).expect("number"), 99);
    }
}
