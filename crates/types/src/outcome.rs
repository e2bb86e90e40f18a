//! What a command answers, and the refusals that are part of the answer.

use crate::{AuthDone, AuthRefusal, KeyValue, LeaseTtl, Revision, TxnOpDone};

/// The same on every member, for the same log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Put(PutDone),
    DeleteRange(Deleted),
    Txn(TxnDone),
    /// The store's revision when the compaction was accepted.
    Compact(Revision),
    LeaseGranted(LeaseGranted),
    /// The store's revision after the keys of the lease were deleted.
    LeaseRevoked(Revision),
    /// How many of the leases were still there.
    LeasesNoted(u64),
    MemberPublished,
    AlarmRaised,
    /// Whether there was such an alarm to clear.
    AlarmCleared(bool),
    DowngradeSet,
    Auth(AuthDone),
    Refused(Refusal),
}

/// `revision` is the store's revision after the operation, in these three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutDone {
    pub revision: Revision,
    pub previous: Option<KeyValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub revision: Revision,
    pub deleted: u64,
    pub previous: Vec<KeyValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnDone {
    pub revision: Revision,
    pub succeeded: bool,
    pub ops: Vec<TxnOpDone>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGranted {
    pub revision: Revision,
    pub ttl: LeaseTtl,
}

/// Why a command had no effect. Decided from replicated state alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the key to keep a value or lease of does not exist")]
    KeyNotFound,
    #[error("no such lease")]
    LeaseNotFound,
    #[error("a lease of this name exists")]
    LeaseExists,
    #[error("decided by a leader that was another's predecessor by then")]
    OtherTerm,
    #[error("revision {asked} is compacted; the oldest readable is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    #[error("revision {asked} has not happened; the current one is {current}")]
    Future { asked: Revision, current: Revision },
    /// The data directory of this member is not the one the cluster knows under its id.
    #[error("member {member} is known with another data directory")]
    OtherIncarnation { member: crate::MemberId },
    /// An alarm says that a member has no room.
    #[error("a member has no room for more data")]
    NoSpace,
    /// An alarm says that a member's data differs from the others'.
    #[error("a member's data differs from the others'")]
    Corrupt,
    #[error("member {member} was removed from the cluster")]
    MemberRemoved { member: crate::MemberId },
    #[error(transparent)]
    Auth(#[from] AuthRefusal),
}
