//! Tables: the size rule, the order of refusals, and what compares become.

use super::*;
use meerkat_types::{Key, KeyRange};

const OPS_MAX: usize = limits::TXN_OPERATIONS_MAX;

fn bytes(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

fn op(request: WireOp) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn get(key: &'static [u8]) -> pb::RequestOp {
    op(WireOp::RequestRange(pb::RangeRequest { key: bytes(key), ..Default::default() }))
}

fn put(key: &'static [u8]) -> pb::RequestOp {
    op(WireOp::RequestPut(pb::PutRequest { key: bytes(key), ..Default::default() }))
}

fn delete(key: &'static [u8]) -> pb::RequestOp {
    op(WireOp::RequestDeleteRange(pb::DeleteRangeRequest { key: bytes(key), ..Default::default() }))
}

fn nested(txn: pb::TxnRequest) -> pb::RequestOp {
    op(WireOp::RequestTxn(txn))
}

fn success(ops: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success: ops, ..Default::default() }
}

fn failure(ops: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { failure: ops, ..Default::default() }
}

fn compare(key: &'static [u8]) -> pb::Compare {
    pb::Compare { key: bytes(key), ..Default::default() }
}

fn compares(compares: Vec<pb::Compare>) -> pb::TxnRequest {
    pb::TxnRequest { compare: compares, ..Default::default() }
}

#[track_caller]
fn refused(wire: pb::TxnRequest, refusal: BadRequest) {
    assert_eq!(txn(wire, OPS_MAX), Err(refusal));
}

#[track_caller]
fn taken(wire: pb::TxnRequest) -> Txn {
    txn(wire, OPS_MAX).expect("this transaction is valid")
}

#[test]
fn operations_keep_their_branch_and_order() {
    let wire = pb::TxnRequest {
        compare: vec![],
        success: vec![get(b"a"), put(b"b"), delete(b"c")],
        failure: vec![nested(success(vec![put(b"d")]))],
    };
    let got = taken(wire);
    let [TxnOp::Range(range), TxnOp::Put(written), TxnOp::DeleteRange(deleted)] = &got.success[..] else {
        panic!("{:?}", got.success);
    };
    assert_eq!(range.keys.first().as_bytes(), b"a");
    assert_eq!(written.key.as_bytes(), b"b");
    assert_eq!(deleted.keys.first().as_bytes(), b"c");
    let [TxnOp::Txn(inner)] = &got.failure[..] else {
        panic!("{:?}", got.failure);
    };
    assert!(matches!(&inner.success[..], [TxnOp::Put(put)] if put.key.as_bytes() == b"d"));
    assert!(inner.failure.is_empty() && inner.compares.is_empty());
}

#[test]
fn an_empty_transaction_is_valid() {
    assert_eq!(taken(pb::TxnRequest::default()), Txn { compares: vec![], success: vec![], failure: vec![] });
}

#[test]
fn the_longest_of_the_three_lists_is_what_counts() {
    let fill = |count: usize| vec![get(b"a"); count];
    taken(pb::TxnRequest {
        compare: vec![compare(b"a"); OPS_MAX],
        success: fill(OPS_MAX),
        failure: fill(OPS_MAX),
    });
    for wire in
        [compares(vec![compare(b"a"); OPS_MAX + 1]), success(fill(OPS_MAX + 1)), failure(fill(OPS_MAX + 1))]
    {
        refused(wire, BadRequest::TooManyOperations);
    }
}

#[test]
fn a_nested_transaction_must_fit_in_what_its_parent_left() {
    let around = |outer: usize, inner: usize| {
        let mut ops = vec![get(b"a"); outer - 1];
        ops.push(nested(success(vec![get(b"a"); inner])));
        success(ops)
    };
    taken(around(100, 28));
    refused(around(100, 29), BadRequest::TooManyOperations);
    taken(around(OPS_MAX, 0));
    refused(around(OPS_MAX, 1), BadRequest::TooManyOperations);
    // Siblings do not share the remainder; each may use all of it.
    taken(success(vec![nested(success(vec![get(b"a"); 126])), nested(success(vec![get(b"a"); 126]))]));
}

#[test]
fn nesting_is_bounded_even_when_operations_are_not() {
    let tower = |levels: usize| {
        (1..levels).fold(pb::TxnRequest::default(), |inside, _| success(vec![nested(inside)]))
    };
    let depth = limits::TXN_DEPTH_MAX;
    txn(tower(depth), usize::MAX).expect("as deep as allowed");
    assert_eq!(txn(tower(depth + 1), usize::MAX), Err(BadRequest::TooManyOperations));
    taken(tower(depth));
    refused(tower(depth + 1), BadRequest::TooManyOperations);
}

#[test]
fn each_bad_part_is_refused_wherever_it_stands() {
    let bad_sort = op(WireOp::RequestRange(pb::RangeRequest {
        key: bytes(b"a"),
        sort_target: 17,
        ..Default::default()
    }));
    let bad_value = op(WireOp::RequestPut(pb::PutRequest {
        key: bytes(b"a"),
        value: bytes(b"v"),
        ignore_value: true,
        ..Default::default()
    }));
    let bad_lease = op(WireOp::RequestPut(pb::PutRequest {
        key: bytes(b"a"),
        lease: 1,
        ignore_lease: true,
        ..Default::default()
    }));
    let table = [
        (get(b""), BadRequest::EmptyKey),
        (put(b""), BadRequest::EmptyKey),
        (delete(b""), BadRequest::EmptyKey),
        (bad_sort, BadRequest::UnknownSort),
        (bad_value, BadRequest::ValueProvided),
        (bad_lease, BadRequest::LeaseProvided),
        (pb::RequestOp { request: None }, BadRequest::EmptyOperation),
    ];
    for (bad, refusal) in table {
        refused(success(vec![bad.clone()]), refusal);
        refused(failure(vec![bad.clone()]), refusal);
        refused(success(vec![nested(failure(vec![bad]))]), refusal);
    }
    refused(compares(vec![compare(b"")]), BadRequest::EmptyKey);
    refused(success(vec![nested(compares(vec![compare(b"")]))]), BadRequest::EmptyKey);
}

#[test]
fn size_is_looked_at_before_compares_before_success_before_failure_before_clashes() {
    let nothing = || pb::RequestOp { request: None };
    let mut wire = pb::TxnRequest {
        compare: vec![pb::Compare { result: 9, ..compare(b"a") }],
        success: vec![nested(success(vec![nothing()])), get(b"")],
        failure: vec![put(b"a"), put(b"a"), pb::RequestOp { request: None }],
    };
    wire.failure.resize(OPS_MAX + 1, put(b"b"));
    refused(wire.clone(), BadRequest::TooManyOperations);
    wire.failure.truncate(3);
    refused(wire.clone(), BadRequest::UnknownCompareResult(9));
    wire.compare.clear();
    refused(wire.clone(), BadRequest::EmptyOperation);
    wire.success.remove(0);
    refused(wire.clone(), BadRequest::EmptyKey);
    wire.success.clear();
    refused(wire.clone(), BadRequest::EmptyOperation);
    wire.failure.truncate(2);
    refused(wire, BadRequest::DuplicateKey);
}

#[test]
fn a_compare_takes_its_operand_or_zero_when_it_is_anothers() {
    let zero = Revision::new(0);
    let nine = Revision::new(9);
    let table = [
        (WireTarget::Version, WireOperand::Version(9), CompareTarget::Version(9), CompareTarget::Version(0)),
        (
            WireTarget::Create,
            WireOperand::CreateRevision(9),
            CompareTarget::Created(nine),
            CompareTarget::Created(zero),
        ),
        (
            WireTarget::Mod,
            WireOperand::ModRevision(9),
            CompareTarget::Modified(nine),
            CompareTarget::Modified(zero),
        ),
        (
            WireTarget::Value,
            WireOperand::Value(bytes(b"v")),
            CompareTarget::Value(bytes(b"v")),
            CompareTarget::Value(Bytes::new()),
        ),
        (
            WireTarget::Lease,
            WireOperand::Lease(9),
            CompareTarget::Lease(LeaseId::from_wire(9)),
            CompareTarget::Lease(None),
        ),
    ];
    for (wire, own, filled, blank) in &table {
        let read = |operand: Option<WireOperand>| {
            let wire = pb::Compare { target: *wire as i32, target_union: operand, ..compare(b"a") };
            Compare::try_from(wire).expect("valid").target
        };
        assert_eq!(read(Some(own.clone())), *filled);
        assert_eq!(read(None), *blank);
        for (.., other, _, _) in table.iter().filter(|(_, other, ..)| other != own) {
            assert_eq!(read(Some(other.clone())), *blank, "{wire:?} with {other:?}");
        }
    }
}

#[test]
fn a_compare_knows_its_operator_and_its_range() {
    let operators =
        [CompareOperator::Equal, CompareOperator::Greater, CompareOperator::Less, CompareOperator::NotEqual];
    for (result, operator) in (0..).zip(operators) {
        let wire = pb::Compare { result, range_end: bytes(b"\0"), ..compare(b"a") };
        let expected = Compare {
            keys: KeyRange::From(Key::new(bytes(b"a")).expect("test key")),
            target: CompareTarget::Version(0),
            operator,
        };
        assert_eq!(Compare::try_from(wire), Ok(expected));
    }
}

#[test]
fn an_unknown_compare_is_refused_and_not_guessed_at() {
    let table = [
        (pb::Compare { result: 4, ..compare(b"a") }, BadRequest::UnknownCompareResult(4)),
        (pb::Compare { result: -1, ..compare(b"a") }, BadRequest::UnknownCompareResult(-1)),
        (pb::Compare { target: 5, ..compare(b"a") }, BadRequest::UnknownCompareTarget(5)),
        (pb::Compare { target: 5, ..compare(b"") }, BadRequest::EmptyKey),
    ];
    for (wire, refusal) in table {
        refused(compares(vec![wire]), refusal);
    }
}
