//! One watcher that outlives its connections, as a careful client would.
//!
//! It knows the next revision it has not had: after an event the one above it, after a mark the one
//! above that. When its connection breaks, when it has heard nothing for longer than its patience,
//! or when it is simply time to move, it asks any member for that revision. When told that the
//! revision is compacted it goes on from where history begins. It never asks for anything twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::checker::watch_history::WatchHistory;
use crate::endpoint::{Endpoint, Roster, watch::Next};
use crate::outcome::describe;
use crate::record::watch::{FELL_BEHIND, Reply, Session, WatchLog, WatchSpec, progress_request};

/// How often a waiting follower looks whether it should stop, ask or move.
const GLANCE: Duration = Duration::from_millis(50);
/// After a broken connection, so that a dead member is not asked thousands of times a second.
const PAUSE_AFTER_BREAK: Duration = Duration::from_millis(30);

/// How a follower behaves.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Rest after each response: a slow reader.
    pub pause: Duration,
    /// Bytes that may be on their way to a slow reader; a connection of its own if given.
    pub window: Option<u32>,
    /// Silence after which it looks for another member.
    pub patience: Duration,
    /// Moves after so long, even if nothing is wrong.
    pub restless: Option<Duration>,
    /// Asks for a mark this often.
    pub asks_progress: Option<Duration>,
    /// Whether it resumes after marks. Not on servers that are known to get them wrong.
    pub trusts_marks: bool,
    /// Request metadata of its streams.
    pub metadata: Vec<(&'static str, &'static str)>,
    /// Decides which members it goes to.
    pub seed: u64,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            pause: Duration::ZERO,
            window: None,
            patience: Duration::from_millis(1_500),
            restless: None,
            asks_progress: None,
            trusts_marks: true,
            metadata: Vec::new(),
            seed: 1,
        }
    }
}

/// A follower at work.
#[derive(Debug)]
pub struct Following {
    spec: WatchSpec,
    seat: Arc<Seat>,
    task: JoinHandle<Result<WatchLog, Failure>>,
}

/// What a follower and its owner share.
#[derive(Debug)]
struct Seat {
    /// The next revision it has not had; zero while it has heard nothing.
    next: AtomicI64,
    hurry: AtomicBool,
    stop: AtomicBool,
}

struct Follower {
    roster: Roster,
    manner: Manner,
    began: Instant,
    random: StdRng,
    log: WatchLog,
    /// The next revision to ask for, once known.
    next: Option<i64>,
    /// The highest revision among the pieces of a response that is not whole yet.
    pieces: Option<i64>,
    seat: Arc<Seat>,
}

/// Starts a follower that first connects to member `first`.
pub fn start(
    endpoints: &[Endpoint],
    first: usize,
    began: Instant,
    log: WatchLog,
    manner: Manner,
) -> Result<Following, Failure> {
    let own = |endpoint: &Endpoint| match manner.window {
        Some(_) => endpoint.apart(manner.window),
        None => Ok(endpoint.clone()),
    };
    let endpoints: Vec<Endpoint> = endpoints.iter().map(own).collect::<Result<_, _>>()?;
    Ok(start_on(&Roster::of(&endpoints), first, began, log, manner))
}

/// The same among members that come and go, over the connections that the roster has.
pub fn start_on(roster: &Roster, first: usize, began: Instant, log: WatchLog, manner: Manner) -> Following {
    let seat = Arc::new(Seat {
        next: AtomicI64::new(0),
        hurry: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let spec = log.spec.clone();
    let follower = Follower {
        roster: roster.clone(),
        random: StdRng::seed_from_u64(manner.seed),
        manner,
        began,
        log,
        next: None,
        pieces: None,
        seat: seat.clone(),
    };
    Following { spec, seat, task: tokio::spawn(follower.follow(first)) }
}

impl Following {
    /// The next revision it has not had; zero while it has heard nothing.
    pub fn next(&self) -> i64 {
        self.seat.next.load(Ordering::Relaxed)
    }

    /// What it asked for at first.
    pub fn spec(&self) -> &WatchSpec {
        &self.spec
    }

    /// Whether it has been sent the last event that the history owes it.
    pub fn has_heard_all(&self, history: &WatchHistory) -> bool {
        history.last_wanted(&self.spec) < self.next()
    }

    /// From now on it reads as fast as it can.
    pub fn hurry(&self) {
        self.seat.hurry.store(true, Ordering::Relaxed);
    }

    /// Ends it and returns its record.
    pub async fn finish(self) -> Result<WatchLog, Failure> {
        self.seat.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(|error| Failure::harness(format!("a follower ended: {error}")))?
    }
}

impl Follower {
    async fn follow(mut self, first: usize) -> Result<WatchLog, Failure> {
        let mut member = first;
        while !self.stopped() {
            let ended = self.connect(member).await?;
            if let Some(session) = self.log.sessions.last_mut() {
                session.ended = Some(ended);
            }
            self.pieces = None;
            tokio::time::sleep(PAUSE_AFTER_BREAK).await;
            member = self.random.random_range(0..self.roster.all().len());
        }
        Ok(self.log)
    }

    fn stopped(&self) -> bool {
        self.seat.stop.load(Ordering::Relaxed)
    }

    /// One connection from its start to its end, and why it ended.
    async fn connect(&mut self, place: usize) -> Result<String, Failure> {
        let contact = self.roster.at(place);
        let member = contact.member;
        let asked = self.next.unwrap_or(self.log.spec.start_revision);
        let mut stream = contact.endpoint.watch(&self.manner.metadata)?;
        let opened = self.began.elapsed();
        self.log.sessions.push(Session { member, asked, opened, ..Session::default() });
        stream.send(self.log.spec.request(asked)).await;
        let since = Instant::now();
        let mut heard = Instant::now();
        let mut progress_asked = Instant::now();
        loop {
            if self.stopped() {
                return Ok("the run is over".to_owned());
            }
            match stream.next(GLANCE).await {
                Next::Response(response) => {
                    heard = Instant::now();
                    if let Some(why) = self.take(Reply::record(&response, self.began.elapsed())) {
                        return Ok(why);
                    }
                    self.rest().await;
                }
                Next::Ended(status) => {
                    return Ok(status.map_or_else(|| "the server ended it".to_owned(), |s| describe(&s)));
                }
                Next::Nothing if self.manner.patience < heard.elapsed() => {
                    return Ok(format!("nothing heard for {:?}", self.manner.patience));
                }
                Next::Nothing => {}
            }
            if self.manner.restless.is_some_and(|after| after < since.elapsed()) {
                return Ok("time to move".to_owned());
            }
            if self.manner.asks_progress.is_some_and(|every| every < progress_asked.elapsed()) {
                stream.send(progress_request()).await;
                progress_asked = Instant::now();
            }
        }
    }

    async fn rest(&self) {
        let until = Instant::now() + self.manner.pause;
        while !self.seat.hurry.load(Ordering::Relaxed) && !self.stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(GLANCE)).await;
        }
    }

    /// Writes a response down; why the connection is over for this watcher, if it is.
    fn take(&mut self, reply: Reply) -> Option<String> {
        let over = reply.canceled.then(|| {
            format!("canceled: compacted {}, reason {:?}", reply.compact_revision, reply.cancel_reason)
        });
        self.advance(&reply);
        self.seat.next.store(self.next.unwrap_or(0), Ordering::Relaxed);
        let session = self.log.sessions.last_mut().expect("a session is pushed before a response is read");
        session.replies.push(reply);
        over
    }

    fn advance(&mut self, reply: &Reply) {
        let asked = self.log.sessions.last().map_or(0, |session| session.asked);
        if reply.created && asked <= 0 {
            self.next = Some(reply.revision + 1);
        } else if reply.created {
            self.next = Some(asked);
        }
        let highest = reply.events.iter().map(super::Seen::revision).max().max(self.pieces);
        if reply.fragment {
            self.pieces = highest;
        } else if let Some(highest) = highest.filter(|_| !reply.events.is_empty()) {
            self.pieces = None;
            self.next = self.next.map(|next| next.max(highest + 1));
        } else if reply.is_mark() && self.manner.trusts_marks {
            self.next = self.next.map(|next| next.max(reply.revision + 1));
        }
        if reply.canceled && reply.compact_revision != 0 {
            self.next = Some(reply.compact_revision);
        } else if let Some(resume) = reply.cancel_reason.strip_prefix(FELL_BEHIND) {
            self.next = resume.parse().ok().or(self.next);
        }
    }
}
