//! What a client may conclude from an answer: it happened, it did not, or nobody knows.
//!
//! A request that timed out, lost its connection or met a stopping server is `Unknown`, and stays
//! so until the history proves otherwise. Never turn an `Unknown` into a `Failed`: a checker would
//! then blame the system for a write that was never refused.

use meerkat_proto::error_text::EtcdError;
use tonic::{Code, Status};

use crate::Failure;

/// What became of one request, as far as its client can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It happened, and this was the answer.
    Ok(T),
    /// It was refused: it did not happen and never will.
    Failed(String),
    /// It may have happened, or may yet.
    Unknown(String),
}

impl<T> Outcome<T> {
    /// The answer, if there was one.
    pub fn ok(&self) -> Option<&T> {
        match self {
            Self::Ok(answer) => Some(answer),
            Self::Failed(_) | Self::Unknown(_) => None,
        }
    }
}

/// Judges the answer to a write.
pub fn of_write<T>(answer: Result<T, Status>) -> Outcome<T> {
    match answer {
        Ok(answer) => Outcome::Ok(answer),
        Err(status) if refuses(&status) => Outcome::Failed(describe(&status)),
        Err(status) => Outcome::Unknown(describe(&status)),
    }
}

/// Whether a status means that the server decided not to do it. Only codes that a server sends
/// before it proposes anything, with a text of its own, count: a transport may invent the others.
fn refuses(status: &Status) -> bool {
    let decided = matches!(
        status.code(),
        Code::InvalidArgument
            | Code::OutOfRange
            | Code::NotFound
            | Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
    );
    decided && status.message().starts_with("etcdserver: ")
}

/// Of a request that has to be answered. A refusal breaks a promise; no answer in time, or no leader just
/// then, is for a machine that does much else.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let late = [
            EtcdError::LeaderChanged,
            EtcdError::NoLeader,
            EtcdError::Timeout,
            EtcdError::TimeoutDueToConnectionLost,
            EtcdError::TimeoutDueToLeaderFail,
        ];
        let is_late = status.code() == Code::DeadlineExceeded
            || late.iter().any(|error| status.message() == error.message());
        if is_late { Self::slow(describe(&status)) } else { Self::broken(describe(&status)) }
    }
}

/// A status on one line.
pub fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: Code, message: &str) -> Outcome<()> {
        of_write(Err(Status::new(code, message)))
    }

    #[test]
    fn a_refusal_in_the_servers_own_words_did_not_happen() {
        assert!(matches!(
            judged(Code::InvalidArgument, "etcdserver: key is not provided"),
            Outcome::Failed(_)
        ));
        assert!(matches!(
            judged(Code::ResourceExhausted, "etcdserver: too many requests"),
            Outcome::Failed(_)
        ));
    }

    #[test]
    fn timeouts_lost_connections_and_stopping_servers_leave_it_unknown() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Cancelled, "operation was canceled"),
            (Code::Unknown, "transport error"),
            (Code::Internal, "h2 protocol error"),
        ] {
            assert!(matches!(judged(code, message), Outcome::Unknown(_)), "{code:?} {message}");
        }
    }

    #[test]
    fn only_what_was_too_late_is_the_machines() {
        for (code, message, is_slow) in [
            (Code::DeadlineExceeded, "no answer within the client's own deadline", true),
            (Code::Unavailable, "etcdserver: request timed out", true),
            (Code::Unavailable, "etcdserver: no leader", true),
            (Code::Unavailable, "tcp connect error", false),
            (Code::DataLoss, "etcdserver: corrupt cluster", false),
            (Code::InvalidArgument, "etcdserver: key is not provided", false),
        ] {
            let failure = Failure::from(Status::new(code, message));
            assert_eq!(matches!(failure, Failure::Slow(_)), is_slow, "{failure}");
            assert_eq!(matches!(failure, Failure::Broken(_)), !is_slow, "{failure}");
        }
    }
}
