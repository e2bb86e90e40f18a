//! Kinds of requests and errors that every run must contain, every sort and every compare among them.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::range_request::{SortOrder, SortTarget};
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    request_op,
};

use super::generator::Seen;
use crate::differential::coverage::Coverage;
use crate::differential::request::{Answer, Request};

/// Every error the KV service can be brought to by requests alone, by name and words.
pub const ERRORS: &[(&str, &str)] = &[
    ("EmptyKey", "etcdserver: key is not provided"),
    ("KeyNotFound", "etcdserver: key not found"),
    ("ValueProvided", "etcdserver: value is provided"),
    ("LeaseProvided", "etcdserver: lease is provided"),
    ("TooManyOps", "etcdserver: too many operations in txn request"),
    ("DuplicateKey", "etcdserver: duplicate key given in txn request"),
    ("Compacted", "etcdserver: mvcc: required revision has been compacted"),
    ("FutureRev", "etcdserver: mvcc: required revision is a future revision"),
    ("LeaseNotFound", "etcdserver: requested lease not found"),
    ("RequestTooLarge", "etcdserver: request is too large"),
    ("message over the limit", "grpc: received message larger than max"),
];

/// Beside every sort, every compare and every error.
const KINDS: &str = "\
range: one key; interval; from key; everything; nothing (end not above key); limit; negative limit
range: keys only; count only; serializable; older revision; at the compacted revision
range: negative revision; min_mod_revision; max_mod_revision; min_create_revision
range: max_create_revision
put: plain; prev_kv; ignore_value; ignore_lease; empty value; with lease; over 1.5 MB
delete: one key; interval; from key; everything; nothing (end not above key); prev_kv
txn: empty; read-only; writing; nested; nested twice; no compare; at the limit of operations
txn: range deleted, key inside put; empty operation; success taken; failure taken
compare: range; no operand; operand of another target
compact: logical; physical; zero; negative; current revision";

/// All kinds.
pub fn table() -> Coverage {
    let mut coverage = Coverage::of(KINDS);
    for target in 0..5 {
        (0..3).for_each(|order| coverage.want(sort_kind(target, order)));
        (0..4).for_each(|result| coverage.want(compare_kind(target, result)));
    }
    ERRORS.iter().for_each(|(name, _)| coverage.want(format!("error: {name}")));
    coverage
}

/// Counts one request and its answer.
pub fn note(kinds: &mut Coverage, request: &Request, answer: &Answer, before: Seen) {
    match request {
        Request::Range(range) => range_kinds(range, before, kinds),
        Request::Put(put) => put_kinds(put, kinds),
        Request::Delete(delete) => delete_kinds(delete, kinds),
        Request::Txn(txn) => txn_kinds(txn, before, 0, kinds),
        Request::Compact(compaction) => compact_kinds(compaction, before, kinds),
    }
    match answer {
        Answer::Txn(txn) => {
            kinds.count("txn: success taken", txn.succeeded);
            kinds.count("txn: failure taken", !txn.succeeded);
        }
        Answer::Refused(_, message) => {
            let known = ERRORS.iter().find(|(_, words)| message.starts_with(words));
            kinds.count(&format!("error: {}", known.map_or(message.as_str(), |(name, _)| name)), true);
        }
        Answer::Range(_) | Answer::Put(_) | Answer::Delete(_) | Answer::Compact(_) => {}
    }
}

fn sort_kind(target: i32, order: i32) -> String {
    let target = SortTarget::try_from(target).map_or("?", |target| target.as_str_name());
    let order = SortOrder::try_from(order).map_or("?", |order| order.as_str_name());
    format!("range: sorted by {target} {order}")
}

fn compare_kind(target: i32, result: i32) -> String {
    let target = CompareTarget::try_from(target).map_or("?", |target| target.as_str_name());
    let result = CompareResult::try_from(result).map_or("?", |result| result.as_str_name());
    format!("compare: {target} {result}")
}

/// How a key and a range end name a range.
fn span_kind(of: &str, key: &Bytes, range_end: &Bytes) -> String {
    let span = match (key.as_ref(), range_end.as_ref()) {
        (_, b"") => "one key",
        (b"\0", b"\0") => "everything",
        (_, b"\0") => "from key",
        (key, end) if end <= key => "nothing (end not above key)",
        _ => "interval",
    };
    format!("{of}: {span}")
}

fn range_kinds(range: &RangeRequest, seen: Seen, kinds: &mut Coverage) {
    kinds.count(&span_kind("range", &range.key, &range.range_end), true);
    kinds.count(&sort_kind(range.sort_target, range.sort_order), true);
    kinds.count("range: limit", 0 < range.limit);
    kinds.count("range: negative limit", range.limit < 0);
    kinds.count("range: keys only", range.keys_only);
    kinds.count("range: count only", range.count_only);
    kinds.count("range: serializable", range.serializable);
    kinds.count(
        "range: older revision",
        seen.compacted < range.revision && 0 < range.revision && range.revision < seen.revision,
    );
    kinds.count("range: at the compacted revision", 0 < range.revision && range.revision == seen.compacted);
    kinds.count("range: negative revision", range.revision < 0);
    kinds.count("range: min_mod_revision", range.min_mod_revision != 0);
    kinds.count("range: max_mod_revision", range.max_mod_revision != 0);
    kinds.count("range: min_create_revision", range.min_create_revision != 0);
    kinds.count("range: max_create_revision", range.max_create_revision != 0);
}

fn put_kinds(put: &PutRequest, kinds: &mut Coverage) {
    let flagged = put.prev_kv || put.ignore_value || put.ignore_lease || put.lease != 0;
    kinds.count("put: plain", !flagged);
    kinds.count("put: prev_kv", put.prev_kv);
    kinds.count("put: ignore_value", put.ignore_value);
    kinds.count("put: ignore_lease", put.ignore_lease);
    kinds.count("put: empty value", put.value.is_empty());
    kinds.count("put: with lease", put.lease != 0);
    kinds.count("put: over 1.5 MB", 1_500_000 < put.value.len());
}

fn delete_kinds(delete: &DeleteRangeRequest, kinds: &mut Coverage) {
    kinds.count(&span_kind("delete", &delete.key, &delete.range_end), true);
    kinds.count("delete: prev_kv", delete.prev_kv);
}

fn txn_kinds(txn: &TxnRequest, seen: Seen, depth: usize, kinds: &mut Coverage) {
    let operations: Vec<&RequestOp> = txn.success.iter().chain(&txn.failure).collect();
    let reads = |op: &&RequestOp| matches!(op.request, Some(request_op::Request::RequestRange(_)));
    kinds.count("txn: empty", operations.is_empty());
    kinds.count("txn: read-only", !operations.is_empty() && operations.iter().all(reads));
    kinds.count("txn: writing", !operations.iter().all(reads));
    kinds.count("txn: nested", 0 < depth);
    kinds.count("txn: nested twice", 1 < depth);
    kinds.count("txn: no compare", txn.compare.is_empty());
    let widest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    kinds.count("txn: at the limit of operations", widest == 128);
    let rewritten = txn.success.windows(2).any(|pair| overlap(&pair[0], &pair[1]));
    kinds.count("txn: range deleted, key inside put", rewritten);
    for compare in &txn.compare {
        compare_kinds(compare, kinds);
    }
    for op in operations {
        match &op.request {
            None => kinds.count("txn: empty operation", true),
            Some(request_op::Request::RequestRange(range)) => range_kinds(range, seen, kinds),
            Some(request_op::Request::RequestPut(put)) => put_kinds(put, kinds),
            Some(request_op::Request::RequestDeleteRange(delete)) => delete_kinds(delete, kinds),
            Some(request_op::Request::RequestTxn(inner)) => txn_kinds(inner, seen, depth + 1, kinds),
        }
    }
}

/// A range with an open end deleted and a key inside it put: two events of one key in one revision.
pub fn overlap(delete: &RequestOp, put: &RequestOp) -> bool {
    match (&delete.request, &put.request) {
        (
            Some(request_op::Request::RequestDeleteRange(delete)),
            Some(request_op::Request::RequestPut(put)),
        ) => delete.range_end.as_ref() == b"\0" && delete.key <= put.key,
        _ => false,
    }
}

fn compare_kinds(compare: &Compare, kinds: &mut Coverage) {
    kinds.count(&compare_kind(compare.target, compare.result), true);
    kinds.count("compare: range", !compare.range_end.is_empty());
    let operand = compare.target_union.as_ref().map(|operand| match operand {
        TargetUnion::Version(_) => CompareTarget::Version as i32,
        TargetUnion::CreateRevision(_) => CompareTarget::Create as i32,
        TargetUnion::ModRevision(_) => CompareTarget::Mod as i32,
        TargetUnion::Value(_) => CompareTarget::Value as i32,
        TargetUnion::Lease(_) => CompareTarget::Lease as i32,
    });
    kinds.count("compare: no operand", operand.is_none());
    kinds.count(
        "compare: operand of another target",
        operand.is_some_and(|operand| operand != compare.target),
    );
}

fn compact_kinds(compaction: &CompactionRequest, seen: Seen, kinds: &mut Coverage) {
    kinds.count("compact: logical", !compaction.physical);
    kinds.count("compact: physical", compaction.physical);
    kinds.count("compact: zero", compaction.revision == 0);
    kinds.count("compact: negative", compaction.revision < 0);
    kinds.count("compact: current revision", compaction.revision == seen.revision);
}
