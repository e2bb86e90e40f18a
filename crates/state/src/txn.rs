//! Transactions: which branch is taken, whether it may run, and running it.
//!
//! All compares on the taken path, those of nested transactions too, are judged on the state before
//! anything runs; then every operation that will run is checked; then they run in order. So a
//! refusal never leaves half an effect. Operations of a branch that is not taken are never checked.

use crate::error::{ReadError, StateError, damaged};
use crate::lease::LeaseTable;
use crate::mvcc::past::{Plan, ReadStrategy};
use crate::mvcc::present::Present;
use crate::mvcc::range;
use crate::mvcc::source::Source;
use crate::mvcc::store::{Committed, floor};
use crate::mvcc::wire::Tail;
use crate::mvcc::write::WriteTxn;
use meerkat_types::{
    Compare, CompareTarget, LeaseId, NewLease, NewValue, Put, RangeAnswer, RangeQuery, Refusal, Revision,
    Txn, TxnDone, TxnOp, TxnOpDone,
};
use std::ops::ControlFlow;

/// Which branch each transaction of the taken path takes; `nested` in the order of its operations.
pub(crate) struct Path {
    succeeded: bool,
    nested: Vec<Path>,
}

impl Path {
    pub(crate) fn choose(present: &Present<'_>, txn: &Txn) -> Result<Path, StateError> {
        let succeeded = all_hold(present, &txn.compares)?;
        let mut nested = Vec::new();
        for op in branch(txn, succeeded) {
            if let TxnOp::Txn(txn) = op {
                nested.push(Path::choose(present, txn)?);
            }
        }
        Ok(Path { succeeded, nested })
    }
}

fn branch(txn: &Txn, succeeded: bool) -> &[TxnOp] {
    if succeeded { &txn.success } else { &txn.failure }
}

fn all_hold(present: &Present<'_>, compares: &[Compare]) -> Result<bool, StateError> {
    for compare in compares {
        if !holds(present, compare)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every key of the range must agree. Where there is none, a value never agrees, and everything else
/// is compared as zero.
fn holds(present: &Present<'_>, compare: &Compare) -> Result<bool, StateError> {
    let (mut any, mut all) = (false, true);
    let source = Source { present: *present, plan: &Plan::Present };
    source.scan(&compare.keys, true, |_, tail| {
        any = true;
        all = agrees(compare, &Tail::decode(tail).ok_or(damaged("head"))?);
        Ok(if all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    if any {
        return Ok(all);
    }
    Ok(!matches!(compare.target, CompareTarget::Value(_)) && agrees(compare, &Tail::NONE))
}

fn agrees(compare: &Compare, stored: &Tail<'_>) -> bool {
    let number = |lease: Option<LeaseId>| lease.map_or(0, LeaseId::get);
    let ordering = match &compare.target {
        CompareTarget::Version(version) => stored.version.cmp(version),
        CompareTarget::Created(revision) => stored.created.cmp(revision),
        CompareTarget::Modified(revision) => stored.modified.cmp(revision),
        CompareTarget::Value(value) => stored.value.cmp(value.as_ref()),
        CompareTarget::Lease(lease) => number(stored.lease).cmp(&number(*lease)),
    };
    compare.operator.holds(ordering)
}

/// Whether what stands in the store lets each operation of the taken path run.
pub(crate) struct Check<'a> {
    pub present: Present<'a>,
    pub leases: &'a LeaseTable,
    pub revision: Revision,
    pub compacted: Option<Revision>,
}

impl Check<'_> {
    /// `Ok(Err(_))` refuses the whole transaction.
    pub(crate) fn txn(&self, txn: &Txn, path: &Path) -> Result<Result<(), Refusal>, StateError> {
        self.ops(txn, path, &mut Vec::new())
    }

    /// `before`: the writes that will have run by then.
    fn ops<'t>(
        &self,
        txn: &'t Txn,
        path: &Path,
        before: &mut Vec<&'t TxnOp>,
    ) -> Result<Result<(), Refusal>, StateError> {
        let mut nested = path.nested.iter();
        for op in branch(txn, path.succeeded) {
            let checked = match op {
                TxnOp::Range(query) => self.range(query),
                TxnOp::Put(put) => self.put_after(put, before)?,
                TxnOp::DeleteRange(_) => Ok(()),
                TxnOp::Txn(inner) => {
                    let path = nested.next().expect("a path has a step for each nested transaction");
                    self.ops(inner, path, before)?
                }
            };
            if checked.is_err() {
                return Ok(checked);
            }
            before.push(op);
        }
        Ok(Ok(()))
    }

    /// As etcd checks it here, and unlike a range outside a transaction: anything but zero is taken
    /// as asked, a negative revision too.
    fn range(&self, query: &RangeQuery) -> Result<(), Refusal> {
        match query.at {
            Some(asked) if self.revision < asked => Err(Refusal::Future { asked, current: self.revision }),
            Some(asked) if asked.get() != 0 && asked < floor(self.compacted) => {
                Err(Refusal::Compacted { asked, oldest: floor(self.compacted) })
            }
            _ => Ok(()),
        }
    }

    fn put_after(&self, put: &Put, before: &[&TxnOp]) -> Result<Result<(), Refusal>, StateError> {
        if keeps(put) {
            let key = put.key.as_bytes();
            // It must exist before the transaction, and still when its turn comes.
            let exists = self.present.rows.get(key)?.is_some() && !deleted_before(key, before);
            if !exists {
                return Ok(Err(Refusal::KeyNotFound));
            }
        }
        // After the key, unlike for a put outside a transaction: as etcd 3.6.
        Ok(if lease_exists(self.leases, put) { Ok(()) } else { Err(Refusal::LeaseNotFound) })
    }
}

/// Whether the newest of these operations that concerns `key` deletes it.
fn deleted_before(key: &[u8], before: &[&TxnOp]) -> bool {
    let newest = before.iter().rev().find_map(|op| match op {
        TxnOp::Put(put) if put.key.as_bytes() == key => Some(false),
        TxnOp::DeleteRange(delete) if delete.keys.contains(key) => Some(true),
        TxnOp::Put(_) | TxnOp::DeleteRange(_) | TxnOp::Range(_) | TxnOp::Txn(_) => None,
    });
    newest == Some(true)
}

/// Whether any range of it asks for an older revision, in either branch.
pub(crate) fn reads_the_past(txn: &Txn) -> bool {
    txn.operations().any(|op| match op {
        TxnOp::Range(query) => query.at.is_some_and(|at| 0 < at.get()),
        TxnOp::Txn(txn) => reads_the_past(txn),
        TxnOp::Put(_) | TxnOp::DeleteRange(_) => false,
    })
}

/// Runs the taken path. The check must have passed; if the transaction reads the past, nothing may
/// have been pending in the store's batch when it began.
pub(crate) fn execute(write: &mut WriteTxn<'_>, txn: &Txn, path: &Path) -> Result<TxnDone, StateError> {
    let mut nested = path.nested.iter();
    let mut ops = Vec::with_capacity(branch(txn, path.succeeded).len());
    for op in branch(txn, path.succeeded) {
        ops.push(match op {
            TxnOp::Range(query) => TxnOpDone::Range(execute_range(write, query)?),
            TxnOp::Put(put) => {
                let standing = write.standing(put)?;
                TxnOpDone::Put(write.put(put, standing)?)
            }
            TxnOp::DeleteRange(delete) => TxnOpDone::DeleteRange(write.delete_range(delete)?),
            TxnOp::Txn(inner) => {
                let path = nested.next().expect("a path has a step for each nested transaction");
                TxnOpDone::Txn(execute(write, inner, path)?)
            }
        });
    }
    Ok(TxnDone { revision: write.revision_now(), succeeded: path.succeeded, ops })
}

fn execute_range(write: &WriteTxn<'_>, query: &RangeQuery) -> Result<RangeAnswer, StateError> {
    let revision = write.revision_now();
    match query.at.filter(|at| 0 < at.get()) {
        None => {
            let source = Source { present: write.store.present(), plan: &Plan::Present };
            range::answer(&source, query, revision)
        }
        Some(at) => {
            let committed = &write.store.committed;
            let plan = committed.plan(&query.keys, at, ReadStrategy::Cheapest)?;
            range::answer(&committed.source(&plan), query, revision)
        }
    }
}

/// Answers a transaction of reads from one point in time.
pub(crate) fn read(committed: &Committed, txn: &Txn) -> Result<TxnDone, ReadError> {
    let path = Path::choose(&committed.present(), txn)?;
    let check = Check {
        present: committed.present(),
        // Nothing is put here, so none is asked for.
        leases: &LeaseTable::default(),
        revision: committed.revision,
        compacted: committed.compacted,
    };
    check.txn(txn, &path)??;
    let mut ops = Vec::new();
    for op in branch(txn, path.succeeded) {
        let TxnOp::Range(query) = op else {
            unreachable!("only a transaction of nothing but ranges is answered without agreement");
        };
        let at = query.at.filter(|at| 0 < at.get()).unwrap_or(committed.revision);
        let plan = committed.plan(&query.keys, at, ReadStrategy::Cheapest)?;
        ops.push(TxnOpDone::Range(range::answer(&committed.source(&plan), query, committed.revision)?));
    }
    Ok(TxnDone { revision: committed.revision, succeeded: path.succeeded, ops })
}

/// Whether the lease that a put names, if it names one, is there.
pub(crate) fn lease_exists(leases: &LeaseTable, put: &Put) -> bool {
    match put.lease {
        NewLease::Set(Some(lease)) => leases.contains(lease),
        NewLease::Set(None) | NewLease::KeepCurrent => true,
    }
}

/// Whether a put needs its key to exist.
pub(crate) const fn keeps(put: &Put) -> bool {
    matches!(put.value, NewValue::KeepCurrent) || matches!(put.lease, NewLease::KeepCurrent)
}

/// Whether one key may change twice in it: a branch writes more than once.
pub(crate) fn may_repeat(txn: &Txn) -> bool {
    let repeats = |ops: &[TxnOp]| {
        let writes = ops.iter().filter(|op| !matches!(op, TxnOp::Range(_))).count();
        1 < writes || ops.iter().any(|op| matches!(op, TxnOp::Txn(_)))
    };
    repeats(&txn.success) || repeats(&txn.failure)
}
