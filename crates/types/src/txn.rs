//! A transaction: compares, and the operations of either branch.
//!
//! Shape rules that need no store (operation count, duplicate puts, empty keys) are checked where
//! the wire is read, so a `Txn` that exists has passed them.

use crate::{
    DeleteRange, Deleted, KeyRange, LeaseId, Put, PutDone, RangeAnswer, RangeQuery, Revision, TxnDone,
};
use bytes::Bytes;
use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub success: Vec<TxnOp>,
    pub failure: Vec<TxnOp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    Range(RangeQuery),
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Txn),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub keys: KeyRange,
    pub target: CompareTarget,
    pub operator: CompareOperator,
}

/// What of the key is compared, and with what. `LeaseId` is `None` for the wire's zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    Version(i64),
    Created(Revision),
    Modified(Revision),
    Value(Bytes),
    Lease(Option<LeaseId>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOperator {
    Equal,
    Greater,
    Less,
    NotEqual,
}

impl CompareOperator {
    /// Whether `stored OPERATOR operand` holds, given how the two are ordered.
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            CompareOperator::Equal => ordering.is_eq(),
            CompareOperator::Greater => ordering.is_gt(),
            CompareOperator::Less => ordering.is_lt(),
            CompareOperator::NotEqual => ordering.is_ne(),
        }
    }
}

/// What one operation of the taken branch answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOpDone {
    Range(RangeAnswer),
    Put(PutDone),
    DeleteRange(Deleted),
    Txn(TxnDone),
}

impl Txn {
    /// Every operation of both branches is a read: no agreement is needed to answer. A nested txn
    /// never counts as a read, whatever is in it.
    pub fn is_read_only(&self) -> bool {
        self.operations().all(|op| matches!(op, TxnOp::Range(_)))
    }

    /// Whether any branch, at any depth, puts a key.
    pub fn holds_put(&self) -> bool {
        self.operations().any(|op| match op {
            TxnOp::Put(_) => true,
            TxnOp::Txn(txn) => txn.holds_put(),
            TxnOp::Range(_) | TxnOp::DeleteRange(_) => false,
        })
    }

    pub fn operations(&self) -> impl Iterator<Item = &TxnOp> {
        self.success.iter().chain(&self.failure)
    }
}
