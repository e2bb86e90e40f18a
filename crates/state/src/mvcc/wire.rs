//! The protobuf form of a KeyValue, written and read by hand so that a read is a copy.
//!
//! A KeyValue on the wire is its key (field 1) and then its *tail*: create_revision (2),
//! mod_revision (3), version (4), value (5), lease (6), in this order, zero and empty ones left out,
//! as every protobuf encoder writes them. Rows store the tail; an answer is the key, spliced before
//! it. Never feed this module bytes that did not come from it: it reads only what it writes.

use bytes::Bytes;
use meerkat_types::{KeyValue, LeaseId, Revision};

const KEY: u8 = 0x0a;
const CREATED: u8 = 0x10;
const MODIFIED: u8 = 0x18;
const VERSION: u8 = 0x20;
const VALUE: u8 = 0x2a;
const LEASE: u8 = 0x30;
/// Field 2, length-delimited: an element of `RangeResponse.kvs`.
const ELEMENT: u8 = 0x12;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Takes a varint off the front.
#[inline]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes `len` bytes off the front.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// The fields of a tail, with the value still in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail<'a> {
    pub created: Revision,
    pub modified: Revision,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: Option<LeaseId>,
}

impl<'a> Tail<'a> {
    /// Of a key that is not there: a transaction compares its fields as zero.
    pub(crate) const NONE: Tail<'static> =
        Tail { created: Revision::new(0), modified: Revision::new(0), version: 0, value: &[], lease: None };

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, CREATED, self.created.get());
        put_number(out, MODIFIED, self.modified.get());
        put_number(out, VERSION, self.version);
        if !self.value.is_empty() {
            out.push(VALUE);
            put_varint(out, self.value.len() as u64);
            out.extend_from_slice(self.value);
        }
        put_number(out, LEASE, self.lease.map_or(0, LeaseId::get));
    }

    pub(crate) fn decode(mut bytes: &'a [u8]) -> Option<Tail<'a>> {
        let mut tail = Tail::NONE;
        while let Some((tag, rest)) = bytes.split_first() {
            bytes = rest;
            let number = take_varint(&mut bytes)?;
            match *tag {
                CREATED => tail.created = Revision::new(number as i64),
                MODIFIED => tail.modified = Revision::new(number as i64),
                VERSION => tail.version = number as i64,
                VALUE => tail.value = take(&mut bytes, usize::try_from(number).ok()?)?,
                LEASE => tail.lease = LeaseId::from_wire(number as i64),
                _ => return None,
            }
        }
        Some(tail)
    }

    pub(crate) fn to_key_value(self, key: Bytes) -> KeyValue {
        self.with_value(key, Bytes::copy_from_slice(self.value))
    }

    /// As [`Tail::to_key_value`], with a value that is this one's bytes already.
    pub(crate) fn with_value(self, key: Bytes, value: Bytes) -> KeyValue {
        KeyValue {
            key,
            value,
            created: self.created,
            modified: self.modified,
            version: self.version,
            lease: self.lease,
        }
    }
}

fn put_number(out: &mut Vec<u8>, tag: u8, number: i64) {
    if number != 0 {
        out.push(tag);
        put_varint(out, number as u64);
    }
}

/// What of the tail stands before its value, and what after it.
pub(crate) fn around_value(tail: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = tail;
    while let Some((tag, after)) = rest.split_first() {
        let before = &tail[..tail.len() - rest.len()];
        rest = after;
        let number = take_varint(&mut rest)?;
        if *tag == VALUE {
            take(&mut rest, usize::try_from(number).ok()?)?;
            return Some((before, rest));
        }
    }
    Some((tail, &[]))
}

/// Appends the whole KeyValue: key, then tail.
pub(crate) fn put_key_value(out: &mut Vec<u8>, key: &[u8], tail: &[u8]) {
    out.push(KEY);
    put_varint(out, key.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(tail);
}

/// The whole KeyValue of a deletion: its key and when it happened.
pub(crate) fn put_tombstone(out: &mut Vec<u8>, key: &[u8], modified: Revision) {
    put_key_value(out, key, &[]);
    put_number(out, MODIFIED, modified.get());
}

/// Splits a whole KeyValue into key and tail.
pub(crate) fn split_key_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, mut rest) = bytes.split_first()?;
    if *tag != KEY {
        return None;
    }
    let len = usize::try_from(take_varint(&mut rest)?).ok()?;
    rest.split_at_checked(len)
}

/// Appends one element of a range answer.
#[inline]
pub(crate) fn put_element(out: &mut Vec<u8>, key: &[u8], tail: &[u8]) {
    put_element_parts(out, key, tail, &[]);
}

/// As [`put_element`], without the value.
pub(crate) fn put_element_keys_only(out: &mut Vec<u8>, key: &[u8], tail: &[u8]) -> Option<()> {
    let (before, after) = around_value(tail)?;
    put_element_parts(out, key, before, after);
    Some(())
}

fn put_element_parts(out: &mut Vec<u8>, key: &[u8], before: &[u8], after: &[u8]) {
    let len = 1 + varint_len(key.len() as u64) + key.len() + before.len() + after.len();
    out.reserve(len + 11);
    out.push(ELEMENT);
    put_varint(out, len as u64);
    put_key_value(out, key, before);
    out.extend_from_slice(after);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tail: Tail<'_>) {
        let mut bytes = Vec::new();
        tail.encode(&mut bytes);
        assert_eq!(Tail::decode(&bytes), Some(tail));
        let (before, after) = around_value(&bytes).expect("own bytes");
        let bare = [before, after].concat();
        assert_eq!(Tail::decode(&bare), Some(Tail { value: &[], ..tail }));
    }

    fn tail(created: i64, modified: i64, version: i64, value: &[u8], lease: i64) -> Tail<'_> {
        let (created, modified) = (Revision::new(created), Revision::new(modified));
        Tail { created, modified, version, value, lease: LeaseId::from_wire(lease) }
    }

    #[test]
    fn a_tail_reads_back_with_and_without_its_value() {
        check(Tail::NONE);
        check(tail(2, 300, 1, b"v", 0));
        check(tail(2, 3, 2, b"", -7));
        check(tail(i64::MAX, i64::MAX, 128, &[7; 300], i64::MIN));
    }

    #[test]
    fn the_bytes_are_those_of_protobuf() {
        let mut out = Vec::new();
        let mut bytes = Vec::new();
        tail(2, 300, 1, b"v", 5).encode(&mut bytes);
        put_element(&mut out, b"k", &bytes);
        let expected = [0x12, 15, 0x0a, 1, b'k', 0x10, 2, 0x18, 0xac, 0x02, 0x20, 1, 0x2a, 1, b'v', 0x30, 5];
        assert_eq!(out, expected);
    }

    #[test]
    fn varints_are_as_long_as_promised() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            assert_eq!(take_varint(&mut out.as_slice()), Some(value));
        }
    }
}
