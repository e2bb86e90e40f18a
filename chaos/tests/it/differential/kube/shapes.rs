//! The requests of kube-apiserver, field by field as its storage layer and etcd's Go client build them.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::request_op::Request as Op;
use meerkat_proto::pb::etcdserver::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};

/// Whose last compaction this key tells, to all servers in front of one store.
pub const COMPACT_KEY: &str = "compact_rev_key";

/// Get.
pub fn get(key: &str, revision: i64) -> RangeRequest {
    RangeRequest { key: bytes(key), limit: 1, revision, ..RangeRequest::default() }
}

/// List: a page of a prefix, from its beginning or from behind `last`.
pub fn page(prefix: &str, last: Option<&[u8]>, limit: i64, revision: i64) -> RangeRequest {
    let from = last.map(|last| Bytes::from([last, b"\0"].concat()));
    RangeRequest {
        key: from.unwrap_or_else(|| bytes(prefix)),
        range_end: end_of(prefix),
        limit,
        revision,
        ..RangeRequest::default()
    }
}

/// Count.
pub fn count(prefix: &str) -> RangeRequest {
    RangeRequest { count_only: true, ..page(prefix, None, 0, 0) }
}

/// Keys, for an estimate of sizes.
pub fn keys(prefix: &str) -> RangeRequest {
    RangeRequest { keys_only: true, ..page(prefix, None, 0, 0) }
}

/// Create.
pub fn create(key: &str, value: impl Into<Bytes>, lease: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![modified(key, 0)],
        success: vec![put(key, value.into(), lease)],
        failure: vec![],
    }
}

/// Update of what was read at `revision`.
pub fn update(key: &str, value: impl Into<Bytes>, lease: i64, revision: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![modified(key, revision)],
        success: vec![put(key, value.into(), lease)],
        failure: vec![op(Op::RequestRange(get(key, 0)))],
    }
}

/// Delete of what was read at `revision`; older servers ask for what it was.
pub fn delete(key: &str, revision: i64, prev_kv: bool) -> TxnRequest {
    let request = DeleteRangeRequest { key: bytes(key), prev_kv, ..DeleteRangeRequest::default() };
    let read = RangeRequest { key: bytes(key), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![modified(key, revision)],
        success: vec![op(Op::RequestDeleteRange(request))],
        failure: vec![op(Op::RequestRange(read))],
    }
}

/// The turn of one of several servers to compact.
pub fn compact_turn(version: i64, revision: i64) -> TxnRequest {
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key: bytes(COMPACT_KEY),
        target_union: Some(TargetUnion::Version(version)),
        ..Compare::default()
    };
    let read = RangeRequest { key: bytes(COMPACT_KEY), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![compare],
        success: vec![put(COMPACT_KEY, revision.to_string().into(), 0)],
        failure: vec![op(Op::RequestRange(read))],
    }
}

/// Watch of a prefix, as a cache of it does.
pub fn watch(prefix: &str, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: bytes(prefix),
        range_end: end_of(prefix),
        start_revision,
        progress_notify: true,
        prev_kv: true,
        ..WatchCreateRequest::default()
    }
}

/// Watch of one key, from what is current.
pub fn watch_key(key: &str) -> WatchCreateRequest {
    WatchCreateRequest { key: bytes(key), prev_kv: true, ..WatchCreateRequest::default() }
}

fn modified(key: &str, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: bytes(key),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Compare::default()
    }
}

fn put(key: &str, value: Bytes, lease: i64) -> RequestOp {
    op(Op::RequestPut(PutRequest { key: bytes(key), value, lease, ..PutRequest::default() }))
}

fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Behind everything that begins with the prefix. Kubernetes' prefixes end in a slash.
fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}
