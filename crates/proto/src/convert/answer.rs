//! Answers, to the wire.
//!
//! The caller hands in the header of the whole answer and it goes out as it is. Inside a
//! transaction headers are made here: an operation's carries its revision and nothing else, a
//! nested transaction's is there but empty, because clients of etcd find them so.

use crate::pb::etcdserver as pb;
use crate::pb::etcdserver::response_op::Response as WireDone;
use crate::pb::mvcc;
use crate::range_response::{KvList, RangeResponse};
use meerkat_types::{Deleted, KeyValue, KvPage, PutDone, RangeAnswer, Revision, TxnDone, TxnOpDone};

pub fn range(header: pb::ResponseHeader, answer: RangeAnswer) -> RangeResponse {
    RangeResponse {
        header: Some(header),
        kvs: answer.kvs.into(),
        more: answer.more,
        count: signed(answer.count),
    }
}

pub fn put(header: pb::ResponseHeader, done: PutDone) -> pb::PutResponse {
    pb::PutResponse { header: Some(header), prev_kv: done.previous.map(mvcc::KeyValue::from) }
}

pub fn delete_range(header: pb::ResponseHeader, done: Deleted) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: Some(header),
        deleted: signed(done.deleted),
        prev_kvs: to_wire(done.previous),
    }
}

pub fn txn(header: pb::ResponseHeader, done: TxnDone) -> pb::TxnResponse {
    pb::TxnResponse {
        header: Some(header),
        succeeded: done.succeeded,
        responses: done.ops.into_iter().map(operation).collect(),
    }
}

fn operation(done: TxnOpDone) -> pb::ResponseOp {
    let response = match done {
        TxnOpDone::Range(answer) => WireDone::ResponseRange(range(only(answer.revision), answer)),
        TxnOpDone::Put(done) => WireDone::ResponsePut(put(only(done.revision), done)),
        TxnOpDone::DeleteRange(done) => {
            WireDone::ResponseDeleteRange(delete_range(only(done.revision), done))
        }
        TxnOpDone::Txn(done) => WireDone::ResponseTxn(txn(pb::ResponseHeader::default(), done)),
    };
    pb::ResponseOp { response: Some(response) }
}

fn only(revision: Revision) -> pb::ResponseHeader {
    pb::ResponseHeader { revision: revision.get(), ..Default::default() }
}

fn to_wire(kvs: Vec<KeyValue>) -> Vec<mvcc::KeyValue> {
    kvs.into_iter().map(mvcc::KeyValue::from).collect()
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).expect("no store holds more keys than revisions can count")
}

impl From<KvPage> for KvList {
    fn from(page: KvPage) -> KvList {
        match page {
            KvPage::Decoded(kvs) => KvList::Decoded(to_wire(kvs)),
            KvPage::Wire { bytes, len } => KvList::Wire { bytes, len },
        }
    }
}

#[cfg(test)]
mod tests;
