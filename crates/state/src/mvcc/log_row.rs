//! The row of `log`: one event and what it replaced.
//!
//! `flags, [varint stamp], [varint revision, varint sub of the link], [varint shadowed sub],
//! KeyValue`. The stamp is in the first row of a revision only.
//!
//! Two links, because one transaction may change a key more than once:
//! * `link` is the version that was live just before this event's *revision*. It is what undoing the
//!   revision restores, and the previous value that watchers are told.
//! * `shadows` is the key's earlier event within the *same* revision. Nobody can read it at any
//!   revision; compaction needs to find it.

use crate::mvcc::event_id::EventId;
use crate::mvcc::wire::{put_key_value, put_tombstone, put_varint, split_key_value, take_varint, varint_len};
use meerkat_types::Revision;

const TOMBSTONE: u8 = 1;
const STAMPED: u8 = 1 << 1;
const LINKED: u8 = 1 << 2;
const SHADOWS: u8 = 1 << 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRow<'a> {
    pub tombstone: bool,
    pub stamp_ms: Option<u64>,
    pub link: Option<EventId>,
    pub shadows: Option<u32>,
    pub key: &'a [u8],
    /// Of a tombstone: the revision of the deletion alone.
    pub tail: &'a [u8],
}

/// What stands before the KeyValue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogRowHeader {
    pub stamp_ms: Option<u64>,
    pub link: Option<EventId>,
    pub shadows: Option<u32>,
}

impl LogRowHeader {
    pub(crate) fn encode_put(&self, out: &mut Vec<u8>, key: &[u8], tail: &[u8]) {
        self.encode(out, 0);
        put_key_value(out, key, tail);
    }

    pub(crate) fn encode_tombstone(&self, out: &mut Vec<u8>, key: &[u8], revision: Revision) {
        self.encode(out, TOMBSTONE);
        put_tombstone(out, key, revision);
    }

    fn encode(&self, out: &mut Vec<u8>, mut flags: u8) {
        let flags_at = out.len();
        out.push(0);
        if let Some(stamp) = self.stamp_ms {
            flags |= STAMPED;
            put_varint(out, stamp);
        }
        if let Some(link) = self.link {
            flags |= LINKED;
            put_varint(out, link.revision.get() as u64);
            put_varint(out, u64::from(link.sub));
        }
        if let Some(sub) = self.shadows {
            flags |= SHADOWS;
            put_varint(out, u64::from(sub));
        }
        out[flags_at] = flags;
    }
}

impl<'a> LogRow<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<LogRow<'a>> {
        let (flags, mut rest) = bytes.split_first()?;
        let stamp_ms = if flags & STAMPED != 0 { Some(take_varint(&mut rest)?) } else { None };
        let link = if flags & LINKED != 0 {
            let revision = Revision::new(i64::try_from(take_varint(&mut rest)?).ok()?);
            Some(EventId { revision, sub: u32::try_from(take_varint(&mut rest)?).ok()? })
        } else {
            None
        };
        let shadows =
            if flags & SHADOWS != 0 { Some(u32::try_from(take_varint(&mut rest)?).ok()?) } else { None };
        let (key, tail) = split_key_value(rest)?;
        Some(LogRow { tombstone: flags & TOMBSTONE != 0, stamp_ms, link, shadows, key, tail })
    }

    /// The KeyValue at the end of the bytes that this row was read from.
    pub(crate) fn key_value(&self, bytes: &'a [u8]) -> &'a [u8] {
        let key_head = 1 + varint_len(self.key.len() as u64);
        &bytes[bytes.len() - self.tail.len() - self.key.len() - key_head..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_of_optional_parts_reads_back() {
        for mix in 0..16u8 {
            let header = LogRowHeader {
                stamp_ms: (mix & 1 != 0).then_some(1_700_000_000_000),
                link: (mix & 2 != 0).then_some(EventId { revision: Revision::new(300), sub: 5 }),
                shadows: (mix & 4 != 0).then_some(9),
            };
            let mut bytes = Vec::new();
            let tombstone = mix & 8 != 0;
            if tombstone {
                header.encode_tombstone(&mut bytes, b"key", Revision::new(301));
            } else {
                header.encode_put(&mut bytes, b"key", &[0x18, 7]);
            }
            let row = LogRow::decode(&bytes).expect("own bytes");
            assert_eq!((row.tombstone, row.stamp_ms), (tombstone, header.stamp_ms));
            assert_eq!((row.link, row.shadows, row.key), (header.link, header.shadows, b"key".as_slice()));
        }
    }

    #[test]
    fn a_cut_row_is_not_a_row() {
        let header = LogRowHeader { stamp_ms: Some(5), link: None, shadows: None };
        let mut bytes = Vec::new();
        header.encode_tombstone(&mut bytes, b"key", Revision::new(301));
        // The last three bytes are the tail, which its own reader checks.
        for cut in 0..bytes.len() - 3 {
            assert!(LogRow::decode(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }
}
