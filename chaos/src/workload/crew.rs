//! The clients of one workload: how they stop, keep their pace, pick members and tell the trace.
//!
//! A client stays with a member while it answers, moves on now and then, and leaves at once when an
//! answer is lost. Every call has a deadline of its own; whatever is not answered by then is unknown
//! and is never sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::{RangeRequest, RangeResponse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use super::Setting;
use crate::Failure;
use crate::endpoint::{Contact, Endpoint, Roster};
use crate::outcome::{self, Outcome};
use crate::record::trace::{Client, Ended};

/// What a client waits for an answer.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// What the reads at the end of a run may take.
pub const READ_BACK_WITHIN: Duration = Duration::from_secs(10);
/// How long a healed cluster is asked again when it did not answer.
const INSIST_FOR: Duration = Duration::from_secs(60);
const INSIST_EVERY: Duration = Duration::from_millis(200);
/// After a lost answer, so that a dead member is not asked thousands of times a second.
const PAUSE_AFTER_LOSS: Duration = Duration::from_millis(30);
/// How often a resting client looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Clients at work, each ending with a record of its own.
#[derive(Debug)]
pub struct Crew<T> {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<T>>,
}

/// One client.
#[derive(Debug)]
pub struct Hand {
    /// Its number within the workload, from 0.
    pub number: usize,
    /// What its choices are drawn from.
    pub dice: StdRng,
    roster: Roster,
    began: Instant,
    client: Client,
    stop: Arc<AtomicBool>,
    contact: Option<Contact>,
}

/// One call and what came of it.
#[derive(Clone, Debug)]
pub struct Called<T> {
    /// The member that was asked.
    pub member: usize,
    /// When it was sent.
    pub invoked: Duration,
    /// When its outcome was known.
    pub returned: Duration,
    /// What its client knows.
    pub outcome: Outcome<T>,
}

impl<T: Send + 'static> Crew<T> {
    /// No clients yet.
    pub fn new() -> Self {
        Self { stop: Arc::default(), tasks: Vec::new() }
    }

    /// Adds so many clients that live this life, numbered on from those there are.
    pub fn add<L: Future<Output = T> + Send + 'static>(
        &mut self,
        setting: &Setting,
        name: &str,
        count: usize,
        life: impl Fn(Hand) -> L,
    ) {
        for _ in 0..count {
            let number = self.tasks.len();
            let hand = Hand {
                number,
                dice: StdRng::seed_from_u64(setting.seed.wrapping_mul(1_000).wrapping_add(number as u64)),
                roster: setting.roster.clone(),
                began: setting.began,
                client: setting.trace.client(format!("{name}/{number}")),
                stop: self.stop.clone(),
                contact: None,
            };
            self.tasks.push(tokio::spawn(life(hand)));
        }
    }

    /// Ends the clients; the record of each, in their order.
    pub async fn finish(self) -> Result<Vec<T>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut records = Vec::new();
        for task in self.tasks {
            records.push(task.await.map_err(|error| Failure::harness(format!("a client ended: {error}")))?);
        }
        Ok(records)
    }
}

impl<T: Send + 'static> Default for Crew<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl Hand {
    /// Whether it should end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The time of the run.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The start of the run.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Makes a call that changes something.
    pub async fn write<T>(&mut self, call: impl AsyncFnOnce(&Endpoint) -> Result<T, Status>) -> Called<T> {
        self.call(true, call).await
    }

    /// Makes a call that changes nothing.
    pub async fn read<T>(&mut self, call: impl AsyncFnOnce(&Endpoint) -> Result<T, Status>) -> Called<T> {
        self.call(false, call).await
    }

    async fn call<T>(
        &mut self,
        writes: bool,
        call: impl AsyncFnOnce(&Endpoint) -> Result<T, Status>,
    ) -> Called<T> {
        let contact = self.contact();
        let (sent, invoked) = (Instant::now(), self.now());
        let outcome = outcome::of_write(call(&contact.endpoint).await);
        let returned = self.now();
        let ended = Ended::from(&outcome);
        self.client.op(writes, sent, ended);
        if ended == Ended::Unknown {
            self.contact = None;
            tokio::time::sleep(PAUSE_AFTER_LOSS).await;
        }
        Called { member: contact.member, invoked, returned, outcome }
    }

    /// The member it talks to: the same as before, mostly.
    pub fn contact(&mut self) -> Contact {
        if self.dice.random_bool(0.05) {
            self.contact = None;
        }
        let (roster, dice) = (&self.roster, &mut self.dice);
        self.contact.get_or_insert_with(|| roster.any(dice)).clone()
    }

    /// Rests for about so long, less if it should end.
    pub async fn rest(&mut self, about: Duration) {
        let until = Instant::now() + about.mul_f64(self.dice.random_range(0.5..1.5));
        while !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(GLANCE)).await;
        }
    }
}

/// A read at the end of a run. One that was not answered is sent again for a while: whether members
/// serve is judged elsewhere, and must not hide what they hold.
pub async fn read_back(endpoint: &Endpoint, request: RangeRequest) -> Result<RangeResponse, Status> {
    let deadline = Instant::now() + INSIST_FOR;
    loop {
        match endpoint.range(request.clone(), READ_BACK_WITHIN).await {
            Err(status) if is_passing(&status) && Instant::now() < deadline => {
                tokio::time::sleep(INSIST_EVERY).await;
            }
            answer => return answer,
        }
    }
}

/// Whether asking again may help.
pub fn is_passing(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown)
}

impl<T> Called<T> {
    /// When it was answered; none if it was not.
    pub fn answered(&self) -> Option<Duration> {
        matches!(self.outcome, Outcome::Ok(_)).then_some(self.returned)
    }
}
