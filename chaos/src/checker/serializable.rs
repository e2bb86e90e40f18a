//! Transactions happened one after the other, in the order of their revisions, and that order
//! respects time.
//!
//! Each is carried out again on the `model`, in that order: what it answered must be what the model
//! answers. A transaction that changed something left a mark, so those of unknown outcome have their
//! place too, or are known not to have happened.

use std::collections::HashMap;
use std::time::Duration;

use super::model::{Answers, Store, Txn};
use super::revision_order::{self, Span, What};
use crate::outcome::Outcome;
use crate::record::history::WriteId;

/// One transaction, as its client knows it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Which.
    pub id: WriteId,
    /// The member that was asked.
    pub member: usize,
    /// What was asked.
    pub txn: Txn,
    /// When it was sent.
    pub invoked: Duration,
    /// When its outcome was known.
    pub returned: Duration,
    /// What it answered, at which revision, and whether it changed anything.
    pub outcome: Outcome<Done>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Done {
    /// The store's revision then.
    pub revision: i64,
    /// Whether the branches it took write.
    pub wrote: bool,
    /// What it answered.
    pub answers: Answers,
}

/// What a transaction that wrote left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// At which revision.
    pub revision: i64,
    /// How often; more than once means that it was applied twice.
    pub version: i64,
}

/// Where the transactions, and the marks found at the end, do not fit one order.
pub fn check(all: &[Tried], marks: &HashMap<WriteId, Mark>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut order: Vec<(i64, bool, &Tried)> = Vec::new();
    let mut spans = Vec::new();
    for tried in all {
        let mark = marks.get(&tried.id).copied();
        findings.extend(unlike(tried, mark));
        let (revision, wrote, returned) = match (&tried.outcome, mark) {
            (Outcome::Ok(done), _) => (done.revision, done.wrote, Some(tried.returned)),
            (Outcome::Unknown(_), Some(mark)) => (mark.revision, true, None),
            (Outcome::Failed(_) | Outcome::Unknown(_), _) => continue,
        };
        let what = if wrote { What::Write(tried.id) } else { What::ReadBy(tried.member) };
        spans.push(Span { what, invoked: tried.invoked, returned, revision });
        order.push((revision, !wrote, tried));
    }
    let sent: std::collections::HashSet<WriteId> = all.iter().map(|tried| tried.id).collect();
    let foreign = marks.iter().filter(|(id, _)| !sent.contains(*id));
    findings.extend(foreign.map(|(id, mark)| format!("nobody sent {id:?}, but it left {mark:?}")));
    findings.extend(revision_order::check_unique(&spans));
    findings.extend(revision_order::check_time(&spans));
    order.sort_by_key(|(revision, reads, tried)| (*revision, *reads, tried.invoked));
    findings.extend(replay(&order));
    findings
}

fn unlike(tried: &Tried, mark: Option<Mark>) -> Option<String> {
    match (&tried.outcome, mark) {
        (_, Some(mark)) if mark.version != 1 => Some(format!("applied {} times: {tried:?}", mark.version)),
        (Outcome::Ok(done), mark) if done.wrote != mark.is_some() => {
            Some(format!("it left {mark:?}, which is not what it answered: {tried:?}"))
        }
        (Outcome::Ok(done), Some(mark)) if done.revision != mark.revision => {
            Some(format!("acknowledged at {}, found at {}: {tried:?}", done.revision, mark.revision))
        }
        (Outcome::Failed(_), Some(mark)) => Some(format!("refused, but it left {mark:?}: {tried:?}")),
        _ => None,
    }
}

fn replay(order: &[(i64, bool, &Tried)]) -> Vec<String> {
    let mut store = Store::default();
    let mut findings = Vec::new();
    for (revision, _, tried) in order {
        let expected = store.apply(&tried.txn, *revision);
        if let Outcome::Ok(done) = &tried.outcome
            && done.answers != expected
        {
            findings.push(format!("at revision {revision} it should have answered {expected:?}: {tried:?}"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::model::{Action, Answer, Condition, Version};

    fn tried(id: u64, at: u64, txn: Txn, outcome: Outcome<Done>) -> Tried {
        let time = Duration::from_millis;
        Tried { id: WriteId(id), member: 0, txn, invoked: time(at), returned: time(at + 5), outcome }
    }

    fn put(id: u64, at: u64, revision: i64, value: u64) -> Tried {
        let txn = Txn { then: vec![Action::Put(1, value)], ..Txn::default() };
        let answers = Answers { succeeded: true, each: vec![Answer::Put] };
        tried(id, at, txn, Outcome::Ok(Done { revision, wrote: true, answers }))
    }

    fn get(at: u64, revision: i64, shown: Option<Version>) -> Tried {
        let txn = Txn { then: vec![Action::Get(1)], ..Txn::default() };
        let answers = Answers { succeeded: true, each: vec![Answer::Got(shown)] };
        tried(99, at, txn, Outcome::Ok(Done { revision, wrote: false, answers }))
    }

    fn version(value: u64, revision: i64) -> Option<Version> {
        Some(Version { value, create_revision: revision, mod_revision: revision, version: 1 })
    }

    fn found(all: &[Tried], marks: &[(u64, i64)]) -> usize {
        let mark = |(id, revision): &(u64, i64)| (WriteId(*id), Mark { revision: *revision, version: 1 });
        check(all, &marks.iter().map(mark).collect()).len()
    }

    #[test]
    fn what_the_model_answers_is_fine() {
        let all = [put(1, 0, 5, 10), get(10, 7, version(10, 5))];
        assert_eq!(found(&all, &[(1, 5)]), 0);
    }

    #[test]
    fn another_answer_than_the_models_is_found() {
        assert_eq!(found(&[put(1, 0, 5, 10), get(10, 7, version(11, 5))], &[(1, 5)]), 1, "value");
        assert_eq!(found(&[put(1, 0, 5, 10), get(10, 7, version(10, 4))], &[(1, 5)]), 1, "revision");
        assert_eq!(found(&[put(1, 0, 5, 10), get(10, 7, None)], &[(1, 5)]), 1, "missed");
    }

    #[test]
    fn a_read_of_the_past_is_found_even_if_it_was_right_then() {
        assert_eq!(found(&[put(1, 0, 5, 10), get(10, 4, None)], &[(1, 5)]), 1);
    }

    #[test]
    fn a_wrong_branch_is_found() {
        let guarded = Txn {
            conditions: vec![Condition::ValueIs(1, 77)],
            then: vec![Action::Put(1, 20)],
            otherwise: vec![],
        };
        let answers = Answers { succeeded: true, each: vec![Answer::Put] };
        let wrong = tried(2, 10, guarded, Outcome::Ok(Done { revision: 6, wrote: true, answers }));
        assert_eq!(found(&[put(1, 0, 5, 10), wrong], &[(1, 5), (2, 6)]), 1);
    }

    #[test]
    fn an_unknown_one_has_its_place_if_it_left_a_mark() {
        let unknown = Tried { outcome: Outcome::Unknown("lost".into()), ..put(1, 0, 0, 10) };
        assert_eq!(found(&[unknown.clone(), get(10, 7, version(10, 5))], &[(1, 5)]), 0);
        assert_eq!(found(&[unknown.clone(), get(10, 7, None)], &[]), 0);
        assert_eq!(found(&[unknown, get(10, 7, None)], &[(1, 5)]), 1);
    }

    #[test]
    fn marks_that_do_not_fit_are_found() {
        assert_eq!(found(&[put(1, 0, 5, 10)], &[]), 1, "gone");
        assert_eq!(found(&[put(1, 0, 5, 10)], &[(1, 6)]), 1, "elsewhere");
        assert_eq!(found(&[], &[(1, 6)]), 1, "nobody's");
        let refused = Tried { outcome: Outcome::Failed("no".into()), ..put(1, 0, 0, 10) };
        assert_eq!(found(&[refused], &[(1, 5)]), 1, "refused");
        let twice = HashMap::from([(WriteId(1), Mark { revision: 5, version: 2 })]);
        assert_eq!(check(&[put(1, 0, 5, 10)], &twice).len(), 1);
    }

    #[test]
    fn two_at_one_revision_are_found() {
        assert!(0 < found(&[put(1, 0, 5, 10), put(2, 0, 5, 11)], &[(1, 5), (2, 5)]));
    }
}
