//! The row of `versions`: what a key was from some event on.
//!
//! The key of a row is the user key, escaped and terminated, and then the event's id inverted, so
//! that rows of one key stand together, newest first, and the first row at or after
//! `(key, revision R)` is what the key was at R: one seek.
//!
//! The escape is needed because user keys may hold any byte: plain `key ++ id` would put rows of
//! `a\0` among those of `a`. A zero byte becomes `00 ff`; the end is `00 01`.
//!
//! The value is one byte (1: deleted), followed for a live version by its tail without the value.

use crate::mvcc::event_id::{EVENT_ID_BYTES, EventId};
use crate::mvcc::wire::around_value;

const DELETED: u8 = 1;
const LIVE: u8 = 0;

/// Where the rows of `key` begin. Also above every row of a smaller key, so it serves as an
/// exclusive end.
pub(crate) fn start_of(key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.reserve(key.len() + 2 + EVENT_ID_BYTES);
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// Just above every row of `key` and below those of the next key.
pub(crate) fn end_of(key: &[u8], out: &mut Vec<u8>) {
    start_of(key, out);
    if let Some(last) = out.last_mut() {
        *last = 2;
    }
}

pub(crate) fn row_key(key: &[u8], id: EventId, out: &mut Vec<u8>) {
    start_of(key, out);
    out.extend_from_slice(&id.to_inverted_bytes());
}

/// Splits a row's key into the still escaped user key with its terminator, and the event.
pub(crate) fn split(row_key: &[u8]) -> Option<(&[u8], EventId)> {
    let (key, id) = row_key.split_at_checked(row_key.len().checked_sub(EVENT_ID_BYTES)?)?;
    Some((key, EventId::from_inverted_bytes(id)?))
}

/// The user key behind an escaped and terminated one.
pub(crate) fn unescape(escaped: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let mut bytes = escaped.strip_suffix(&[0, 1])?.iter();
    while let Some(byte) = bytes.next() {
        out.push(*byte);
        if *byte == 0 && bytes.next() != Some(&0xff) {
            return None;
        }
    }
    Some(())
}

pub(crate) fn encode_live(tail: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (before, after) = around_value(tail)?;
    out.push(LIVE);
    out.extend_from_slice(before);
    out.extend_from_slice(after);
    Some(())
}

pub(crate) const TOMBSTONE_ROW: [u8; 1] = [DELETED];

/// The tail without its value, or `None` for a deletion.
pub(crate) fn decode(row: &[u8]) -> Option<Option<&[u8]>> {
    match row.split_first()? {
        (&DELETED, []) => Some(None),
        (&LIVE, tail) => Some(Some(tail)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::Revision;

    #[test]
    fn rows_order_by_key_first_and_newest_first_within_a_key() {
        let keys: [&[u8]; 9] =
            [b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\0\xff", b"a\x01", b"ab", b"\xff\xff"];
        let ids = [(7, 1), (7, 0), (2, 5)]
            .map(|(revision, sub)| EventId { revision: Revision::new(revision), sub });
        let mut rows = Vec::new();
        for key in keys {
            for id in ids {
                let mut row = Vec::new();
                row_key(key, id, &mut row);
                let (escaped, found) = split(&row).expect("own bytes");
                let mut back = Vec::new();
                unescape(escaped, &mut back).expect("own bytes");
                assert_eq!((back.as_slice(), found), (key, id));
                rows.push(row);
            }
        }
        assert!(rows.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn start_and_end_enclose_exactly_the_rows_of_a_key() {
        let (mut start, mut end, mut next, mut row) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        start_of(b"a", &mut start);
        end_of(b"a", &mut end);
        start_of(b"a\0", &mut next);
        for id in [
            EventId::first_of(Revision::new(0)),
            EventId { revision: Revision::new(i64::MAX), sub: u32::MAX },
        ] {
            row_key(b"a", id, &mut row);
            assert!(start < row && row < end && end < next);
        }
    }
}
