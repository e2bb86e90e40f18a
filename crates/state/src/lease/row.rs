//! The rows of `leases`.
//!
//! | key | value |
//! |---|---|
//! | 1, id | varint seconds to live; varint log index of its grant; then, if noted, varint milliseconds that were left |
//! | 2, id, key | empty: the key is attached to the lease |

use crate::error::{StateError, damaged};
use crate::mvcc::wire::{put_varint, take_varint};
use bytes::Bytes;
use meerkat_engine::{Batch, Column, View};
use meerkat_types::{Lease, LeaseId, LeaseTtl, LogIndex};
use std::time::Duration;

const TERMS: u8 = 1;
const ATTACHED: u8 = 2;
const ID_BYTES: usize = 9;

fn id_key(kind: u8, lease: LeaseId) -> [u8; ID_BYTES] {
    let mut key = [kind; ID_BYTES];
    key[1..].copy_from_slice(&lease.get().to_be_bytes());
    key
}

fn attached_key(lease: LeaseId, key: &[u8]) -> Vec<u8> {
    [&id_key(ATTACHED, lease), key].concat()
}

/// The first key after all that begin with `prefix`, which does not begin with 255.
fn after_all(mut prefix: [u8; ID_BYTES]) -> Vec<u8> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX).unwrap_or(0);
    prefix[last] = prefix[last].wrapping_add(1);
    prefix[..=last].to_vec()
}

pub(crate) fn put(batch: &mut Batch, lease: &Lease) {
    batch.put(Column::Leases, &id_key(TERMS, lease.id), &encode(lease));
}

pub(crate) fn delete(batch: &mut Batch, lease: LeaseId) {
    batch.delete(Column::Leases, &id_key(TERMS, lease));
}

pub(crate) fn attach(batch: &mut Batch, lease: LeaseId, key: &[u8]) {
    batch.put(Column::Leases, &attached_key(lease, key), &[]);
}

pub(crate) fn detach(batch: &mut Batch, lease: LeaseId, key: &[u8]) {
    batch.delete(Column::Leases, &attached_key(lease, key));
}

/// The keys attached to a lease, in ascending order.
pub(crate) fn attached(view: &View, lease: LeaseId) -> Result<Vec<Bytes>, StateError> {
    let first = id_key(ATTACHED, lease);
    let end = after_all(first);
    let mut keys = Vec::new();
    let mut rows = view.scan(Column::Leases, &first, Some(&end));
    while let Some((key, _)) = rows.row() {
        keys.push(Bytes::copy_from_slice(&key[ID_BYTES..]));
        rows.step();
    }
    rows.finish()?;
    Ok(keys)
}

pub(crate) fn read(view: &View, lease: LeaseId) -> Result<Option<Lease>, StateError> {
    match view.get(Column::Leases, &id_key(TERMS, lease))? {
        None => Ok(None),
        Some(row) => decode(lease, &row).map(Some).ok_or(damaged("lease")),
    }
}

/// Every lease, in ascending order of its row.
pub(crate) fn read_all(view: &View) -> Result<Vec<Lease>, StateError> {
    let mut leases = Vec::new();
    let mut rows = view.scan(Column::Leases, &[TERMS], Some(&[TERMS + 1]));
    while let Some((key, row)) = rows.row() {
        let id = key[1..].try_into().ok().map(i64::from_be_bytes).and_then(LeaseId::from_wire);
        leases.push(id.and_then(|id| decode(id, row)).ok_or(damaged("lease"))?);
        rows.step();
    }
    rows.finish()?;
    Ok(leases)
}

fn encode(lease: &Lease) -> Vec<u8> {
    let mut row = Vec::with_capacity(12);
    put_varint(&mut row, lease.ttl.seconds().unsigned_abs());
    put_varint(&mut row, lease.granted.0);
    if let Some(remaining) = lease.remaining {
        put_varint(&mut row, u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX));
    }
    row
}

fn decode(id: LeaseId, mut row: &[u8]) -> Option<Lease> {
    let ttl = LeaseTtl::from_seconds(i64::try_from(take_varint(&mut row)?).ok()?)?;
    let granted = LogIndex(take_varint(&mut row)?);
    let remaining = if row.is_empty() { None } else { Some(Duration::from_millis(take_varint(&mut row)?)) };
    row.is_empty().then_some(Lease { id, granted, ttl, remaining })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_read_back_and_a_damaged_row_does_not() {
        let id = LeaseId::from_wire(-7).expect("not zero");
        for seconds in [1, 127, 128, 9_000_000_000] {
            let ttl = LeaseTtl::from_seconds(seconds).expect("in range");
            for remaining in [None, Some(Duration::ZERO), Some(Duration::from_millis(300_001))] {
                let lease = Lease { id, granted: LogIndex(u64::MAX), ttl, remaining };
                let row = encode(&lease);
                assert_eq!(decode(id, &row), Some(lease));
                assert_eq!(decode(id, &[row.as_slice(), &[0, 0]].concat()), None);
            }
        }
        for damaged in [&[][..], &[0], &[0x80], &[1], &[0, 1]] {
            assert_eq!(decode(id, damaged), None);
        }
    }

    #[test]
    fn the_end_of_a_lease_is_above_all_its_keys_and_below_the_next_lease() {
        for number in [1, 255, 0x00ff_ffff, -1, i64::MAX, i64::MIN] {
            let lease = LeaseId::from_wire(number).expect("not zero");
            let end = after_all(id_key(ATTACHED, lease));
            assert!(attached_key(lease, &[u8::MAX; 40]) < end);
            let next = u64::from_be_bytes(number.to_be_bytes()).checked_add(1);
            if let Some(next) =
                next.and_then(|next| LeaseId::from_wire(i64::from_be_bytes(next.to_be_bytes())))
            {
                assert!(end <= attached_key(next, b""));
            }
        }
    }
}
