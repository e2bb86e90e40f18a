//! Requests of the KV service in few words.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, ResponseHeader, TxnRequest, request_op,
};

/// A linearizable read of one key.
pub fn get(key: &Bytes) -> RangeRequest {
    RangeRequest { key: key.clone(), ..Default::default() }
}

/// A linearizable read of all keys with a prefix that ends in a byte below 255.
pub fn get_all(prefix: &[u8]) -> RangeRequest {
    RangeRequest { key: Bytes::copy_from_slice(prefix), range_end: end_of(prefix), ..Default::default() }
}

/// The end of the range of all keys with a prefix.
pub fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}

/// A put.
pub fn put(key: &Bytes, value: impl Into<Bytes>) -> PutRequest {
    PutRequest { key: key.clone(), value: value.into(), ..Default::default() }
}

/// A read within a transaction.
pub fn op_get(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestRange(request)) }
}

/// A put within a transaction.
pub fn op_put(request: PutRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestPut(request)) }
}

/// A deletion of one key within a transaction.
pub fn op_delete(key: &Bytes) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
    RequestOp { request: Some(request_op::Request::RequestDeleteRange(delete)) }
}

/// A transaction within a transaction.
pub fn op_txn(request: TxnRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestTxn(request)) }
}

/// A condition on one key.
pub fn compare(key: &Bytes, result: CompareResult, target: TargetUnion) -> Compare {
    let kind = match &target {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result as i32,
        target: kind as i32,
        key: key.clone(),
        target_union: Some(target),
        ..Default::default()
    }
}

/// The condition that a key is as it was at this revision; zero: that it is not there.
pub fn unchanged_since(key: &Bytes, mod_revision: i64) -> Compare {
    compare(key, CompareResult::Equal, TargetUnion::ModRevision(mod_revision))
}

/// The revision in a header. One without gets 0, which no write is ever given, so that the checkers
/// report the answer.
pub fn revision(header: &Option<ResponseHeader>) -> i64 {
    header.as_ref().map_or(0, |header| header.revision)
}
