//! What goes into apply and what comes out of it.

use bytes::Bytes;
use meerkat_types::{AssignedToken, EventBatch, Lease, LeaseId, LogPosition, MemberId, Outcome, Proposal};
use std::collections::BTreeSet;

/// One committed entry of the replicated log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub position: LogPosition,
    pub payload: Payload,
}

#[derive(Clone, Debug)]
pub enum Payload {
    /// A new leader's first word: nothing to do but to note the position.
    Blank,
    /// Who is in the cluster: all ids, and who votes, in a form that only the consensus layer reads.
    Membership {
        members: BTreeSet<MemberId>,
        bytes: Bytes,
    },
    Command(Proposal),
}

/// What one entry did. All are `None` for an entry that was applied before.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The answer for whoever proposed the command.
    pub outcome: Option<Outcome>,
    /// What watchers are owed.
    pub events: Option<EventBatch>,
    /// What the keeper of deadlines must know.
    pub lease: Option<LeaseChange>,
    /// A token that was given out, for those who check them.
    pub token: Option<AssignedToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Granted(Lease),
    Ended(LeaseId),
}
