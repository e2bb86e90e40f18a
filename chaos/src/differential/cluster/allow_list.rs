//! Wanted differences about membership.

use meerkat_proto::error_text::EtcdError;
use tonic::Code;

use super::answer::Answer;
use super::step::{Ask, Step};
use crate::differential::allow_list::{Handling, Row};

/// All of them.
pub const ROWS: &[Row<Step, Answer>] = &[
    Row {
        contract: "B.3 'learner member', G 'NotSupportedForLearner'",
        what: "a learner refuses with FailedPrecondition; 3.5 says Unavailable with the same words",
        handling: Handling::Accepted(a_learner_refuses_with_the_later_code),
    },
    Row {
        contract: "E.2 'MoveLeader'",
        what: "a learner is refused as the next leader; 3.5.1 hangs to the client's deadline",
        handling: Handling::Accepted(a_learner_is_no_transferee),
    },
    Row {
        contract: "G 'MemberNotEnoughStarted'",
        what: "FailedPrecondition; 3.5.1 sends the same words with Unknown",
        handling: Handling::Accepted(not_enough_started_has_the_later_code),
    },
    Row {
        contract: "E.1 'Promote', 'unknown → ErrMemberNotFound; forwarded to leader'",
        what: "a follower of 3.5.1 that is asked to promote a removed member asks on until its time is up",
        handling: Handling::NeverAsked,
    },
    Row {
        contract: "E.1 'Remove', 'removed member's process shuts itself down'",
        what: "3.5.1 may end before it has answered who asked it to remove itself: others are asked then",
        handling: Handling::NeverAsked,
    },
    Row {
        contract: "E.1 'Concurrency'",
        what: "3.5.1 drops a change that comes too soon after another: the run waits between changes, and asks it again what it did not answer",
        handling: Handling::NeverAsked,
    },
    Row {
        contract: "E.1 'Update', 'changes peerURLs only'",
        what: "3.5.1 takes any words for the new URLs, and its members end when they dial them",
        handling: Handling::NeverAsked,
    },
];

fn a_learner_refuses_with_the_later_code(_: &Step, etcd: &Answer, meerkat: &Answer) -> bool {
    let error = EtcdError::NotSupportedForLearner;
    says(etcd, Code::Unavailable, error) && says(meerkat, Code::FailedPrecondition, error)
}

fn not_enough_started_has_the_later_code(_: &Step, etcd: &Answer, meerkat: &Answer) -> bool {
    let error = EtcdError::MemberNotEnoughStarted;
    says(etcd, Code::Unknown, error) && says(meerkat, Code::FailedPrecondition, error)
}

fn says(answer: &Answer, code: Code, error: EtcdError) -> bool {
    *answer == Answer::Refused(code, error.message().to_owned())
}

fn a_learner_is_no_transferee(step: &Step, etcd: &Answer, meerkat: &Answer) -> bool {
    matches!(step, Step::Ask { ask: Ask::MoveLeader(_), .. })
        && *etcd == Answer::Hung
        && says(meerkat, Code::FailedPrecondition, EtcdError::BadLeaderTransferee)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::allow_list::allowed;
    use crate::differential::cluster::step::Target;

    #[test]
    fn only_the_code_of_a_learners_refusal_may_differ_and_only_this_way_round() {
        let step = Step::Ask { at: 0, ask: Ask::Status };
        let refused = |code, error: EtcdError| Answer::Refused(code, error.message().to_owned());
        let early = refused(Code::Unavailable, EtcdError::NotSupportedForLearner);
        let late = refused(Code::FailedPrecondition, EtcdError::NotSupportedForLearner);
        assert!(allowed(ROWS, &step, &early, &late).is_some());
        assert!(allowed(ROWS, &step, &late, &early).is_none());
        assert!(
            allowed(ROWS, &step, &early, &refused(Code::FailedPrecondition, EtcdError::NotLeader)).is_none()
        );
        assert!(allowed(ROWS, &step, &early, &Answer::Served).is_none());
    }

    #[test]
    fn silence_is_excused_where_the_contract_says_so_and_nowhere_else() {
        let late =
            Answer::Refused(Code::FailedPrecondition, EtcdError::BadLeaderTransferee.message().to_owned());
        let moving = Step::Ask { at: 0, ask: Ask::MoveLeader(Target::Mate(1)) };
        let removing = Step::Ask { at: 0, ask: Ask::Remove(Target::Mate(1)) };
        assert!(allowed(ROWS, &moving, &Answer::Hung, &late).is_some());
        assert!(allowed(ROWS, &removing, &Answer::Hung, &late).is_none());
        assert!(allowed(ROWS, &moving, &late, &Answer::Hung).is_none());
    }
}
