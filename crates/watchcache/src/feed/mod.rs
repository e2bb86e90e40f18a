//! One watch of the store per kind, however many clients list and watch it.
//!
//! The tasks and locks around the rules of [`cacher`](crate::cacher):
//!
//! ```text
//!              store.read, store.watch
//!                        │
//!                        ▼
//!   reflector: decode ──► hub (one lock): cache, who is interested in what, bookmarks ◄── housekeeping
//!                        │                       ▲                   │
//!        lines, at once   ▼                      │ refill            │ reached
//!              seats: a queue per watcher ◄──────┤                   ▼
//!                        │                       │           Feed::version
//!                        ▼                       │
//!                 Watcher::next ─────────────────┘
//! ```
//!
//! Always true:
//! - Only the reflector changes the cache, and it dispatches a revision under the lock under which it
//!   applied it. So whoever holds the lock sees every event of the ring dispatched.
//! - The hub's lock comes before a seat's, and neither is held while anything is waited for.
//! - A seat is in the hub until its watcher is dropped or it is ended; an ended one gets nothing more.
//! - A watcher has no task. One that concerns no event costs nothing when it comes.
//! - While the store is cut off the cache is kept, and whoever watches is sent elsewhere.
//! - A cache is of one history. What the store was before it was restored is served to nobody.

mod blocked;
mod check;
mod clock;
mod counters;
#[allow(clippy::module_inception)]
mod feed;
mod freshness;
mod housekeeping;
mod hub;
mod present;
mod reflector;
mod seat;
mod shared;
mod supervise;
#[cfg(test)]
mod tests;
mod watcher;

pub use counters::FeedCounters;
pub use feed::Feed;
pub use watcher::Watcher;

use crate::cacher::entry::{Entry, Shape};
use crate::cacher::frame::Mark;
use crate::cacher::label_index::Bounds;
use crate::cacher::park::Line;
use crate::cacher::ring::RingLimits;
use crate::key;
use crate::store::Store;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Reason, Refusal};
use parking_lot::Mutex;
use present::Present;
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What can be chosen for all feeds of a door.
#[derive(Clone, Copy, Debug)]
pub struct FeedSettings {
    pub ring: RingLimits,
    pub bounds: Bounds,
    /// How often the cache is compared with the store; up to half as much is added by chance.
    pub check_every: Duration,
    /// How far back a cache begins that is filled: so many revisions can be resumed from at once.
    pub past_revisions: u64,
}

impl Default for FeedSettings {
    fn default() -> FeedSettings {
        let check_every = Duration::from_secs(5 * 60);
        FeedSettings {
            ring: RingLimits::default(),
            bounds: Bounds::default(),
            check_every,
            past_revisions: 10_000,
        }
    }
}

/// Why a feed has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Unserved {
    /// The cache is not ready (for so long), or behind, or no longer has the revision: the store may be
    /// asked instead.
    AskStore {
        down_ms: Option<u64>,
    },
    /// The revision is compacted. What the client is told depends on how it came to ask.
    Expired,
    Refused(Refusal),
}

/// What a watcher is told next.
#[derive(Clone, Debug)]
pub enum Item {
    /// An object that was there when the watch began: ADDED at its own revision.
    Initial(Entry),
    /// An event from the ring; its frames are made once and shared.
    Line(Line),
    Bookmark {
        revision: u64,
        mark: Mark,
    },
    /// The last: what was told is of another history than what would follow.
    Expired,
}

/// All feeds of a door, one for each place below `/registry/` in which a kind is stored. Dropping it ends
/// them.
pub struct Feeds {
    store: Arc<dyn Store>,
    present: Arc<Present>,
    settings: FeedSettings,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_place: BTreeMap<String, Arc<Feed>>,
    closed: bool,
}

impl Feeds {
    pub fn new(store: Arc<dyn Store>) -> Arc<Feeds> {
        Feeds::with(store, FeedSettings::default())
    }

    pub fn with(store: Arc<dyn Store>, settings: FeedSettings) -> Arc<Feeds> {
        let present = Present::new(store.clone());
        Arc::new(Feeds { store, present, settings, open: Mutex::default() })
    }

    /// Started when first asked for, and then kept. Kinds that are stored in one place share one feed.
    /// If it lacks a field by which this kind is chosen, or has failed, it is replaced, and its watchers come
    /// back.
    pub fn of(self: &Arc<Self>, kind: &Kind) -> Result<Arc<Feed>, Refusal> {
        let prefix = key::list_prefix(kind, "")?;
        let place = kind.storage.as_deref().unwrap_or_default();
        let shape = Shape::of(kind);
        let mut open = self.open.lock();
        if open.closed {
            return Err(Refusal::new(Reason::ServiceUnavailable, "the server is shutting down"));
        }
        let before = open.by_place.get(place);
        let serves = |feed: &&Arc<Feed>| feed.shape().covers(&shape) && !feed.is_to_be_replaced();
        if let Some(feed) = before.filter(serves) {
            return Ok(feed.clone());
        }
        let shape = before.map_or(shape.clone(), |feed| feed.shape().widened(&shape));
        let shared =
            Shared::new(kind.clone(), prefix, shape, self.settings, self.store.clone(), self.present.clone());
        let feed = Arc::new(Feed::start(shared));
        let before = open.by_place.insert(place.to_owned(), feed.clone());
        drop(open);
        if let Some(before) = before {
            before.close();
        }
        Ok(feed)
    }

    /// The kind is no longer served, or is chosen by other fields than before: its watchers end.
    pub fn end(&self, place: &str) {
        let ended = self.open.lock().by_place.remove(place);
        if let Some(feed) = ended {
            feed.close();
        }
    }

    /// Ends all feeds and their watchers. No other is begun.
    pub fn close(&self) {
        let ended = {
            let mut open = self.open.lock();
            open.closed = true;
            std::mem::take(&mut open.by_place)
        };
        ended.values().for_each(|feed| feed.close());
    }

    /// Of each place.
    pub fn counters(&self) -> Vec<FeedCounters> {
        let feeds: Vec<Arc<Feed>> = self.open.lock().by_place.values().cloned().collect();
        feeds.iter().map(|feed| feed.counters()).collect()
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        self.close();
    }
}
