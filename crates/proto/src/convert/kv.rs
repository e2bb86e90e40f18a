//! Requests about keys, from the wire: ranges, puts, deletes and compactions.
//!
//! The wire's special numbers end here: a limit of zero or less and a revision of zero are "none
//! given", a lease of zero is "no lease". Transactions, which are made of these, are in [`super::txn`].

use super::BadRequest;
use crate::pb::etcdserver as pb;
use crate::pb::etcdserver::range_request::{SortOrder as WireOrder, SortTarget as WireTarget};
use crate::pb::mvcc;
use bytes::Bytes;
use meerkat_types::{
    Compact, Consistency, DeleteRange, Key, KeyRange, KeyValue, LeaseId, NewLease, NewValue, Put, RangeQuery,
    Revision, RevisionBounds, Sort, SortOrder, SortTarget,
};

impl TryFrom<pb::RangeRequest> for RangeQuery {
    type Error = BadRequest;

    fn try_from(wire: pb::RangeRequest) -> Result<RangeQuery, BadRequest> {
        let keys = key_range(wire.key, wire.range_end)?;
        let sort = Sort { order: sort_order(wire.sort_order)?, target: sort_target(wire.sort_target)? };
        Ok(RangeQuery {
            keys,
            // Outside a transaction a negative revision reads the present; inside one it is refused
            // like any revision below the compacted one. Which of the two, the store knows.
            at: Some(wire.revision).filter(|revision| *revision != 0).map(Revision::new),
            // A limit beyond what memory can address is no limit.
            limit: positive(wire.limit).and_then(|limit| usize::try_from(limit).ok()),
            sort,
            consistency: if wire.serializable {
                Consistency::Serializable
            } else {
                Consistency::Linearizable
            },
            keys_only: wire.keys_only,
            count_only: wire.count_only,
            bounds: RevisionBounds {
                modified_first: bound(wire.min_mod_revision),
                modified_last: bound(wire.max_mod_revision),
                created_first: bound(wire.min_create_revision),
                created_last: bound(wire.max_create_revision),
            },
        })
    }
}

/// The same request for `RangeStream`, which only knows the order of keys.
///
/// An order of NONE is taken as that order whatever the target: a stream cannot sort, and etcd
/// accepts the request too.
pub fn range_stream(wire: pb::RangeRequest) -> Result<RangeQuery, BadRequest> {
    let query = RangeQuery::try_from(wire)?;
    let by_key = match query.sort.order {
        SortOrder::None => true,
        SortOrder::Ascend => query.sort.target == SortTarget::Key,
        SortOrder::Descend => false,
    };
    if !by_key {
        return Err(BadRequest::StreamSorted);
    }
    if !query.bounds.is_unbounded() {
        return Err(BadRequest::StreamBounded);
    }
    Ok(RangeQuery { sort: Sort::BY_KEY, ..query })
}

impl TryFrom<pb::PutRequest> for Put {
    type Error = BadRequest;

    fn try_from(wire: pb::PutRequest) -> Result<Put, BadRequest> {
        let key = Key::new(wire.key).ok_or(BadRequest::EmptyKey)?;
        let value = match (wire.ignore_value, wire.value.is_empty()) {
            (false, _) => NewValue::Set(wire.value),
            (true, true) => NewValue::KeepCurrent,
            (true, false) => return Err(BadRequest::ValueProvided),
        };
        let lease = match (wire.ignore_lease, LeaseId::from_wire(wire.lease)) {
            (false, lease) => NewLease::Set(lease),
            (true, None) => NewLease::KeepCurrent,
            (true, Some(_)) => return Err(BadRequest::LeaseProvided),
        };
        Ok(Put { key, value, lease, want_previous: wire.prev_kv })
    }
}

impl TryFrom<pb::DeleteRangeRequest> for DeleteRange {
    type Error = BadRequest;

    fn try_from(wire: pb::DeleteRangeRequest) -> Result<DeleteRange, BadRequest> {
        Ok(DeleteRange { keys: key_range(wire.key, wire.range_end)?, want_previous: wire.prev_kv })
    }
}

/// A compaction, and whether its answer waits until the history is gone from disk. Any revision
/// passes: whether it can be compacted only the store knows.
pub fn compaction(wire: pb::CompactionRequest) -> (Compact, bool) {
    (Compact { revision: Revision::new(wire.revision) }, wire.physical)
}

impl From<mvcc::KeyValue> for KeyValue {
    fn from(wire: mvcc::KeyValue) -> KeyValue {
        KeyValue {
            key: wire.key,
            value: wire.value,
            created: Revision::new(wire.create_revision),
            modified: Revision::new(wire.mod_revision),
            version: wire.version,
            lease: LeaseId::from_wire(wire.lease),
        }
    }
}

impl From<KeyValue> for mvcc::KeyValue {
    fn from(kv: KeyValue) -> mvcc::KeyValue {
        mvcc::KeyValue {
            key: kv.key,
            create_revision: kv.created.get(),
            mod_revision: kv.modified.get(),
            version: kv.version,
            value: kv.value,
            lease: kv.lease.map_or(0, LeaseId::get),
        }
    }
}

pub(super) fn key_range(key: Bytes, range_end: Bytes) -> Result<KeyRange, BadRequest> {
    let key = Key::new(key).ok_or(BadRequest::EmptyKey)?;
    Ok(KeyRange::from_wire(key, range_end))
}

fn sort_order(wire: i32) -> Result<SortOrder, BadRequest> {
    match WireOrder::try_from(wire) {
        Ok(WireOrder::None) => Ok(SortOrder::None),
        Ok(WireOrder::Ascend) => Ok(SortOrder::Ascend),
        Ok(WireOrder::Descend) => Ok(SortOrder::Descend),
        Err(_) => Err(BadRequest::UnknownSort),
    }
}

fn sort_target(wire: i32) -> Result<SortTarget, BadRequest> {
    match WireTarget::try_from(wire) {
        Ok(WireTarget::Key) => Ok(SortTarget::Key),
        Ok(WireTarget::Version) => Ok(SortTarget::Version),
        Ok(WireTarget::Create) => Ok(SortTarget::Created),
        Ok(WireTarget::Mod) => Ok(SortTarget::Modified),
        Ok(WireTarget::Value) => Ok(SortTarget::Value),
        Err(_) => Err(BadRequest::UnknownSort),
    }
}

fn positive(number: i64) -> Option<i64> {
    (0 < number).then_some(number)
}

/// Unlike a revision to read at, a bound below zero is a bound: as an upper one it admits nothing.
fn bound(number: i64) -> Option<Revision> {
    (number != 0).then_some(Revision::new(number))
}

#[cfg(test)]
mod tests;
