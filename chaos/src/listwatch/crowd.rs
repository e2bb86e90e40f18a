//! Ten thousand watchers, each on a connection of its own, and what each was told when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::http::Kept;
use super::raw::{Arrival, RawWatch};
use crate::{Failure, Patience};

/// Connections that are being opened at one time.
const OPENING: usize = 64;
const POLL: Duration = Duration::from_millis(5);

/// Watchers of one path. Ends when dropped.
#[derive(Debug)]
pub struct Crowd {
    told: Vec<Arc<Mutex<Vec<Arrival>>>>,
    tasks: JoinSet<Result<(), Failure>>,
}

impl Crowd {
    /// Opens them all, and returns when each is being answered.
    pub async fn open(server: &str, path: &str, count: usize, began: Instant) -> Result<Crowd, Failure> {
        let mut opening = stream::iter(0..count)
            .map(|_| RawWatch::begin(server, path, began, None))
            .buffer_unordered(OPENING);
        let mut crowd = Crowd { told: Vec::with_capacity(count), tasks: JoinSet::new() };
        while let Some(watch) = opening.next().await {
            let told = Arc::new(Mutex::new(Vec::new()));
            crowd.tasks.spawn(watch?.follow(told.clone()));
            crowd.told.push(told);
        }
        Ok(crowd)
    }

    pub fn len(&self) -> usize {
        self.told.len()
    }

    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Waits until each was told so many events.
    pub async fn wait_for(&mut self, events: usize, within: Duration) -> Result<(), Failure> {
        let patience = Patience::of(format!("each watcher is told {events} events"), within);
        for one in 0..self.told.len() {
            while self.told[one].lock().len() < events {
                if let Some(ended) = self.tasks.try_join_next() {
                    let why =
                        ended.map_err(|error| Failure::harness(format!("a watcher's task: {error}")))?;
                    return Err(why.err().unwrap_or_else(|| Failure::broken("a watch was ended")));
                }
                let (told, all) = (self.told[one].lock().len(), self.told.len());
                patience.pause(POLL, format_args!("watcher {one} of {all} was told {told}")).await?;
            }
        }
        patience.came().map(drop)
    }

    /// Holds all that was told against what was written, and forgets it; the times from each write
    /// to each delivery, sorted, and when the last one was.
    pub fn take(&self, written: &[Arrival]) -> Result<(Vec<Duration>, u64), Failure> {
        let mut times = Vec::with_capacity(written.len() * self.told.len());
        let mut last = 0;
        for (number, told) in self.told.iter().enumerate() {
            let told = std::mem::take(&mut *told.lock());
            let same = told.len() == written.len() && told.iter().zip(written).all(|(a, b)| a.0 == b.0);
            if !same {
                let at = told.iter().zip(written).position(|(told, written)| told.0 != written.0);
                return Err(Failure::broken(format!(
                    "watcher {number} was told {} events for {} writes; the first that differs is {at:?}",
                    told.len(),
                    written.len()
                )));
            }
            for ((_, at), (_, issued)) in told.iter().zip(written) {
                times.push(Duration::from_micros(at.saturating_sub(*issued)));
                last = last.max(*at);
            }
        }
        times.sort_unstable();
        Ok((times, last))
    }
}

/// One who changes one object again and again over HTTP.
#[derive(Debug)]
pub struct Scribe {
    kept: Kept,
    path: String,
    began: Instant,
    count: u64,
}

impl Scribe {
    /// Creates the object that it is to change. `namespace` must be there.
    pub async fn open(server: &str, namespace: &str, name: &str, began: Instant) -> Result<Scribe, Failure> {
        let mut kept = Kept::open(server).await?;
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"app": "crowd"}}, "data": {"n": "0"},
        });
        let answered = kept.ask("POST", &collection, Some(&body)).await?;
        if answered.status != 201 {
            let why = String::from_utf8_lossy(&answered.body).into_owned();
            return Err(Failure::broken(format!("POST {collection}: {}: {why}", answered.status)));
        }
        Ok(Scribe { kept, path: format!("{collection}/{name}"), began, count: 0 })
    }

    /// One change with so many bytes of padding: its revision, and when it was asked for.
    pub async fn write(&mut self, bytes: usize) -> Result<Arrival, Failure> {
        self.count += 1;
        let data = serde_json::json!({"n": self.count.to_string(), "padding": "x".repeat(bytes)});
        let body = serde_json::json!({"data": data});
        let issued = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let answered = self.kept.ask("PATCH", &self.path, Some(&body)).await?;
        let object = answered.json()?;
        let rv = object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
        match (answered.status, rv) {
            (200, Some(rv)) => Ok((rv, issued)),
            (status, _) => Err(Failure::broken(format!("PATCH {}: {status}: {object}", self.path))),
        }
    }
}

/// The time that so many in a hundred of sorted times do not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}
