//! Each answer as clients would read it, headers at every level included.

use super::*;
use bytes::Bytes;
use meerkat_types::LeaseId;
use prost::Message;

fn header() -> pb::ResponseHeader {
    pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 30, raft_term: 4 }
}

fn revision_only(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

fn kv(key: &'static str) -> KeyValue {
    KeyValue {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(b"v"),
        created: Revision::new(2),
        modified: Revision::new(3),
        version: 2,
        lease: LeaseId::from_wire(5),
    }
}

fn decoded(keys: &[&'static str]) -> KvPage {
    KvPage::Decoded(keys.iter().map(|key| kv(key)).collect())
}

/// The same key-values as a store hands them out.
fn wire(keys: &[&'static str]) -> KvPage {
    let mut bytes = Vec::new();
    for key in keys {
        let element = mvcc::KeyValue::from(kv(key)).encode_length_delimited_to_vec();
        bytes.push(0x12);
        bytes.extend_from_slice(&element);
    }
    KvPage::Wire { bytes: bytes.into(), len: keys.len() }
}

fn found(kvs: KvPage) -> RangeAnswer {
    RangeAnswer { kvs, more: true, count: 9, revision: Revision::new(7) }
}

fn through_the_wire<M: Message + Default>(message: &M) -> M {
    M::decode(Bytes::from(message.encode_to_vec())).expect("own bytes decode")
}

#[test]
fn a_range_answers_with_the_header_it_was_given() {
    for page in [decoded(&["a", "b"]), wire(&["a", "b"])] {
        let got = through_the_wire(&range(header(), found(page)));
        assert_eq!(got.header, Some(header()));
        assert_eq!((got.more, got.count), (true, 9));
        assert_eq!(got.kvs(), [kv("a").into(), kv("b").into()]);
    }
}

#[test]
fn a_put_answers_with_what_it_replaced_if_anything() {
    let done = |previous| PutDone { revision: Revision::new(7), previous };
    let expected = pb::PutResponse { header: Some(header()), prev_kv: Some(kv("a").into()) };
    assert_eq!(put(header(), done(Some(kv("a")))), expected);
    assert_eq!(put(header(), done(None)).prev_kv, None);
}

#[test]
fn a_delete_answers_with_how_many_and_which() {
    let done = Deleted { revision: Revision::new(7), deleted: 2, previous: vec![kv("a"), kv("b")] };
    let expected = pb::DeleteRangeResponse {
        header: Some(header()),
        deleted: 2,
        prev_kvs: vec![kv("a").into(), kv("b").into()],
    };
    assert_eq!(delete_range(header(), done), expected);
}

#[test]
fn inside_a_transaction_headers_carry_only_the_revision_and_nested_ones_nothing() {
    let inner = TxnDone {
        revision: Revision::new(8),
        succeeded: true,
        ops: vec![TxnOpDone::Range(found(wire(&["a"])))],
    };
    let done = TxnDone {
        revision: Revision::new(8),
        succeeded: false,
        ops: vec![
            TxnOpDone::Range(found(wire(&["a", "b"]))),
            TxnOpDone::Put(PutDone { revision: Revision::new(8), previous: Some(kv("p")) }),
            TxnOpDone::DeleteRange(Deleted { revision: Revision::new(8), deleted: 0, previous: vec![] }),
            TxnOpDone::Txn(inner),
        ],
    };
    let got = through_the_wire(&txn(header(), done));

    let range_of = |keys: &[&'static str]| {
        WireDone::ResponseRange(RangeResponse {
            header: revision_only(7),
            kvs: decoded(keys).into(),
            more: true,
            count: 9,
        })
    };
    let op = |response| pb::ResponseOp { response: Some(response) };
    let expected = pb::TxnResponse {
        header: Some(header()),
        succeeded: false,
        responses: vec![
            op(range_of(&["a", "b"])),
            op(WireDone::ResponsePut(pb::PutResponse {
                header: revision_only(8),
                prev_kv: Some(kv("p").into()),
            })),
            op(WireDone::ResponseDeleteRange(pb::DeleteRangeResponse {
                header: revision_only(8),
                deleted: 0,
                prev_kvs: vec![],
            })),
            op(WireDone::ResponseTxn(pb::TxnResponse {
                header: Some(pb::ResponseHeader::default()),
                succeeded: true,
                responses: vec![op(range_of(&["a"]))],
            })),
        ],
    };
    assert_eq!(got, expected);
}

#[test]
fn a_nested_transactions_empty_header_is_on_the_wire() {
    let done = TxnDone { revision: Revision::new(8), succeeded: true, ops: vec![] };
    let outer = TxnDone { revision: Revision::new(8), succeeded: true, ops: vec![TxnOpDone::Txn(done)] };
    let bytes = txn(pb::ResponseHeader::default(), outer).encode_to_vec();
    // header{} | succeeded | responses[ response_txn[ header{} | succeeded ] ]
    assert_eq!(bytes, [0x0a, 0, 0x10, 1, 0x1a, 6, 0x22, 4, 0x0a, 0, 0x10, 1]);
}
