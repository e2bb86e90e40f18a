//! What operators are shown of the watchers of a member.

use crate::core::Core;
use crate::stream::{Item, SlowPolicy, Stream};
use crate::watcher::{State, WatchSpec};
use meerkat_types::{Revision, WatchId};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Synced,
    CatchingUp,
    Ended,
}

/// One watcher, as of one moment.
#[derive(Clone, Debug)]
pub struct WatcherReport {
    pub stream: u64,
    pub client: Arc<str>,
    pub spec: Arc<WatchSpec>,
    pub standing: Standing,
    pub slow: SlowPolicy,
    /// The lowest revision that may still have to be told.
    pub next: Revision,
    pub lag_revisions: i64,
    pub lag_ms: u64,
    pub queued_bytes: usize,
    pub queued_items: usize,
}

/// All watchers in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub streams: usize,
    pub synced: usize,
    pub late: usize,
    /// Ended, with their number still taken.
    pub ended: usize,
    pub queued_items: usize,
    /// History and large revisions that wait in streams.
    pub queued_bytes: usize,
    /// Of the slowest watcher.
    pub lag_revisions_max: i64,
    pub lag_ms_max: u64,
    pub ring_bytes: usize,
    /// Everything anybody holds, the ring included.
    pub memory_bytes: usize,
}

impl Core {
    pub fn totals(&self) -> Totals {
        let streams = || self.streams.iter().map(|(_, stream)| stream);
        let lags = || streams().filter_map(|stream| self.lag(stream));
        Totals {
            streams: self.streams.len(),
            synced: self.synced.len(),
            late: self.late.len(),
            ended: self.watchers.len() - self.synced.len() - self.late.len(),
            queued_items: streams().map(|stream| stream.items.len()).sum(),
            queued_bytes: streams().map(queued_bytes).sum(),
            lag_revisions_max: lags().map(|(revisions, _)| revisions).max().unwrap_or(0),
            lag_ms_max: lags().map(|(_, ms)| ms).max().unwrap_or(0),
            ring_bytes: self.ring.bytes(),
            memory_bytes: self.meter.bytes(),
        }
    }

    /// How far behind the slowest watcher of a stream is; `None` if nothing waits.
    fn lag(&self, stream: &Stream) -> Option<(i64, u64)> {
        let noted = stream.items.iter().find_map(|item| match item {
            Item::Note(note) => Some((note.revision, stream.read_ms)),
            Item::Control(_) | Item::Mark(_) => None,
        });
        let late = stream.late.iter().map(|slot| &self.watchers[*slot as usize]);
        let late = late.filter_map(|watcher| match watcher.state {
            State::CatchingUp { since_ms, .. } => Some((watcher.next, since_ms)),
            State::Synced(_) | State::Ended => None,
        });
        let owed = || noted.into_iter().chain(late.clone());
        let next = owed().map(|(next, _)| next).min()?;
        let since_ms = owed().map(|(_, since_ms)| since_ms).min()?;
        Some((self.frontier().get() + 1 - next.get(), self.now_ms.saturating_sub(since_ms)))
    }

    /// The watchers of one stream, and where to ask for the next; `None` behind the last.
    pub fn report(&self, at: usize) -> Option<(usize, Vec<WatcherReport>)> {
        let (slot, stream) =
            (at..self.streams.capacity()).find_map(|slot| Some((slot, self.streams.get(slot)?)))?;
        // The oldest unsent revision of each watcher.
        let mut queued: HashMap<(u32, u64), Revision> = HashMap::new();
        let mut queued_bytes = stream.in_flight.as_ref().map_or(0, |batch| batch.weight());
        for item in &stream.items {
            if let Item::Note(note) = item {
                queued.entry((note.watcher, note.epoch)).or_insert(note.revision);
                let batch = note.held.as_ref().or_else(|| self.ring.get(note.revision));
                queued_bytes += batch.map_or(0, |batch| batch.weight());
            }
        }
        let reports: Vec<WatcherReport> = stream
            .watchers
            .values()
            .map(|slot| {
                let watcher = &self.watchers[*slot as usize];
                let first = queued.get(&(*slot, watcher.epoch)).copied();
                let frontier = self.frontier();
                let (standing, next, since_ms) = match watcher.state {
                    State::Synced(_) => (Standing::Synced, watcher.next.max(frontier.next()), None),
                    State::CatchingUp { since_ms, .. } => {
                        (Standing::CatchingUp, watcher.next, Some(since_ms))
                    }
                    State::Ended => (Standing::Ended, watcher.next, None),
                };
                let next = first.map_or(next, |first| first.min(next));
                // Something waits since its reader last came, or since the watcher fell behind.
                let since_ms = since_ms.or(first.map(|_| stream.read_ms));
                WatcherReport {
                    stream: stream.id.serial,
                    client: stream.options.client.clone(),
                    spec: watcher.spec.clone(),
                    standing,
                    slow: stream.options.slow,
                    next,
                    lag_revisions: (frontier.get() + 1 - next.get()).max(0),
                    lag_ms: since_ms.map_or(0, |since| self.now_ms.saturating_sub(since)),
                    queued_bytes,
                    queued_items: stream.items.len(),
                }
            })
            .collect();
        Some((slot + 1, reports))
    }

    /// The ids a stream has in use.
    pub fn ids(&self, stream: crate::StreamId) -> Vec<WatchId> {
        let stream = self.streams.get(stream.slot as usize).filter(|other| other.id == stream);
        stream.map_or(Vec::new(), |stream| stream.watchers.keys().copied().collect())
    }
}

fn queued_bytes(stream: &Stream) -> usize {
    stream.held_bytes + stream.in_flight.as_ref().map_or(0, |batch| batch.weight())
}
