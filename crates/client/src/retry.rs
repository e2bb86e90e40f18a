//! Which call, after which failure, may be sent again: pure, and the only place it is decided.
//!
//! Two questions, in this order. [`look`]: what does this failure prove? It never proves more than
//! is certain, so an answer nobody thought of leaves a write in doubt. [`decide`]: given the kind of
//! call and the proof, send again or give up, and with which fate.
//!
//! Always true: a plain write is sent a second time only if the first certainly did not happen.

use crate::error::Fate;
use meerkat_proto::error_text::EtcdError;
use std::error::Error as StdError;
use tonic::{Code, Status};

/// What a call does to the store, as far as repeating it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Changes nothing; needs a leader to be answered.
    Read,
    /// Changes nothing; any member that runs can answer.
    LocalRead,
    /// Repeating it could change the store twice.
    Write,
    /// A write that cannot happen twice: a transaction whose own success breaks its guard for ever,
    /// or a lease granted under an id of the client's own choice. Whoever sends it must look at the
    /// answer of a repetition with suspicion: "no" may mean "it was I".
    Once,
    /// Repeating it any number of times is the same as doing it once.
    Idempotent,
    /// Asking for a token: as harmless to repeat, but no token helps it.
    Login,
}

/// What a failed attempt proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No connection: the request never left.
    NotSent,
    /// The connection or the stream broke under the request.
    Broken,
    /// The request was given up because its member was found unable to answer.
    Abandoned,
    /// The request's own time was over.
    Deadline,
    /// The member answered.
    Answered { code: Code, etcd: Option<EtcdError>, proof: Proof },
}

/// What an answer says about the write it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Looked at and refused. Any member would say the same.
    Refused,
    /// Not looked at: this member cannot take it now, another one may.
    NotTaken,
    /// Not looked at, for want of a valid token.
    NotKnown,
    /// Nothing certain.
    Nothing,
    /// Nothing certain, except that asking again at once would be answered the same.
    Final,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it again, to another member if there is one.
    Again {
        /// The attempt just made may have happened.
        doubt: bool,
    },
    /// Get a new token first, then send it again.
    Renew,
    /// Tell the caller.
    GiveUp(Fate),
}

/// What to do after an attempt failed. `doubt`: an earlier attempt may have happened.
pub(crate) fn decide(kind: CallKind, seen: Seen, doubt: bool) -> Decision {
    match (proves(seen), kind) {
        (Proof::NotKnown, CallKind::Login) => Decision::GiveUp(Fate::Refused),
        (Proof::NotKnown, _) => Decision::Renew,
        (Proof::NotTaken, _) => Decision::Again { doubt: false },
        // An earlier attempt may be the reason for this very refusal.
        (Proof::Refused, CallKind::Write | CallKind::Once) if doubt => Decision::GiveUp(Fate::Unknown),
        (Proof::Refused, _) => Decision::GiveUp(Fate::Refused),
        // Fails every kind, each with the fate it has when nothing more is tried.
        (Proof::Final, CallKind::Read | CallKind::LocalRead | CallKind::Login) => {
            Decision::GiveUp(Fate::Refused)
        }
        (Proof::Final, CallKind::Write | CallKind::Once | CallKind::Idempotent) => {
            Decision::GiveUp(Fate::Unknown)
        }
        // The time is over for every kind.
        (Proof::Nothing, _) if seen == Seen::Deadline => Decision::GiveUp(at_deadline(kind, true)),
        (
            Proof::Nothing,
            CallKind::Read | CallKind::LocalRead | CallKind::Idempotent | CallKind::Login | CallKind::Once,
        ) => Decision::Again { doubt: true },
        (Proof::Nothing, CallKind::Write) => Decision::GiveUp(Fate::Unknown),
    }
}

/// The fate of a call whose time is over. `doubt`: some attempt may have happened.
pub(crate) fn at_deadline(kind: CallKind, doubt: bool) -> Fate {
    match kind {
        // These have no effect that could be in doubt.
        CallKind::Read | CallKind::LocalRead | CallKind::Login => Fate::NotDone,
        CallKind::Write | CallKind::Once | CallKind::Idempotent if doubt => Fate::Unknown,
        CallKind::Write | CallKind::Once | CallKind::Idempotent => Fate::NotDone,
    }
}

fn proves(seen: Seen) -> Proof {
    match seen {
        Seen::NotSent => Proof::NotTaken,
        Seen::Broken | Seen::Abandoned | Seen::Deadline => Proof::Nothing,
        Seen::Answered { proof, .. } => proof,
    }
}

/// Whether the member itself, and not only this request, is to be held suspect.
pub(crate) fn blames_member(seen: Seen) -> Blame {
    match seen {
        Seen::NotSent | Seen::Broken => Blame::Connection,
        Seen::Answered { etcd: Some(EtcdError::NoLeader), .. } => Blame::NoLeader,
        Seen::Answered { etcd: Some(EtcdError::Stopped), .. } => Blame::Connection,
        Seen::Answered { etcd: Some(EtcdError::NotSupportedForLearner), .. } => Blame::NoLeader,
        Seen::Abandoned | Seen::Deadline | Seen::Answered { .. } => Blame::None,
    }
}

/// What a failure says about the member it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    None,
    NoLeader,
    Connection,
}

/// Reads a failed attempt.
pub(crate) fn look(status: &Status) -> Seen {
    match transport(status) {
        Transport::NotSent => Seen::NotSent,
        Transport::TimedOut => Seen::Deadline,
        Transport::Broken => Seen::Broken,
        Transport::Answered => {
            let etcd = EtcdError::from_message(status.message());
            let proof = etcd.map_or_else(|| unnamed(status), named);
            Seen::Answered { code: status.code(), etcd, proof }
        }
    }
}

/// What an error that clients know by its text proves about a write.
fn named(error: EtcdError) -> Proof {
    match error {
        // Said by the metadata check, before the request is looked at. A proposal that finds no
        // leader waits instead, and ends in one of the timeouts below.
        EtcdError::NoLeader => Proof::NotTaken,
        // Counted before anything is proposed.
        EtcdError::TooManyRequests => Proof::NotTaken,
        // Only leaders do this, and this member has not: one of the others may.
        EtcdError::NotLeader => Proof::NotTaken,
        // A learner looks at the method's name and at nothing else.
        EtcdError::NotSupportedForLearner => Proof::NotTaken,

        // Tokens are checked first; at apply time a stale one leaves the store as it was.
        EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision => Proof::NotKnown,
        // What a member without our token says when authentication was just switched on.
        EtcdError::UserEmpty => Proof::NotKnown,

        // The proposal was sent and its outcome did not come back in time.
        EtcdError::Timeout
        | EtcdError::TimeoutDueToLeaderFail
        | EtcdError::TimeoutDueToConnectionLost
        | EtcdError::TimeoutWaitAppliedIndex => Proof::Nothing,
        // The member stopped while the proposal was under way.
        EtcdError::Stopped => Proof::Nothing,
        // Reads hear this while they wait; that no write ever does is not promised anywhere.
        EtcdError::LeaderChanged => Proof::Nothing,
        // The server's own clock ran out or its caller went away; a proposal may be in the log.
        EtcdError::Canceled
        | EtcdError::DeadlineExceeded
        | EtcdError::ContextCanceled
        | EtcdError::ContextDeadlineExceeded
        | EtcdError::RequestCancelled
        | EtcdError::LeaderTransferTimeout => Proof::Nothing,
        // A leader that cannot prove it leads. Only lease reads and renewals hear this.
        EtcdError::NotPrimaryLessor => Proof::Nothing,
        // Said before a proposal, when nothing is done; but etcd says the same of a write that it has
        // applied and that left its store too large.
        EtcdError::NoSpace => Proof::Final,
        // Ends watches, and answers no call.
        EtcdError::WatchCanceled => Proof::Nothing,

        refusal if refuses(refusal) => Proof::Refused,
        // One that nobody has thought of yet.
        _ => Proof::Nothing,
    }
}

/// Looked at, and refused with nothing changed.
fn refuses(error: EtcdError) -> bool {
    matches!(
        error,
        EtcdError::EmptyKey
            | EtcdError::KeyNotFound
            | EtcdError::ValueProvided
            | EtcdError::LeaseProvided
            | EtcdError::TooManyOps
            | EtcdError::DuplicateKey
            | EtcdError::InvalidClientApiVersion
            | EtcdError::InvalidSortOption
            | EtcdError::Compacted
            | EtcdError::FutureRev
            | EtcdError::LeaseNotFound
            | EtcdError::LeaseExist
            | EtcdError::LeaseTtlTooLarge
            | EtcdError::MemberExist
            | EtcdError::PeerUrlExist
            | EtcdError::MemberNotEnoughStarted
            | EtcdError::MemberBadUrls
            | EtcdError::MemberNotFound
            | EtcdError::MemberNotLearner
            | EtcdError::LearnerNotReady
            | EtcdError::TooManyLearners
            | EtcdError::ClusterIdMismatch
            | EtcdError::RequestTooLarge
            | EtcdError::RootUserNotExist
            | EtcdError::RootRoleNotExist
            | EtcdError::UserAlreadyExist
            | EtcdError::UserNotFound
            | EtcdError::RoleAlreadyExist
            | EtcdError::RoleNotFound
            | EtcdError::RoleEmpty
            | EtcdError::AuthFailed
            | EtcdError::PermissionNotGiven
            | EtcdError::PermissionDenied
            | EtcdError::RoleNotGranted
            | EtcdError::PermissionNotGranted
            | EtcdError::AuthNotEnabled
            | EtcdError::InvalidAuthMgmt
            | EtcdError::NotCapable
            | EtcdError::Unhealthy
            | EtcdError::Corrupt
            | EtcdError::BadLeaderTransferee
            | EtcdError::WrongDowngradeVersionFormat
            | EtcdError::InvalidDowngradeTargetVersion
            | EtcdError::ClusterVersionUnavailable
            | EtcdError::DowngradeInProcess
            | EtcdError::NoInflightDowngrade
            | EtcdError::UnknownMethod
            | EtcdError::PasswordOfNoPasswordUser
            | EtcdError::ElectionNoLeader
            | EtcdError::ElectionNotLeader
            | EtcdError::ElectionLeaderMissing
            | EtcdError::MutexSessionExpired
            | EtcdError::ElectionSessionExpired
    )
}

/// What an answer proves whose text is not in the table: as little as its code allows.
fn unnamed(status: &Status) -> Proof {
    match status.code() {
        // Servers say these of the request itself, and this library's transport never makes them.
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Unauthenticated => Proof::Refused,
        // The message did not fit, so no handler saw it. Without this text it could as well be the
        // answer that did not fit, after the deed.
        Code::ResourceExhausted if status.message().starts_with("grpc: received message larger") => {
            Proof::Refused
        }
        // etcd 3.5 answers some permission checks this way.
        Code::Unknown if status.message().starts_with("auth: ") => Proof::Refused,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Proof::Nothing,
    }
}

enum Transport {
    Answered,
    NotSent,
    TimedOut,
    Broken,
}

/// Whether this status came from the member or was made here out of a transport failure: only the
/// latter has a cause behind it.
fn transport(status: &Status) -> Transport {
    let mut cause: Option<&(dyn StdError + 'static)> = status.source();
    if cause.is_none() {
        return Transport::Answered;
    }
    // Bounded: chains are a few links long.
    for _ in 0..16 {
        let Some(error) = cause else { break };
        if error.is::<tonic::ConnectError>() {
            return Transport::NotSent;
        }
        if error.is::<tonic::TimeoutExpired>() {
            return Transport::TimedOut;
        }
        // A request that was still in the queue when its connection closed.
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return Transport::NotSent;
        }
        cause = error.source();
    }
    Transport::Broken
}

#[cfg(test)]
mod tests;
