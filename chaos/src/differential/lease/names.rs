//! One name for each lease on both clusters, though a server may pick the id itself.
//!
//! A chosen id is its own name. An id that a server picked gets a name from a range that no run
//! chooses from; requests are translated on their way out, answers and events on their way in.
//! Whatever is compared therefore holds names only.

use std::collections::HashMap;

use meerkat_proto::pb::etcdserver::compare::TargetUnion;
use meerkat_proto::pb::etcdserver::{
    Compare, KvList, RequestOp, ResponseOp, TxnRequest, TxnResponse, request_op, response_op,
};
use meerkat_proto::pb::mvcc::{Event, KeyValue};

use crate::differential::request::{Answer, Request};

/// Names of ids that servers picked begin here, far above every id a run chooses.
const PICKED_FROM: i64 = 0x1ea5_e000_0000_0000;
/// How many such names there can be.
const PICKED_MAX: i64 = 1 << 32;

/// The name of the `count`th id that servers picked.
pub fn picked(count: usize) -> i64 {
    PICKED_FROM + i64::try_from(count).expect("a run has few leases")
}

/// Whether a name stands for an id that servers picked.
pub fn is_picked(name: i64) -> bool {
    (PICKED_FROM..PICKED_FROM + PICKED_MAX).contains(&name)
}

/// What one cluster calls the leases.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: HashMap<i64, i64>,
    names: HashMap<i64, i64>,
}

impl Names {
    /// A server picked this id for the lease of this name.
    pub fn learn(&mut self, name: i64, id: i64) {
        self.ids.insert(name, id);
        self.names.insert(id, name);
    }

    /// The id of a lease.
    pub fn id(&self, name: i64) -> i64 {
        self.ids.get(&name).copied().unwrap_or(name)
    }

    /// The name of a lease.
    pub fn name(&self, id: i64) -> i64 {
        self.names.get(&id).copied().unwrap_or(id)
    }

    /// A request as this cluster is to be asked it.
    pub fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        match &mut request {
            Request::Put(put) => put.lease = self.id(put.lease),
            Request::Txn(txn) => self.outgoing_txn(txn),
            Request::Range(_) | Request::Delete(_) | Request::Compact(_) => {}
        }
        request
    }

    /// An answer of this cluster as it is compared.
    pub fn answer(&self, mut answer: Answer) -> Answer {
        match &mut answer {
            Answer::Range(range) => self.incoming_list(&mut range.kvs),
            Answer::Put(put) => self.incoming(put.prev_kv.as_mut()),
            Answer::Delete(delete) => self.incoming(&mut delete.prev_kvs),
            Answer::Txn(txn) => self.incoming_txn(txn),
            Answer::Compact(_) | Answer::Refused(..) => {}
        }
        answer
    }

    /// An event of this cluster as it is compared.
    pub fn event(&self, mut event: Event) -> Event {
        self.incoming(event.kv.as_mut());
        self.incoming(event.prev_kv.as_mut());
        event
    }

    fn outgoing_txn(&self, txn: &mut TxnRequest) {
        txn.compare.iter_mut().for_each(|compare| self.outgoing_compare(compare));
        for RequestOp { request } in txn.success.iter_mut().chain(&mut txn.failure) {
            match request {
                Some(request_op::Request::RequestPut(put)) => put.lease = self.id(put.lease),
                Some(request_op::Request::RequestTxn(txn)) => self.outgoing_txn(txn),
                _ => {}
            }
        }
    }

    fn outgoing_compare(&self, compare: &mut Compare) {
        if let Some(TargetUnion::Lease(lease)) = &mut compare.target_union {
            *lease = self.id(*lease);
        }
    }

    fn incoming_txn(&self, txn: &mut TxnResponse) {
        use response_op::Response::{ResponseDeleteRange, ResponsePut, ResponseRange, ResponseTxn};
        for ResponseOp { response } in &mut txn.responses {
            match response {
                Some(ResponseRange(range)) => self.incoming_list(&mut range.kvs),
                Some(ResponsePut(put)) => self.incoming(put.prev_kv.as_mut()),
                Some(ResponseDeleteRange(delete)) => self.incoming(&mut delete.prev_kvs),
                Some(ResponseTxn(txn)) => self.incoming_txn(txn),
                None => {}
            }
        }
    }

    fn incoming_list(&self, kvs: &mut KvList) {
        // Answers off the wire are always decoded.
        if let KvList::Decoded(kvs) = kvs {
            self.incoming(kvs);
        }
    }

    fn incoming<'a>(&self, kvs: impl IntoIterator<Item = &'a mut KeyValue>) {
        kvs.into_iter().for_each(|kv| kv.lease = self.name(kv.lease));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::{PutRequest, RangeResponse};

    #[test]
    fn a_picked_id_is_hidden_wherever_a_lease_can_stand() {
        let mut names = Names::default();
        names.learn(picked(0), 77);
        let put = PutRequest { lease: picked(0), ..Default::default() };
        let inner = TxnRequest {
            success: vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }],
            compare: vec![Compare {
                target_union: Some(TargetUnion::Lease(picked(0))),
                ..Default::default()
            }],
            ..Default::default()
        };
        let outer = TxnRequest {
            failure: vec![RequestOp { request: Some(request_op::Request::RequestTxn(inner)) }],
            ..Default::default()
        };
        let sent = format!("{:?}", names.request(&Request::Txn(outer)));
        assert!(!sent.contains(&picked(0).to_string()) && sent.matches("77").count() == 2, "{sent}");

        let kv = KeyValue { lease: 77, ..Default::default() };
        let range = RangeResponse { kvs: KvList::Decoded(vec![kv]), ..Default::default() };
        let Answer::Range(seen) = names.answer(Answer::Range(range)) else { panic!("a range stays one") };
        assert_eq!(seen.kvs()[0].lease, picked(0));
    }

    #[test]
    fn a_chosen_id_is_its_own_name() {
        let names = Names::default();
        assert_eq!((names.id(-5), names.name(i64::MAX)), (-5, i64::MAX));
        assert!(is_picked(picked(9)) && !is_picked(i64::MAX) && !is_picked(40));
    }
}
