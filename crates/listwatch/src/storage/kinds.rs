//! The kinds that are served now: the built-in ones and those of the definitions in the store.
//!
//! A task follows the definitions' feed. Who cannot wait for it takes the feed's state, or the store's, by
//! itself: whichever is newest counts. A registry is only made anew for definitions that changed.

use super::failure;
use super::read::{Asked, Unlisted};
use arc_swap::ArcSwap;
use meerkat_kubernetes::crd::{self, Definition};
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::schema::{Schema, StoredDefaults, cel};
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::Filter;
use meerkat_watchcache::feed::{Feed, Feeds, Unserved};
use meerkat_watchcache::keep_running::keep_running;
use meerkat_watchcache::list_plan::ReadAt;
use meerkat_watchcache::store::Store;
use meerkat_watchcache::watch_plan::{ChangesAfter, LIFETIME_MAX, WatchBegin, WatchPlan};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long the follower waits before it watches again.
const RETRY_MS: u64 = 200;

pub struct Kinds {
    shared: Arc<Shared>,
    follower: JoinHandle<()>,
}

struct Shared {
    store: Arc<dyn Store>,
    feeds: Arc<Feeds>,
    definitions: Arc<Kind>,
    served: ArcSwap<Registry>,
    /// What `served` was made of.
    known: Mutex<Known>,
    schemas: Mutex<Schemas>,
}

/// Of custom kinds, read once each, by definition and version.
type Schemas = HashMap<(String, String), (Arc<Kind>, Arc<Schema>)>;

impl Drop for Kinds {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Kinds {
    pub(super) fn follow(store: Arc<dyn Store>, feeds: Arc<Feeds>) -> Kinds {
        let registry = Registry::built_in();
        let definitions = registry
            .by_resource(crd::GROUP, "v1", "customresourcedefinitions")
            .expect("definitions are built in")
            .clone();
        let shared = Arc::new(Shared {
            store,
            feeds,
            definitions,
            served: ArcSwap::from_pointee(registry),
            known: Mutex::new(Known::default()),
            schemas: Mutex::new(HashMap::new()),
        });
        let followed = shared.clone();
        let follower = tokio::spawn(keep_running("following definitions", move || follow(followed.clone())));
        Kinds { shared, follower }
    }

    /// A request takes one and stays with it.
    pub fn now(&self) -> Arc<Registry> {
        self.shared.served.load_full()
    }

    /// Waits until every definition that was acknowledged before the call is served: for a request that
    /// names a kind that [`now`](Self::now) does not have.
    pub async fn fresh(&self) -> Result<Arc<Registry>, Refusal> {
        self.shared.refresh(ReadAt::MostRecent).await?;
        Ok(self.now())
    }

    /// After a definition was written here: whoever is told of it finds it served so, unless the cache is
    /// long in coming.
    pub(super) async fn reach(&self, revision: u64) {
        if let Err(refusal) = self.shared.refresh(ReadAt::NotOlderThan(revision)).await {
            tracing::debug!(%refusal, "a definition is not served yet");
        }
    }

    /// `None` for a built-in kind.
    pub(super) fn schema(&self, kind: &Arc<Kind>) -> Option<Arc<Schema>> {
        let (definition, given) = kind.custom()?;
        let of = (definition.to_owned(), kind.version.clone());
        if let Some((known, schema)) = self.shared.schemas.lock().get(&of)
            && Arc::ptr_eq(known, kind)
        {
            return Some(schema.clone());
        }
        let schema = Arc::new(read_schema(definition, given));
        // A request may still have the kind as it was before, or as it was before it went.
        if is_served(&self.now(), kind) {
            self.shared.schemas.lock().insert(of, (kind.clone(), schema.clone()));
        }
        Some(schema)
    }
}

fn is_served(registry: &Registry, kind: &Arc<Kind>) -> bool {
    let served = registry.by_resource(&kind.group, &kind.version, &kind.plural);
    served.is_some_and(|served| Arc::ptr_eq(served, kind))
}

/// A schema that cannot be read was never let in by us. It allows everything.
fn read_schema(definition: &str, given: Option<&Value>) -> Schema {
    let anything = || {
        let mut schema = Schema::default();
        schema.preserve_unknown_fields = true;
        schema
    };
    let Some(given) = given else { return anything() };
    let schema = Schema::parse_stored(given, "openAPIV3Schema").unwrap_or_else(|causes| {
        tracing::warn!(definition, cause = causes.first().map(ToString::to_string), "a schema is not good");
        anything()
    });
    if let Some(why) = cel::passed_over(&schema) {
        tracing::warn!(definition, why, "a rule does not compile and is passed over");
    }
    schema
}

/// Runs until it is aborted.
async fn follow(shared: Arc<Shared>) {
    let plan = WatchPlan { begin: WatchBegin::Changes(ChangesAfter::Cached), bookmarks: false };
    loop {
        if let Err(refusal) = shared.watch(&plan).await {
            tracing::debug!(%refusal, "the definitions cannot be followed");
        }
        tokio::time::sleep(Duration::from_millis(RETRY_MS + rand::random_range(0..=RETRY_MS))).await;
    }
}

impl Shared {
    /// Until the watch ends.
    async fn watch(&self, plan: &WatchPlan) -> Result<(), Refusal> {
        let feed = self.feeds.of(&self.definitions)?;
        let mut watcher = feed.watch(plan, Filter::default(), LIFETIME_MAX).await?;
        self.refresh(ReadAt::AnyCached).await?;
        while watcher.next().await.is_some() {
            self.refresh(ReadAt::AnyCached).await?;
        }
        Ok(())
    }

    async fn refresh(&self, at: ReadAt) -> Result<(), Refusal> {
        // Before anything is read: what is of a later one is taken the next time.
        let history = self.store.history().number;
        let feed: Arc<Feed> = self.feeds.of(&self.definitions)?;
        match feed.version(at).await {
            Ok(version) => self.take(version.iter(), (history, version.revision())),
            Err(Unserved::Refused(refusal)) => return Err(refusal),
            Err(Unserved::AskStore { .. } | Unserved::Expired) => {
                let (kind, filter) = (&*self.definitions, &Filter::default());
                let asked = Asked { kind, filter, first: String::new(), limit: None, revision: None };
                let listed = asked.read_store(&*self.store).await.map_err(|error| match error {
                    Unlisted::Refused(refusal) => refusal,
                    Unlisted::Failed(error) => failure::refusal(error),
                })?;
                self.take(listed.entries.iter(), (history, listed.revision));
            }
        }
        Ok(())
    }

    fn take<'a>(&self, definitions: impl Iterator<Item = &'a Entry>, at: (u64, u64)) {
        let ended = {
            let mut known = self.known.lock();
            let Some(change) = known.change(definitions, at) else { return };
            let registry = self.served.load().with_all(change.kinds);
            self.schemas.lock().retain(|_, (kind, _)| is_served(&registry, kind));
            self.served.store(Arc::new(registry));
            change.ended
        };
        for place in ended {
            self.feeds.end(&place);
        }
    }
}

/// The definitions that the registry was made of.
#[derive(Default)]
struct Known {
    /// The number of the store's history, and the revision in it.
    at: (u64, u64),
    definitions: BTreeMap<String, Made>,
}

/// What was made of a definition.
struct Made {
    revision: u64,
    looks: BTreeMap<String, Look>,
}

/// How objects in one place are seen.
#[derive(Clone, PartialEq)]
struct Look {
    namespaced: bool,
    /// What objects from before are filled up with.
    defaults: Option<Arc<StoredDefaults>>,
    /// The fields by which objects can be chosen, by version.
    selectable: BTreeMap<String, Vec<String>>,
}

/// What a newer state of the definitions changes.
#[derive(Default)]
struct ChangeOfKinds {
    kinds: BTreeMap<String, Vec<Kind>>,
    /// Places whose watchers end: nobody serves them any more, or not as before.
    ended: Vec<String>,
}

impl Known {
    /// `None` if nothing changes.
    fn change<'a>(
        &mut self,
        definitions: impl Iterator<Item = &'a Entry>,
        at: (u64, u64),
    ) -> Option<ChangeOfKinds> {
        if at <= self.at {
            return None;
        }
        // A revision of another history says nothing of what is in it.
        let is_replaced = self.at.0 < at.0;
        self.at = at;
        let mut change = ChangeOfKinds::default();
        let mut gone: BTreeSet<String> = self.definitions.keys().cloned().collect();
        for entry in definitions {
            gone.remove(entry.name());
            let made = self.definitions.get(entry.name());
            if !is_replaced && made.is_some_and(|made| made.revision == entry.revision()) {
                continue;
            }
            let kinds = kinds_of(entry);
            let looks = looks(&kinds);
            change.end(self.definitions.remove(entry.name()), &looks);
            let made = Made { revision: entry.revision(), looks };
            self.definitions.insert(entry.name().to_owned(), made);
            change.kinds.insert(entry.name().to_owned(), kinds);
        }
        for name in gone {
            change.end(self.definitions.remove(&name), &BTreeMap::new());
            change.kinds.insert(name, Vec::new());
        }
        if change.kinds.is_empty() { None } else { Some(change) }
    }
}

impl ChangeOfKinds {
    fn end(&mut self, before: Option<Made>, now: &BTreeMap<String, Look>) {
        let places = before.into_iter().flat_map(|made| made.looks);
        self.ended
            .extend(places.filter(|(place, look)| now.get(place) != Some(look)).map(|(place, _)| place));
    }
}

fn kinds_of(entry: &Entry) -> Vec<Kind> {
    let parsed =
        meerkat_kubernetes::object::parse(entry.json()).and_then(|object| Definition::parse(&object));
    match parsed {
        Ok(definition) => definition.kinds(),
        Err(refusal) => {
            tracing::warn!(definition = entry.name(), %refusal, "a definition cannot be read");
            Vec::new()
        }
    }
}

fn looks(kinds: &[Kind]) -> BTreeMap<String, Look> {
    let mut looks: BTreeMap<String, Look> = BTreeMap::new();
    for kind in kinds {
        let Some(place) = &kind.storage else { continue };
        let look = looks.entry(place.clone()).or_insert_with(|| Look {
            namespaced: kind.is_namespaced(),
            defaults: kind.stored_defaults.clone(),
            selectable: BTreeMap::new(),
        });
        let fields = kind.selectable.iter().map(|field| field.name.clone()).collect();
        look.selectable.insert(kind.version.clone(), fields);
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_watchcache::cacher::entry::Shape;
    use serde_json::json;

    fn definition(revision: u64, edit: impl FnOnce(&mut Value)) -> Entry {
        let mut object = json!({
            "metadata": { "name": "as.x.io" },
            "spec": {
                "group": "x.io", "scope": "Cluster", "names": { "plural": "as", "kind": "A" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "selectableFields": [{ "jsonPath": ".spec.colour" }],
                }],
            },
            "status": {
                "acceptedNames": { "plural": "as", "kind": "A" },
                "conditions": [{ "type": "Established", "status": "True" }],
            },
        });
        edit(&mut object);
        let shape = Shape::new("apiextensions.k8s.io/v1", crd::KIND, false, &[]);
        Entry::decode(&shape, "as.x.io", object.to_string().as_bytes(), revision).expect("an object")
    }

    #[test]
    fn watchers_end_only_when_their_kind_is_served_otherwise() {
        let mut known = Known::default();
        let mut change = |entry: Option<Entry>, revision| {
            let change = known.change(entry.iter(), (0, revision))?;
            Some((change.kinds["as.x.io"].len(), change.ended))
        };
        assert_eq!(change(Some(definition(2, |_| ())), 2), Some((1, vec![])));
        assert_eq!(change(Some(definition(2, |_| ())), 3), None, "it is the same");
        assert_eq!(change(None, 3), None, "this is no newer");
        let labelled = definition(4, |object| object["metadata"]["labels"] = json!({ "x": "y" }));
        assert_eq!(change(Some(labelled), 4), Some((1, vec![])));
        let place = || vec!["x.io/as".to_owned()];
        let other = |object: &mut Value| {
            object["spec"]["versions"][0]["selectableFields"][0]["jsonPath"] = json!(".spec.size");
        };
        assert_eq!(change(Some(definition(5, other)), 5), Some((1, place())));
        let renamed = |object: &mut Value| {
            other(object);
            object["spec"]["versions"][0]["name"] = json!("v2");
        };
        assert_eq!(change(Some(definition(6, renamed)), 6), Some((1, place())));
        assert_eq!(change(None, 7), Some((0, place())));
        assert_eq!(change(Some(definition(8, |object| object["spec"] = json!(7))), 8), Some((0, vec![])));
    }

    #[test]
    fn a_store_that_was_replaced_is_newer_whatever_its_revision() {
        let mut known = Known::default();
        known.change([definition(9, |_| ())].iter(), (0, 9)).expect("a kind");
        let renamed = definition(9, |object| object["spec"]["versions"][0]["name"] = json!("v2"));
        let change = known.change([renamed.clone()].iter(), (1, 2)).expect("another kind");
        assert_eq!(change.kinds["as.x.io"][0].version, "v2");
        assert!(known.change([definition(9, |_| ())].iter(), (0, 10)).is_none(), "of the one before");
        assert!(known.change([renamed].iter(), (1, 3)).is_none(), "it is the same");
    }
}
