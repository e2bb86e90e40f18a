//! The row of `head`: the newest version of a live key. A deleted key has none.
//!
//! `u8 length of the mark, mark, tail`, and the mark is `varint sub, varint created_ms,
//! varint modified_ms - created_ms`. Answers want only the tail, which runs to the end of the row:
//! the length lets them step over the mark without reading it.

use crate::mvcc::event_id::EventId;
use crate::mvcc::wire::{Tail, put_varint, take_varint};

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRow<'a> {
    mark: &'a [u8],
    pub tail: &'a [u8],
}

/// What a row says of a version beyond what clients of etcd are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The place of the event that wrote this version among those of its revision.
    pub sub: u32,
    /// The agreed time of the revision in which the key was created.
    pub created_ms: u64,
    /// That of the revision that wrote this version; never before the creation.
    pub modified_ms: u64,
}

impl<'a> HeadRow<'a> {
    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<HeadRow<'a>> {
        let (len, rest) = bytes.split_first()?;
        let (mark, tail) = rest.split_at_checked(usize::from(*len))?;
        Some(HeadRow { mark, tail })
    }

    pub(crate) fn encode(mark: &Mark, tail: &Tail<'_>) -> Vec<u8> {
        let mut row = Vec::with_capacity(56 + tail.value.len());
        row.push(0);
        put_varint(&mut row, u64::from(mark.sub));
        put_varint(&mut row, mark.created_ms);
        put_varint(&mut row, mark.modified_ms.saturating_sub(mark.created_ms));
        row[0] = u8::try_from(row.len() - 1).expect("three varints are at most 25 bytes");
        tail.encode(&mut row);
        row
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        let mut rest = self.mark;
        let sub = u32::try_from(take_varint(&mut rest)?).ok()?;
        let created_ms = take_varint(&mut rest)?;
        let modified_ms = created_ms.checked_add(take_varint(&mut rest)?)?;
        rest.is_empty().then_some(Mark { sub, created_ms, modified_ms })
    }
}

impl Mark {
    /// The event that wrote the version with this tail.
    pub(crate) fn id(&self, tail: &Tail<'_>) -> EventId {
        EventId { revision: tail.modified, sub: self.sub }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{LeaseId, Revision};

    #[test]
    fn a_row_reads_back_and_a_cut_mark_does_not() {
        let tail = Tail {
            created: Revision::new(2),
            modified: Revision::new(300),
            version: 2,
            value: b"v",
            lease: LeaseId::from_wire(5),
        };
        let marks = [
            Mark { sub: 0, created_ms: 0, modified_ms: 0 },
            Mark { sub: 7, created_ms: 1_700_000_000_000, modified_ms: 1_700_000_000_005 },
            Mark { sub: u32::MAX, created_ms: 1, modified_ms: u64::MAX },
        ];
        for mark in marks {
            let bytes = HeadRow::encode(&mark, &tail);
            let row = HeadRow::decode(&bytes).expect("own bytes");
            assert_eq!((row.mark(), Tail::decode(row.tail)), (Some(mark), Some(tail)));
            for cut in 0..=usize::from(bytes[0]) {
                assert!(HeadRow::decode(&bytes[..cut]).is_none(), "cut at {cut}");
            }
            let shorter = HeadRow { mark: &row.mark[..row.mark.len() - 1], tail: row.tail };
            assert_eq!(shorter.mark(), None);
        }
    }
}
