//! Transactions, from the wire.
//!
//! A [`Txn`] that comes out has a bounded number of operations at every level, bounded nesting, no
//! empty key, no empty operation, and no branch that writes a key twice. Reasons to refuse are
//! looked for in etcd's order: this level's size, its compares, its operations one by one (nested
//! transactions in their place), and clashes between writes only once all else is well.

use super::kv::key_range;
use super::{BadRequest, overlap};
use crate::pb::etcdserver as pb;
use crate::pb::etcdserver::compare::{
    CompareResult as WireResult, CompareTarget as WireTarget, TargetUnion as WireOperand,
};
use crate::pb::etcdserver::request_op::Request as WireOp;
use bytes::Bytes;
use meerkat_types::{
    Compare, CompareOperator, CompareTarget, DeleteRange, LeaseId, Put, RangeQuery, Revision, Txn, TxnOp,
    limits,
};

/// Reads a transaction of at most `ops_max` compares, and as many operations in either branch.
pub fn txn(wire: pb::TxnRequest, ops_max: usize) -> Result<Txn, BadRequest> {
    let txn = level(wire, ops_max, limits::TXN_DEPTH_MAX)?;
    overlap::check(&txn)?;
    Ok(txn)
}

/// One transaction, nested or not: `depth_left` counts it.
fn level(wire: pb::TxnRequest, ops_max: usize, depth_left: usize) -> Result<Txn, BadRequest> {
    let ops = wire.compare.len().max(wire.success.len()).max(wire.failure.len());
    // What this level takes its nested transactions cannot have.
    let ops_left = ops_max.checked_sub(ops).ok_or(BadRequest::TooManyOperations)?;
    let depth_left = depth_left.checked_sub(1).ok_or(BadRequest::TooManyOperations)?;
    let branch = |ops: Vec<pb::RequestOp>| -> Result<Vec<TxnOp>, BadRequest> {
        ops.into_iter().map(|op| operation(op, ops_left, depth_left)).collect()
    };
    Ok(Txn {
        compares: wire.compare.into_iter().map(Compare::try_from).collect::<Result<_, _>>()?,
        success: branch(wire.success)?,
        failure: branch(wire.failure)?,
    })
}

fn operation(wire: pb::RequestOp, ops_left: usize, depth_left: usize) -> Result<TxnOp, BadRequest> {
    match wire.request {
        Some(WireOp::RequestRange(range)) => RangeQuery::try_from(range).map(TxnOp::Range),
        Some(WireOp::RequestPut(put)) => Put::try_from(put).map(TxnOp::Put),
        Some(WireOp::RequestDeleteRange(delete)) => DeleteRange::try_from(delete).map(TxnOp::DeleteRange),
        Some(WireOp::RequestTxn(txn)) => level(txn, ops_left, depth_left).map(TxnOp::Txn),
        None => Err(BadRequest::EmptyOperation),
    }
}

impl TryFrom<pb::Compare> for Compare {
    type Error = BadRequest;

    fn try_from(wire: pb::Compare) -> Result<Compare, BadRequest> {
        Ok(Compare {
            keys: key_range(wire.key, wire.range_end)?,
            operator: operator(wire.result)?,
            target: target(wire.target, wire.target_union)?,
        })
    }
}

fn operator(wire: i32) -> Result<CompareOperator, BadRequest> {
    match WireResult::try_from(wire) {
        Ok(WireResult::Equal) => Ok(CompareOperator::Equal),
        Ok(WireResult::Greater) => Ok(CompareOperator::Greater),
        Ok(WireResult::Less) => Ok(CompareOperator::Less),
        Ok(WireResult::NotEqual) => Ok(CompareOperator::NotEqual),
        Err(_) => Err(BadRequest::UnknownCompareResult(wire)),
    }
}

/// An operand that is missing, or is one of another target's, counts as zero or empty.
fn target(wire: i32, operand: Option<WireOperand>) -> Result<CompareTarget, BadRequest> {
    let Ok(target) = WireTarget::try_from(wire) else {
        return Err(BadRequest::UnknownCompareTarget(wire));
    };
    Ok(match (target, operand) {
        (WireTarget::Version, Some(WireOperand::Version(version))) => CompareTarget::Version(version),
        (WireTarget::Version, _) => CompareTarget::Version(0),
        (WireTarget::Create, Some(WireOperand::CreateRevision(at))) => {
            CompareTarget::Created(Revision::new(at))
        }
        (WireTarget::Create, _) => CompareTarget::Created(Revision::new(0)),
        (WireTarget::Mod, Some(WireOperand::ModRevision(at))) => CompareTarget::Modified(Revision::new(at)),
        (WireTarget::Mod, _) => CompareTarget::Modified(Revision::new(0)),
        (WireTarget::Value, Some(WireOperand::Value(value))) => CompareTarget::Value(value),
        (WireTarget::Value, _) => CompareTarget::Value(Bytes::new()),
        (WireTarget::Lease, Some(WireOperand::Lease(id))) => CompareTarget::Lease(LeaseId::from_wire(id)),
        (WireTarget::Lease, _) => CompareTarget::Lease(None),
    })
}

#[cfg(test)]
mod depth_tests;
#[cfg(test)]
mod tests;
