//! Reads many recorders at once, each in a task of its own, until told to stop.
//!
//! A recorder that is not here is not read at all: that is how a stalled client is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::recorder::Recorder;
use crate::Failure;
use crate::checker::watch_history::WatchHistory;
use crate::record::watch::WatchLog;

/// How often a pump looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(20);
/// After the last event is due, so that one too many can still arrive.
const LISTEN_ON: Duration = Duration::from_millis(200);

/// Recorders that are being read.
#[derive(Debug, Default)]
pub struct Pumps {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Recorder>>,
}

impl Pumps {
    /// Reads one more, and asks for a mark every so often if wanted.
    pub fn add(&mut self, mut recorder: Recorder, ask_every: Option<Duration>) {
        let stop = self.stop.clone();
        self.tasks.push(tokio::spawn(async move {
            let mut asked = Instant::now();
            while !stop.load(Ordering::Relaxed) && recorder.take(GLANCE).await {
                if ask_every.is_some_and(|every| every < asked.elapsed()) {
                    recorder.ask_for_progress().await;
                    asked = Instant::now();
                }
            }
            recorder
        }));
    }

    /// Stops reading and returns the recorders.
    pub async fn stop(self) -> Result<Vec<Recorder>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut recorders = Vec::new();
        for task in self.tasks {
            recorders.push(task.await.map_err(|error| Failure::harness(format!("a pump ended: {error}")))?);
        }
        Ok(recorders)
    }

    /// Reads on until every watcher has what the history owes it, or time is up: what is missing
    /// then is for the checker to say. Returns all records.
    pub async fn finish(self, history: &WatchHistory, within: Duration) -> Result<Vec<WatchLog>, Failure> {
        let deadline = Instant::now() + within;
        let mut logs = Vec::new();
        let drained = self.stop().await?.into_iter().map(|recorder| drain(recorder, history, deadline));
        for recorder in futures::future::join_all(drained).await {
            if let Some(stray) = recorder.strays().first() {
                return Err(Failure::broken(format!("a response for a watcher that nobody has: {stray:?}")));
            }
            logs.extend(recorder.finish());
        }
        Ok(logs)
    }
}

async fn drain(mut recorder: Recorder, history: &WatchHistory, deadline: Instant) -> Recorder {
    let mut first = 0;
    loop {
        // Whoever has all keeps it, so each is looked at once.
        while recorder.logs().get(first).is_some_and(|log| history.is_told_in(log)) {
            first += 1;
        }
        let open = first < recorder.logs().len();
        if !open || deadline < Instant::now() || !recorder.take(GLANCE).await {
            break;
        }
    }
    let until = Instant::now() + LISTEN_ON;
    while Instant::now() < until && recorder.take(GLANCE).await {}
    recorder
}
