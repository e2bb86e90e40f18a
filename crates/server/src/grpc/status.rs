//! Every error of ours to its gRPC status: the only place a `Status` is made for clients.
//!
//! Clients match on code and text, so both come from one table (`meerkat_proto::error_text`). No
//! match here has a wildcard arm: a new error does not compile until someone has chosen its status.

use super::snapshot::SnapshotError;
use crate::auth::PasswordError;
use crate::member::{ReadFailure, WriteError};
use meerkat_proto::convert::BadRequest;
use meerkat_proto::error_text::EtcdError;
use meerkat_raft::{
    ChangeError, ChangeRefusal, LessorError, MoveError, ProposeError, ReadIndexError, TimeoutCause,
};
use meerkat_state::ReadError;
use meerkat_types::{AuthRefusal, Refusal};
use meerkat_watch::End;
use tonic::{Code, Status};

pub(crate) fn etcd(error: EtcdError) -> Status {
    Status::new(error.code(), error.message())
}

pub(crate) fn bad_request(error: BadRequest) -> Status {
    Status::new(error.code(), error.to_string())
}

pub(crate) fn refused(refusal: &Refusal) -> Status {
    etcd(match refusal {
        Refusal::KeyNotFound => EtcdError::KeyNotFound,
        Refusal::LeaseNotFound => EtcdError::LeaseNotFound,
        Refusal::LeaseExists => EtcdError::LeaseExist,
        // Only a leader's own decisions are refused so; no client asks for them.
        Refusal::OtherTerm => EtcdError::LeaderChanged,
        Refusal::Compacted { .. } => EtcdError::Compacted,
        Refusal::Future { .. } => EtcdError::FutureRev,
        Refusal::OtherIncarnation { .. } => EtcdError::MemberExist,
        Refusal::MemberRemoved { .. } => EtcdError::MemberNotFound,
        Refusal::NoSpace => EtcdError::NoSpace,
        Refusal::Corrupt => EtcdError::Corrupt,
        Refusal::Auth(refusal) => auth_refusal(*refusal),
    })
}

pub(crate) const fn auth_refusal(refusal: AuthRefusal) -> EtcdError {
    match refusal {
        AuthRefusal::RootUserMissing => EtcdError::RootUserNotExist,
        AuthRefusal::RootRoleMissing => EtcdError::RootRoleNotExist,
        AuthRefusal::UserExists => EtcdError::UserAlreadyExist,
        AuthRefusal::UserEmpty => EtcdError::UserEmpty,
        AuthRefusal::UserNotFound => EtcdError::UserNotFound,
        AuthRefusal::RoleExists => EtcdError::RoleAlreadyExist,
        AuthRefusal::RoleNotFound => EtcdError::RoleNotFound,
        AuthRefusal::RoleEmpty => EtcdError::RoleEmpty,
        AuthRefusal::PermissionDenied => EtcdError::PermissionDenied,
        AuthRefusal::RoleNotGranted => EtcdError::RoleNotGranted,
        AuthRefusal::PermissionNotGranted => EtcdError::PermissionNotGranted,
        AuthRefusal::PermissionNotGiven => EtcdError::PermissionNotGiven,
        AuthRefusal::NotEnabled => EtcdError::AuthNotEnabled,
        AuthRefusal::Failed => EtcdError::AuthFailed,
        AuthRefusal::NoPassword => EtcdError::PasswordOfNoPasswordUser,
        AuthRefusal::InvalidToken => EtcdError::InvalidAuthToken,
        AuthRefusal::InvalidManagement => EtcdError::InvalidAuthMgmt,
        AuthRefusal::OldRevision => EtcdError::AuthOldRevision,
    }
}

pub(crate) fn password(error: &PasswordError) -> Status {
    match error {
        PasswordError::Overloaded => etcd(EtcdError::TooManyRequests),
        PasswordError::TooLong => Status::new(Code::InvalidArgument, format!("meerkat: {error}")),
        PasswordError::Failed(_) => Status::new(Code::Internal, format!("meerkat: {error}")),
    }
}

/// This member checks signed tokens and cannot make any.
pub(crate) fn cannot_sign() -> Status {
    Status::new(
        Code::FailedPrecondition,
        "meerkat: this member has no key to sign tokens with; name one as priv-key in --auth-token, or ask another member",
    )
}

pub(crate) fn propose(error: &ProposeError) -> Status {
    match error {
        ProposeError::Overloaded => etcd(EtcdError::TooManyRequests),
        ProposeError::TooLarge { .. } => etcd(EtcdError::RequestTooLarge),
        // What etcd says of a proposal that no leader ever took.
        ProposeError::NoLeader => Status::new(Code::DeadlineExceeded, "context deadline exceeded"),
        ProposeError::Timeout(cause) => etcd(match cause {
            TimeoutCause::Unknown => EtcdError::Timeout,
            TimeoutCause::LeaderFailure => EtcdError::TimeoutDueToLeaderFail,
            TimeoutCause::ConnectionLost => EtcdError::TimeoutDueToConnectionLost,
        }),
        ProposeError::Stopped => etcd(EtcdError::Stopped),
    }
}

impl From<ReadFailure> for Status {
    fn from(failure: ReadFailure) -> Status {
        match failure {
            ReadFailure::Learner => etcd(EtcdError::NotSupportedForLearner),
            ReadFailure::Index(error) => read_index(error),
            ReadFailure::State(error) => read(&error),
            ReadFailure::Worker(error) => worker_lost(&error),
        }
    }
}

impl From<WriteError> for Status {
    fn from(error: WriteError) -> Status {
        match error {
            WriteError::TooLarge => etcd(EtcdError::RequestTooLarge),
            WriteError::NoRoom => etcd(EtcdError::NoSpace),
            WriteError::Proposal(error) => propose(&error),
            WriteError::Refused(refusal) => refused(&refusal),
            WriteError::Mismatched => mismatched_outcome(),
        }
    }
}

pub(crate) fn read_index(error: ReadIndexError) -> Status {
    etcd(match error {
        ReadIndexError::NoLeader => EtcdError::NoLeader,
        ReadIndexError::LeaderChanged => EtcdError::LeaderChanged,
        ReadIndexError::Timeout => EtcdError::Timeout,
        ReadIndexError::Stopped => EtcdError::Stopped,
    })
}

/// The leader could not be asked about a lease.
pub(crate) fn lessor(error: LessorError) -> Status {
    etcd(match error {
        LessorError::NotLeader => EtcdError::LeaderChanged,
        LessorError::NoLeader => EtcdError::NoLeader,
        LessorError::Timeout => EtcdError::Timeout,
        LessorError::Stopped => EtcdError::Stopped,
    })
}

pub(crate) fn member_change(error: ChangeError) -> Status {
    etcd(match error {
        ChangeError::Refused(refusal) => match refusal {
            ChangeRefusal::IdExists => EtcdError::MemberExist,
            ChangeRefusal::UrlExists => EtcdError::PeerUrlExist,
            ChangeRefusal::NotEnoughStarted => EtcdError::MemberNotEnoughStarted,
            ChangeRefusal::NotFound => EtcdError::MemberNotFound,
            ChangeRefusal::NotLearner => EtcdError::MemberNotLearner,
            ChangeRefusal::LearnerNotReady => EtcdError::LearnerNotReady,
            ChangeRefusal::TooManyLearners => EtcdError::TooManyLearners,
            ChangeRefusal::Unhealthy => EtcdError::Unhealthy,
        },
        ChangeError::NotLeader => EtcdError::LeaderChanged,
        ChangeError::Timeout => EtcdError::Timeout,
        ChangeError::Stopped => EtcdError::Stopped,
    })
}

pub(crate) fn move_leader(error: MoveError) -> Status {
    etcd(match error {
        MoveError::NotLeader => EtcdError::NotLeader,
        MoveError::NoVoter => EtcdError::BadLeaderTransferee,
        MoveError::Timeout => EtcdError::LeaderTransferTimeout,
        MoveError::Stopped => EtcdError::Stopped,
    })
}

pub(crate) fn read(error: &ReadError) -> Status {
    match error {
        ReadError::Refused(refusal) => refused(refusal),
        // Another member's disk may answer: a read may be tried again there.
        ReadError::State(error) => unreadable(error),
    }
}

/// This member's disk fails its readers.
pub(crate) fn unreadable(error: &dyn std::error::Error) -> Status {
    tracing::error!(%error, "a read failed on this member's disk");
    Status::new(Code::Unavailable, format!("this member cannot read its state: {error}"))
}

/// A snapshot was not made, or not to its end.
pub(crate) fn snapshot(error: &SnapshotError) -> Status {
    match error {
        SnapshotError::Read(error) => read(error),
        SnapshotError::Io(_) => {
            tracing::error!(%error, "a snapshot was not made");
            Status::new(Code::Unavailable, format!("no snapshot was made: {error}"))
        }
        SnapshotError::Busy => etcd(EtcdError::TooManyRequests),
        SnapshotError::NoRoom { .. } => {
            tracing::warn!(%error, "a snapshot was refused");
            Status::new(Code::ResourceExhausted, format!("no snapshot was made: {error}"))
        }
        SnapshotError::NotTaken => {
            tracing::warn!(%error, "a snapshot was not sent to its end");
            Status::new(Code::DeadlineExceeded, format!("the snapshot was not sent to its end: {error}"))
        }
        SnapshotError::Gone => Status::new(Code::Cancelled, "no snapshot was made: the caller has gone"),
    }
}

/// A worker thread died under a request.
pub(crate) fn worker_lost(error: &tokio::task::JoinError) -> Status {
    tracing::error!(%error, "a request's worker was lost");
    Status::new(Code::Internal, format!("the request's worker was lost: {error}"))
}

/// The handler of a request has panicked, and changed nothing that others share.
pub(crate) fn panicked() -> Status {
    Status::new(
        Code::Internal,
        "meerkat: the request met a mistake of this server and failed; the member's log says where",
    )
}

/// Our own state machine answered one command with another's outcome.
pub(crate) fn mismatched_outcome() -> Status {
    Status::new(Code::Internal, "the outcome does not fit the command; report this as a bug")
}

/// Metadata that cannot be meant.
pub(crate) fn bad_metadata(reason: &str) -> Status {
    Status::new(Code::InvalidArgument, format!("meerkat: bad metadata: {reason}"))
}

/// A request in a compression that was not agreed on.
pub(crate) fn unsupported_encoding(encoding: &http::HeaderValue) -> Status {
    let encoding = String::from_utf8_lossy(encoding.as_bytes());
    Status::new(
        Code::Unimplemented,
        format!("grpc: Decompressor is not installed for grpc-encoding {encoding:?}"),
    )
}

/// A response that gRPC has no length for.
pub(crate) fn response_too_large(bytes: usize) -> Status {
    let text =
        format!("meerkat: a revision of {bytes} bytes cannot be told in one response; watch with fragments");
    Status::new(Code::ResourceExhausted, text)
}

/// A message that is not what its method takes.
pub(crate) fn malformed(error: &prost::DecodeError) -> Status {
    Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}"))
}

/// JSON that is not what its call takes.
pub(crate) fn malformed_json(reason: &str) -> Status {
    Status::new(Code::InvalidArgument, reason)
}

/// In the words of the library that etcd's gateway is made with.
pub(crate) fn bad_timeout(text: &str) -> Status {
    Status::new(Code::InvalidArgument, format!("invalid grpc-timeout: {text}"))
}

/// The time that a client of the gateway gave a call is over.
pub(crate) fn out_of_time() -> Status {
    // Go's words.
    Status::new(Code::DeadlineExceeded, "context deadline exceeded")
}

/// A call within this process ended without a word.
pub(crate) fn no_answer() -> Status {
    Status::new(Code::Unavailable, "meerkat: the call broke off before its answer; it may have happened")
}

/// A request on a watch stream that could not be read.
pub(crate) fn watch_request(error: Status, max: usize) -> Status {
    let found = error.message().strip_prefix("Error, decoded message length too large: found ");
    match found.and_then(|found| found.split(' ').next()) {
        Some(bytes) => message_too_large(bytes, max),
        None => error,
    }
}

/// Why a member ends a watch stream.
pub(crate) fn watch_ended(end: &End) -> Status {
    match end {
        End::Stopping => etcd(EtcdError::Stopped),
        End::NoLeader => etcd(EtcdError::NoLeader),
        End::OutOfMemory => Status::new(
            Code::Unavailable,
            "meerkat: this stream was not read while others needed its memory; watch again from the last received revision",
        ),
        End::Unreadable(reason) => {
            Status::new(Code::Unavailable, format!("meerkat: this member cannot read its history: {reason}"))
        }
    }
}

/// An error met on a caller's behalf by the Lock or the Election service: as etcd's, in the same words but
/// without a code.
pub(crate) fn inner(error: Status) -> Status {
    Status::new(Code::Unknown, error.message())
}

/// A watch made on a caller's behalf was refused.
pub(crate) fn watch_refused(reason: &str) -> Status {
    Status::new(Code::Unknown, if reason.is_empty() { EtcdError::WatchCanceled.message() } else { reason })
}

/// A watch made on a caller's behalf ended without a word.
pub(crate) fn lost_watcher() -> Status {
    Status::new(Code::Unknown, "lost watcher waiting for delete")
}

/// Whoever asked does not wait for the answer any more.
pub(crate) fn caller_gone() -> Status {
    etcd(EtcdError::ContextCanceled)
}

pub(crate) fn unknown_action(what: &str) -> Status {
    Status::new(Code::InvalidArgument, format!("etcdserver: unknown {what}"))
}

pub(crate) fn unknown_service(path: &str) -> Status {
    let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    Status::new(Code::Unimplemented, format!("unknown service {service}"))
}

pub(crate) fn unknown_health_service() -> Status {
    Status::new(Code::NotFound, "unknown service")
}

pub(crate) fn unknown_method(path: &str) -> Status {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (service, method) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Status::new(Code::Unimplemented, format!("unknown method {method} for service {service}"))
}

/// In the words of the library that etcd's clients know.
pub(crate) fn message_too_large(bytes: &str, max: usize) -> Status {
    Status::new(
        Code::ResourceExhausted,
        format!("grpc: received message larger than max ({bytes} vs. {max})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_timed_out_says_what_may_be_behind_it() {
        for (cause, text) in [
            (TimeoutCause::Unknown, "etcdserver: request timed out"),
            (
                TimeoutCause::LeaderFailure,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
            (TimeoutCause::ConnectionLost, "etcdserver: request timed out, possibly due to connection lost"),
        ] {
            let status = propose(&ProposeError::Timeout(cause));
            assert_eq!((status.code(), status.message()), (Code::Unavailable, text));
        }
    }
}
