//! Reads, writes and compare-and-swaps of a few hot keys.
//!
//! Every value is written once. A swap goes by the value its client last saw, and reads the key if
//! another one is there, so that no refusal hides what was seen. Judged twice: by a search for an
//! order that trusts no revision, and by the revisions themselves.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, TargetUnion};
use meerkat_proto::pb::etcdserver::{RangeResponse, TxnRequest, TxnResponse, response_op};
use rand::Rng;

use super::crew::{ANSWER_WITHIN, Called, Crew, Hand};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::register::{self, Op, Step, Value};
use crate::checker::revision_order::{self, Span, What};
use crate::outcome::Outcome;
use crate::record::Verdict;
use crate::record::history::WriteId;

const NAME: &str = "register";
const CLIENTS: usize = 8;
const KEYS: usize = 5;
const REST: Duration = Duration::from_millis(70);
/// Of a hundred calls, how many the search may leave undecided before the rest proves too little.
const UNDECIDED_PERCENT_MAX: u64 = 5;

struct Register(Crew<Vec<Record>>);

/// One call, as its client knows it.
#[derive(Clone, Copy, Debug)]
struct Record {
    key: usize,
    op: Op,
    /// Where the server put it in its order, if it was answered.
    revision: Option<i64>,
}

/// Starts the clients.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let mut crew = Crew::new();
    let prefix = setting.prefix.clone();
    crew.add(&setting, NAME, CLIENTS, |hand| call_on(hand, prefix.clone()));
    Box::new(Register(crew))
}

async fn call_on(mut hand: Hand, prefix: String) -> Vec<Record> {
    let keys: Vec<Bytes> = (0..KEYS).map(|key| format!("{prefix}r{key}").into()).collect();
    let mut last: Vec<Value> = vec![None; KEYS];
    let mut records = Vec::new();
    let mut sequence = 0;
    while !hand.stopped() {
        let key = hand.dice.random_range(0..KEYS);
        sequence += 1;
        let new = WriteId::new(hand.number as u32 + 1, sequence).0;
        let record = match hand.dice.random_range(0..10) {
            0..4 => read(&mut hand, &keys, key).await,
            4..7 => write(&mut hand, &keys, key, new).await,
            _ => swap(&mut hand, &keys, key, last[key], new).await,
        };
        if let Some(record) = record {
            last[key] = match record.op.step {
                Step::Read(value) | Step::Refused { saw: value, .. } => value,
                Step::Write(value) | Step::Swap { to: value, .. } => Some(value),
            };
            records.push(record);
        }
        hand.rest(REST).await;
    }
    records
}

/// A read that was not answered proves nothing and is not kept.
async fn read(hand: &mut Hand, keys: &[Bytes], key: usize) -> Option<Record> {
    let request = wire::get(&keys[key]);
    let called = hand.read(async |endpoint| endpoint.range(request, ANSWER_WITHIN).await).await;
    let answer = called.outcome.ok()?;
    let revision = wire::revision(&answer.header);
    Some(record(hand, &called, key, Step::Read(value_in(answer)), Some(revision)))
}

/// None if it was refused: then it must never be seen.
async fn write(hand: &mut Hand, keys: &[Bytes], key: usize, new: u64) -> Option<Record> {
    let request = wire::put(&keys[key], new.to_string());
    let called = hand.write(async |endpoint| endpoint.put(request, ANSWER_WITHIN).await).await;
    if matches!(called.outcome, Outcome::Failed(_)) {
        return None;
    }
    let revision = called.outcome.ok().map(|answer| wire::revision(&answer.header));
    Some(record(hand, &called, key, Step::Write(new), revision))
}

/// None if it was refused altogether: then it must never be seen.
async fn swap(hand: &mut Hand, keys: &[Bytes], key: usize, from: Value, to: u64) -> Option<Record> {
    let expected = match from {
        Some(value) => TargetUnion::Value(value.to_string().into()),
        None => TargetUnion::CreateRevision(0),
    };
    let request = TxnRequest {
        compare: vec![wire::compare(&keys[key], CompareResult::Equal, expected)],
        success: vec![wire::op_put(wire::put(&keys[key], to.to_string()))],
        failure: vec![wire::op_get(wire::get(&keys[key]))],
    };
    let called = hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
    let step = match &called.outcome {
        Outcome::Ok(answer) if !answer.succeeded => Step::Refused { from, saw: seen_in(answer) },
        Outcome::Ok(_) | Outcome::Unknown(_) => Step::Swap { from, to },
        Outcome::Failed(_) => return None,
    };
    let revision = called.outcome.ok().map(|answer| wire::revision(&answer.header));
    Some(record(hand, &called, key, step, revision))
}

fn record<T>(hand: &Hand, called: &Called<T>, key: usize, step: Step, revision: Option<i64>) -> Record {
    let op = Op {
        client: hand.number,
        member: called.member,
        invoked: called.invoked,
        returned: called.answered(),
        step,
    };
    Record { key, op, revision }
}

/// A value of another kind becomes one that was never written, which the checker reports.
fn value_in(answer: &RangeResponse) -> Value {
    let value = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
    answer.kvs().first().map(|kv| value(&kv.value).unwrap_or(u64::MAX))
}

fn seen_in(answer: &TxnResponse) -> Value {
    match answer.responses.first().and_then(|one| one.response.as_ref()) {
        Some(response_op::Response::ResponseRange(range)) => value_in(range),
        _ => Some(u64::MAX),
    }
}

impl Workload for Register {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            let records: Vec<Record> = self.0.finish().await?.into_iter().flatten().collect();
            tokio::task::spawn_blocking(move || judge(&records))
                .await
                .map_err(|error| Failure::harness(format!("the judge of registers ended: {error}")))?
        })
    }
}

fn judge(records: &[Record]) -> Result<Vec<Verdict>, Failure> {
    let mut undecided = 0;
    let mut linearizable = Verdict {
        workload: NAME.to_owned(),
        promise: "reads, writes and swaps are linearizable".to_owned(),
        judged: 0,
        findings: Vec::new(),
    };
    for key in 0..KEYS {
        let ops: Vec<Op> =
            records.iter().filter(|record| record.key == key).map(|record| record.op).collect();
        let judgement = register::check(&ops, register::TRIES_MAX);
        linearizable.judged += judgement.judged;
        linearizable.findings.extend(judgement.findings.iter().map(|what| format!("key {key}: {what}")));
        undecided += judgement.undecided;
        if 0 < judgement.undecided {
            println!("register: key {key}: {} calls undecided, too many orders", judgement.undecided);
        }
    }
    let spans: Vec<Span> = records.iter().filter_map(span).collect();
    let mut findings = revision_order::check_unique(&spans);
    findings.extend(revision_order::check_time(&spans));
    let promise = "the order by revision respects time, and no two writes share one".to_owned();
    let ordered = Verdict { workload: NAME.to_owned(), promise, judged: spans.len() as u64, findings };
    if linearizable.findings.is_empty() && ordered.findings.is_empty() {
        check_decided(linearizable.judged, undecided)?;
    }
    Ok(vec![linearizable, ordered])
}

/// A search that gave up too often proves too little.
fn check_decided(judged: u64, undecided: u64) -> Result<(), Failure> {
    if (judged + undecided) * UNDECIDED_PERCENT_MAX < undecided * 100 {
        let all = judged + undecided;
        return Err(Failure::harness(format!("{undecided} of {all} calls are undecided: too many orders")));
    }
    Ok(())
}

fn span(record: &Record) -> Option<Span> {
    let what = match record.op.step {
        Step::Write(value) | Step::Swap { to: value, .. } => What::Write(WriteId(value)),
        Step::Read(_) | Step::Refused { .. } => What::ReadBy(record.op.member),
    };
    let revision = record.revision?;
    Some(Span { what, invoked: record.op.invoked, returned: record.op.returned, revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_calls_may_be_undecided_and_no_more() {
        assert!(check_decided(100, 0).is_ok() && check_decided(95, 5).is_ok());
        assert!(matches!(check_decided(94, 6), Err(Failure::Harness(_))));
        assert!(matches!(check_decided(0, 1), Err(Failure::Harness(_))));
    }
}
