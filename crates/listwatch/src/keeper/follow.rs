//! Follows the objects of one kind, and tells what concerns their owners.
//!
//! Of an object that has no owner and does not go, nothing is told but that it is gone.

use super::owners::{Followed, Sighting, Uid};
use super::queue::backoff_ms;
use crate::storage::{Storage, expires};
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::Filter;
use meerkat_watchcache::cacher::frame::Mark;
use meerkat_watchcache::cacher::park::Line;
use meerkat_watchcache::cacher::transition::EventType;
use meerkat_watchcache::feed::{Item, Watcher};
use meerkat_watchcache::list_plan::ReadAt;
use meerkat_watchcache::watch_plan::{LIFETIME_MAX, WatchBegin, WatchPlan};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What happened among the objects of a kind.
#[derive(Debug)]
pub enum News {
    Saw(Sighting),
    Gone {
        place: Arc<str>,
        key: Arc<str>,
        uid: Uid,
    },
    /// The watch began anew, and all objects that are there have been told: of `seen` those that concern us,
    /// and of these the keys of those that go.
    Relisted {
        of: Followed,
        seen: HashSet<Uid>,
        leaving: HashSet<Arc<str>>,
    },
}

impl News {
    pub fn place(&self) -> &Arc<str> {
        match self {
            News::Saw(sighting) => &sighting.spot.place,
            News::Gone { place, .. } => place,
            News::Relisted { of, .. } => &of.place,
        }
    }
}

/// The kinds to follow, one for each place. Events own nothing, are owned by nobody, and go by themselves.
pub fn followed(registry: &Registry) -> Vec<&Arc<Kind>> {
    let mut places = HashSet::new();
    let mut kinds: Vec<&Arc<Kind>> = deletable(registry).collect();
    kinds.retain(|kind| !expires(kind) && kind.storage.as_ref().is_some_and(|place| places.insert(place)));
    kinds
}

/// Every kind whose objects are kept and can be deleted, one for each place.
pub fn deletable_kinds(registry: &Registry) -> Vec<&Arc<Kind>> {
    let mut places = HashSet::new();
    deletable(registry)
        .filter(|kind| kind.storage.as_ref().is_some_and(|place| places.insert(place)))
        .collect()
}

fn deletable(registry: &Registry) -> impl Iterator<Item = &Arc<Kind>> {
    registry.kinds().filter(|kind| kind.storage.is_some() && kind.has_verb("delete"))
}

/// The kind as it is served now.
pub fn kind_at<'a>(registry: &'a Registry, place: &str) -> Option<&'a Arc<Kind>> {
    registry.kinds().find(|kind| kind.storage.as_deref() == Some(place))
}

/// Until it is dropped, or nobody listens.
pub async fn follow(storage: Arc<Storage>, place: Arc<str>, tell: mpsc::Sender<Vec<News>>) {
    let mut failures = 0;
    while !tell.is_closed() {
        match begin(&storage, &place).await {
            Some(Ok((of, watcher))) => {
                failures = 0;
                tell_all(of, watcher, &tell).await;
            }
            Some(Err(refusal)) => tracing::debug!(%place, %refusal, "a kind is not followed yet"),
            None => {}
        }
        failures += 1;
        tokio::time::sleep(Duration::from_millis(backoff_ms(failures + 4))).await;
    }
}

async fn begin(storage: &Storage, place: &Arc<str>) -> Option<Result<(Followed, Watcher), Refusal>> {
    let registry = storage.kinds().now();
    let kind = kind_at(&registry, place)?;
    let of =
        Followed { place: place.clone(), group: kind.group.as_str().into(), kind: kind.kind.as_str().into() };
    Some(watch(storage, kind).await.map(|watcher| (of, watcher)))
}

async fn watch(storage: &Storage, kind: &Kind) -> Result<Watcher, Refusal> {
    let begin = WatchBegin::State { at: ReadAt::AnyCached, mark_end: true };
    let plan = WatchPlan { begin, bookmarks: true };
    storage.feeds().of(kind)?.watch(&plan, Filter::default(), LIFETIME_MAX).await
}

async fn tell_all(of: Followed, mut watcher: Watcher, tell: &mpsc::Sender<Vec<News>>) {
    let mut seen = Seen::default();
    while let Some(items) = watcher.next().await {
        let news: Vec<News> = items.into_iter().filter_map(|item| read(&of, item, &mut seen)).collect();
        if !news.is_empty() && tell.send(news).await.is_err() {
            return;
        }
    }
}

/// What was told since the watch began.
#[derive(Default)]
struct Seen {
    uids: HashSet<Uid>,
    leaving: HashSet<Arc<str>>,
}

fn read(of: &Followed, item: Item, seen: &mut Seen) -> Option<News> {
    match item {
        Item::Initial(entry) => {
            if !concerns(&of.place, &entry) {
                return None;
            }
            let sighting = Sighting::of(&of.place, &entry)?;
            seen.uids.insert(sighting.uid.clone());
            seen.leaving.extend(sighting.leaving.map(|_| sighting.spot.key.clone()));
            Some(News::Saw(sighting))
        }
        Item::Line(line) => changed(&of.place, &line),
        Item::Bookmark { mark: Mark::InitialEventsEnd, .. } => {
            let Seen { uids, leaving } = std::mem::take(seen);
            Some(News::Relisted { of: of.clone(), seen: uids, leaving })
        }
        // After the last one all objects are told again.
        Item::Bookmark { mark: Mark::Progress, .. } | Item::Expired => None,
    }
}

fn changed(place: &Arc<str>, line: &Line) -> Option<News> {
    let (before, after) = (line.event.previous(), line.event.current());
    match line.kind {
        EventType::Deleted => {
            let entry = before.filter(|entry| !entry.uid().is_empty())?;
            Some(News::Gone { place: place.clone(), key: entry.key().clone(), uid: entry.uid().into() })
        }
        EventType::Added | EventType::Modified => {
            let concerned = |entry: Option<&Entry>| entry.is_some_and(|entry| concerns(place, entry));
            if !concerned(before) && !concerned(after) {
                return None;
            }
            Sighting::of(place, after?).map(News::Saw)
        }
    }
}

/// Whether it may have an owner, or go; or is of a kind of which all are told. Quicker than to read it.
fn concerns(place: &str, entry: &Entry) -> bool {
    let json = entry.json();
    let has = |name: &str| json.windows(name.len()).any(|window| window == name.as_bytes());
    place == super::work::DEFINITIONS || has("\"ownerReferences\"") || has("\"deletionTimestamp\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::registry::Origin;

    fn places(registry: &Registry) -> Vec<&str> {
        followed(registry).iter().filter_map(|kind| kind.storage.as_deref()).collect()
    }

    #[test]
    fn events_go_by_themselves_but_not_a_custom_kind_of_that_name() {
        let built_in = Registry::built_in();
        assert!(!places(&built_in).contains(&"events") && places(&built_in).contains(&"pods"));
        let mut custom = (**built_in.by_group_resource("", "events").expect("built in")).clone();
        custom.group = "x.example.com".to_owned();
        custom.storage = Some("x.example.com/events".to_owned());
        custom.origin = Origin::Custom { definition: "d".to_owned(), schema: None, terminating: false };
        assert!(places(&built_in.with("d", vec![custom])).contains(&"x.example.com/events"));
    }
}
