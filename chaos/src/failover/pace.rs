//! Writes that never stop, one writer beside each member, and when each was acknowledged.
//!
//! They dial the members directly, so that nothing done to clients' connections holds them up: while
//! any member can get a write through, one of these shows it. Every value is used once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{
    DeleteRangeRequest, PutRequest, RequestOp, ResponseHeader, TxnRequest, request_op,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::checker::watch_history::{Effect, Wrote};
use crate::endpoint::Endpoint;
use crate::outcome::{self, Outcome};
use crate::watch::ValuePrint;
use crate::{Failure, Patience};

/// The prefixes the keys live under.
pub const PREFIXES: [&str; 3] = ["a/", "b/", "c/"];
const KEYS: usize = 16;

/// Each writer rests this long between writes.
const REST: Duration = Duration::from_millis(40);
/// Short, so that a write lost with a leader does not hide that the next one leads already.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// One acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// When it was sent.
    pub sent: Duration,
    /// When it was acknowledged.
    pub acknowledged: Duration,
    /// The revision it was given.
    pub revision: i64,
}

/// Writers at work.
#[derive(Debug)]
pub struct Pace {
    stop: Arc<AtomicBool>,
    acks: Arc<Mutex<Vec<Ack>>>,
    writers: Vec<JoinHandle<Vec<Wrote>>>,
}

impl Pace {
    /// Starts one writer beside each member. Times are counted from `began`.
    pub fn start(endpoints: &[Endpoint], began: Instant, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acks = Arc::new(Mutex::new(Vec::new()));
        let writers = endpoints.iter().enumerate().map(|(number, endpoint)| {
            let writer = Writer {
                endpoint: endpoint.clone(),
                number,
                sequence: 0,
                random: StdRng::seed_from_u64(seed ^ (number as u64) << 40),
                began,
                stop: stop.clone(),
                acks: acks.clone(),
            };
            tokio::spawn(writer.write())
        });
        Self { writers: writers.collect(), stop, acks }
    }

    /// The highest revision acknowledged so far.
    pub fn revision(&self) -> i64 {
        self.acks.lock().iter().rev().take(64).map(|ack| ack.revision).max().unwrap_or(1)
    }

    /// Waits until a write that was sent after this call is acknowledged; its revision.
    pub async fn next(&self, began: Instant, within: Duration) -> Result<i64, Failure> {
        let now = began.elapsed();
        let patience = Patience::of("a member gets a write through", within);
        loop {
            let fresh = self.acks.lock().iter().rev().find(|ack| now <= ack.sent).map(|ack| ack.revision);
            if let Some(revision) = fresh {
                return patience.came().map(|_| revision);
            }
            patience.pause(Duration::from_millis(10), "no acknowledgement").await?;
        }
    }

    /// Stops the writers; what they did, and what was acknowledged in the order of its time.
    pub async fn finish(self) -> Result<(Vec<Wrote>, Vec<Ack>), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for writer in self.writers {
            all.extend(writer.await.map_err(|error| Failure::harness(format!("a writer ended: {error}")))?);
        }
        let mut acks = std::mem::take(&mut *self.acks.lock());
        acks.sort_by_key(|ack| ack.acknowledged);
        Ok((all, acks))
    }
}

struct Writer {
    endpoint: Endpoint,
    number: usize,
    sequence: u64,
    random: StdRng,
    began: Instant,
    stop: Arc<AtomicBool>,
    acks: Arc<Mutex<Vec<Ack>>>,
}

impl Writer {
    async fn write(mut self) -> Vec<Wrote> {
        let mut all = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let sent = self.began.elapsed();
            let wrote = match self.random.random_range(0..10) {
                0..6 => self.put().await,
                6..8 => self.put_three().await,
                _ => self.delete().await,
            };
            if let Outcome::Ok(revision) = wrote.outcome {
                // A deletion that found nothing makes no event to wait for.
                if !wrote.effects.is_empty() {
                    let acknowledged = self.began.elapsed();
                    self.acks.lock().push(Ack { sent, acknowledged, revision });
                }
            }
            all.push(wrote);
            tokio::time::sleep(REST).await;
        }
        all
    }

    fn any_key(&mut self) -> Bytes {
        let prefix = PREFIXES[self.random.random_range(0..PREFIXES.len())];
        format!("{prefix}{:02}", self.random.random_range(0..KEYS)).into()
    }

    fn new_value(&mut self) -> Bytes {
        self.sequence += 1;
        format!("pace {}.{}", self.number, self.sequence).into()
    }

    async fn put(&mut self) -> Wrote {
        let (key, value) = (self.any_key(), self.new_value());
        let effects = vec![effect(&key, &value)];
        let request = PutRequest { key, value, ..Default::default() };
        let answer = self.endpoint.put(request, ANSWER_WITHIN).await;
        Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
    }

    /// One key under each prefix in one revision, which watchers must be told whole.
    async fn put_three(&mut self) -> Wrote {
        let number = self.random.random_range(0..KEYS);
        let keys: Vec<Bytes> =
            PREFIXES.iter().map(|prefix| Bytes::from(format!("{prefix}{number:02}"))).collect();
        let puts: Vec<(Bytes, Bytes)> = keys.into_iter().map(|key| (key, self.new_value())).collect();
        let effects = puts.iter().map(|(key, value)| effect(key, value)).collect();
        let ops = puts.into_iter().map(|(key, value)| {
            let put = PutRequest { key, value, ..Default::default() };
            RequestOp { request: Some(request_op::Request::RequestPut(put)) }
        });
        let request = TxnRequest { success: ops.collect(), ..Default::default() };
        let answer = self.endpoint.txn(request, ANSWER_WITHIN).await;
        Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
    }

    async fn delete(&mut self) -> Wrote {
        let key = self.any_key();
        let request = DeleteRangeRequest { key: key.clone(), ..Default::default() };
        let answer = self.endpoint.delete(request, ANSWER_WITHIN).await;
        let deleted = answer.as_ref().is_ok_and(|answer| 0 < answer.deleted);
        let effects = if deleted { vec![Effect { key, put: None }] } else { Vec::new() };
        Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
    }
}

fn effect(key: &Bytes, value: &[u8]) -> Effect {
    Effect { key: key.clone(), put: Some(ValuePrint::of(value)) }
}

/// The revision a write was given. One without a header gets revision 0, which the checker reports.
fn revision(answer: Result<Option<ResponseHeader>, Status>) -> Outcome<i64> {
    match outcome::of_write(answer) {
        Outcome::Ok(header) => Outcome::Ok(header.map_or(0, |header| header.revision)),
        Outcome::Failed(why) => Outcome::Failed(why),
        Outcome::Unknown(why) => Outcome::Unknown(why),
    }
}
