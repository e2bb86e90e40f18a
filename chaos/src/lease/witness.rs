//! Sees keys die: one watcher on each member, which stays with that member through its lives, and a
//! clock that notes when this program itself could not see.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::keeper::PREFIX;
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::record::lease::{Death, LeaseRecord, Span};
use crate::watch::follower::{self, Following, Manner};
use crate::watch::{Kind, WatchLog, WatchSpec};

/// Longer than any pause of a member: a silent one is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(20);
/// A tick this late is a time in which nothing could be seen.
const STALL: Duration = Duration::from_millis(150);

/// The watchers of all members.
#[derive(Debug)]
pub struct Witnesses {
    watchers: Vec<Following>,
    stalls: Stalls,
}

/// Notes when this program itself could not see.
#[derive(Debug)]
pub struct Stalls {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Span>>,
}

impl Stalls {
    /// Starts looking at the clock. Times are counted from `began`.
    pub fn start(began: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        Self { task: tokio::spawn(note_stalls(began, stop.clone())), stop }
    }

    /// Ends; what was noted.
    pub async fn finish(self) -> Result<Vec<Span>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(|error| Failure::harness(error.to_string()))
    }
}

impl Witnesses {
    /// Starts a watcher on each member. Times are counted from `began`.
    pub fn start(endpoints: &[Endpoint], began: Instant) -> Result<Self, Failure> {
        let manner = Manner { patience: PATIENCE, ..Manner::default() };
        let watch = |(number, endpoint): (usize, &Endpoint)| {
            let spec = WatchSpec { no_put: true, ..WatchSpec::of_prefix(PREFIX) }.from(1);
            let own = [endpoint.apart(None)?];
            follower::start(&own, 0, began, WatchLog::new(format!("m{number}"), spec), manner.clone())
        };
        let watchers: Result<Vec<Following>, Failure> = endpoints.iter().enumerate().map(watch).collect();
        Ok(Self { watchers: watchers?, stalls: Stalls::start(began) })
    }

    /// Whether every watcher has been told of a deletion at this revision, or of a later one.
    pub fn have_seen(&self, revision: i64) -> bool {
        self.watchers.iter().all(|watcher| revision < watcher.next())
    }

    /// Ends them, and writes every death into the record of its lease; returns the stalls.
    pub async fn finish(self, leases: &mut [LeaseRecord]) -> Result<Vec<Span>, Failure> {
        let mut logs = Vec::new();
        for watcher in self.watchers {
            logs.push(watcher.finish().await?);
        }
        file(&logs, leases);
        self.stalls.finish().await
    }
}

/// Writes every death into the record of its lease. The place of a log stands for its member.
pub fn file(logs: &[WatchLog], leases: &mut [LeaseRecord]) {
    let mut deaths: HashMap<Bytes, Vec<Death>> = HashMap::new();
    for (member, log) in logs.iter().enumerate() {
        for reply in log.replies() {
            for event in reply.events.iter().filter(|event| event.kind == Kind::Delete) {
                let death = Death { member, at: reply.at, revision: event.revision() };
                deaths.entry(event.key.clone()).or_default().push(death);
            }
        }
    }
    for key in leases.iter_mut().flat_map(|lease| &mut lease.keys) {
        key.deaths = deaths.remove(&key.key).unwrap_or_default();
    }
}

async fn note_stalls(began: Instant, stop: Arc<AtomicBool>) -> Vec<Span> {
    let mut stalls = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let from = began.elapsed();
        tokio::time::sleep(TICK).await;
        let until = began.elapsed();
        if STALL < until - from {
            stalls.push(Span { from, until });
        }
    }
    stalls
}
