//! Writes through the library, and what it said became of each.
//!
//! Every value is used once, so that the store's history tells which writes happened and how often.
//! Deadlines are drawn from too short to comfortable: a call that runs out of time in the middle of
//! an election is what this is about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use meerkat_client::{Client, Compare, Error, ErrorKind, Fate, Keys, LeaseId, Op, Revision};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::checker::watch_history::{Effect, Wrote};
use crate::outcome::Outcome;
use crate::watch::ValuePrint;

/// Keys that may be created once, and are never deleted.
pub const CREATED: &str = "created/";

const REST: Duration = Duration::from_millis(15);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Nobody grants this one.
const NO_SUCH_LEASE: i64 = 0x0dea_d1ea;

/// What kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A plain put.
    Put,
    /// A put that names a lease which is not there: always refused.
    BadLease,
    /// "Create if absent" of a key of its own.
    Create,
    /// "Create if absent" of a key that others want too.
    Race,
    /// "Put if still at the revision I saw": what the library may repeat by itself.
    Swap,
}

/// What the library said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// It happened.
    Done,
    /// The transaction was answered, and its guard did not hold.
    GuardBroken,
    /// [`Fate::Refused`].
    Refused,
    /// [`Fate::NotDone`].
    NotDone,
    /// [`Fate::Unknown`].
    Unknown,
}

/// One write.
#[derive(Clone, Debug)]
pub struct Call {
    /// What kind.
    pub shape: Shape,
    /// What was said.
    pub told: Told,
    /// Where it failed, if it did.
    pub kind: Option<ErrorKind>,
    /// As the checker reads it.
    pub wrote: Wrote,
}

/// Writers at work.
#[derive(Debug)]
pub struct Writing {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Vec<Call>>>,
}

impl Writing {
    /// Starts one writer for each client.
    pub fn start(clients: &[Client], seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let races = Arc::new(AtomicU64::new(0));
        let writers = clients.iter().enumerate().map(|(number, client)| {
            let writer = Writer {
                client: client.clone(),
                number,
                writers: clients.len() as u64,
                sequence: 0,
                at: None,
                races: races.clone(),
                random: StdRng::seed_from_u64(seed ^ (number as u64) << 40),
                stop: stop.clone(),
                done: done.clone(),
            };
            tokio::spawn(writer.write())
        });
        Self { writers: writers.collect(), stop, done }
    }

    /// Writes that were acknowledged so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Stops the writers and returns all calls.
    pub async fn finish(self) -> Result<Vec<Call>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for writer in self.writers {
            all.extend(writer.await.map_err(|error| Failure::harness(format!("a writer ended: {error}")))?);
        }
        Ok(all)
    }
}

struct Writer {
    client: Client,
    number: usize,
    writers: u64,
    sequence: u64,
    /// The revision of its own key, if it is known.
    at: Option<Revision>,
    /// Counts the attempts at keys that all writers want.
    races: Arc<AtomicU64>,
    random: StdRng,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Writer {
    async fn write(mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let call = match self.random.random_range(0..20) {
                0..8 => self.put(None).await,
                8 => self.put(LeaseId::from_wire(NO_SUCH_LEASE)).await,
                9..12 => self.create(false).await,
                12..15 => self.create(true).await,
                _ => self.swap().await,
            };
            let pause = match call.told {
                Told::Done => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                    REST
                }
                Told::GuardBroken | Told::Refused => REST,
                Told::NotDone | Told::Unknown => PAUSE_AFTER_ERROR,
            };
            calls.push(call);
            tokio::time::sleep(pause).await;
        }
        calls
    }

    fn new_value(&mut self) -> Bytes {
        self.sequence += 1;
        format!("fate {}.{}", self.number, self.sequence).into()
    }

    /// From hopeless during an election to enough for two.
    fn patience(&mut self) -> Duration {
        Duration::from_millis(match self.random.random_range(0..4) {
            0 => self.random.random_range(30..200),
            1 | 2 => self.random.random_range(200..1_500),
            _ => self.random.random_range(1_500..6_000),
        })
    }

    async fn put(&mut self, lease: Option<LeaseId>) -> Call {
        let key = Bytes::from(format!("put/{}/{:02}", self.number, self.random.random_range(0..20)));
        let (value, patience) = (self.new_value(), self.patience());
        let mut put = self.client.put(key.clone(), value.clone()).timeout(patience);
        let shape = if lease.is_some() { Shape::BadLease } else { Shape::Put };
        if let Some(lease) = lease {
            put = put.lease(lease);
        }
        let answer = put.await.map(|done| (true, done.revision));
        call(shape, key, &value, answer)
    }

    async fn create(&mut self, race: bool) -> Call {
        let (value, patience) = (self.new_value(), self.patience());
        let key = if race {
            // Each key is tried about as often as there are writers, at about the same time.
            let number = self.races.fetch_add(1, Ordering::Relaxed) / self.writers;
            Bytes::from(format!("{CREATED}race/{number:06}"))
        } else {
            Bytes::from(format!("{CREATED}own/{}/{:06}", self.number, self.sequence))
        };
        let absent = Compare::key(key.clone()).version().equals(0);
        let txn = self.client.txn().when([absent]).then([Op::put(key.clone(), value.clone())]);
        let answer = txn.timeout(patience).await.map(|done| (done.succeeded, done.revision));
        call(if race { Shape::Race } else { Shape::Create }, key, &value, answer)
    }

    async fn swap(&mut self) -> Call {
        let key = Bytes::from(format!("swap/{}", self.number));
        if self.at.is_none() {
            let found = self.client.get(Keys::one(key.clone())).timeout(Duration::from_secs(10)).await;
            self.at = found.ok().and_then(|found| found.first().map(|kv| kv.modified));
        }
        let (value, patience) = (self.new_value(), self.patience());
        let guard = match self.at {
            Some(revision) => Compare::key(key.clone()).mod_revision().equals(revision),
            None => Compare::key(key.clone()).version().equals(0),
        };
        let txn = self.client.txn().when([guard]).then([Op::put(key.clone(), value.clone())]);
        let answer = txn.timeout(patience).await.map(|done| (done.succeeded, done.revision));
        self.at = answer.as_ref().ok().filter(|(succeeded, _)| *succeeded).map(|(_, revision)| *revision);
        call(Shape::Swap, key, &value, answer)
    }
}

fn call(shape: Shape, key: Bytes, value: &[u8], answer: Result<(bool, Revision), Error>) -> Call {
    let kind = answer.as_ref().err().map(Error::kind);
    let (told, outcome) = match answer {
        Ok((true, revision)) => (Told::Done, Outcome::Ok(revision.get())),
        Ok((false, _)) => (Told::GuardBroken, Outcome::Failed("the guard did not hold".to_owned())),
        Err(error) => match error.fate() {
            Fate::Refused => (Told::Refused, Outcome::Failed(error.to_string())),
            Fate::NotDone => (Told::NotDone, Outcome::Failed(error.to_string())),
            Fate::Unknown => (Told::Unknown, Outcome::Unknown(error.to_string())),
        },
    };
    let effects = vec![Effect { key, put: Some(ValuePrint::of(value)) }];
    Call { shape, told, kind, wrote: Wrote { effects, outcome } }
}
