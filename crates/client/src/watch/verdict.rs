//! What a cancelled watch or an ended stream means for the watches on it: pure, by the texts that
//! servers are known by.

use meerkat_proto::error_text::EtcdError;
use tonic::{Code, Status};

/// Why a member cancelled one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// Its next revision is gone. The wire's `compact_revision`, zero if it was not told.
    Compacted { oldest: i64 },
    /// The stream has no token, or one that is no good any more; a fresh one may be.
    Token(EtcdError),
    /// The user may not read these keys. etcd 3.5.1 says the same of a token that has expired.
    Denied { code: Code, text: String },
    /// The member will not have it, and no other would.
    Refused { code: Code, text: String },
    /// No reason was given.
    Silently,
}

pub(crate) fn cancelled(compact_revision: i64, reason: &str) -> Cancelled {
    if compact_revision != 0 {
        return Cancelled::Compacted { oldest: compact_revision };
    }
    let (code, text) = unquote(reason);
    match EtcdError::from_message(text) {
        Some(EtcdError::Compacted) => Cancelled::Compacted { oldest: 0 },
        // The last is what a stream without a token hears when authentication was just switched on.
        Some(known @ (EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision | EtcdError::UserEmpty)) => {
            Cancelled::Token(known)
        }
        Some(known @ EtcdError::PermissionDenied) => {
            Cancelled::Denied { code: known.code(), text: text.to_owned() }
        }
        Some(known) => Cancelled::Refused { code: known.code(), text: text.to_owned() },
        None if text.is_empty() => Cancelled::Silently,
        None => Cancelled::Refused { code: code.unwrap_or(Code::Unknown), text: text.to_owned() },
    }
}

/// What to do with the watches of a stream that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Go on at another member.
    Move,
    /// Get a new token, then go on.
    Renew,
    /// Tell the application.
    Refuse,
}

pub(crate) fn ended(status: &Status) -> Ended {
    match EtcdError::from_message(status.message()) {
        Some(EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision | EtcdError::UserEmpty) => {
            return Ended::Renew;
        }
        Some(EtcdError::PermissionDenied) => return Ended::Refuse,
        _ => {}
    }
    match status.code() {
        Code::Unauthenticated => Ended::Renew,
        // Not a store at all, or one that understands something else by a watch.
        Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied => Ended::Refuse,
        // Dead, stopping, leaderless, a learner, or out of something: others may do better.
        _ => Ended::Move,
    }
}

/// Takes the text out of the form that Go gives errors with a code.
fn unquote(reason: &str) -> (Option<Code>, &str) {
    let parts = reason.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "));
    match parts {
        Some(("InvalidArgument", text)) => (Some(Code::InvalidArgument), text),
        Some(("PermissionDenied", text)) => (Some(Code::PermissionDenied), text),
        Some(("Unauthenticated", text)) => (Some(Code::Unauthenticated), text),
        Some((_, text)) => (None, text),
        None => (None, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(compact_revision: i64, reason: &str, meaning: Cancelled) {
        assert_eq!(cancelled(compact_revision, reason), meaning, "{reason:?}");
    }

    fn refused(code: Code, text: &str) -> Cancelled {
        Cancelled::Refused { code, text: text.to_owned() }
    }

    #[test]
    fn a_compact_revision_says_compacted_whatever_the_reason() {
        check(7, "", Cancelled::Compacted { oldest: 7 });
        check(7, "anything", Cancelled::Compacted { oldest: 7 });
        check(
            0,
            "etcdserver: mvcc: required revision has been compacted",
            Cancelled::Compacted { oldest: 0 },
        );
    }

    #[test]
    fn reasons_in_the_form_of_go_are_understood() {
        check(
            0,
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
            Cancelled::Token(EtcdError::InvalidAuthToken),
        );
        check(
            0,
            "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old",
            Cancelled::Token(EtcdError::AuthOldRevision),
        );
        check(
            0,
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
            Cancelled::Denied {
                code: Code::PermissionDenied,
                text: "etcdserver: permission denied".to_owned(),
            },
        );
        check(
            0,
            "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
            Cancelled::Token(EtcdError::UserEmpty),
        );
    }

    #[test]
    fn unknown_reasons_are_passed_on() {
        check(0, "mvcc: watcher range is empty", refused(Code::Unknown, "mvcc: watcher range is empty"));
        check(0, "rpc error: code = Strange desc = new", refused(Code::Unknown, "new"));
        check(0, "rpc error: code = ", refused(Code::Unknown, "rpc error: code = "));
        check(0, "", Cancelled::Silently);
    }

    #[test]
    fn only_what_every_member_would_say_is_told_to_the_application() {
        for (code, text, what) in [
            (Code::Unavailable, "etcdserver: no leader", Ended::Move),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", Ended::Move),
            (Code::Unavailable, "error reading from server: EOF", Ended::Move),
            (Code::Cancelled, "etcdserver: watch canceled", Ended::Move),
            (Code::Internal, "stream terminated by RST_STREAM", Ended::Move),
            (Code::Unknown, "transport error", Ended::Move),
            (Code::ResourceExhausted, "too much", Ended::Move),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Ended::Renew),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Ended::Renew),
            (Code::InvalidArgument, "etcdserver: user name is empty", Ended::Renew),
            (Code::Unimplemented, "unknown service etcdserverpb.Watch", Ended::Refuse),
            (Code::PermissionDenied, "etcdserver: permission denied", Ended::Refuse),
        ] {
            assert_eq!(ended(&Status::new(code, text)), what, "{code:?} {text}");
        }
    }
}
