//! The table of retries: every kind of call after every kind of failure.

use super::*;
use CallKind::{Idempotent, LocalRead, Login, Once, Read, Write};

const KINDS: [CallKind; 6] = [Read, LocalRead, Write, Once, Idempotent, Login];

fn text(error: EtcdError) -> Seen {
    look(&Status::new(error.code(), error.message()))
}

fn again(doubt: bool) -> Decision {
    Decision::Again { doubt }
}

#[test]
fn what_never_left_is_sent_again_whatever_it_is() {
    for kind in KINDS {
        assert_eq!(decide(kind, Seen::NotSent, false), again(false), "{kind:?}");
    }
}

#[test]
fn only_a_plain_write_is_given_up_when_its_connection_breaks() {
    for seen in [Seen::Broken, Seen::Abandoned] {
        assert_eq!(decide(Write, seen, false), Decision::GiveUp(Fate::Unknown));
        for kind in [Read, LocalRead, Once, Idempotent, Login] {
            assert_eq!(decide(kind, seen, false), again(true), "{kind:?}");
        }
    }
}

#[test]
fn a_deadline_after_sending_leaves_writes_unknown_and_reads_not_done() {
    let table = [
        (Read, Fate::NotDone),
        (LocalRead, Fate::NotDone),
        (Write, Fate::Unknown),
        (Once, Fate::Unknown),
        (Idempotent, Fate::Unknown),
        (Login, Fate::NotDone),
    ];
    for (kind, fate) in table {
        assert_eq!(decide(kind, Seen::Deadline, false), Decision::GiveUp(fate), "{kind:?}");
    }
    for kind in KINDS {
        assert_eq!(at_deadline(kind, false), Fate::NotDone, "{kind:?}");
    }
}

#[test]
fn a_write_is_repeated_only_after_answers_that_prove_it_was_not_taken() {
    let taken_never = [
        EtcdError::NoLeader,
        EtcdError::TooManyRequests,
        EtcdError::NotLeader,
        EtcdError::NotSupportedForLearner,
    ];
    for error in EtcdError::ALL {
        let decision = decide(Write, text(*error), false);
        let repeated = matches!(decision, Decision::Again { .. });
        assert_eq!(repeated, taken_never.contains(error), "{error:?}: {decision:?}");
    }
}

#[test]
fn answers_that_may_come_after_proposing_leave_a_write_unknown() {
    let doubtful = [
        EtcdError::Timeout,
        EtcdError::TimeoutDueToLeaderFail,
        EtcdError::TimeoutDueToConnectionLost,
        EtcdError::TimeoutWaitAppliedIndex,
        EtcdError::Stopped,
        EtcdError::LeaderChanged,
        EtcdError::Canceled,
        EtcdError::DeadlineExceeded,
        EtcdError::ContextCanceled,
        EtcdError::ContextDeadlineExceeded,
        EtcdError::RequestCancelled,
        EtcdError::LeaderTransferTimeout,
        EtcdError::NotPrimaryLessor,
        EtcdError::WatchCanceled,
    ];
    for error in EtcdError::ALL {
        let unknown = decide(Write, text(*error), false) == Decision::GiveUp(Fate::Unknown);
        assert_eq!(unknown, doubtful.contains(error) || *error == EtcdError::NoSpace, "{error:?}");
        if doubtful.contains(error) {
            assert_eq!(decide(Read, text(*error), false), again(true), "{error:?}");
        }
    }
}

#[test]
fn no_space_ends_every_call_at_once_and_leaves_a_write_unknown() {
    let table = [
        (Read, Fate::Refused),
        (LocalRead, Fate::Refused),
        (Write, Fate::Unknown),
        (Once, Fate::Unknown),
        (Idempotent, Fate::Unknown),
        (Login, Fate::Refused),
    ];
    for (kind, fate) in table {
        let decision = decide(kind, text(EtcdError::NoSpace), false);
        assert_eq!(decision, Decision::GiveUp(fate), "{kind:?}");
    }
}

#[test]
fn a_token_that_is_not_known_is_renewed_for_every_kind_but_a_login() {
    for kind in KINDS {
        for error in [EtcdError::InvalidAuthToken, EtcdError::AuthOldRevision, EtcdError::UserEmpty] {
            let wanted = if kind == Login { Decision::GiveUp(Fate::Refused) } else { Decision::Renew };
            assert_eq!(decide(kind, text(error), false), wanted, "{kind:?} {error:?}");
        }
    }
}

#[test]
fn a_refusal_is_final_unless_an_earlier_attempt_may_be_its_reason() {
    let refused = text(EtcdError::LeaseExist);
    for kind in KINDS {
        assert_eq!(decide(kind, refused, false), Decision::GiveUp(Fate::Refused), "{kind:?}");
    }
    assert_eq!(decide(Once, refused, true), Decision::GiveUp(Fate::Unknown));
    assert_eq!(decide(Write, refused, true), Decision::GiveUp(Fate::Unknown));
    assert_eq!(decide(Read, refused, true), Decision::GiveUp(Fate::Refused));
}

#[test]
fn an_answer_nobody_knows_proves_only_what_its_code_allows() {
    let table = [
        (Code::InvalidArgument, "unknown compare result 9", Fate::Refused),
        (Code::Unimplemented, "unknown service etcdserverpb.KV", Fate::Refused),
        (Code::PermissionDenied, "", Fate::Refused),
        (Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)", Fate::Refused),
        (Code::ResourceExhausted, "out of something", Fate::Unknown),
        // What this library itself says of an answer that is too long: the deed was done.
        (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", Fate::Unknown),
        (Code::Unknown, "auth: permission denied", Fate::Refused),
        (Code::Unknown, "raft: stopped", Fate::Unknown),
        (Code::Internal, "", Fate::Unknown),
        (Code::Unavailable, "", Fate::Unknown),
        (Code::DataLoss, "", Fate::Unknown),
        (Code::Aborted, "", Fate::Unknown),
        (Code::DeadlineExceeded, "", Fate::Unknown),
        (Code::Cancelled, "", Fate::Unknown),
    ];
    for (code, message, fate) in table {
        let seen = look(&Status::new(code, message));
        assert_eq!(decide(Write, seen, false), Decision::GiveUp(fate), "{code:?} {message}");
    }
}

#[test]
fn reads_are_never_left_unknown() {
    for error in EtcdError::ALL {
        for kind in [Read, LocalRead] {
            for doubt in [false, true] {
                let decision = decide(kind, text(*error), doubt);
                assert_ne!(decision, Decision::GiveUp(Fate::Unknown), "{kind:?} {error:?}");
            }
        }
    }
}
