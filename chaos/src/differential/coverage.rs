//! How often each kind of request and each error came up; none may be missing.
//!
//! Kinds are read off the requests themselves, not noted by the generator, so that a generator
//! which only believes it made something is found out.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::range_request::{SortOrder, SortTarget};
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    request_op,
};

use super::generator::Seen;
use super::request::{Answer, Request};

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

/// Kinds of request that every run must contain, beside every sort and every compare.
const KINDS: &[&str] = &[
    "range: one key",
    "range: interval",
    "range: from key",
    "range: everything",
    "range: nothing (end not above key)",
    "range: limit",
    "range: negative limit",
    "range: keys only",
    "range: count only",
    "range: serializable",
    "range: older revision",
    "range: at the compacted revision",
    "range: negative revision",
    "range: min_mod_revision",
    "range: max_mod_revision",
    "range: min_create_revision",
    "range: max_create_revision",
    "put: plain",
    "put: prev_kv",
    "put: ignore_value",
    "put: ignore_lease",
    "put: empty value",
    "put: with lease",
    "put: over 1.5 MB",
    "delete: one key",
    "delete: interval",
    "delete: from key",
    "delete: everything",
    "delete: nothing (end not above key)",
    "delete: prev_kv",
    "txn: empty",
    "txn: read-only",
    "txn: writing",
    "txn: nested",
    "txn: nested twice",
    "txn: no compare",
    "txn: at the limit of operations",
    "txn: range deleted, key inside put",
    "txn: empty operation",
    "txn: success taken",
    "txn: failure taken",
    "compare: range",
    "compare: no operand",
    "compare: operand of another target",
    "compact: logical",
    "compact: physical",
    "compact: zero",
    "compact: negative",
    "compact: current revision",
];

/// Counts of everything that came up.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    kinds: BTreeMap<String, u64>,
    errors: BTreeMap<&'static str, u64>,
    /// Refusals that `ERRORS` does not know.
    unexpected: BTreeMap<String, u64>,
}

impl Coverage {
    /// Counts one request and its answer.
    pub fn note(&mut self, request: &Request, answer: &Answer, before: Seen) {
        let mut kinds = Vec::new();
        match request {
            Request::Range(range) => range_kinds(range, before, &mut kinds),
            Request::Put(put) => put_kinds(put, &mut kinds),
            Request::Delete(delete) => delete_kinds(delete, &mut kinds),
            Request::Txn(txn) => txn_kinds(txn, before, 0, &mut kinds),
            Request::Compact(compaction) => compact_kinds(compaction, before, &mut kinds),
        }
        match answer {
            Answer::Txn(txn) if txn.succeeded => kinds.push("txn: success taken".to_owned()),
            Answer::Txn(_) => kinds.push("txn: failure taken".to_owned()),
            Answer::Refused(_, message) => self.note_error(message),
            Answer::Range(_) | Answer::Put(_) | Answer::Delete(_) | Answer::Compact(_) => {}
        }
        kinds.sort();
        kinds.dedup();
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    fn note_error(&mut self, message: &str) {
        match ERRORS.iter().find(|(_, words)| message.starts_with(words)) {
            Some((name, _)) => *self.errors.entry(name).or_default() += 1,
            None => *self.unexpected.entry(message.to_owned()).or_default() += 1,
        }
    }

    /// What should have come up and did not, and errors nobody foresaw.
    pub fn gaps(&self) -> Vec<String> {
        let kinds = required_kinds().into_iter().filter(|kind| !self.kinds.contains_key(kind));
        let errors = ERRORS.iter().filter(|(name, _)| !self.errors.contains_key(name));
        let unexpected =
            self.unexpected.iter().map(|(words, count)| format!("unforeseen error, {count}x: {words}"));
        kinds
            .map(|kind| format!("never exercised: {kind}"))
            .chain(errors.map(|(name, _)| format!("never met: {name}")))
            .chain(unexpected)
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in required_kinds() {
            writeln!(f, "  {:>6}  {kind}", self.kinds.get(&kind).copied().unwrap_or(0))?;
        }
        for (name, words) in ERRORS {
            writeln!(f, "  {:>6}  error {name}: {words}", self.errors.get(name).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

fn required_kinds() -> Vec<String> {
    let mut kinds: Vec<String> = KINDS.iter().map(|kind| (*kind).to_owned()).collect();
    for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
        let targets =
            [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value];
        kinds.extend(targets.map(|target| sort_kind(target as i32, order as i32)));
    }
    for target in 0..5 {
        kinds.extend((0..4).map(|result| compare_kind(target, result)));
    }
    kinds
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

fn add(kinds: &mut Vec<String>, kind: &str, when: bool) {
    if when {
        kinds.push(kind.to_owned());
    }
}

fn range_kinds(range: &RangeRequest, seen: Seen, kinds: &mut Vec<String>) {
    kinds.push(span_kind("range", &range.key, &range.range_end));
    kinds.push(sort_kind(range.sort_target, range.sort_order));
    add(kinds, "range: limit", 0 < range.limit);
    add(kinds, "range: negative limit", range.limit < 0);
    add(kinds, "range: keys only", range.keys_only);
    add(kinds, "range: count only", range.count_only);
    add(kinds, "range: serializable", range.serializable);
    add(
        kinds,
        "range: older revision",
        seen.compacted < range.revision && 0 < range.revision && range.revision < seen.revision,
    );
    add(kinds, "range: at the compacted revision", 0 < range.revision && range.revision == seen.compacted);
    add(kinds, "range: negative revision", range.revision < 0);
    add(kinds, "range: min_mod_revision", range.min_mod_revision != 0);
    add(kinds, "range: max_mod_revision", range.max_mod_revision != 0);
    add(kinds, "range: min_create_revision", range.min_create_revision != 0);
    add(kinds, "range: max_create_revision", range.max_create_revision != 0);
}

fn put_kinds(put: &PutRequest, kinds: &mut Vec<String>) {
    let flagged = put.prev_kv || put.ignore_value || put.ignore_lease || put.lease != 0;
    add(kinds, "put: plain", !flagged);
    add(kinds, "put: prev_kv", put.prev_kv);
    add(kinds, "put: ignore_value", put.ignore_value);
    add(kinds, "put: ignore_lease", put.ignore_lease);
    add(kinds, "put: empty value", put.value.is_empty());
    add(kinds, "put: with lease", put.lease != 0);
    add(kinds, "put: over 1.5 MB", 1_500_000 < put.value.len());
}

fn delete_kinds(delete: &DeleteRangeRequest, kinds: &mut Vec<String>) {
    kinds.push(span_kind("delete", &delete.key, &delete.range_end));
    add(kinds, "delete: prev_kv", delete.prev_kv);
}

fn txn_kinds(txn: &TxnRequest, seen: Seen, depth: usize, kinds: &mut Vec<String>) {
    let operations: Vec<&RequestOp> = txn.success.iter().chain(&txn.failure).collect();
    let reads = |op: &&RequestOp| matches!(op.request, Some(request_op::Request::RequestRange(_)));
    add(kinds, "txn: empty", operations.is_empty());
    add(kinds, "txn: read-only", !operations.is_empty() && operations.iter().all(reads));
    add(kinds, "txn: writing", !operations.iter().all(reads));
    add(kinds, "txn: nested", 0 < depth);
    add(kinds, "txn: nested twice", 1 < depth);
    add(kinds, "txn: no compare", txn.compare.is_empty());
    let widest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    add(kinds, "txn: at the limit of operations", widest == 128);
    add(kinds, "txn: range deleted, key inside put", deletes_then_puts(&txn.success));
    for compare in &txn.compare {
        compare_kinds(compare, kinds);
    }
    for op in operations {
        match &op.request {
            None => kinds.push("txn: empty operation".to_owned()),
            Some(request_op::Request::RequestRange(range)) => range_kinds(range, seen, kinds),
            Some(request_op::Request::RequestPut(put)) => put_kinds(put, kinds),
            Some(request_op::Request::RequestDeleteRange(delete)) => delete_kinds(delete, kinds),
            Some(request_op::Request::RequestTxn(inner)) => txn_kinds(inner, seen, depth + 1, kinds),
        }
    }
}

/// A range with an open end deleted, then a key inside it put: two events of one key in one revision.
fn deletes_then_puts(operations: &[RequestOp]) -> bool {
    operations.windows(2).any(|pair| match (&pair[0].request, &pair[1].request) {
        (
            Some(request_op::Request::RequestDeleteRange(delete)),
            Some(request_op::Request::RequestPut(put)),
        ) => delete.range_end.as_ref() == b"\0" && delete.key <= put.key,
        _ => false,
    })
}

fn compare_kinds(compare: &Compare, kinds: &mut Vec<String>) {
    kinds.push(compare_kind(compare.target, compare.result));
    add(kinds, "compare: range", !compare.range_end.is_empty());
    let operand = compare.target_union.as_ref().map(|operand| match operand {
        TargetUnion::Version(_) => CompareTarget::Version as i32,
        TargetUnion::CreateRevision(_) => CompareTarget::Create as i32,
        TargetUnion::ModRevision(_) => CompareTarget::Mod as i32,
        TargetUnion::Value(_) => CompareTarget::Value as i32,
        TargetUnion::Lease(_) => CompareTarget::Lease as i32,
    });
    add(kinds, "compare: no operand", operand.is_none());
    add(
        kinds,
        "compare: operand of another target",
        operand.is_some_and(|operand| operand != compare.target),
    );
}

fn compact_kinds(compaction: &CompactionRequest, seen: Seen, kinds: &mut Vec<String>) {
    add(kinds, "compact: logical", !compaction.physical);
    add(kinds, "compact: physical", compaction.physical);
    add(kinds, "compact: zero", compaction.revision == 0);
    add(kinds, "compact: negative", compaction.revision < 0);
    add(kinds, "compact: current revision", compaction.revision == seen.revision);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    const SEEN: Seen = Seen { revision: 9, compacted: 3 };

    #[test]
    fn nothing_exercised_is_a_gap_for_every_kind_and_error() {
        assert_eq!(Coverage::default().gaps().len(), required_kinds().len() + ERRORS.len());
    }

    #[test]
    fn what_came_up_is_no_gap() {
        let mut coverage = Coverage::default();
        let request = Request::Put(PutRequest::default());
        let refused = Answer::Refused(Code::InvalidArgument, "etcdserver: key is not provided".to_owned());
        coverage.note(&request, &refused, SEEN);
        let gaps = coverage.gaps();
        assert!(!gaps.contains(&"never met: EmptyKey".to_owned()));
        assert!(!gaps.contains(&"never exercised: put: plain".to_owned()));
    }

    #[test]
    fn an_unforeseen_error_is_a_gap_in_our_knowledge() {
        let mut coverage = Coverage::default();
        let before = coverage.gaps().len();
        coverage.note_error("etcdserver: something new");
        assert_eq!(coverage.gaps().len(), before + 1);
    }
}
