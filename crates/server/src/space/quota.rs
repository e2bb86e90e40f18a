//! What a write costs, and whether there is room for it.
//!
//! Checked before a write is proposed, on the size of this member alone: it is a member's own, so apply
//! must not look at it. A write that does not fit raises the agreed alarm, on which every member then
//! refuses.

use crate::config::Config;
use meerkat_raft::RaftNode;
use meerkat_types::{Alarm, AlarmBy, AlarmKind, Command, NewValue, Put, Txn, TxnOp};
use std::sync::Arc;

/// What is counted for a put beside its key and value, and for a lease: as etcd.
const PUT_BYTES: u64 = 256;
const LEASE_BYTES: u64 = 64;

/// An alarm's entry is a few numbers.
pub(super) const ALARM_BYTES_MAX: usize = 1_024;

#[derive(Clone)]
pub(crate) struct Quota {
    raft: Arc<RaftNode>,
    /// `None`: no bound.
    bytes: Option<u64>,
}

impl Quota {
    pub(crate) fn new(raft: Arc<RaftNode>, config: &Config) -> Quota {
        Quota { raft, bytes: config.quota_backend_bytes }
    }

    /// Whether there is room for a command. If there is none, the cluster is told.
    pub(crate) async fn admits(&self, command: &Command) -> bool {
        let fits = fits(self.raft.live_bytes(), cost(command), self.bytes);
        if !fits {
            raise_own(&self.raft).await;
        }
        fits
    }
}

/// Raises NOSPACE for this member, if it is not on. Who asked is refused either way.
pub(super) async fn raise_own(raft: &RaftNode) {
    let alarm = Alarm { kind: AlarmKind::NoSpace, member: raft.member_id() };
    if raft.reader().alarms().iter().any(|(on, _)| *on == alarm) {
        return;
    }
    tracing::warn!(live_bytes = raft.live_bytes(), "this member has no room for more data: alarm NOSPACE");
    let command = Command::RaiseAlarm { alarm, by: AlarmBy::Cluster };
    if let Err(error) = raft.proposer().propose(command, ALARM_BYTES_MAX).await {
        tracing::warn!(%error, "the alarm could not be raised; the next write tries again");
    }
}

fn fits(live_bytes: u64, cost: u64, quota: Option<u64>) -> bool {
    // What adds nothing always fits.
    cost == 0 || quota.is_none_or(|quota| live_bytes.saturating_add(cost) < quota)
}

fn cost(command: &Command) -> u64 {
    match command {
        Command::Put(put) => cost_of_put(put),
        Command::Txn(txn) => cost_of_txn(txn),
        Command::GrantLease(_) => LEASE_BYTES,
        Command::DeleteRange(_)
        | Command::Compact(_)
        | Command::RevokeLease(_)
        | Command::ExpireLease { .. }
        | Command::NoteLeases { .. }
        | Command::PublishMember(_)
        | Command::RaiseAlarm { .. }
        | Command::ClearAlarm { .. }
        | Command::SetDowngrade(_)
        | Command::Auth(_) => 0,
    }
}

fn cost_of_put(put: &Put) -> u64 {
    let value = match &put.value {
        NewValue::Set(value) => value.len(),
        NewValue::KeepCurrent => 0,
    };
    PUT_BYTES + put.key.as_bytes().len() as u64 + value as u64
}

/// The dearer branch: which one is taken is not known yet.
fn cost_of_txn(txn: &Txn) -> u64 {
    let branch = |ops: &[TxnOp]| {
        let cost = ops.iter().map(|op| match op {
            TxnOp::Put(put) => cost_of_put(put),
            TxnOp::Txn(txn) => cost_of_txn(txn),
            TxnOp::Range(_) | TxnOp::DeleteRange(_) => 0,
        });
        cost.sum::<u64>()
    };
    branch(&txn.success).max(branch(&txn.failure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use meerkat_types::{DeleteRange, Key, KeyRange, NewLease};

    fn put(value: &'static [u8]) -> Put {
        Put {
            key: Key::new(Bytes::from_static(b"key")).expect("key"),
            value: NewValue::Set(Bytes::from_static(value)),
            lease: NewLease::Set(None),
            want_previous: false,
        }
    }

    fn txn(success: Vec<TxnOp>, failure: Vec<TxnOp>) -> Txn {
        Txn { compares: vec![], success, failure }
    }

    #[test]
    fn a_transaction_costs_its_dearer_branch_at_any_depth() {
        let one = TxnOp::Put(put(b"1234567"));
        assert_eq!(cost(&Command::Put(put(b"1234567"))), 266);
        let inner = txn(vec![one.clone(), one.clone()], vec![]);
        let outer = txn(vec![one.clone()], vec![one, TxnOp::Txn(inner)]);
        assert_eq!(cost(&Command::Txn(outer)), 3 * 266);
    }

    #[test]
    fn what_adds_nothing_costs_nothing_and_always_fits() {
        let keys = KeyRange::One(Key::new(Bytes::from_static(b"key")).expect("key"));
        let delete = DeleteRange { keys, want_previous: false };
        assert_eq!(cost(&Command::DeleteRange(delete.clone())), 0);
        assert_eq!(cost(&Command::Txn(txn(vec![TxnOp::DeleteRange(delete)], vec![]))), 0);
        assert!(fits(u64::MAX, 0, Some(1)));
    }

    #[test]
    fn a_write_that_would_reach_the_quota_does_not_fit() {
        for (live, cost, quota, expected) in [
            (700, 299, Some(1000), true),
            (700, 300, Some(1000), false),
            (2000, 1, Some(1000), false),
            (u64::MAX, 5, Some(1000), false),
            (2000, 1, None, true),
        ] {
            assert_eq!(fits(live, cost, quota), expected, "{live} + {cost} of {quota:?}");
        }
    }
}
