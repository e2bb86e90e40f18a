//! Why the store could not do what was asked of it, in process.
//!
//! Always true: only [`LocalError::Unknown`] leaves open whether a write happened.

use crate::member::{ReadFailure, WriteError};
use meerkat_raft::{LessorError, ProposeError, ReadIndexError};
use meerkat_state::ReadError;
use meerkat_types::{AuthRefusal, Refusal};
use meerkat_watch::End;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    #[error("the history before revision {oldest} is compacted")]
    Compacted { oldest: u64 },
    #[error("revision {asked} is not reached yet")]
    Future { asked: u64 },
    #[error("the request is larger than --max-request-bytes allows")]
    TooLarge,
    /// Nothing was done: users or roles are others than those that let the asker in.
    #[error("users or roles have changed since the write was let in")]
    OtherRules,
    /// Nothing was done: who asks may not.
    #[error("{0}")]
    Forbidden(AuthRefusal),
    /// Nothing was done, and nothing will be.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing was done: this member knows no leader, and others may be ahead of it.
    #[error("this member knows no leader")]
    NoLeader,
    /// A write that may or may not have happened.
    #[error("{0}")]
    Unknown(String),
}

impl LocalError {
    pub(super) fn mismatched_outcome() -> LocalError {
        LocalError::Unknown("the outcome does not fit the command; report this as a bug".to_owned())
    }
}

impl From<Refusal> for LocalError {
    fn from(refusal: Refusal) -> LocalError {
        match refusal {
            Refusal::Compacted { oldest, .. } => LocalError::Compacted { oldest: super::unsigned(oldest) },
            Refusal::Future { asked, .. } => LocalError::Future { asked: super::unsigned(asked) },
            // Waiting may help: the cluster is out of room, or stands still for an operator.
            Refusal::NoSpace | Refusal::Corrupt => LocalError::Unavailable(refusal.to_string()),
            // Of an asker without a name: authentication was switched on meanwhile.
            Refusal::Auth(AuthRefusal::OldRevision | AuthRefusal::UserEmpty) => LocalError::OtherRules,
            Refusal::Auth(refusal) => LocalError::Forbidden(refusal),
            Refusal::KeyNotFound
            | Refusal::LeaseNotFound
            | Refusal::LeaseExists
            | Refusal::OtherTerm
            | Refusal::OtherIncarnation { .. }
            | Refusal::MemberRemoved { .. } => LocalError::Unavailable(refusal.to_string()),
        }
    }
}

impl From<WriteError> for LocalError {
    fn from(error: WriteError) -> LocalError {
        match error {
            WriteError::TooLarge => LocalError::TooLarge,
            WriteError::NoRoom => Refusal::NoSpace.into(),
            WriteError::Proposal(error) => error.into(),
            WriteError::Refused(refusal) => refusal.into(),
            WriteError::Mismatched => LocalError::mismatched_outcome(),
        }
    }
}

impl From<ProposeError> for LocalError {
    fn from(error: ProposeError) -> LocalError {
        match error {
            ProposeError::TooLarge { .. } => LocalError::TooLarge,
            ProposeError::Overloaded | ProposeError::NoLeader => LocalError::Unavailable(error.to_string()),
            // A member that stops may have handed the command on already.
            ProposeError::Timeout(_) | ProposeError::Stopped => LocalError::Unknown(error.to_string()),
        }
    }
}

impl From<ReadFailure> for LocalError {
    fn from(failure: ReadFailure) -> LocalError {
        LocalError::Unavailable(match failure {
            ReadFailure::Learner => {
                "this member is a learner and does not answer for the cluster yet".to_owned()
            }
            ReadFailure::Index(ReadIndexError::NoLeader) => return LocalError::NoLeader,
            ReadFailure::Index(error) => error.to_string(),
            ReadFailure::State(error) => return error.into(),
            ReadFailure::Worker(error) => format!("the read's worker was lost: {error}"),
        })
    }
}

/// A renewal writes nothing, so it can be asked for again.
impl From<LessorError> for LocalError {
    fn from(error: LessorError) -> LocalError {
        LocalError::Unavailable(error.to_string())
    }
}

impl From<ReadError> for LocalError {
    fn from(error: ReadError) -> LocalError {
        match error {
            ReadError::Refused(refusal) => refusal.into(),
            ReadError::State(error) => {
                tracing::error!(%error, "a read failed on this member's disk");
                LocalError::Unavailable(format!("this member cannot read its state: {error}"))
            }
        }
    }
}

impl From<End> for LocalError {
    fn from(end: End) -> LocalError {
        LocalError::Unavailable(match end {
            End::NoLeader => return LocalError::NoLeader,
            End::Stopping => "this member is stopping".to_owned(),
            End::OutOfMemory => "the watch was not read while others needed its memory".to_owned(),
            End::Unreadable(reason) => format!("this member cannot read its history: {reason}"),
        })
    }
}
