//! One resource's watch cache: the store is watched once, whatever number of clients list and watch.
//!
//! ```text
//!   the store ──► Cache::relist, apply, advance, compact
//!                   │
//!      ┌────────────┴───────────────────────────────────┐
//!      │ store::Versions   objects at each recent       │ ──► list: Version::list, by label_index
//!      │                   revision, with their index   │
//!      │ ring::Ring        events of the last minutes,  │ ──► replay: park::Flow::refill
//!      │                   with their frames            │
//!      └────────────┬───────────────────────────────────┘
//!                   │ events of one revision
//!                   ▼
//!      interest::Interests ──► candidates ──► Event::told by filter ──► Flow::offer ──► a queue
//!                                                    │                    │ full
//!                                       Event frames, made once           ▼
//!                                                               blocked: time_budget
//!                                                               then parked: back by the ring
//! ```
//!
//! Always true:
//! - The versions and the ring are of one line of revisions: applying the events after a kept version
//!   to it gives the newest.
//! - A version or an event never changes; whoever holds one may read it without a lock.
//! - The ring has all events after its floor; a watch that begins there or later misses nothing.
//! - What is kept is bounded, by the ring: a version goes when the events after it go.
//! - An answer found by the index is the one a scan gives.
//!
//! Everything here is decided without a clock, a lock or a task. Who calls holds one lock around
//! [`Cache`] and its watchers, takes a [`Version`] or a step of replay under it, and does the rest outside.
//! No revision may be applied twice or out of order.

pub mod bookmark;
pub mod bucket;
pub mod consistency;
pub mod counted;
pub mod entry;
pub mod event;
pub mod filter;
pub mod frame;
pub mod freshness;
pub mod interest;
pub mod label_index;
#[cfg(test)]
mod model;
pub mod park;
pub mod ready;
pub mod ring;
pub mod store;
pub mod time_budget;
pub mod transition;

use entry::{Entry, Shape};
use event::Event;
use filter::Filter;
use frame::Encodes;
use label_index::Bounds;
use meerkat_kubernetes::status::Refusal;
use ring::{Replay, Ring, RingLimits};
use std::num::NonZeroUsize;
use std::sync::Arc;
use store::{Listed, Missing, Version, Versions};

/// Which revision a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// As the cache has it.
    Newest,
    NotBefore(u64),
    Exact(u64),
}

#[derive(Clone, Debug)]
pub struct ListPlan {
    pub at: At,
    pub filter: Filter,
    /// The key to go on from, if it is not the first page.
    pub first: Option<String>,
    pub limit: Option<NonZeroUsize>,
}

/// One object's change, in the store's words. A value that is no object is the end of the one before it.
#[derive(Clone, Debug)]
pub enum Write {
    Put(Entry),
    Delete(Arc<str>),
}

/// Why the cache has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// [`ready`] says where to go.
    #[error("the cache is being filled")]
    NotReady { down_ms: u64 },
    /// Wait for it, and not longer than a client would.
    #[error("revision {asked} has not been reached; current is {current}")]
    Future { asked: u64, current: u64 },
    /// The cache has dropped it; the store may have it.
    #[error("revision {asked} is no longer in memory; the oldest is {oldest}")]
    Dropped { asked: u64, oldest: u64 },
    #[error("revision {asked} is compacted; the oldest is {oldest}")]
    Compacted { asked: u64, oldest: u64 },
    /// A watch cannot begin there.
    #[error("events after revision {asked} are not all kept; the oldest is {oldest}")]
    TooOld { asked: u64, oldest: u64 },
}

impl NoAnswer {
    /// What the client is told if nothing else helps.
    pub fn refusal(&self) -> Refusal {
        match *self {
            NoAnswer::NotReady { down_ms } => ready::refusal(down_ms),
            NoAnswer::Future { asked, current } => Refusal::too_large_resource_version(asked, current),
            NoAnswer::Dropped { .. } | NoAnswer::Compacted { .. } => {
                Refusal::expired("The resourceVersion for the provided list is too old.")
            }
            NoAnswer::TooOld { asked, oldest } => {
                Refusal::expired(format!("too old resource version: {asked} ({})", oldest - 1))
            }
        }
    }
}

pub struct Cache {
    shape: Shape,
    bounds: Bounds,
    limits: RingLimits,
    encodes: Arc<Encodes>,
    content: Content,
}

enum Content {
    NotReady { since_ms: u64 },
    Ready(Box<Kept>),
}

struct Kept {
    versions: Versions,
    ring: Ring,
}

impl Cache {
    /// Not ready before the first relist.
    pub fn new(shape: Shape, bounds: Bounds, limits: RingLimits, now_ms: u64) -> Cache {
        let content = Content::NotReady { since_ms: now_ms };
        Cache { shape, bounds, limits, encodes: Arc::default(), content }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn encodes(&self) -> &Encodes {
        &self.encodes
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.content, Content::Ready(_))
    }

    fn kept(&self, now_ms: u64) -> Result<&Kept, NoAnswer> {
        match &self.content {
            Content::Ready(kept) => Ok(kept),
            Content::NotReady { since_ms } => {
                Err(NoAnswer::NotReady { down_ms: now_ms.saturating_sub(*since_ms) })
            }
        }
    }

    /// Starts anew from all objects at `revision`. Watchers from before must have been ended: nothing
    /// tells what happened between.
    pub fn relist(&mut self, entries: Vec<Entry>, revision: u64) {
        let newest = entries.iter().map(Entry::revision).max().unwrap_or(0);
        assert!(newest <= revision, "a list is not older than its objects");
        self.begin(Version::new(&self.shape, self.bounds, entries, revision));
    }

    /// As [`relist`](Self::relist), with a version that was made before: that takes long.
    pub fn begin(&mut self, version: Version) {
        let ring = Ring::new(self.limits, version.revision());
        self.content = Content::Ready(Box::new(Kept { versions: Versions::new(version), ring }));
    }

    /// The watch of the store broke for good. All watchers are to be ended.
    pub fn lose(&mut self, now_ms: u64) {
        if self.is_ready() {
            self.content = Content::NotReady { since_ms: now_ms };
        }
    }

    /// Takes in all changes of one revision. The events, to be dispatched together.
    pub fn apply(&mut self, revision: u64, writes: Vec<Write>, now_ms: u64) -> Vec<Arc<Event>> {
        let Content::Ready(kept) = &mut self.content else { panic!("changes come after a list") };
        assert!(kept.versions.current() < revision, "revision {revision} comes once and in order");
        let mut version = kept.versions.latest().at(revision);
        let mut events = Vec::with_capacity(writes.len());
        for write in writes {
            match write {
                Write::Put(mut new) => {
                    assert_eq!(new.revision(), revision, "an object carries the revision of its write");
                    if let Some(before) = version.get(new.key()) {
                        new.share_key(before.key());
                    }
                    let old = version.put(new.clone());
                    events.push(Event::put(old, new, now_ms, &self.encodes));
                }
                // What is not here was no object for the cache, and nobody was told of it.
                Write::Delete(key) => {
                    let old = version.delete(&key);
                    events.extend(old.map(|old| Event::deleted(old, revision, now_ms, &self.encodes)));
                }
            }
        }
        if !events.is_empty() {
            kept.versions.push(version);
        }
        for event in &events {
            kept.ring.push(event.clone());
        }
        kept.advance(revision);
        kept.versions.trim(kept.ring.floor());
        events
    }

    /// The store has reached `revision`, and nothing changed here.
    pub fn advance(&mut self, revision: u64) {
        if let Content::Ready(kept) = &mut self.content {
            kept.advance(revision);
        }
    }

    /// The store has dropped what was before `revision`.
    pub fn compact(&mut self, revision: u64) {
        if let Content::Ready(kept) = &mut self.content {
            kept.versions.compact(revision);
        }
    }

    /// A digest did not agree with the store's: no list of the past is to be trusted.
    pub fn drop_past(&mut self) {
        if let Content::Ready(kept) = &mut self.content {
            kept.versions.drop_past();
        }
    }

    /// The revision that the cache has reached.
    pub fn revision(&self, now_ms: u64) -> Result<u64, NoAnswer> {
        Ok(self.kept(now_ms)?.versions.current())
    }

    pub fn ring(&self, now_ms: u64) -> Result<&Ring, NoAnswer> {
        Ok(&self.kept(now_ms)?.ring)
    }

    /// The objects of a revision, to be listed without a lock.
    pub fn version(&self, at: At, now_ms: u64) -> Result<Version, NoAnswer> {
        let versions = &self.kept(now_ms)?.versions;
        let asked = match at {
            At::Newest => return Ok(versions.latest()),
            At::NotBefore(asked) if asked <= versions.current() => return Ok(versions.latest()),
            At::NotBefore(asked) | At::Exact(asked) => asked,
        };
        versions.exact(asked).map_err(|missing| match missing {
            Missing::Future { current } => NoAnswer::Future { asked, current },
            Missing::Dropped { oldest } => NoAnswer::Dropped { asked, oldest },
            Missing::Compacted { oldest } => NoAnswer::Compacted { asked, oldest },
        })
    }

    pub fn list(&self, plan: &ListPlan, now_ms: u64) -> Result<Listed, NoAnswer> {
        let version = self.version(plan.at, now_ms)?;
        Ok(version.list(&plan.filter, plan.first.as_deref(), plan.limit))
    }

    /// The next events after a revision. A watch that asks for the first time is told of its error; one
    /// that was overtaken later is ended without a word, and asks again.
    pub fn replay(&self, after: u64, now_ms: u64) -> Result<Replay, NoAnswer> {
        let ring = &self.kept(now_ms)?.ring;
        ring.replay(after).map_err(|overtaken| NoAnswer::TooOld { asked: after, oldest: overtaken.oldest })
    }
}

impl Kept {
    fn advance(&mut self, revision: u64) {
        self.versions.advance(revision);
        self.ring.advance(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacher::entry::tests::{pod, pods, watch_end};
    use crate::cacher::transition::EventType;

    fn cache(limits: RingLimits) -> Cache {
        Cache::new(pods(), Bounds::default(), limits, 0)
    }

    fn ready() -> Cache {
        let mut cache = cache(RingLimits::default());
        cache.relist(vec![pod("a/1", "app=web", "", 3), pod("a/2", "", "", 8)], 10);
        cache
    }

    fn put(cache: &mut Cache, key: &str, revision: u64) -> Vec<Arc<Event>> {
        cache.apply(revision, vec![Write::Put(pod(key, "app=web", "", revision))], 0)
    }

    fn plan(at: At) -> ListPlan {
        ListPlan { at, filter: Filter::default(), first: None, limit: None }
    }

    #[test]
    fn a_cache_that_is_not_filled_says_when_to_come_back_and_never_nothing() {
        let mut cache = cache(RingLimits::default());
        let error = cache.list(&plan(At::Newest), 500).expect_err("it has no objects");
        assert_eq!(error, NoAnswer::NotReady { down_ms: 500 });
        assert_eq!(error.refusal().code(), 429);
        cache.relist(vec![], 1);
        assert!(cache.list(&plan(At::Newest), 0).is_ok());
        cache.lose(1_000);
        cache.lose(9_000);
        let error = cache.replay(1, 61_000).expect_err("it lost its feed");
        assert_eq!(error.refusal().retry_after_s, Some(30), "counted from when it was lost");
    }

    #[test]
    fn each_revision_lists_as_it_was() {
        let mut cache = ready();
        put(&mut cache, "a/3", 12);
        cache.apply(15, vec![Write::Delete("a/1".into())], 0);
        cache.advance(20);
        let list = |at: At| {
            let listed = cache.list(&plan(at), 0).expect("it is kept");
            let keys: Vec<&str> = listed.entries.iter().map(|entry| entry.name()).collect();
            (keys.join(" "), listed.revision)
        };
        for (at, keys, revision) in [
            (At::Exact(10), "1 2", 10),
            (At::Exact(11), "1 2", 11),
            (At::Exact(12), "1 2 3", 12),
            (At::Exact(14), "1 2 3", 14),
            (At::Exact(15), "2 3", 15),
            (At::Exact(20), "2 3", 20),
            (At::NotBefore(12), "2 3", 20),
            (At::Newest, "2 3", 20),
        ] {
            assert_eq!(list(at), (keys.to_owned(), revision), "{at:?}");
        }
    }

    #[test]
    fn the_past_and_the_future_are_refused_each_in_its_way() {
        let mut cache = ready();
        put(&mut cache, "a/3", 12);
        put(&mut cache, "a/3", 14);
        let refused = |cache: &Cache, at: At| cache.version(at, 0).expect_err("it is not here");
        assert_eq!(refused(&cache, At::Exact(9)), NoAnswer::Dropped { asked: 9, oldest: 10 });
        assert_eq!(refused(&cache, At::NotBefore(15)), NoAnswer::Future { asked: 15, current: 14 });
        assert_eq!(refused(&cache, At::Exact(15)).refusal().code(), 504);
        cache.compact(13);
        assert_eq!(refused(&cache, At::Exact(12)), NoAnswer::Compacted { asked: 12, oldest: 13 });
        assert_eq!(refused(&cache, At::Exact(12)).refusal().code(), 410);
        assert!(cache.version(At::Exact(13), 0).is_ok(), "what compaction keeps is still here");
        cache.drop_past();
        assert_eq!(refused(&cache, At::Exact(13)), NoAnswer::Dropped { asked: 13, oldest: 14 });
        assert!(cache.version(At::Exact(14), 0).is_ok());
    }

    #[test]
    fn a_watch_from_before_the_list_is_told_in_words_that_clients_know() {
        let cache = ready();
        let refusal = cache.replay(9, 0).expect_err("nobody knows").refusal();
        assert_eq!(refusal.message, "too old resource version: 9 (10)");
        assert_eq!((refusal.code(), refusal.reason.to_string()), (410, "Expired".to_owned()));
        assert!(cache.replay(10, 0).is_ok());
    }

    #[test]
    fn an_object_deleted_and_made_again_in_one_revision_is_told_as_two() {
        let mut cache = ready();
        let again = Write::Put(pod("a/1", "app=web", "", 11));
        let events = cache.apply(11, vec![Write::Delete("a/1".into()), again], 0);
        let told: Vec<EventType> =
            events.iter().flat_map(|event| event.told(&Filter::default())).copied().collect();
        assert_eq!(told, [EventType::Deleted, EventType::Added]);
        let replay = cache.replay(10, 0).expect("it is here");
        assert_eq!(replay.events.len(), 2);
    }

    #[test]
    fn the_deletion_of_what_is_not_here_is_no_event_but_moves_on() {
        let mut cache = ready();
        assert!(cache.apply(11, vec![Write::Delete("a/none".into())], 0).is_empty());
        assert_eq!(cache.revision(0), Ok(11));
        assert!(cache.version(At::Exact(11), 0).is_ok());
    }

    #[test]
    fn an_event_is_encoded_once_for_the_live_and_for_those_who_come_later() {
        let mut cache = ready();
        let events = put(&mut cache, "a/3", 12);
        for _ in 0..1_000 {
            events[0].json_frame(EventType::Added).expect("it was added");
            let late = cache.replay(10, 0).expect("it is here");
            late.events[0].json_frame(EventType::Added).expect("it was added");
        }
        assert_eq!(cache.encodes().count(), 1);
    }

    #[test]
    fn versions_share_what_did_not_change_and_go_with_the_ring() {
        let limits = RingLimits { events_max: 200, ..RingLimits::default() };
        let mut cache = cache(limits);
        let objects = 5_000;
        let key = |number: u64| format!("a/{number:05}");
        cache.relist((0..objects).map(|number| pod(&key(number), "app=web", "", 1)).collect(), 1);
        let first = cache.version(At::Exact(1), 0).expect("it is here");
        let entry = first.get("a/00007").expect("it is there").clone();
        let (text, is_gone) = (entry.key().clone(), watch_end(&entry));
        drop((first, entry));
        for revision in 2..=1_001 {
            put(&mut cache, &key(revision % 500), revision);
        }
        let Content::Ready(kept) = &cache.content else { panic!("it is ready") };
        assert_eq!(kept.ring.len(), 200);
        assert!(kept.versions.kept() <= 201, "{} versions", kept.versions.kept());
        let nodes = kept.versions.nodes();
        assert!(nodes < objects as usize + 201 * 30, "{nodes} nodes");
        assert_eq!(
            cache.version(At::Exact(800), 0).map(|version| version.len()),
            Err(NoAnswer::Dropped { asked: 800, oldest: 801 })
        );
        assert!(is_gone(), "what was overwritten is gone");
        let newest = cache.version(At::Newest, 0).expect("it is here");
        let entry = newest.get("a/00007").expect("it is there");
        assert!(Arc::ptr_eq(&text, entry.key()), "all versions of an object share its key");
    }
}
