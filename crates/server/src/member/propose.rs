//! Writes: is there room, may this one do it, propose, and hand on the outcome.

use super::Member;
use crate::auth::Caller;
use crate::config::Config;
use crate::spans::stage;
use meerkat_raft::ProposeError;
use meerkat_types::{
    Asker, Command, Compact, DeleteRange, Deleted, GrantLease, LeaseGranted, LeaseId, LeaseTtl, Outcome, Put,
    PutDone, Refusal, Revision, Txn, TxnDone, limits,
};

/// What etcd's internal request weighs above the client's message: its header and two tags. Counted
/// in, so that the largest value that fits is the same here and there.
const INTERNAL_REQUEST_BYTES: usize = 18;

/// How often a free name for a lease is looked for; among 2^63 the first one is.
const LEASE_NAMES_MAX: usize = 3;

/// Who wants a write.
#[derive(Clone)]
pub(crate) enum By<'a> {
    /// A client, judged here and again when the write is applied.
    Client(&'a Caller),
    /// One that was judged already, and is again when the write is applied; without a name, the member itself.
    Judged(Option<Asker>),
}

/// Why a write was not done, or is not known to be.
pub(crate) enum WriteError {
    /// The client's message is larger than the configuration allows.
    TooLarge,
    /// This member has no room for more data.
    NoRoom,
    Proposal(ProposeError),
    Refused(Refusal),
    /// Our own state machine answered one command with another's outcome.
    Mismatched,
}

impl Member {
    /// Refuses what would make too large a log entry; `bytes` is the client's message.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<(), WriteError> {
        let fits = bytes + INTERNAL_REQUEST_BYTES <= self.max_request_bytes;
        fits.then_some(()).ok_or(WriteError::TooLarge)
    }

    pub(crate) async fn put(&self, by: By<'_>, put: Put) -> Result<PutDone, WriteError> {
        match self.propose(by, Command::Put(put)).await? {
            Outcome::Put(done) => Ok(done),
            _ => Err(WriteError::Mismatched),
        }
    }

    pub(crate) async fn delete_range(&self, by: By<'_>, delete: DeleteRange) -> Result<Deleted, WriteError> {
        match self.propose(by, Command::DeleteRange(delete)).await? {
            Outcome::DeleteRange(done) => Ok(done),
            _ => Err(WriteError::Mismatched),
        }
    }

    pub(crate) async fn txn(&self, by: By<'_>, txn: Txn) -> Result<TxnDone, WriteError> {
        match self.propose(by, Command::Txn(txn)).await? {
            Outcome::Txn(done) => Ok(done),
            _ => Err(WriteError::Mismatched),
        }
    }

    pub(crate) async fn compact(&self, by: By<'_>, compact: Compact) -> Result<Revision, WriteError> {
        match self.propose(by, Command::Compact(compact)).await? {
            Outcome::Compact(revision) => Ok(revision),
            _ => Err(WriteError::Mismatched),
        }
    }

    /// The time that a lease gets when `asked` seconds are asked for; `None` above the most.
    pub(crate) fn lease_ttl(&self, asked: i64) -> Option<LeaseTtl> {
        lease_ttl(asked, self.lease_ttl_seconds_min)
    }

    /// A lease of that name, or of one that is free.
    pub(crate) async fn grant(
        &self,
        by: By<'_>,
        name: Option<LeaseId>,
        ttl: LeaseTtl,
    ) -> Result<(LeaseId, LeaseGranted), WriteError> {
        for _ in 0..LEASE_NAMES_MAX {
            let Some(id) = name.or_else(|| LeaseId::from_wire(rand::random::<i64>() & i64::MAX)) else {
                continue;
            };
            match self.propose(by.clone(), Command::GrantLease(GrantLease { id, ttl })).await {
                Ok(Outcome::LeaseGranted(granted)) => return Ok((id, granted)),
                Ok(_) => return Err(WriteError::Mismatched),
                Err(WriteError::Refused(Refusal::LeaseExists)) if name.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Refused(Refusal::LeaseExists))
    }

    pub(crate) async fn revoke(&self, by: By<'_>, lease: LeaseId) -> Result<Revision, WriteError> {
        match self.propose(by, Command::RevokeLease(lease)).await? {
            Outcome::LeaseRevoked(revision) => Ok(revision),
            _ => Err(WriteError::Mismatched),
        }
    }

    async fn propose(&self, by: By<'_>, command: Command) -> Result<Outcome, WriteError> {
        if !self.quota.admits(&command).await {
            return Err(WriteError::NoRoom);
        }
        // The client's message was measured already; our own encoding differs by a few bytes for
        // each operation.
        let bytes_max = self.max_request_bytes + limits::REQUEST_OVERHEAD_BYTES;
        let proposed = async {
            match by {
                By::Client(caller) => self.guard.propose(caller, command, bytes_max).await,
                By::Judged(asker) => self.raft.proposer().propose_for(asker, command, bytes_max).await,
            }
        };
        match stage("raft.propose", proposed).await.map_err(WriteError::Proposal)? {
            Outcome::Refused(refusal) => Err(WriteError::Refused(refusal)),
            outcome => Ok(outcome),
        }
    }
}

/// A lease must outlive an election, or a change of leader would end it: as etcd, one and a half
/// election timeouts in whole heartbeats, rounded up to a second.
pub(super) fn lease_ttl_seconds_min(config: &Config) -> i64 {
    let ticks = config.election_timeout_ms / config.heartbeat_interval_ms.max(1);
    let millis = 3 * ticks / 2 * config.heartbeat_interval_ms;
    i64::try_from(millis.div_ceil(1_000)).unwrap_or(i64::MAX).max(1)
}

fn lease_ttl(asked: i64, min: i64) -> Option<LeaseTtl> {
    LeaseTtl::from_seconds(asked.max(min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_raised_to_the_least_and_refused_above_the_most() {
        let seconds = |asked| lease_ttl(asked, 2).map(LeaseTtl::seconds);
        for (asked, given) in [(i64::MIN, 2), (-1, 2), (0, 2), (1, 2), (2, 2), (3, 3)] {
            assert_eq!(seconds(asked), Some(given));
        }
        let max = limits::LEASE_TTL_SECONDS_MAX;
        assert_eq!(seconds(max), Some(max));
        assert_eq!(seconds(max + 1), None);
        assert_eq!(seconds(i64::MAX), None);
    }
}
