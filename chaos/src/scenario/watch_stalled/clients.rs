//! The watchers of the run: some read all the time, some read nothing until they are woken.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::load::BUSY_PREFIX;
use crate::endpoint::Endpoint;
use crate::watch::{Recorder, Seen, WatchLog, WatchSpec};
use crate::{Failure, Patience};

/// What a client that reads nothing lets the server send before its connection is full.
const STALLED_WINDOW: u32 = 32 << 10;
const OPENED_AT_ONCE: usize = 50;
const WOKEN_AT_ONCE: usize = 32;
const CREATED_WITHIN: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(50);

/// A watcher of everything that reads all the time, on a connection of its own.
#[derive(Debug)]
pub struct Healthy {
    reached: watch::Receiver<i64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<WatchLog, Failure>>,
}

impl Healthy {
    /// Starts one at a revision; it exists when this returns. What it is given is also put where
    /// the caller says.
    pub async fn start(
        endpoint: &Endpoint,
        name: &str,
        start_revision: i64,
        began: Instant,
        copy: Option<Arc<Mutex<Vec<Seen>>>>,
    ) -> Result<Self, Failure> {
        let mut recorder = Recorder::open(&endpoint.apart(None)?, 0, began, &[])?;
        recorder.create(name, WatchSpec::of_all().from(start_revision)).await;
        recorder.take_until("a reply to a creation", CREATED_WITHIN, |logs| created(&logs[0])).await?;
        let (tell, reached) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut copied = 0;
            while !*stopped.borrow() {
                if !recorder.take(GLANCE).await {
                    return Err(Failure::broken(format!("a healthy watcher ended: {:?}", recorder.ended())));
                }
                let replies = &recorder.logs()[0].sessions[0].replies;
                if let Some(copy) = &copy {
                    let new = replies[copied..].iter().flat_map(|reply| reply.events.iter().cloned());
                    copy.lock().expect("nobody panics while pushing").extend(new);
                }
                copied = replies.len();
                // After the copy, so that who waits for a revision finds it there.
                tell.send_replace(last_revision(&recorder.logs()[0]));
            }
            recorder.finish().pop().ok_or_else(|| Failure::harness("a recorder without a record"))
        });
        Ok(Self { reached, stop, task })
    }

    /// Waits until it has been given an event of this revision or a later one.
    pub async fn reach(&mut self, revision: i64, within: Duration) -> Result<(), Failure> {
        let patience = Patience::of(format!("a healthy watcher reaches {revision}"), within);
        let ended = patience.wait(self.reached.wait_for(|at| revision <= *at)).await?.is_err();
        if !ended {
            return Ok(());
        }
        let at = *self.reached.borrow();
        Err(Failure::broken(format!("a healthy watcher ended at {at}, not at {revision}")))
    }

    /// Its record so far is final.
    pub async fn finish(self) -> Result<WatchLog, Failure> {
        self.stop.send_replace(true);
        self.task.await.map_err(|error| Failure::harness(format!("a watcher's task ended: {error}")))?
    }
}

fn created(log: &WatchLog) -> bool {
    log.replies().next().is_some()
}

/// The revision of the last event a watcher was given.
fn last_revision(log: &WatchLog) -> i64 {
    let replies = log.sessions.iter().flat_map(|session| session.replies.iter().rev());
    replies.filter_map(|reply| reply.events.last()).map(Seen::revision).next().unwrap_or(0)
}

/// Whether a watcher was told that what it is owed is compacted.
pub fn overtaken(log: &WatchLog) -> bool {
    let last = log.sessions.last().and_then(|session| session.replies.last());
    last.is_some_and(|reply| reply.canceled && reply.compact_revision != 0)
}

/// Opens clients that hold a watch over the busy prefix and then read nothing, each on a connection
/// of its own.
pub async fn stall(endpoint: &Endpoint, count: usize, began: Instant) -> Result<Vec<Recorder>, Failure> {
    let mut opening = stream::iter(0..count)
        .map(|number| async move {
            let own = endpoint.apart(Some(STALLED_WINDOW))?;
            let mut recorder = Recorder::open(&own, 0, began, &[])?;
            recorder.create(format!("stalled {number}"), WatchSpec::of_prefix(BUSY_PREFIX)).await;
            recorder.take_until("a reply to a creation", CREATED_WITHIN, |logs| created(&logs[0])).await?;
            Ok::<_, Failure>(recorder)
        })
        .buffer_unordered(OPENED_AT_ONCE);
    let mut recorders = Vec::with_capacity(count);
    while let Some(recorder) = opening.next().await {
        recorders.push(recorder?);
    }
    Ok(recorders)
}

/// Lets clients read until each has the event of a revision, or was told that it cannot have it.
pub async fn wake(
    recorders: Vec<Recorder>,
    revision: i64,
    within: Duration,
) -> Result<Vec<WatchLog>, Failure> {
    let permits = Arc::new(tokio::sync::Semaphore::new(WOKEN_AT_ONCE));
    let mut tasks = tokio::task::JoinSet::new();
    for mut recorder in recorders {
        let permits = permits.clone();
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let enough = |logs: &[WatchLog]| revision <= last_revision(&logs[0]) || overtaken(&logs[0]);
            recorder.take_until("everything owed to a woken client", within, enough).await?;
            recorder.finish().pop().ok_or_else(|| Failure::harness("a recorder without a record"))
        });
    }
    let mut logs = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        logs.push(ended.map_err(|error| Failure::harness(format!("a client's task ended: {error}")))??);
    }
    Ok(logs)
}
