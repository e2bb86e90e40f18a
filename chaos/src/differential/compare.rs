//! Whether two answers to one request are the same answer.
//!
//! Everything is compared, but for ids and terms (taken away before), and but for one freedom the
//! contract leaves: keys that are equal in what they are sorted by may come in any order. Such keys
//! are compared as sets, group by group; when a limit cuts through a group, which of its keys are
//! shown is free too.

use std::collections::HashMap;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::range_request::SortTarget;
use meerkat_proto::pb::etcdserver::{
    RangeRequest, RangeResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse, request_op, response_op,
};
use meerkat_proto::pb::mvcc::KeyValue;

use super::request::{Answer, Request};

/// The real values of keys whose values an answer hides.
pub type HiddenValues = HashMap<Bytes, Bytes>;

/// In what the two answers differ, or nothing.
pub fn difference(
    request: &Request,
    etcd: &Answer,
    meerkat: &Answer,
    hidden: &HiddenValues,
) -> Option<String> {
    match (request, etcd, meerkat) {
        (Request::Range(request), Answer::Range(etcd), Answer::Range(meerkat)) => {
            range_difference(request, etcd, meerkat, hidden)
        }
        (Request::Txn(request), Answer::Txn(etcd), Answer::Txn(meerkat)) => {
            txn_difference(request, etcd, meerkat)
        }
        _ if etcd == meerkat => None,
        _ => Some("the answers differ".to_owned()),
    }
}

fn txn_difference(request: &TxnRequest, etcd: &TxnResponse, meerkat: &TxnResponse) -> Option<String> {
    if etcd.header != meerkat.header {
        return Some("headers differ".to_owned());
    }
    if etcd.succeeded != meerkat.succeeded {
        return Some("one took the success branch, the other the failure branch".to_owned());
    }
    let taken = if etcd.succeeded { &request.success } else { &request.failure };
    if etcd.responses.len() != taken.len() || meerkat.responses.len() != taken.len() {
        return Some("not one answer for each operation".to_owned());
    }
    let pairs = etcd.responses.iter().zip(&meerkat.responses);
    taken.iter().zip(pairs).enumerate().find_map(|(index, (op, (etcd, meerkat)))| {
        operation_difference(op, etcd, meerkat).map(|what| format!("operation {index}: {what}"))
    })
}

fn operation_difference(op: &RequestOp, etcd: &ResponseOp, meerkat: &ResponseOp) -> Option<String> {
    use request_op::Request as Asked;
    use response_op::Response as Got;
    match (&op.request, &etcd.response, &meerkat.response) {
        (
            Some(Asked::RequestRange(request)),
            Some(Got::ResponseRange(etcd)),
            Some(Got::ResponseRange(meerkat)),
        ) => range_difference(request, etcd, meerkat, &HiddenValues::new()),
        (Some(Asked::RequestTxn(request)), Some(Got::ResponseTxn(etcd)), Some(Got::ResponseTxn(meerkat))) => {
            txn_difference(request, etcd, meerkat)
        }
        _ if etcd == meerkat => None,
        _ => Some("the answers differ".to_owned()),
    }
}

fn range_difference(
    request: &RangeRequest,
    etcd: &RangeResponse,
    meerkat: &RangeResponse,
    hidden: &HiddenValues,
) -> Option<String> {
    if etcd.header != meerkat.header {
        return Some("headers differ".to_owned());
    }
    if (etcd.count, etcd.more) != (meerkat.count, meerkat.more) {
        return Some("count or more differ".to_owned());
    }
    let (etcd_kvs, meerkat_kvs) = (etcd.kvs(), meerkat.kvs());
    if etcd_kvs == meerkat_kvs {
        return None;
    }
    if request.sort_target == SortTarget::Key as i32 {
        return Some("key-values differ".to_owned());
    }
    let sorted_by = |kv: &KeyValue| sort_key(request, kv, hidden);
    let (left, right) = (grouped(etcd_kvs, sorted_by), grouped(meerkat_kvs, sorted_by));
    groups_difference(&left, &right, etcd.more)
}

/// Runs of key-values that are equal in what they are sorted by, each run in key order.
fn grouped(kvs: &[KeyValue], sorted_by: impl Fn(&KeyValue) -> SortKey) -> Vec<(SortKey, Vec<&KeyValue>)> {
    let mut groups: Vec<(SortKey, Vec<&KeyValue>)> = Vec::new();
    for kv in kvs {
        let by = sorted_by(kv);
        match groups.last_mut() {
            Some((last, group)) if *last == by => group.push(kv),
            _ => groups.push((by, vec![kv])),
        }
    }
    for (_, group) in &mut groups {
        group.sort_by(|one, other| one.key.cmp(&other.key));
    }
    groups
}

fn groups_difference(
    etcd: &[(SortKey, Vec<&KeyValue>)],
    meerkat: &[(SortKey, Vec<&KeyValue>)],
    cut_at_end: bool,
) -> Option<String> {
    if etcd.len() != meerkat.len() {
        return Some("the orders differ".to_owned());
    }
    let last = etcd.len().checked_sub(1);
    for (index, (left, right)) in etcd.iter().zip(meerkat).enumerate() {
        if left.0 != right.0 || left.1.len() != right.1.len() {
            return Some(format!("the orders differ at {:?} and {:?}", left.0, right.0));
        }
        let free = cut_at_end && Some(index) == last;
        if !free && left.1 != right.1 {
            return Some(format!("key-values differ among those with {:?}", left.0));
        }
    }
    None
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SortKey {
    Number(i64),
    Bytes(Bytes),
}

fn sort_key(request: &RangeRequest, kv: &KeyValue, hidden: &HiddenValues) -> SortKey {
    match SortTarget::try_from(request.sort_target) {
        Ok(SortTarget::Version) => SortKey::Number(kv.version),
        Ok(SortTarget::Create) => SortKey::Number(kv.create_revision),
        Ok(SortTarget::Mod) => SortKey::Number(kv.mod_revision),
        Ok(SortTarget::Value) if request.keys_only => {
            SortKey::Bytes(hidden.get(&kv.key).cloned().unwrap_or_else(|| kv.value.clone()))
        }
        Ok(SortTarget::Value) => SortKey::Bytes(kv.value.clone()),
        Ok(SortTarget::Key) | Err(_) => SortKey::Bytes(kv.key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::KvList;

    fn kv(key: &'static str, version: i64) -> KeyValue {
        KeyValue { key: Bytes::from_static(key.as_bytes()), version, ..Default::default() }
    }

    fn differ(target: SortTarget, more: bool, etcd: Vec<KeyValue>, meerkat: Vec<KeyValue>) -> bool {
        let request = Request::Range(RangeRequest { sort_target: target as i32, ..Default::default() });
        let answer =
            |kvs| Answer::Range(RangeResponse { kvs: KvList::Decoded(kvs), more, ..Default::default() });
        difference(&request, &answer(etcd), &answer(meerkat), &HiddenValues::new()).is_some()
    }

    #[test]
    fn equal_sort_targets_may_come_in_any_order() {
        assert!(!differ(
            SortTarget::Version,
            false,
            vec![kv("a", 1), kv("b", 1)],
            vec![kv("b", 1), kv("a", 1)]
        ));
    }

    #[test]
    fn different_sort_targets_may_not() {
        assert!(differ(
            SortTarget::Version,
            false,
            vec![kv("a", 1), kv("b", 2)],
            vec![kv("b", 2), kv("a", 1)]
        ));
    }

    #[test]
    fn keys_have_one_order_only() {
        assert!(differ(SortTarget::Key, false, vec![kv("a", 1), kv("b", 1)], vec![kv("b", 1), kv("a", 1)]));
    }

    #[test]
    fn a_limit_may_cut_a_group_of_equals_anywhere() {
        assert!(!differ(SortTarget::Version, true, vec![kv("a", 1)], vec![kv("b", 1)]));
        assert!(differ(SortTarget::Version, false, vec![kv("a", 1)], vec![kv("b", 1)]));
    }

    #[test]
    fn an_error_must_have_the_same_code_and_the_same_words() {
        let request = Request::Range(RangeRequest::default());
        let refused = |code, text: &str| Answer::Refused(code, text.to_owned());
        let same = refused(tonic::Code::OutOfRange, "x");
        for other in [refused(tonic::Code::OutOfRange, "y"), refused(tonic::Code::Unknown, "x")] {
            assert!(difference(&request, &same, &other, &HiddenValues::new()).is_some());
        }
        assert!(difference(&request, &same, &same.clone(), &HiddenValues::new()).is_none());
    }
}
