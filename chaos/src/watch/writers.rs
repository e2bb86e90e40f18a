//! A busy mix of writes for watchers to see: puts, deletions of one key and of a range, and
//! transactions on several keys, over few enough keys that each comes and goes often.
//!
//! Every value is used once, so that an event tells which write made it. A client that gets no
//! clear answer moves to the next member and its next write; it never repeats one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{
    DeleteRangeRequest, PutRequest, RequestOp, ResponseHeader, TxnRequest, request_op, response_op,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::Failure;
use crate::checker::watch_history::{Effect, Wrote};
use crate::endpoint::Endpoint;
use crate::outcome::{self, Outcome};
use crate::record::trace::{Client, Ended};
use crate::record::watch::ValuePrint;

/// The prefixes the keys live under.
pub const PREFIXES: [&str; 3] = ["a/", "b/", "c/"];
/// Keys under each of them.
pub const KEYS: usize = 12;

/// Large values that are put and then deleted together: more than what one response takes.
const HEAP: usize = 8;

const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Clients.
    pub writers: u32,
    /// Rest of each client between writes.
    pub rest: Duration,
    /// Bytes of a usual value.
    pub small: usize,
    /// Bytes of a large value.
    pub large: usize,
    /// One put in so many is large; none if zero.
    pub large_every: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { writers: 4, rest: Duration::from_millis(8), small: 40, large: 400 << 10, large_every: 60 }
    }
}

/// Writers at work.
#[derive(Debug)]
pub struct Writing {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<Wrote>>>,
}

/// Where writers write in a store they share with others, and who is told of it.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// All keys begin with this.
    pub under: String,
    /// Told of every write, one for each writer; may be empty.
    pub clients: Vec<Client>,
}

struct Writer {
    endpoints: Vec<Endpoint>,
    under: String,
    client: Option<Client>,
    number: u32,
    /// Tells the values of one start from those of another.
    seed: u64,
    sequence: u64,
    shape: Shape,
    random: StdRng,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

/// Starts the writers. Two starts on one store need two seeds, or they put the same values.
pub fn start(endpoints: &[Endpoint], shape: Shape, seed: u64) -> Writing {
    start_at(&Place::default(), endpoints, shape, seed)
}

/// The same in a store they share with others.
pub fn start_at(place: &Place, endpoints: &[Endpoint], shape: Shape, seed: u64) -> Writing {
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let clients = (0..shape.writers)
        .map(|number| {
            let writer = Writer {
                endpoints: endpoints.to_vec(),
                under: place.under.clone(),
                client: place.clients.get(number as usize).cloned(),
                number,
                seed,
                sequence: 0,
                shape,
                random: StdRng::seed_from_u64(seed ^ u64::from(number) << 32),
                stop: stop.clone(),
                acknowledged: acknowledged.clone(),
            };
            tokio::spawn(writer.write())
        })
        .collect();
    Writing { stop, acknowledged, clients }
}

impl Writing {
    /// Writes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more writes are acknowledged.
    pub async fn wait_for_more(&self, more: u64, within: Duration) -> Result<(), Failure> {
        let wanted = self.acknowledged() + more;
        let deadline = Instant::now() + within;
        while self.acknowledged() < wanted {
            if deadline < Instant::now() {
                let so_far = self.acknowledged();
                let what = format!("only {so_far} of {wanted} writes were acknowledged within {within:?}");
                return Err(Failure::broken(what));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Stops the writers and returns what they did.
    pub async fn finish(self) -> Result<Vec<Wrote>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await.map_err(|error| Failure::harness(format!("a writer ended: {error}")))?);
        }
        Ok(all)
    }
}

/// Puts one key, for runs that choose their writes. The value must not have been used before.
pub async fn put(endpoint: &Endpoint, key: Bytes, value: Bytes) -> Wrote {
    let effects = vec![put_effect(&key, &value)];
    let request = PutRequest { key, value, ..Default::default() };
    let answer = endpoint.put(request, ANSWER_WITHIN).await;
    Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
}

/// Puts several keys in one revision, for runs that choose their writes.
pub async fn put_all(endpoint: &Endpoint, puts: Vec<(Bytes, Bytes)>) -> Wrote {
    let effects = puts.iter().map(|(key, value)| put_effect(key, value)).collect();
    let ops = puts.into_iter().map(|(key, value)| {
        let put = PutRequest { key, value, ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestPut(put)) }
    });
    let request = TxnRequest { success: ops.collect(), ..Default::default() };
    let answer = endpoint.txn(request, ANSWER_WITHIN).await;
    Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
}

/// Deletes one key, for runs that choose their writes.
pub async fn delete(endpoint: &Endpoint, key: Bytes) -> Wrote {
    let request = DeleteRangeRequest { key: key.clone(), ..Default::default() };
    let answer = endpoint.delete(request, ANSWER_WITHIN).await;
    let deleted = answer.as_ref().is_ok_and(|answer| 0 < answer.deleted);
    let effects = if deleted { vec![Effect { key, put: None }] } else { Vec::new() };
    Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
}

/// One key by prefix and number.
pub fn key(prefix: usize, number: usize) -> Bytes {
    key_under("", prefix, number)
}

/// The same in a store shared with others.
pub fn key_under(under: &str, prefix: usize, number: usize) -> Bytes {
    format!("{under}{}{number:02}", PREFIXES[prefix % PREFIXES.len()]).into_bytes().into()
}

impl Writer {
    async fn write(mut self) -> Vec<Wrote> {
        let mut all = Vec::new();
        let mut at = self.number as usize;
        while !self.stop.load(Ordering::Relaxed) {
            let endpoint = self.endpoints[at % self.endpoints.len()].clone();
            let sent = Instant::now();
            let wrote = match self.random.random_range(0..1_000) {
                0..550 => put(&endpoint, self.any_key(), self.new_value()).await,
                550..700 => delete(&endpoint, self.any_key()).await,
                700..748 => self.delete_range(&endpoint, 4).await,
                748..750 if self.shape.large_every != 0 => {
                    all.extend(self.heap(&endpoint).await);
                    self.delete_range(&endpoint, KEYS).await
                }
                _ => self.txn(&endpoint).await,
            };
            self.tell(sent, &wrote);
            if wrote.outcome.ok().is_some() {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                // Any member serves any write: move on now and then.
                at += usize::from(self.random.random_bool(0.05));
                tokio::time::sleep(self.shape.rest).await;
            } else {
                at += 1;
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
            all.push(wrote);
        }
        all
    }

    fn tell(&self, sent: Instant, wrote: &Wrote) {
        if let Some(client) = &self.client {
            client.op(true, sent, Ended::from(&wrote.outcome));
        }
    }

    fn any_key(&mut self) -> Bytes {
        let prefix = self.random.random_range(0..PREFIXES.len());
        let number = self.random.random_range(0..KEYS);
        key_under(&self.under, prefix, number)
    }

    /// A value that nobody else puts.
    fn new_value(&mut self) -> Bytes {
        let large = self.shape.large_every;
        let large = large != 0 && self.random.random_range(0..large) == 0;
        self.value_of(if large { self.shape.large } else { self.shape.small })
    }

    fn value_of(&mut self, length: usize) -> Bytes {
        self.sequence += 1;
        let mut value = format!("{}.{}.{} ", self.seed, self.number, self.sequence).into_bytes();
        value.resize(length.max(value.len()), b'.');
        value.into()
    }

    /// Large values under the last prefix: deleted together, what was there before makes a response
    /// that has to be cut for those who want it in pieces.
    async fn heap(&mut self, endpoint: &Endpoint) -> Vec<Wrote> {
        let mut all = Vec::new();
        for number in 0..HEAP {
            let value = self.value_of(self.shape.large);
            all.push(put(endpoint, key_under(&self.under, PREFIXES.len() - 1, number), value).await);
        }
        all
    }

    /// Some neighbouring keys of the last prefix.
    async fn delete_range(&mut self, endpoint: &Endpoint, count: usize) -> Wrote {
        let first = self.random.random_range(0..=KEYS - count);
        let request = DeleteRangeRequest {
            key: key_under(&self.under, PREFIXES.len() - 1, first),
            range_end: key_under(&self.under, PREFIXES.len() - 1, first + count),
            prev_kv: true,
        };
        let answer = endpoint.delete(request, ANSWER_WITHIN).await;
        let deleted = answer.as_ref().map_or(&[][..], |answer| &answer.prev_kvs);
        let effects =
            deleted.iter().map(|kv| Effect { key: Bytes::copy_from_slice(&kv.key), put: None }).collect();
        Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
    }

    /// Several neighbouring keys, some put and some deleted, in one revision.
    async fn txn(&mut self, endpoint: &Endpoint) -> Wrote {
        let first = self.random.random_range(0..PREFIXES.len() * KEYS);
        let count = self.random.random_range(2..7);
        let keys: Vec<Bytes> =
            (first..first + count).map(|at| key_under(&self.under, at / KEYS, at % KEYS)).collect();
        let mut puts = Vec::new();
        let mut success = Vec::new();
        for key in &keys {
            let request = if self.random.random_bool(0.75) {
                let value = self.new_value();
                puts.push(put_effect(key, &value));
                request_op::Request::RequestPut(PutRequest { key: key.clone(), value, ..Default::default() })
            } else {
                let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
                request_op::Request::RequestDeleteRange(delete)
            };
            success.push(RequestOp { request: Some(request) });
        }
        let answer = endpoint.txn(TxnRequest { success, ..Default::default() }, ANSWER_WITHIN).await;
        let mut effects = puts;
        if let Ok(answer) = &answer {
            for (key, one) in keys.iter().zip(&answer.responses) {
                if let Some(response_op::Response::ResponseDeleteRange(delete)) = &one.response
                    && 0 < delete.deleted
                {
                    effects.push(Effect { key: key.clone(), put: None });
                }
            }
        }
        Wrote { effects, outcome: revision(answer.map(|answer| answer.header)) }
    }
}

fn put_effect(key: &Bytes, value: &[u8]) -> Effect {
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
