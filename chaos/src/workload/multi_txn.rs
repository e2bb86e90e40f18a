//! Transactions on several keys: conditions, puts, reads, deletions, and transactions within them.
//!
//! Every branch that writes also puts a mark under a key that only this transaction has, so that the
//! end of the run tells which of those without an answer happened, and when. Conditions go by what
//! the client last saw, so that they hold about as often as not.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, TargetUnion};
use meerkat_proto::pb::etcdserver::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse, response_op};
use meerkat_proto::pb::mvcc::KeyValue;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::crew::{ANSWER_WITHIN, Crew, Hand, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::model::{Action, Answer, Answers, Condition, Key, Txn, Version};
use crate::checker::serializable::{self, Done, Mark, Tried};
use crate::outcome::{Outcome, describe};
use crate::record::Verdict;
use crate::record::history::WriteId;

const NAME: &str = "txn";
const CLIENTS: usize = 4;
const KEYS: Key = 8;
const REST: Duration = Duration::from_millis(110);
const PAGE: i64 = 5_000;

struct MultiTxn {
    setting: Setting,
    crew: Crew<Vec<Tried>>,
}

/// Starts the clients.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let mut crew = Crew::new();
    let prefix = setting.prefix.clone();
    crew.add(&setting, NAME, CLIENTS, |hand| try_on(hand, Names(prefix.clone())));
    Box::new(MultiTxn { setting, crew })
}

async fn try_on(mut hand: Hand, names: Names) -> Vec<Tried> {
    let mut all = Vec::new();
    let mut writer = Writer::default();
    let mut sequence = 0;
    while !hand.stopped() {
        sequence += 1;
        let id = WriteId::new(hand.number as u32 + 1, sequence);
        let txn = writer.compose(&mut hand.dice, id);
        let request = names.request(&txn, Some(id));
        let called = hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
        let outcome = match called.outcome {
            Outcome::Ok(answer) => Outcome::Ok(done(&txn, &answer)),
            Outcome::Failed(why) => Outcome::Failed(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        };
        if let Outcome::Ok(done) = &outcome {
            writer.learn(&txn, &done.answers);
        }
        let (invoked, returned, member) = (called.invoked, called.returned, called.member);
        all.push(Tried { id, member, txn, invoked, returned, outcome });
        hand.rest(REST).await;
    }
    all
}

/// Makes transactions up.
#[derive(Clone, Debug, Default)]
struct Writer {
    /// What was last seen under each key.
    seen: HashMap<Key, Version>,
    values: u64,
}

impl Writer {
    fn learn(&mut self, txn: &Txn, answers: &Answers) {
        let actions = if answers.succeeded { &txn.then } else { &txn.otherwise };
        for (action, answer) in actions.iter().zip(&answers.each) {
            match (action, answer) {
                (Action::Get(key), Answer::Got(Some(version))) => {
                    self.seen.insert(*key, *version);
                }
                (Action::Get(key) | Action::Delete(key), _) => {
                    self.seen.remove(key);
                }
                (Action::Nested(inner), Answer::Nested(answers)) => self.learn(inner, answers),
                _ => {}
            }
        }
    }

    fn compose(&mut self, dice: &mut StdRng, id: WriteId) -> Txn {
        let conditions = (0..dice.random_range(0..=2)).map(|_| self.condition(dice)).collect();
        let mut txn =
            Txn { conditions, then: self.branch(dice, id, true), otherwise: self.branch(dice, id, true) };
        // One that does nothing at all asks for nothing, not even for the newest state.
        if txn.then.is_empty() && txn.otherwise.is_empty() {
            txn.then.push(Action::Get(dice.random_range(0..KEYS)));
        }
        txn
    }

    fn condition(&self, dice: &mut StdRng) -> Condition {
        let key = dice.random_range(0..KEYS);
        match (self.seen.get(&key), dice.random_range(0..4)) {
            (None, _) => Condition::Absent(key),
            (Some(seen), 0) => Condition::ValueIs(key, seen.value),
            (Some(seen), 1) => Condition::ValueIsNot(key, seen.value),
            (Some(seen), 2) => Condition::VersionAbove(key, seen.version - dice.random_range(0..2)),
            (Some(seen), _) => Condition::ChangedBefore(key, seen.mod_revision + 1),
        }
    }

    /// A branch that writes no key twice, the transaction within it counted.
    fn branch(&mut self, dice: &mut StdRng, id: WriteId, nests: bool) -> Vec<Action> {
        let mut keys: Vec<Key> = (0..KEYS).collect();
        keys.shuffle(dice);
        let mut branch = self.actions(dice, id, &mut keys);
        if nests && dice.random_bool(0.3) {
            let conditions = vec![self.condition(dice)];
            let then = self.actions(dice, id, &mut keys);
            let otherwise = self.actions(dice, id, &mut keys);
            let place = dice.random_range(0..=branch.len());
            branch.insert(place, Action::Nested(Box::new(Txn { conditions, then, otherwise })));
        }
        branch
    }

    fn actions(&mut self, dice: &mut StdRng, id: WriteId, keys: &mut Vec<Key>) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..dice.random_range(0..=3) {
            let action = match dice.random_range(0..10) {
                0..5 => keys.pop().map(|key| {
                    self.values += 1;
                    Action::Put(key, id.0 << 8 | self.values & 0xff)
                }),
                5 => keys.pop().map(Action::Delete),
                _ => Some(Action::Get(dice.random_range(0..KEYS))),
            };
            actions.extend(action);
        }
        actions
    }
}

/// Whether a branch writes, whatever comes of the transactions within it.
fn may_write(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Get(_) => false,
        Action::Put(..) | Action::Delete(_) => true,
        Action::Nested(inner) => may_write(&inner.then) || may_write(&inner.otherwise),
    })
}

/// How keys are called in the store.
#[derive(Clone, Debug)]
struct Names(String);

impl Names {
    fn key(&self, key: Key) -> Bytes {
        format!("{}k{key}", self.0).into()
    }

    fn marks(&self) -> String {
        format!("{}m/", self.0)
    }

    fn mark(&self, id: WriteId) -> Bytes {
        format!("{}{:016x}", self.marks(), id.0).into()
    }

    /// With an identity, every branch that may write ends with its mark.
    fn request(&self, txn: &Txn, id: Option<WriteId>) -> TxnRequest {
        TxnRequest {
            compare: txn.conditions.iter().map(|condition| self.compare(*condition)).collect(),
            success: self.branch(&txn.then, id),
            failure: self.branch(&txn.otherwise, id),
        }
    }

    fn branch(&self, actions: &[Action], id: Option<WriteId>) -> Vec<RequestOp> {
        let step = |action: &Action| match action {
            Action::Get(key) => wire::op_get(wire::get(&self.key(*key))),
            Action::Put(key, value) => wire::op_put(wire::put(&self.key(*key), value.to_string())),
            Action::Delete(key) => wire::op_delete(&self.key(*key)),
            Action::Nested(inner) => wire::op_txn(self.request(inner, None)),
        };
        let mark = id.filter(|_| may_write(actions)).map(|id| wire::op_put(wire::put(&self.mark(id), "")));
        actions.iter().map(step).chain(mark).collect()
    }

    fn compare(&self, condition: Condition) -> Compare {
        use CompareResult::{Equal, Greater, Less, NotEqual};
        let value = |value: u64| TargetUnion::Value(value.to_string().into());
        match condition {
            Condition::Absent(key) => wire::compare(&self.key(key), Equal, TargetUnion::CreateRevision(0)),
            Condition::ValueIs(key, is) => wire::compare(&self.key(key), Equal, value(is)),
            Condition::ValueIsNot(key, is) => wire::compare(&self.key(key), NotEqual, value(is)),
            Condition::VersionAbove(key, count) => {
                wire::compare(&self.key(key), Greater, TargetUnion::Version(count))
            }
            Condition::ChangedBefore(key, when) => {
                wire::compare(&self.key(key), Less, TargetUnion::ModRevision(when))
            }
        }
    }
}

fn done(txn: &Txn, answer: &TxnResponse) -> Done {
    let mut answers = answers(answer);
    let taken = if answers.succeeded { &txn.then } else { &txn.otherwise };
    let wrote = may_write(taken);
    // The mark's own answer. If it is missing, the answers do not match the model's.
    if wrote && answers.each.len() == taken.len() + 1 {
        answers.each.pop();
    }
    Done { revision: wire::revision(&answer.header), wrote, answers }
}

fn answers(answer: &TxnResponse) -> Answers {
    let each = answer.responses.iter().filter_map(|one| {
        Some(match one.response.as_ref()? {
            response_op::Response::ResponseRange(range) => Answer::Got(range.kvs().first().map(version)),
            response_op::Response::ResponsePut(_) => Answer::Put,
            response_op::Response::ResponseDeleteRange(delete) => Answer::Deleted(delete.deleted),
            response_op::Response::ResponseTxn(inner) => Answer::Nested(answers(inner)),
        })
    });
    Answers { succeeded: answer.succeeded, each: each.collect() }
}

/// A value that is not a number becomes one that was never put, which the checker reports.
fn version(kv: &KeyValue) -> Version {
    let value = std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok());
    Version {
        value: value.unwrap_or(u64::MAX),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
    }
}

impl Workload for MultiTxn {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            let all: Vec<Tried> = self.crew.finish().await?.into_iter().flatten().collect();
            let marks = marks(&self.setting).await?;
            let findings = serializable::check(&all, &marks);
            let promise =
                "transactions are strictly serializable, in the order of their revisions".to_owned();
            Ok(vec![Verdict { workload: NAME.to_owned(), promise, judged: all.len() as u64, findings }])
        })
    }
}

/// All marks, from any member: that members agree is judged elsewhere.
async fn marks(setting: &Setting) -> Result<HashMap<WriteId, Mark>, Failure> {
    let names = Names(setting.prefix.clone());
    let prefix = names.marks();
    let contact = setting.roster.all().into_iter().next();
    let endpoint = contact.ok_or_else(|| Failure::harness("there is no member to read from"))?.endpoint;
    let mut marks = HashMap::new();
    let mut request = RangeRequest { limit: PAGE, keys_only: true, ..wire::get_all(prefix.as_bytes()) };
    loop {
        let answer = read_back(&endpoint, request.clone()).await;
        let answer = answer
            .map_err(|status| Failure::broken(format!("cannot read marks back: {}", describe(&status))))?;
        for kv in answer.kvs() {
            let digits = kv.key.strip_prefix(prefix.as_bytes()).and_then(|key| std::str::from_utf8(key).ok());
            let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let id = id.ok_or_else(|| Failure::broken(format!("a key that nobody wrote: {:?}", kv.key)))?;
            marks.insert(WriteId(id), Mark { revision: kv.mod_revision, version: kv.version });
        }
        match answer.kvs().last() {
            Some(last) if answer.more => request.key = [last.key.as_ref(), b"\0"].concat().into(),
            _ => return Ok(marks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn written(actions: &[Action]) -> Vec<Key> {
        let each = |action: &Action| match action {
            Action::Get(_) => vec![],
            Action::Put(key, _) | Action::Delete(key) => vec![*key],
            Action::Nested(inner) => [written(&inner.then), written(&inner.otherwise)].concat(),
        };
        actions.iter().flat_map(each).collect()
    }

    #[test]
    fn no_branch_writes_a_key_twice_and_every_kind_of_step_comes_up() {
        let mut writer = Writer::default();
        let mut dice = StdRng::seed_from_u64(7);
        let (mut nested, mut reads) = (0, 0);
        for number in 0..500 {
            let txn = writer.compose(&mut dice, WriteId(number));
            assert!(!txn.then.is_empty() || !txn.otherwise.is_empty());
            for branch in [&txn.then, &txn.otherwise] {
                let mut keys = written(branch);
                let count = keys.len();
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), count, "{branch:?}");
                nested += branch.iter().filter(|action| matches!(action, Action::Nested(_))).count();
                reads += branch.iter().filter(|action| matches!(action, Action::Get(_))).count();
            }
        }
        assert!(100 < nested && 500 < reads);
    }

    #[test]
    fn only_branches_that_may_write_leave_a_mark() {
        let names = Names("p/".into());
        let txn = Txn { then: vec![Action::Get(1)], otherwise: vec![Action::Put(1, 2)], ..Txn::default() };
        let request = names.request(&txn, Some(WriteId(9)));
        assert_eq!((request.success.len(), request.failure.len()), (1, 2));
    }
}
