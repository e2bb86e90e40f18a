//! Clients that hold leases: they grant, attach keys, renew for a while, and then let go.
//!
//! Each does one thing at a time and writes down when it sent what, and when it was answered. When
//! an answer is lost it goes to another member, as a careful client would; what it does not know it
//! records as unknown. Every id and every key is used once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::{LeaseGrantRequest, PutRequest};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use crate::endpoint::keep_alive::{KeepAliveStream, Next};
use crate::endpoint::{Endpoint, Roster};
use crate::outcome::{Outcome, of_write};
use crate::record::lease::{KeyRecord, LeaseRecord, Renewal, RenewalEnd, Revoke, Span};
use crate::record::trace::{Client, Ended};
use crate::{Failure, Patience};

/// All keys of all leases begin so.
pub const PREFIX: &[u8] = b"leased/";
const TTL_SECONDS: std::ops::RangeInclusive<i64> = 2..=10;
const KEYS_MAX: usize = 3;
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// After this long without an answer to a renewal, another member is asked.
const RENEWED_WITHIN: Duration = Duration::from_millis(700);
const PAUSE_AFTER_LOSS: Duration = Duration::from_millis(40);
const PUT_ATTEMPTS_MAX: usize = 30;

/// Clients at work.
#[derive(Debug)]
pub struct Keepers {
    stop: Arc<AtomicBool>,
    renewed: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<LeaseRecord>>>,
}

/// What is to become of a lease once its keys hang on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    /// How long it is renewed.
    kept: Duration,
    /// Whether it is revoked in the end, or abandoned.
    revoked: bool,
}

/// Whom the keepers ask, and where and how they keep leases, in a store shared with others.
#[derive(Clone, Debug)]
pub struct Place {
    /// The members, as they come and go.
    pub roster: Roster,
    /// All keys begin with this.
    pub under: String,
    /// How long leases live.
    pub ttl_seconds: std::ops::RangeInclusive<i64>,
    /// Told of every call, one for each keeper; may be empty.
    pub clients: Vec<Client>,
}

struct Keeper {
    place: Place,
    client: Option<Client>,
    began: Instant,
    random: StdRng,
    number: usize,
    lives: usize,
    stop: Arc<AtomicBool>,
    renewed: Arc<AtomicU64>,
}

impl Keepers {
    /// Starts so many clients. Times are counted from `began`.
    pub fn start(endpoints: &[Endpoint], count: usize, seed: u64, began: Instant) -> Self {
        let place = Place {
            roster: Roster::of(endpoints),
            under: String::from_utf8_lossy(PREFIX).into_owned(),
            ttl_seconds: TTL_SECONDS,
            clients: Vec::new(),
        };
        Self::start_at(&place, count, seed, began)
    }

    /// The same in a store shared with others.
    pub fn start_at(place: &Place, count: usize, seed: u64, began: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let renewed = Arc::new(AtomicU64::new(0));
        let keeper = |number: usize| Keeper {
            place: place.clone(),
            client: place.clients.get(number).cloned(),
            began,
            random: StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(number as u64)),
            number,
            lives: 0,
            stop: stop.clone(),
            renewed: renewed.clone(),
        };
        let tasks = (0..count).map(|number| tokio::spawn(keeper(number).keep())).collect();
        Self { stop, renewed, tasks }
    }

    /// Waits until so many more renewals have been acknowledged.
    pub async fn wait_for_more(&self, count: u64, within: Duration) -> Result<(), Failure> {
        let goal = self.renewed.load(Ordering::Relaxed) + count;
        let are_there = || match self.renewed.load(Ordering::Relaxed) {
            all if goal <= all => Ok(()),
            some => Err(format!("{some} of {goal}")),
        };
        let patience = Patience::of(format!("{count} more renewals are answered"), within);
        patience.until(Duration::from_millis(20), are_there).await.map(drop)
    }

    /// Lets every lease go; the records of all there were.
    pub async fn finish(self) -> Result<Vec<LeaseRecord>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut leases = Vec::new();
        for task in self.tasks {
            leases.extend(task.await.map_err(|error| Failure::harness(error.to_string()))?);
        }
        Ok(leases)
    }
}

impl Keeper {
    async fn keep(mut self) -> Vec<LeaseRecord> {
        let mut leases = Vec::new();
        // Not all at once: leases that end together are another test.
        self.rest(Duration::from_millis(37 * self.number as u64)).await;
        while !self.stopped() {
            leases.extend(self.live().await);
        }
        leases
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One lease from its grant to its letting go. None if nobody knows whether it was granted: then
    /// nothing hangs on it either.
    async fn live(&mut self) -> Option<LeaseRecord> {
        let (ttl, fate) = self.choose();
        let mut lease = match self.grant(ttl).await {
            Some(lease) => lease,
            None => {
                self.rest(PAUSE_AFTER_LOSS).await;
                return None;
            }
        };
        let count = self.random.random_range(1..=KEYS_MAX);
        for number in 0..count {
            self.attach(&mut lease, number).await;
        }
        if lease.said_gone.is_empty() && !fate.kept.is_zero() {
            self.renew(&mut lease, fate.kept).await;
        }
        if fate.revoked && !self.stopped() {
            self.revoke(&mut lease).await;
        }
        Some(lease)
    }

    fn choose(&mut self) -> (i64, Fate) {
        let kept = match self.random.random_range(0..10) {
            0..=2 => Duration::ZERO,
            _ => Duration::from_millis(self.random.random_range(500..15_000)),
        };
        let fate = Fate { kept, revoked: self.random.random_ratio(1, 4) };
        (self.random.random_range(self.place.ttl_seconds.clone()), fate)
    }

    fn anyone(&mut self) -> Endpoint {
        self.place.roster.any(&mut self.random).endpoint
    }

    fn tell(&self, writes: bool, sent: Instant, ended: Ended) {
        if let Some(client) = &self.client {
            client.op(writes, sent, ended);
        }
    }

    async fn grant(&mut self, ttl: i64) -> Option<LeaseRecord> {
        self.lives += 1;
        let id = i64::try_from(self.number * 1_000_000 + self.lives).ok()?;
        let from = self.began.elapsed();
        let request = LeaseGrantRequest { ttl, id };
        let sent = Instant::now();
        let granted = of_write(self.anyone().lease_grant(request, ANSWER_WITHIN).await);
        self.tell(true, sent, Ended::from(&granted));
        let granted = granted.ok()?;
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).ok()?);
        let grant = Span { from, until: self.began.elapsed() };
        Some(LeaseRecord { id, ttl, grant, ..LeaseRecord::default() })
    }

    /// Puts a key until that is acknowledged, or the lease is said to be gone.
    async fn attach(&mut self, lease: &mut LeaseRecord, number: usize) {
        let key: Bytes = format!("{}{}/{number}", self.place.under, lease.id).into();
        let put = PutRequest { key: key.clone(), lease: lease.id, ..Default::default() };
        for _ in 0..PUT_ATTEMPTS_MAX {
            let sent = Instant::now();
            let outcome = of_write(self.anyone().put(put.clone(), ANSWER_WITHIN).await);
            self.tell(true, sent, Ended::from(&outcome));
            match outcome {
                Outcome::Ok(_) => {
                    lease.keys.push(KeyRecord { key, deaths: Vec::new() });
                    return;
                }
                Outcome::Failed(why) if says_gone(&why) => {
                    lease.said_gone.push(self.began.elapsed());
                    return;
                }
                Outcome::Failed(_) | Outcome::Unknown(_) => self.rest(PAUSE_AFTER_LOSS).await,
            }
        }
    }

    /// Renews a lease every third of its TTL, on whichever member answers.
    async fn renew(&mut self, lease: &mut LeaseRecord, kept: Duration) {
        let until = Instant::now() + kept;
        let every = lease.ttl / 3;
        let mut stream: Option<KeepAliveStream> = None;
        while Instant::now() < until && !self.stopped() {
            let mut open = match stream.take() {
                Some(open) => open,
                None => self.anyone().keep_alive(),
            };
            let sent = Instant::now();
            let renewal = renew_once(&mut open, lease.id, self.began).await;
            let unknown = renewal.end == RenewalEnd::Unknown;
            self.tell(false, sent, if unknown { Ended::Unknown } else { Ended::Ok });
            lease.renewals.push(renewal);
            match renewal.end {
                RenewalEnd::Renewed(_) => {
                    self.renewed.fetch_add(1, Ordering::Relaxed);
                    stream = Some(open);
                    self.rest(every.min(until.saturating_duration_since(Instant::now()))).await;
                }
                RenewalEnd::Gone => return,
                RenewalEnd::Unknown => self.rest(PAUSE_AFTER_LOSS).await,
            }
        }
    }

    async fn revoke(&mut self, lease: &mut LeaseRecord) {
        let from = self.began.elapsed();
        let sent = Instant::now();
        let outcome = of_write(self.anyone().lease_revoke(lease.id, ANSWER_WITHIN).await);
        self.tell(true, sent, Ended::from(&outcome));
        let span = Span { from, until: self.began.elapsed() };
        match outcome {
            Outcome::Ok(_) => lease.revoke = Some(Revoke { span, acknowledged: true }),
            Outcome::Unknown(_) => lease.revoke = Some(Revoke { span, acknowledged: false }),
            // It was gone already.
            Outcome::Failed(why) if says_gone(&why) => lease.said_gone.push(span.until),
            // It was not revoked, and the clock will end it.
            Outcome::Failed(_) => {}
        }
    }

    async fn rest(&self, lasting: Duration) {
        let until = Instant::now() + lasting;
        while !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_millis(100))).await;
        }
    }
}

/// Whether a refusal means that the lease does not exist. A member that is too busy, or a learner,
/// refuses as well, and says nothing about it.
fn says_gone(refusal: &str) -> bool {
    refusal.ends_with(EtcdError::LeaseNotFound.message())
}

/// One attempt to renew a lease. If it is not answered soon, the stream should be given up.
pub async fn renew_once(stream: &mut KeepAliveStream, id: i64, began: Instant) -> Renewal {
    let from = began.elapsed();
    stream.send(id).await;
    let end = match stream.next(RENEWED_WITHIN).await {
        // Such an answer is wrong, whatever its TTL: the checker finds it by this one.
        Next::Answer(answer) if answer.id != id => RenewalEnd::Renewed(-1),
        Next::Answer(answer) if 0 < answer.ttl => RenewalEnd::Renewed(answer.ttl),
        Next::Answer(_) => RenewalEnd::Gone,
        Next::Nothing | Next::Ended(_) => RenewalEnd::Unknown,
    };
    Renewal { span: Span { from, until: began.elapsed() }, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::describe;
    use tonic::{Code, Status};

    fn gone(code: Code, error: EtcdError) -> bool {
        says_gone(&describe(&Status::new(code, error.message())))
    }

    #[test]
    fn only_a_lease_that_is_not_found_is_gone() {
        assert!(gone(Code::NotFound, EtcdError::LeaseNotFound));
        assert!(!gone(Code::ResourceExhausted, EtcdError::TooManyRequests));
        assert!(!gone(Code::FailedPrecondition, EtcdError::NotSupportedForLearner));
    }
}
