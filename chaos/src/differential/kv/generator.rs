//! Random requests from one seed.
//!
//! Pure but for its random numbers: given the seed and what the answers showed so far, the same
//! requests come out. Enum values are always known ones (the contract refuses unknown ones, etcd
//! 3.5 does not), and leases are only such as nobody granted, since the KV service grants none. A
//! transaction that deletes with an open end puts nothing with `ignore_value` or `ignore_lease`: if
//! it has just deleted that very key, etcd 3.5.1 finds out too late to refuse, and panics.

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, CompareTarget, TargetUnion};
use meerkat_proto::pb::etcdserver::range_request::{SortOrder, SortTarget};
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    request_op,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::differential::keys;
use crate::differential::request::{Request, delete_op, put_op};

/// Above what may be proposed, below what may be received.
const TOO_LARGE_TO_PROPOSE: std::ops::Range<usize> = 1_573_000..2_090_000;
/// Above what may be received.
const TOO_LARGE_TO_RECEIVE: std::ops::Range<usize> = 2_097_200..2_400_000;
/// Just below what may be proposed.
const LARGE_BUT_FINE: std::ops::Range<usize> = 1_500_000..1_572_700;
const TXN_OPS_MAX: usize = 128;
const NESTING_MAX: usize = 3;

/// What the answers have shown of the store so far.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its revision.
    pub revision: i64,
    /// The revision it was last compacted at; -1 if never.
    pub compacted: i64,
}

/// The source of requests.
#[derive(Debug)]
pub struct Generator {
    random: StdRng,
}

impl Generator {
    /// One run's requests.
    pub fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    /// The next request.
    pub fn next(&mut self, seen: Seen) -> Request {
        match self.random.random_range(0..1_000) {
            0..=329 => Request::Put(self.put()),
            330..=599 => Request::Range(self.range(seen, false)),
            600..=699 => Request::Delete(keys::deletion(&mut self.random)),
            700..=944 => Request::Txn(self.txn(seen, 0)),
            945..=964 => Request::Compact(self.compaction(seen)),
            965..=979 => Request::Txn(self.wide_txn()),
            980..=989 => Request::Txn(self.delete_then_put()),
            990..=993 => Request::Put(self.large_put()),
            994..=996 => Request::Put(PutRequest { key: Bytes::new(), ..self.put() }),
            997 => Request::Range(RangeRequest { key: Bytes::new(), ..self.range(seen, false) }),
            998 => {
                Request::Delete(DeleteRangeRequest { key: Bytes::new(), ..keys::deletion(&mut self.random) })
            }
            _ => Request::Txn(TxnRequest {
                compare: vec![Compare { key: Bytes::new(), ..self.compare() }],
                ..self.txn(seen, NESTING_MAX)
            }),
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn put(&mut self) -> PutRequest {
        let mut put = PutRequest {
            key: keys::key(&mut self.random),
            value: keys::value(&mut self.random),
            prev_kv: self.chance(3),
            ..Default::default()
        };
        match self.random.random_range(0..40) {
            0..=3 => (put.ignore_value, put.value) = (true, Bytes::new()),
            4..=7 => put.ignore_lease = true,
            8 => (put.ignore_value, put.ignore_lease, put.value) = (true, true, Bytes::new()),
            9 => (put.ignore_value, put.value) = (true, Bytes::from_static(b"given")),
            10 => (put.ignore_lease, put.lease) = (true, self.unknown_lease()),
            11 => put.lease = self.unknown_lease(),
            12 => (put.ignore_value, put.value, put.lease) = (true, Bytes::new(), self.unknown_lease()),
            _ => {}
        }
        put
    }

    /// A lease that nobody granted.
    fn unknown_lease(&mut self) -> i64 {
        let lease = self.random.random_range(1..i64::MAX);
        if self.random.random() { lease } else { -lease }
    }

    fn large_put(&mut self) -> PutRequest {
        let sizes = [TOO_LARGE_TO_PROPOSE, TOO_LARGE_TO_RECEIVE, LARGE_BUT_FINE];
        let size = sizes.choose(&mut self.random).expect("three sizes").clone();
        let length = self.random.random_range(size);
        PutRequest {
            key: Bytes::from_static(b"large"),
            value: vec![b'x'; length].into(),
            ..Default::default()
        }
    }

    /// Inside a transaction nothing beside the answer tells the values of a keys-only range, so
    /// such a range is not sorted by them there.
    fn range(&mut self, seen: Seen, inside_txn: bool) -> RangeRequest {
        let (key, range_end) = keys::range(&mut self.random);
        let mut range = RangeRequest {
            key,
            range_end,
            serializable: self.chance(4),
            keys_only: self.chance(5),
            count_only: self.chance(8),
            revision: self.read_revision(seen),
            ..Default::default()
        };
        if self.chance(2) {
            range.limit = *[-1, 1, 1, 2, 3, 5, 10, 100].choose(&mut self.random).expect("limits");
        }
        if self.chance(2) {
            range.sort_order = self.random.random_range(0..3);
            range.sort_target = self.random.random_range(0..5);
            if inside_txn && range.keys_only && range.sort_target == SortTarget::Value as i32 {
                range.sort_target = SortTarget::Mod as i32;
            }
        }
        if self.chance(3) {
            self.add_bounds(&mut range, seen);
        }
        debug_assert!(SortOrder::try_from(range.sort_order).is_ok());
        range
    }

    fn add_bounds(&mut self, range: &mut RangeRequest, seen: Seen) {
        let bound = |random: &mut StdRng| random.random_range(0..=seen.revision.max(1));
        if self.random.random() {
            range.min_mod_revision = bound(&mut self.random);
        }
        if self.random.random() {
            range.max_mod_revision = bound(&mut self.random);
        }
        if self.random.random() {
            range.min_create_revision = bound(&mut self.random);
        }
        if self.random.random() {
            range.max_create_revision = bound(&mut self.random);
        }
    }

    fn read_revision(&mut self, seen: Seen) -> i64 {
        match self.random.random_range(0..20) {
            0..=11 => 0,
            12 => -1,
            13 => seen.revision + self.random.random_range(1..100),
            14 => self.random.random_range(1..=seen.compacted.max(1)),
            15 => seen.compacted.max(1),
            16 => seen.revision,
            _ => self.random.random_range(seen.compacted.max(1)..=seen.revision.max(seen.compacted.max(1))),
        }
    }

    fn compaction(&mut self, seen: Seen) -> CompactionRequest {
        let revision = match self.random.random_range(0..20) {
            0 | 1 => 0,
            2 | 3 => -self.random.random_range(1..1_000),
            4 => seen.revision + self.random.random_range(1..1_000),
            5 => seen.compacted,
            6 => seen.compacted + 1,
            7 | 8 => seen.revision,
            // Mostly leave some history to read.
            _ => self.random.random_range(seen.compacted..=seen.revision) / 2 + seen.compacted.max(0) / 2,
        };
        CompactionRequest { revision, physical: self.random.random() }
    }

    fn txn(&mut self, seen: Seen, depth: usize) -> TxnRequest {
        let count = |random: &mut StdRng, max: usize| random.random_range(0..=max);
        let compares = count(&mut self.random, 3);
        let reads_only = self.chance(5);
        let branch = |generator: &mut Self| {
            let operations = count(&mut generator.random, 4);
            (0..operations).map(|_| generator.operation(seen, depth, reads_only)).collect::<Vec<_>>()
        };
        let mut success = branch(self);
        let mut failure = branch(self);
        if deletes_with_open_end(&success) || deletes_with_open_end(&failure) {
            ignore_nothing(&mut success);
            ignore_nothing(&mut failure);
        }
        TxnRequest { compare: (0..compares).map(|_| self.compare()).collect(), success, failure }
    }

    fn operation(&mut self, seen: Seen, depth: usize, reads_only: bool) -> RequestOp {
        let request = match self.random.random_range(0..20) {
            _ if reads_only => Some(request_op::Request::RequestRange(self.range(seen, true))),
            0..=8 => Some(request_op::Request::RequestPut(self.put())),
            9..=13 => Some(request_op::Request::RequestRange(self.range(seen, true))),
            14..=16 => Some(request_op::Request::RequestDeleteRange(keys::deletion(&mut self.random))),
            17 | 18 if depth < NESTING_MAX => {
                Some(request_op::Request::RequestTxn(self.txn(seen, depth + 1)))
            }
            19 if self.chance(5) => None,
            _ => Some(request_op::Request::RequestPut(PutRequest {
                key: keys::key(&mut self.random),
                value: keys::value(&mut self.random),
                ..Default::default()
            })),
        };
        RequestOp { request }
    }

    fn compare(&mut self) -> Compare {
        let target = CompareTarget::try_from(self.random.random_range(0..5)).expect("five targets");
        let result = CompareResult::try_from(self.random.random_range(0..4)).expect("four results");
        let (key, range_end) = if self.chance(3) {
            keys::range(&mut self.random)
        } else {
            (keys::key(&mut self.random), Bytes::new())
        };
        let target_union = match self.random.random_range(0..20) {
            0 => None,
            1 => Some(self.operand(CompareTarget::Value)),
            2 => Some(self.operand(CompareTarget::Version)),
            _ => Some(self.operand(target)),
        };
        Compare { result: result as i32, target: target as i32, key, range_end, target_union }
    }

    fn operand(&mut self, target: CompareTarget) -> TargetUnion {
        let small = self.random.random_range(0..4);
        match target {
            CompareTarget::Version => TargetUnion::Version(small),
            CompareTarget::Create => TargetUnion::CreateRevision(small * self.random.random_range(0..500)),
            CompareTarget::Mod => TargetUnion::ModRevision(small * self.random.random_range(0..500)),
            CompareTarget::Value => TargetUnion::Value(keys::value(&mut self.random)),
            CompareTarget::Lease => TargetUnion::Lease(small),
        }
    }

    /// A transaction at or just above the limit of operations, plain or nested.
    fn wide_txn(&mut self) -> TxnRequest {
        let over = usize::from(self.random.random::<bool>());
        let operations = |count: usize| (0..count).map(distinct_put).collect::<Vec<_>>();
        match self.random.random_range(0..4) {
            0 => TxnRequest { success: operations(TXN_OPS_MAX + over), ..Default::default() },
            1 => TxnRequest { failure: operations(TXN_OPS_MAX + over), ..Default::default() },
            2 => TxnRequest {
                compare: (0..TXN_OPS_MAX + over).map(|_| self.compare()).collect(),
                ..Default::default()
            },
            _ => {
                // The inner one must fit in what the outer one leaves.
                let inner = TxnRequest { success: operations(TXN_OPS_MAX - 1 + over), ..Default::default() };
                let inner = RequestOp { request: Some(request_op::Request::RequestTxn(inner)) };
                TxnRequest { success: vec![inner], ..Default::default() }
            }
        }
    }

    /// A range deleted and a key inside it put, in one transaction. With an open end both take
    /// effect; with any other, it is a duplicate.
    fn delete_then_put(&mut self) -> TxnRequest {
        let inside = keys::key(&mut self.random);
        let open = self.random.random_ratio(2, 3);
        let range_end = if open { Bytes::from_static(b"\0") } else { Bytes::from_static(b"\xff\xff\xff") };
        let delete = DeleteRangeRequest { key: inside.clone(), range_end, prev_kv: self.random.random() };
        let put = PutRequest {
            key: inside,
            value: keys::value(&mut self.random),
            prev_kv: self.random.random(),
            ..Default::default()
        };
        TxnRequest { success: vec![delete_op(delete), put_op(put)], ..Default::default() }
    }
}

fn deletes_with_open_end(operations: &[RequestOp]) -> bool {
    operations.iter().any(|op| match &op.request {
        Some(request_op::Request::RequestDeleteRange(delete)) => delete.range_end.as_ref() == b"\0",
        Some(request_op::Request::RequestTxn(txn)) => {
            deletes_with_open_end(&txn.success) || deletes_with_open_end(&txn.failure)
        }
        _ => false,
    })
}

fn ignore_nothing(operations: &mut [RequestOp]) {
    for op in operations {
        match &mut op.request {
            Some(request_op::Request::RequestPut(put)) => {
                (put.ignore_value, put.ignore_lease) = (false, false);
            }
            Some(request_op::Request::RequestTxn(txn)) => {
                ignore_nothing(&mut txn.success);
                ignore_nothing(&mut txn.failure);
            }
            _ => {}
        }
    }
}

fn distinct_put(number: usize) -> RequestOp {
    let key = format!("wide/{number:03}").into_bytes().into();
    put_op(PutRequest { key, value: Bytes::from_static(b"w"), ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_the_same_requests_again() {
        let seen = Seen { revision: 100, compacted: 7 };
        let requests = |seed| {
            let mut generator = Generator::new(seed);
            (0..500).map(|_| generator.next(seen)).collect::<Vec<_>>()
        };
        assert!(requests(4) == requests(4));
        assert!(requests(4) != requests(5));
    }
}
