//! The row of `head`: the newest version of a live key. A deleted key has none.
//!
//! `varint sub, tail`. The sub stands in front so that the tail, which an answer copies as it is,
//! runs to the end of the row.

use crate::mvcc::event_id::EventId;
use crate::mvcc::wire::{Tail, put_varint, take_varint};

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadRow<'a> {
    pub sub: u32,
    pub tail: &'a [u8],
}

impl<'a> HeadRow<'a> {
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Option<HeadRow<'a>> {
        let sub = u32::try_from(take_varint(&mut bytes)?).ok()?;
        Some(HeadRow { sub, tail: bytes })
    }

    pub(crate) fn encode(sub: u32, tail: &Tail<'_>) -> Vec<u8> {
        let mut row = Vec::with_capacity(40 + tail.value.len());
        put_varint(&mut row, u64::from(sub));
        tail.encode(&mut row);
        row
    }

    /// The event that wrote this version.
    pub(crate) fn id(&self, tail: &Tail<'_>) -> EventId {
        EventId { revision: tail.modified, sub: self.sub }
    }
}
