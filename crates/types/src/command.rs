//! Every change the cluster can agree on.

use crate::{
    Alarm, AlarmBy, Asker, AuthCommand, Key, KeyRange, LeaseId, LeaseTtl, LogIndex, MemberId, Revision, Term,
    Txn,
};
use bytes::Bytes;
use std::time::Duration;

/// Names one proposal, so that the member that took it from a client recognises it when it comes
/// back through the log, whoever led meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A command on its way through the log, with what its proposer decided on its behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub id: RequestId,
    /// The proposer's clock, in milliseconds since the Unix epoch. Apply never lets time go back.
    pub stamp_ms: u64,
    /// `None`: the cluster itself, which may do everything.
    pub asker: Option<Asker>,
    pub command: Command,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Put(Put),
    DeleteRange(DeleteRange),
    Txn(Txn),
    Compact(Compact),
    GrantLease(GrantLease),
    /// A client ends a lease, and with it the keys attached to it.
    RevokeLease(LeaseId),
    /// The leader of `term` saw a lease expire. Without effect in any other term: by then another
    /// leader may have promised it more time. `granted` tells which lease of that name.
    ExpireLease {
        lease: LeaseId,
        granted: LogIndex,
        term: Term,
    },
    /// The leader of `term` notes what is left of some leases. Without effect in any other term.
    NoteLeases {
        term: Term,
        notes: Vec<LeaseNote>,
    },
    /// A member tells the others under which name it runs and where clients reach it.
    PublishMember(MemberAttributes),
    /// Raised already, an alarm stays as it is; but one that an operator raises too is the operator's.
    RaiseAlarm {
        alarm: Alarm,
        by: AlarmBy,
    },
    ClearAlarm {
        alarm: Alarm,
        by: AlarmBy,
    },
    /// Notes to which version an operator means to go back; `None` takes it back.
    SetDowngrade(Option<String>),
    Auth(AuthCommand),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Key,
    pub value: NewValue,
    pub lease: NewLease,
    /// Answer with the key-value that was replaced.
    pub want_previous: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewValue {
    Set(Bytes),
    /// The key must exist; its value stays.
    KeepCurrent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewLease {
    /// Attach to this lease, or detach from any.
    Set(Option<LeaseId>),
    /// The key must exist; its lease stays.
    KeepCurrent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantLease {
    pub id: LeaseId,
    pub ttl: LeaseTtl,
}

/// What is left of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseNote {
    pub id: LeaseId,
    /// Which lease of that name.
    pub granted: LogIndex,
    /// `None`: its whole time, since it was renewed.
    pub remaining: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    pub keys: KeyRange,
    /// Answer with the key-values that were deleted.
    pub want_previous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAttributes {
    pub member: MemberId,
    pub name: String,
    pub client_urls: Vec<String>,
    /// A random number made with the data directory. The first one published for a member is
    /// pinned; another one is a different disk under the same name.
    pub incarnation: u64,
}
