//! The whole room over a store in memory.

use super::*;
use crate::cacher::filter::{Filter, Scope, Term, Test};
use crate::cacher::transition::EventType;
use crate::list_plan::ReadAt;
use crate::memory_store::MemoryStore;
use crate::watch_plan::{ChangesAfter, WatchBegin, WatchPlan};
use meerkat_kubernetes::registry::Registry;
use serde_json::json;

mod lists;
mod model;
mod trouble;
mod watches;

const HOUR: Duration = Duration::from_secs(3_600);

fn pods() -> Kind {
    (**Registry::built_in().by_group_resource("", "pods").expect("built in")).clone()
}

fn pod(key: &str, label: &str, node: &str) -> String {
    let (namespace, name) = key.split_once('/').expect("a namespace");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "uid": key, "labels": { "app": label } },
        "spec": { "nodeName": node },
    })
    .to_string()
}

fn put(store: &MemoryStore, key: &str, label: &str) -> u64 {
    store.put(&format!("/registry/pods/{key}"), pod(key, label, "n1"))
}

fn delete(store: &MemoryStore, key: &str) -> u64 {
    store.delete(&format!("/registry/pods/{key}"))
}

/// A store with feeds over it.
struct Setup {
    store: MemoryStore,
    feeds: Arc<Feeds>,
    feed: Arc<Feed>,
}

impl Setup {
    fn new() -> Setup {
        Setup::with(MemoryStore::new(), FeedSettings::default())
    }

    fn with(store: MemoryStore, settings: FeedSettings) -> Setup {
        let feeds = Feeds::with(Arc::new(store.clone()), settings);
        let feed = feeds.of(&pods()).expect("pods are kept");
        Setup { store, feeds, feed }
    }

    async fn watch(&self, begin: WatchBegin, filter: Filter) -> Result<Watcher, Refusal> {
        self.feed.watch(&WatchPlan { begin, bookmarks: true }, filter, HOUR).await
    }

    async fn changes(&self, filter: Filter) -> Watcher {
        let begin = WatchBegin::Changes(ChangesAfter::MostRecent);
        self.watch(begin, filter).await.expect("a watch")
    }
}

fn state(at: ReadAt) -> WatchBegin {
    WatchBegin::State { at, mark_end: true }
}

fn app(label: &str) -> Filter {
    Filter::new(Scope::all(), vec![Term::label("app", Test::Equals(label.into()))])
}

/// In few words.
fn shown(item: &Item) -> String {
    match item {
        Item::Initial(entry) => format!("={}@{}", entry.key(), entry.revision()),
        Item::Line(line) => {
            let sign = match line.kind {
                EventType::Added => '+',
                EventType::Modified => '~',
                EventType::Deleted => '-',
            };
            format!("{sign}{}@{}", line.event.key(), line.event.revision())
        }
        Item::Bookmark { revision, mark: Mark::InitialEventsEnd } => format!("end@{revision}"),
        Item::Bookmark { revision, .. } => format!("mark@{revision}"),
        Item::Expired => "expired".to_owned(),
    }
}

async fn read(watcher: &mut Watcher) -> String {
    let within = tokio::time::timeout(Duration::from_secs(90), watcher.next());
    match within.await.expect("something is told") {
        Some(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
        None => "over".to_owned(),
    }
}

/// Until so much was told, or it is over.
async fn read_items(watcher: &mut Watcher, count: usize) -> String {
    let mut told = Vec::new();
    while told.len() < count {
        let text = read(watcher).await;
        told.extend(text.split(' ').map(str::to_owned));
        if told.last().is_some_and(|last| last == "over") {
            break;
        }
    }
    told.join(" ")
}
