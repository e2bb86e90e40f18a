//! Transfers between accounts, and looks at all of them at once, now and in the past.
//!
//! A transfer reads two accounts and moves money between them in one transaction, if neither has
//! changed. A look is one range: linearizable, or whatever the member has, or at a revision seen
//! before; the last may be told that the revision is compacted.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::{RangeRequest, RangeResponse, TxnRequest, response_op};
use rand::Rng;

use super::crew::{ANSWER_WITHIN, Crew, Hand, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::bank::{Ledger, Look};
use crate::checker::revision_order::{self, Span, What};
use crate::outcome::{Outcome, describe};
use crate::record::Verdict;
use crate::record::history::WriteId;

const NAME: &str = "bank";
const TELLERS: usize = 3;
const AUDITORS: usize = 2;
const ACCOUNTS: usize = 8;
const EACH: i64 = 100;
const TOTAL: i64 = EACH * ACCOUNTS as i64;
const REST: Duration = Duration::from_millis(120);
const REST_OF_AUDITORS: Duration = Duration::from_millis(150);
/// How many past revisions an auditor remembers.
const REMEMBERED: usize = 200;

struct Bank {
    setting: Setting,
    crew: Crew<Record>,
}

/// What one client did.
#[derive(Clone, Debug, Default)]
struct Record {
    looks: Vec<Look>,
    /// Transfers and linearizable looks, by their place in the order.
    spans: Vec<Span>,
    /// Looks that were refused without a fair reason.
    refused: Vec<String>,
}

/// Starts the clients.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let mut crew = Crew::new();
    let prefix = setting.prefix.clone();
    crew.add(&setting, NAME, TELLERS, |hand| transfer_on(hand, accounts(&prefix)));
    crew.add(&setting, NAME, AUDITORS, |hand| look_on(hand, prefix.clone()));
    Box::new(Bank { setting, crew })
}

fn accounts(prefix: &str) -> Vec<Bytes> {
    (0..ACCOUNTS).map(|account| format!("{prefix}{account}").into()).collect()
}

/// One balance, and when it last changed; none if it is not there or not a number.
fn balance(answer: &RangeResponse) -> Option<(i64, i64)> {
    let kv = answer.kvs().first()?;
    Some((number(&kv.value)?, kv.mod_revision))
}

fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

async fn transfer_on(mut hand: Hand, accounts: Vec<Bytes>) -> Record {
    let mut record = Record::default();
    while !hand.stopped() && !open(&mut hand, &accounts).await {}
    let mut sequence = 0;
    while !hand.stopped() {
        let from = hand.dice.random_range(0..ACCOUNTS);
        let to = (from + hand.dice.random_range(1..ACCOUNTS)) % ACCOUNTS;
        sequence += 1;
        let id = WriteId::new(hand.number as u32 + 1, sequence);
        record.spans.extend(transfer(&mut hand, &accounts[from], &accounts[to], id).await);
        hand.rest(REST).await;
    }
    record
}

/// Opens all accounts at once, unless another teller has. True once they are open.
async fn open(hand: &mut Hand, accounts: &[Bytes]) -> bool {
    let request = TxnRequest {
        compare: accounts.iter().map(|account| wire::unchanged_since(account, 0)).collect(),
        success: accounts.iter().map(|account| wire::op_put(wire::put(account, EACH.to_string()))).collect(),
        failure: Vec::new(),
    };
    let called = hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
    called.outcome.ok().is_some()
}

async fn transfer(hand: &mut Hand, from: &Bytes, to: &Bytes, id: WriteId) -> Option<Span> {
    let both = TxnRequest {
        success: vec![wire::op_get(wire::get(from)), wire::op_get(wire::get(to))],
        ..Default::default()
    };
    let called = hand.read(async |endpoint| endpoint.txn(both, ANSWER_WITHIN).await).await;
    let answer = called.outcome.ok()?;
    let balances: Option<Vec<(i64, i64)>> = answer
        .responses
        .iter()
        .map(|one| match &one.response {
            Some(response_op::Response::ResponseRange(range)) => balance(range),
            _ => None,
        })
        .collect();
    let balances = balances?;
    let [(has, since), (gets, other_since)] = balances.as_slice().try_into().ok()?;
    let amount = hand.dice.random_range(1..=20).min(has);
    if amount <= 0 {
        return None;
    }
    let request = TxnRequest {
        compare: vec![wire::unchanged_since(from, since), wire::unchanged_since(to, other_since)],
        success: vec![
            wire::op_put(wire::put(from, (has - amount).to_string())),
            wire::op_put(wire::put(to, (gets + amount).to_string())),
        ],
        failure: Vec::new(),
    };
    let called = hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
    let answer = called.outcome.ok()?;
    let what = if answer.succeeded { What::Write(id) } else { What::ReadBy(called.member) };
    let revision = wire::revision(&answer.header);
    Some(Span { what, invoked: called.invoked, returned: called.answered(), revision })
}

async fn look_on(mut hand: Hand, prefix: String) -> Record {
    let mut record = Record::default();
    let mut past: Vec<i64> = Vec::new();
    while !hand.stopped() {
        let mut request = wire::get_all(prefix.as_bytes());
        match hand.dice.random_range(0..4) {
            0 if !past.is_empty() => request.revision = past[hand.dice.random_range(0..past.len())],
            1 => request.serializable = true,
            _ => {}
        }
        look(&mut hand, &prefix, request, &mut record).await;
        past.extend(record.looks.last().map(|look| look.revision));
        if REMEMBERED < past.len() {
            let forgotten = hand.dice.random_range(0..past.len());
            past.swap_remove(forgotten);
        }
        hand.rest(REST_OF_AUDITORS).await;
    }
    record
}

async fn look(hand: &mut Hand, prefix: &str, request: RangeRequest, record: &mut Record) {
    let asked = request.clone();
    let called = hand.read(async |endpoint| endpoint.range(request, ANSWER_WITHIN).await).await;
    let answer = match &called.outcome {
        Outcome::Ok(answer) => answer,
        Outcome::Failed(why) if !may_refuse(why) => {
            record.refused.push(format!("a look at {} was refused: {why}", asked.revision));
            return;
        }
        Outcome::Failed(_) | Outcome::Unknown(_) => return,
    };
    let now = wire::revision(&answer.header);
    let newest = asked.revision == 0 && !asked.serializable;
    if newest {
        let what = What::ReadBy(called.member);
        let span = Span { what, invoked: called.invoked, returned: called.answered(), revision: now };
        record.spans.push(span);
    }
    let revision = if asked.revision == 0 { now } else { asked.revision };
    if !answer.kvs().is_empty() || must_show(&asked, record) {
        record.looks.push(look_of(prefix, called.member, revision, answer));
    }
}

/// Whether a look must show accounts. Before they were opened, or on a member that has not heard of it,
/// there is nothing; but a past that is asked for was seen before.
fn must_show(asked: &RangeRequest, record: &Record) -> bool {
    let newest = asked.revision == 0 && !asked.serializable;
    asked.revision != 0 || newest && !record.looks.is_empty()
}

/// Whether a look may be refused so: its revision is compacted, or the member is not one to ask now.
fn may_refuse(why: &str) -> bool {
    let fair = [EtcdError::Compacted, EtcdError::TooManyRequests, EtcdError::NotSupportedForLearner];
    fair.iter().any(|error| why.ends_with(error.message()))
}

fn look_of(prefix: &str, member: usize, revision: i64, answer: &RangeResponse) -> Look {
    let balances = accounts(prefix)
        .iter()
        .map(|account| number(&answer.kvs().iter().find(|kv| kv.key == *account)?.value))
        .collect();
    let changed = answer.kvs().iter().map(|kv| kv.mod_revision).max().unwrap_or(0);
    Look { member, revision, balances, changed }
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            let mut records = self.crew.finish().await?;
            records.push(Record { looks: last_looks(&self.setting).await?, ..Record::default() });
            Ok(judge(records))
        })
    }
}

/// Every member is asked, by a linearizable read and for what it has itself.
async fn last_looks(setting: &Setting) -> Result<Vec<Look>, Failure> {
    let mut looks = Vec::new();
    for contact in setting.roster.all() {
        for serializable in [false, true] {
            let request = RangeRequest { serializable, ..wire::get_all(setting.prefix.as_bytes()) };
            let answer = read_back(&contact.endpoint, request).await.map_err(|status| {
                Failure::broken(format!("cannot read {} back: {}", contact.endpoint.url(), describe(&status)))
            })?;
            let revision = wire::revision(&answer.header);
            looks.push(look_of(&setting.prefix, contact.member, revision, &answer));
        }
    }
    Ok(looks)
}

fn judge(records: Vec<Record>) -> Vec<Verdict> {
    let verdict = |promise: &str, judged, findings| Verdict {
        workload: NAME.to_owned(),
        promise: promise.to_owned(),
        judged,
        findings,
    };
    let mut ledger = Ledger::new(TOTAL);
    let mut findings = Vec::new();
    let mut spans = Vec::new();
    for record in records {
        findings.extend(record.refused);
        findings.extend(record.looks.into_iter().flat_map(|look| ledger.judge(look)));
        spans.extend(record.spans);
    }
    let total = verdict("the total is the same at every revision, past ones too", ledger.judged, findings);
    let mut findings = revision_order::check_unique(&spans);
    findings.extend(revision_order::check_time(&spans));
    let order = "the order by revision respects time, and no two transfers share one";
    vec![total, verdict(order, spans.len() as u64, findings)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_may_be_refused_for_its_revision_or_its_member_and_for_nothing_else() {
        let refused = |error: EtcdError| format!("{:?}: {}", error.code(), error.message());
        for fair in [EtcdError::Compacted, EtcdError::TooManyRequests, EtcdError::NotSupportedForLearner] {
            assert!(may_refuse(&refused(fair)), "{fair:?}");
        }
        for unfair in [EtcdError::FutureRev, EtcdError::EmptyKey] {
            assert!(!may_refuse(&refused(unfair)), "{unfair:?}");
        }
    }

    #[test]
    fn a_past_that_was_seen_must_show_something_and_an_unopened_bank_need_not() {
        let ask = |revision, serializable| RangeRequest { revision, serializable, ..Default::default() };
        let nothing = Record::default();
        assert!(must_show(&ask(7, false), &nothing));
        assert!(!must_show(&ask(0, false), &nothing) && !must_show(&ask(0, true), &nothing));
        let look = Look { member: 0, revision: 7, balances: vec![], changed: 7 };
        let opened = Record { looks: vec![look], ..Record::default() };
        assert!(must_show(&ask(0, false), &opened) && !must_show(&ask(0, true), &opened));
    }
}
