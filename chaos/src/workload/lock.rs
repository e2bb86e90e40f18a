//! Contenders for a lock, some of whom sleep through their lease while they hold it, and a counter
//! that is written with their fencing tokens.
//!
//! The lock is a key that is created under a lease if it is not there; its create revision is the
//! token. A write of the counter goes by what was read of it and gives up if a higher token was
//! there; half of them also demand that the lock is still held, which proves it.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::compare::{CompareResult, TargetUnion};
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest, RangeResponse, TxnRequest};
use meerkat_proto::pb::mvcc::KeyValue;
use rand::Rng;

use super::crew::{ANSWER_WITHIN, Crew, Hand, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::fencing::{self, Counter, Held, Proof, Record};
use crate::lease::keeper::renew_once;
use crate::record::Verdict;
use crate::record::lease::RenewalEnd;

const NAME: &str = "lock";
const CONTENDERS: usize = 4;
const TTL_SECONDS: i64 = 2;
const REST: Duration = Duration::from_millis(200);
const REST_BETWEEN_WRITES: Duration = Duration::from_millis(80);
const WRITES_MAX: usize = 8;

struct Lock {
    setting: Setting,
    crew: Crew<Record>,
}

/// Starts the contenders.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let mut crew = Crew::new();
    let prefix = setting.prefix.clone();
    crew.add(&setting, NAME, CONTENDERS, |hand| contend(hand, prefix.clone()));
    Box::new(Lock { setting, crew })
}

struct Contender {
    hand: Hand,
    lock: Bytes,
    counter: Bytes,
    record: Record,
}

async fn contend(hand: Hand, prefix: String) -> Record {
    let (lock, counter) = (format!("{prefix}lock").into(), format!("{prefix}counter").into());
    let mut contender = Contender { hand, lock, counter, record: Record::default() };
    while !contender.hand.stopped() {
        if let Some((lease, token)) = contender.acquire().await {
            contender.hold(lease, token).await;
            contender.revoke(lease).await;
        }
        contender.hand.rest(REST).await;
    }
    contender.record
}

impl Contender {
    /// A lease and the lock under it: its token. None if another holds it, or nobody knows.
    async fn acquire(&mut self) -> Option<(i64, i64)> {
        let grant = LeaseGrantRequest { ttl: TTL_SECONDS, id: 0 };
        let granted =
            self.hand.write(async |endpoint| endpoint.lease_grant(grant, ANSWER_WITHIN).await).await;
        let lease = granted.outcome.ok()?.id;
        let take = PutRequest { lease, ..wire::put(&self.lock, self.hand.number.to_string()) };
        let request = TxnRequest {
            compare: vec![wire::compare(&self.lock, CompareResult::Equal, TargetUnion::CreateRevision(0))],
            success: vec![wire::op_put(take)],
            failure: Vec::new(),
        };
        let called = self.hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
        match called.outcome.ok() {
            Some(answer) if answer.succeeded => {
                let token = wire::revision(&answer.header);
                let (invoked, returned) = (called.invoked, called.returned);
                self.record.held.push(Held { client: self.hand.number, token, invoked, returned });
                Some((lease, token))
            }
            _ => {
                self.revoke(lease).await;
                None
            }
        }
    }

    async fn revoke(&mut self, lease: i64) {
        // Whether or not it happens, the lease runs out.
        let _ended =
            self.hand.write(async |endpoint| endpoint.lease_revoke(lease, ANSWER_WITHIN).await).await;
    }

    async fn hold(&mut self, lease: i64, token: i64) {
        // A holder that sleeps past its lease and goes on as if it had not.
        let sleeps = self.hand.dice.random_bool(0.2);
        let mut stream = self.hand.contact().endpoint.keep_alive();
        for number in 0..self.hand.dice.random_range(1..=WRITES_MAX) {
            if self.hand.stopped() {
                return;
            }
            if sleeps && number == 1 {
                self.hand.rest(Duration::from_secs(TTL_SECONDS as u64) * 2).await;
            } else if !sleeps {
                let renewal = renew_once(&mut stream, lease, self.hand.began()).await;
                match renewal.end {
                    RenewalEnd::Renewed(_) => {}
                    RenewalEnd::Gone => return,
                    RenewalEnd::Unknown => stream = self.hand.contact().endpoint.keep_alive(),
                }
            }
            if !self.write(token).await {
                return;
            }
            self.hand.rest(REST_BETWEEN_WRITES).await;
        }
    }

    /// Counts on, with this token. False if a higher one was there first.
    async fn write(&mut self, token: i64) -> bool {
        let request = wire::get(&self.counter);
        let read = self.hand.read(async |endpoint| endpoint.range(request, ANSWER_WITHIN).await).await;
        let Some(answer) = read.outcome.ok() else { return true };
        let before = counter_in(answer);
        self.record.counters.extend(before);
        if before.is_some_and(|before| token < before.token) {
            return false;
        }
        let count = before.map_or(1, |before| before.count + 1);
        let since = before.map_or(0, |before| before.revision);
        let demands = self.hand.dice.random_bool(0.5);
        let mut compare = vec![wire::unchanged_since(&self.counter, since)];
        if demands {
            let mine = TargetUnion::CreateRevision(token);
            compare.push(wire::compare(&self.lock, CompareResult::Equal, mine));
        }
        let put = wire::op_put(wire::put(&self.counter, format!("{token} {count}")));
        let request = TxnRequest { compare, success: vec![put], failure: Vec::new() };
        let called = self.hand.write(async |endpoint| endpoint.txn(request, ANSWER_WITHIN).await).await;
        if let Some(answer) = called.outcome.ok().filter(|answer| answer.succeeded) {
            let revision = wire::revision(&answer.header);
            self.record.counters.push(Counter { revision, version: count, token, count });
            if demands {
                self.record.proofs.push(Proof { token, revision });
            }
        }
        true
    }
}

fn counter_in(answer: &RangeResponse) -> Option<Counter> {
    answer.kvs().first().map(counter_of)
}

/// Text of another form becomes a counter that cannot be, which the checker reports.
fn counter_of(kv: &KeyValue) -> Counter {
    let numbers = || {
        let (token, count) = std::str::from_utf8(&kv.value).ok()?.split_once(' ')?;
        Some((token.parse().ok()?, count.parse().ok()?))
    };
    let (token, count) = numbers().unwrap_or((i64::MAX, -1));
    Counter { revision: kv.mod_revision, version: kv.version, token, count }
}

impl Workload for Lock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            let mut all = Record::default();
            for record in self.crew.finish().await? {
                all.held.extend(record.held);
                all.counters.extend(record.counters);
                all.proofs.extend(record.proofs);
            }
            let key: Bytes = format!("{}counter", self.setting.prefix).into();
            for contact in self.setting.roster.all() {
                let answer = read_back(&contact.endpoint, wire::get(&key)).await?;
                all.counters.extend(counter_in(&answer));
            }
            let promise = "one holder at a time by fencing token, and no older one gets through".to_owned();
            let judged = (all.held.len() + all.counters.len() + all.proofs.len()) as u64;
            let findings = fencing::check(&all);
            Ok(vec![Verdict { workload: NAME.to_owned(), promise, judged, findings }])
        })
    }
}
