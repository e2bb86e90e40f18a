//! The deepest transaction that is let in must survive every later decoding.
//!
//! The decoder gives up at a hundred levels of messages. A client's request that stays below it
//! takes more levels as a log entry; if such an entry were accepted and then could not be read, no
//! member could apply it, nor anything after it.

use super::*;
use crate::pb::entry;
use crate::pb::etcdserver::response_op::Response as WireDone;
use crate::pb::mvcc;
use prost::Message;

const DEEPEST: usize = limits::TXN_DEPTH_MAX;

fn decodes<M: Message + Default + PartialEq>(message: &M) -> bool {
    M::decode(&message.encode_to_vec()[..]).is_ok_and(|decoded| decoded == *message)
}

/// `levels` transactions, one in the other, with one of the most nested operations in the last.
fn request(levels: usize) -> pb::TxnRequest {
    let leaf = WireOp::RequestRange(pb::RangeRequest { key: Bytes::from_static(b"k"), ..Default::default() });
    let around =
        |op| pb::TxnRequest { success: vec![pb::RequestOp { request: Some(op) }], ..Default::default() };
    (1..levels).fold(around(leaf), |inside, _| around(WireOp::RequestTxn(inside)))
}

fn proposal(levels: usize) -> entry::Proposal {
    use entry::operation::Operation;
    let keys = Some(entry::KeyRange { key: Bytes::from_static(b"k"), range_end: Bytes::new() });
    let leaf = Operation::Range(entry::Range { keys, ..Default::default() });
    let around =
        |op| entry::Txn { success: vec![entry::Operation { operation: Some(op) }], ..Default::default() };
    let txn = (1..levels).fold(around(leaf), |inside, _| around(Operation::Txn(inside)));
    entry::Proposal { command: Some(entry::proposal::Command::Txn(txn)), ..Default::default() }
}

fn response(levels: usize) -> pb::TxnResponse {
    let kvs = vec![mvcc::KeyValue { version: 1, ..Default::default() }];
    let leaf = WireDone::ResponseRange(pb::RangeResponse { kvs: kvs.into(), ..Default::default() });
    let around = |done| pb::TxnResponse {
        responses: vec![pb::ResponseOp { response: Some(done) }],
        ..Default::default()
    };
    (1..levels).fold(around(leaf), |inside, _| around(WireDone::ResponseTxn(inside)))
}

#[test]
fn the_deepest_transaction_let_in_is_readable_as_request_entry_and_answer() {
    assert!(txn(request(DEEPEST), limits::TXN_OPERATIONS_MAX).is_ok());
    assert!(decodes(&request(DEEPEST)), "as a request");
    assert!(decodes(&proposal(DEEPEST)), "as a log entry");
    assert!(decodes(&response(DEEPEST)), "as an answer");
}

#[test]
fn a_request_can_be_deeper_than_what_a_log_entry_can_hold() {
    // If this fails the decoder has changed, and the limit may be raised.
    let deepest_entry = (1..).take_while(|levels| decodes(&proposal(*levels))).count();
    let deepest_request = (1..).take_while(|levels| decodes(&request(*levels))).count();
    assert!(deepest_entry < deepest_request, "{deepest_entry} {deepest_request}");
    assert_eq!(txn(request(deepest_request), usize::MAX), Err(BadRequest::TooManyOperations));
}
