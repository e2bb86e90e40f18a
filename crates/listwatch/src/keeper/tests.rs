//! Keepers at work on a store in memory.

use super::*;
use crate::storage::{Part, Patch, Place, Writer};
use crate::write_options::{DeleteOptions, Propagation, WriteOptions};
use crate::write_rules::Endpoint;
use meerkat_kubernetes::crd;
use meerkat_kubernetes::registry::Kind;
use meerkat_watchcache::cacher::filter::{Filter, Scope};
use meerkat_watchcache::feed::Feeds;
use meerkat_watchcache::list_plan::ReadAt;
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(super) const QUICK: Times =
    Times { pace: Pace { renew: 20, stop: 800, take_over: 1_000, lease_s: 1 }, settle_ms: 50, sweep_ms: 100 };

/// A door without its HTTP half.
struct Door {
    storage: Arc<Storage>,
    tally: Arc<Tally>,
    keeper: JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Door {
    fn open(store: &MemoryStore) -> Door {
        Door::open_with(store, QUICK)
    }

    fn open_with(store: &MemoryStore, times: Times) -> Door {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        let storage = Storage::new(store.clone(), Feeds::new(store));
        let tally = Arc::new(Tally::default());
        let keeper = tokio::spawn(take_turns(storage.clone(), tally.clone(), times));
        Door { storage, tally, keeper }
    }

    /// With a keeper at work and the namespace `n`.
    async fn opened(store: &MemoryStore) -> Door {
        let door = Door::open(store);
        door.create("namespaces", "", json!({ "metadata": { "name": "n" } })).await;
        door
    }

    fn kind(&self, plural: &str) -> Arc<Kind> {
        let registry = self.storage.kinds().now();
        let kind = registry.kinds().find(|kind| kind.plural == plural);
        kind.unwrap_or_else(|| panic!("no {plural}")).clone()
    }

    async fn create(&self, plural: &str, namespace: &str, body: Value) -> Value {
        let place = Place { kind: &self.kind(plural), namespace, name: "", writer: Writer::Door };
        let answer = self.storage.create(place, body, &WriteOptions::default(), "test").await;
        answer.expect("a good create").object
    }

    /// A ConfigMap in `n`.
    async fn map(&self, name: &str, owners: Value, finalizers: &[&str]) -> Value {
        let metadata = json!({ "name": name, "ownerReferences": owners, "finalizers": finalizers });
        self.create("configmaps", "n", json!({ "metadata": metadata })).await
    }

    async fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let place = Place { kind: &self.kind(plural), namespace, name, writer: Writer::Door };
        let entry = self.storage.get(place, ReadAt::MostRecent).await.ok()?;
        Some(serde_json::from_slice(entry.json()).expect("JSON"))
    }

    async fn find_map(&self, name: &str) -> Option<Value> {
        self.find("configmaps", "n", name).await
    }

    async fn delete(&self, plural: &str, namespace: &str, name: &str, propagation: Propagation) {
        let place = Place { kind: &self.kind(plural), namespace, name, writer: Writer::Door };
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        self.storage.delete(place, &options).await.expect("a good delete");
    }

    async fn unfinalize(&self, plural: &str, namespace: &str, name: &str) {
        let body = json!({ "metadata": { "finalizers": null } });
        let form = meerkat_kubernetes::negotiation::PatchForm::Merge;
        let patch = Patch::Of { form, body, options: WriteOptions::default() };
        let place = Place { kind: &self.kind(plural), namespace, name, writer: Writer::Door };
        self.storage.patch(place, Part::Of(Endpoint::Whole), &patch, "test").await.expect("a good patch");
    }

    async fn gone(&self, plural: &str, namespace: &str, name: &str) {
        until(&format!("{plural} {namespace}/{name} goes"), async || {
            self.find(plural, namespace, name).await.is_none()
        })
        .await;
    }

    async fn map_gone(&self, name: &str) {
        self.gone("configmaps", "n", name).await;
    }
}

/// `crontabs.stable.example.com`
fn definition() -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "crontabs.stable.example.com" },
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {
                "plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList",
                "shortNames": ["ct"],
            },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    })
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be: {what}");
}

/// What goes wrong by itself would have by now.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}

fn owned_by(owners: &[(&Value, bool)]) -> Value {
    let reference = |(owner, blocks): &(&Value, bool)| {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
        })
    };
    owners.iter().map(reference).collect()
}

#[tokio::test(start_paused = true)]
async fn what_belongs_to_nobody_any_more_goes_and_so_does_what_belongs_to_it() {
    let door = Door::opened(&MemoryStore::new()).await;
    let (a, x) = (door.map("a", json!([]), &[]).await, door.map("x", json!([]), &[]).await);
    let b = door.map("b", owned_by(&[(&a, true)]), &[]).await;
    door.map("c", owned_by(&[(&b, false)]), &[]).await;
    door.map("both", owned_by(&[(&a, false), (&x, false)]), &[]).await;
    a_while().await;
    assert!(door.find_map("c").await.is_some(), "all have owners");
    door.delete("configmaps", "n", "a", Propagation::Background).await;
    door.map_gone("b").await;
    door.map_gone("c").await;
    until("one reference is left", async || {
        let both = door.find_map("both").await.expect("it has an owner");
        both["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    assert_eq!(door.tally.of(Deed::Collected), 2);
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_one_of_that_kind_name_and_uid_in_the_same_namespace() {
    let door = Door::opened(&MemoryStore::new()).await;
    door.create("namespaces", "", json!({ "metadata": { "name": "m" } })).await;
    let body = json!({ "metadata": { "name": "a" } });
    let elsewhere = door.create("configmaps", "m", body).await;
    let namespace = door.find("namespaces", "", "n").await.expect("there");
    let mut other_uid = door.map("b", json!([]), &[]).await;
    other_uid["metadata"]["uid"] = json!("another");
    let mut unknown = elsewhere.clone();
    unknown["apiVersion"] = json!("nowhere.io/v1");
    let mut never = elsewhere.clone();
    never["metadata"]["name"] = json!("never");
    door.map("of-unknown-kind", owned_by(&[(&unknown, false)]), &[]).await;
    door.map("of-cluster", owned_by(&[(&namespace, false)]), &[]).await;
    for (name, owner) in [("of-elsewhere", elsewhere), ("of-other-uid", other_uid), ("of-never", never)] {
        door.map(name, owned_by(&[(&owner, false)]), &[]).await;
        door.map_gone(name).await;
    }
    assert!(door.find_map("of-unknown-kind").await.is_some());
    assert!(door.find_map("of-cluster").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_found_in_either_of_two_kinds_of_one_name() {
    let store = MemoryStore::new();
    let door = Door::opened(&store).await;
    let first = door.create("customresourcedefinitions", "", definition()).await;
    // Two doors may have accepted the name at the same time.
    let mut rival = first.clone();
    (rival["metadata"]["name"], rival["metadata"]["uid"]) =
        (json!("rivals.stable.example.com"), json!("rival"));
    let names =
        json!({ "plural": "rivals", "singular": "rival", "kind": "CronTab", "listKind": "CronTabList" });
    (rival["spec"]["names"], rival["status"]["acceptedNames"]) = (names.clone(), names);
    let place = "/registry/apiextensions.k8s.io/customresourcedefinitions/rivals.stable.example.com";
    store.put(place, rival.to_string());
    door.storage.kinds().fresh().await.expect("served");
    for plural in ["crontabs", "rivals"] {
        let owner = door.create(plural, "n", json!({ "metadata": { "name": plural } })).await;
        let name = format!("of-{plural}");
        door.map(&name, owned_by(&[(&owner, false)]), &[]).await;
        a_while().await;
        assert!(door.find_map(&name).await.is_some(), "its owner is there");
        door.delete(plural, "n", plural, Propagation::Background).await;
        door.map_gone(&name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_wrote_of_an_owner_is_understood_as_far_as_it_goes() {
    let store = MemoryStore::new();
    let door = Door::opened(&store).await;
    let put = |name: &str, owner: Value| {
        let metadata = json!({ "name": name, "namespace": "n", "uid": name, "ownerReferences": [owner] });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        store.put(&format!("/registry/configmaps/n/{name}"), object.to_string());
    };
    let owner = |uid: Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, "blockOwnerDeletion": "true" });
    put("nobody", owner(json!(5)));
    put("flag", owner(json!("gone")));
    door.map_gone("flag").await;
    assert!(door.find_map("nobody").await.is_some(), "there is no telling whose it is");
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_waits_for_what_holds_it_back() {
    let door = Door::opened(&MemoryStore::new()).await;
    let a = door.map("a", json!([]), &[]).await;
    let b = door.map("b", owned_by(&[(&a, true)]), &[]).await;
    door.map("c", owned_by(&[(&b, true)]), &["test.io/hold"]).await;
    door.map("free", owned_by(&[(&a, false)]), &["test.io/hold"]).await;
    a_while().await;
    door.delete("configmaps", "n", "a", Propagation::Foreground).await;
    until("all are marked", async || {
        let marked = async |name: &str| {
            door.find_map(name).await.is_some_and(|found| found["metadata"]["deletionTimestamp"].is_string())
        };
        marked("b").await && marked("c").await && marked("free").await
    })
    .await;
    a_while().await;
    assert!(door.find_map("a").await.is_some() && door.find_map("b").await.is_some());
    door.unfinalize("configmaps", "n", "c").await;
    for name in ["c", "b", "a"] {
        door.map_gone(name).await;
    }
    assert!(door.find_map("free").await.is_some(), "nobody waits for it");
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_name_their_owner_no_more() {
    let door = Door::opened(&MemoryStore::new()).await;
    let a = door.map("a", json!([]), &[]).await;
    for name in ["b", "c"] {
        door.map(name, owned_by(&[(&a, true)]), &[]).await;
    }
    a_while().await;
    door.delete("configmaps", "n", "a", Propagation::Orphan).await;
    door.map_gone("a").await;
    a_while().await;
    for name in ["b", "c"] {
        let orphan = door.find_map(name).await.expect("it stays");
        assert_eq!(orphan["metadata"].get("ownerReferences"), None);
    }
    assert_eq!((door.tally.of(Deed::Orphaned), door.tally.of(Deed::Collected)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_it_is_empty() {
    let door = Door::opened(&MemoryStore::new()).await;
    door.create("namespaces", "", json!({ "metadata": { "name": "m" } })).await;
    door.create("configmaps", "m", json!({ "metadata": { "name": "a" } })).await;
    door.map("a", json!([]), &[]).await;
    door.map("held", json!([]), &["test.io/hold"]).await;
    door.create("secrets", "n", json!({ "metadata": { "name": "a" } })).await;
    door.delete("namespaces", "", "n", Propagation::Background).await;
    door.map_gone("a").await;
    door.gone("secrets", "n", "a").await;
    until("what is left is told", async || {
        let namespace = door.find("namespaces", "", "n").await.expect("something is left");
        let holds = |of_type: &str| {
            let found = crd::status::condition(&namespace["status"], of_type);
            found.is_some_and(|condition| condition["status"] == "True")
        };
        holds("NamespaceContentRemaining") && holds("NamespaceFinalizersRemaining")
    })
    .await;
    door.unfinalize("configmaps", "n", "held").await;
    door.gone("namespaces", "", "n").await;
    assert!(door.find("configmaps", "m", "a").await.is_some(), "another namespace is another's");
    assert_eq!(door.tally.of(Deed::Namespace), 1);
}

/// A pass that began before a namespace went and was made anew leaves the new one alone.
#[tokio::test(start_paused = true)]
async fn the_objects_of_a_namespace_made_anew_stay() {
    let door = Door::opened(&MemoryStore::new()).await;
    door.keeper.abort();
    door.map("old", json!([]), &[]).await;
    door.delete("namespaces", "", "n", Propagation::Background).await;
    let kind = door.kind("namespaces");
    let place = Place { kind: &kind, namespace: "", name: "n", writer: Writer::Door };
    let going = door.storage.get(place, ReadAt::MostRecent).await.expect("it is going");
    let holder = namespaces::Holder { storage: &door.storage, kind: &kind, entry: &going };
    let filter = Filter::new(Scope::namespace("n"), Vec::new());
    let left = holder.delete_held(&door.kind("configmaps"), &filter).await.expect("it holds one");
    assert!(left.is_empty());
    let mut object: Value = serde_json::from_slice(going.json()).expect("JSON");
    object["spec"]["finalizers"] = json!([]);
    let options = WriteOptions::default();
    door.storage
        .update(place, Part::Of(Endpoint::Finalize), object, &options, "test")
        .await
        .expect("it goes at once");
    door.create("namespaces", "", json!({ "metadata": { "name": "n" } })).await;
    door.map("new", json!([]), &[]).await;
    let refusal = holder.delete_held(&door.kind("configmaps"), &filter).await.expect_err("it is another's");
    assert_eq!(refusal.code(), 409);
    assert!(door.find_map("new").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_with_its_objects_and_another_gets_its_names() {
    let door = Door::opened(&MemoryStore::new()).await;
    door.create("customresourcedefinitions", "", definition()).await;
    door.storage.kinds().fresh().await.expect("served");
    for name in ["a", "b"] {
        door.create("crontabs", "n", json!({ "metadata": { "name": name } })).await;
    }
    let mut rival = definition();
    rival["metadata"]["name"] = json!("rivals.stable.example.com");
    rival["spec"]["names"] = json!({ "plural": "rivals", "singular": "rival", "kind": "CronTab" });
    let rival = door.create("customresourcedefinitions", "", rival).await;
    let accepted = |definition: &Value| {
        crd::status::condition(&definition["status"], "NamesAccepted").expect("told")["status"].clone()
    };
    assert_eq!(accepted(&rival), "False");
    door.delete("customresourcedefinitions", "", "crontabs.stable.example.com", Propagation::Background)
        .await;
    door.gone("customresourcedefinitions", "", "crontabs.stable.example.com").await;
    let registry = door.storage.kinds().fresh().await.expect("served");
    assert!(registry.by_resource("stable.example.com", "v1", "crontabs").is_none());
    until("the rival gets the name", async || {
        let rival = door.find("customresourcedefinitions", "", "rivals.stable.example.com").await;
        accepted(&rival.expect("it stays")) == "True"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_definition_that_goes_leave_the_store() {
    let store = MemoryStore::new();
    let door = Door::opened(&store).await;
    door.create("customresourcedefinitions", "", definition()).await;
    door.storage.kinds().fresh().await.expect("served");
    let metadata = json!({ "name": "held", "finalizers": ["test.io/hold"] });
    door.create("crontabs", "n", json!({ "metadata": metadata })).await;
    door.create("crontabs", "n", json!({ "metadata": { "name": "a" } })).await;
    let name = "crontabs.stable.example.com";
    door.delete("customresourcedefinitions", "", name, Propagation::Background).await;
    let rows = || store.rows("/registry/stable.example.com/").len();
    until("all that may go is gone", async || rows() == 1).await;
    a_while().await;
    assert!(door.find("customresourcedefinitions", "", name).await.is_some());
    door.unfinalize("crontabs", "n", "held").await;
    door.gone("customresourcedefinitions", "", name).await;
    assert_eq!(rows(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_definition_that_is_not_served_any_more_leave_the_store_too() {
    let store = MemoryStore::new();
    let door = Door::opened(&store).await;
    door.create("customresourcedefinitions", "", definition()).await;
    door.storage.kinds().fresh().await.expect("served");
    door.create("crontabs", "n", json!({ "metadata": { "name": "a" } })).await;
    let name = "crontabs.stable.example.com";
    let unserved = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": false }]);
    let form = meerkat_kubernetes::negotiation::PatchForm::Json;
    let patch = Patch::Of { form, body: unserved, options: WriteOptions::default() };
    let place =
        Place { kind: &door.kind("customresourcedefinitions"), namespace: "", name, writer: Writer::Door };
    door.storage.patch(place, Part::Of(Endpoint::Whole), &patch, "test").await.expect("no longer served");
    let registry = door.storage.kinds().fresh().await.expect("fresh");
    assert!(registry.by_resource("stable.example.com", "v1", "crontabs").is_none());
    assert_eq!(store.rows("/registry/stable.example.com/").len(), 1, "nobody deleted it");
    door.delete("customresourcedefinitions", "", name, Propagation::Background).await;
    door.gone("customresourcedefinitions", "", name).await;
    assert_eq!(store.rows("/registry/stable.example.com/").len(), 0);
    let places = door.storage.feeds().counters();
    assert!(places.iter().all(|feed| !feed.place.starts_with("stable.example.com/")), "its feed is ended");
}

#[tokio::test(start_paused = true)]
async fn one_of_two_keepers_works_and_the_other_takes_over() {
    let store = MemoryStore::new();
    let one = Door::opened(&store).await;
    until("the first has its turn", async || one.tally.of(Deed::Turn) == 1).await;
    let other = Door::open(&store);
    let a = one.map("a", json!([]), &[]).await;
    one.map("b", owned_by(&[(&a, false)]), &[]).await;
    other.map("late", owned_by(&[(&a, false)]), &[]).await;
    tokio::time::sleep(Duration::from_millis(3 * QUICK.pace.take_over / 2)).await;
    assert_eq!((one.tally.of(Deed::Turn), other.tally.of(Deed::Turn)), (1, 0), "it renews");
    one.keeper.abort();
    one.delete("configmaps", "n", "a", Propagation::Background).await;
    one.map_gone("b").await;
    one.map_gone("late").await;
    assert_eq!((other.tally.of(Deed::Turn), other.tally.of(Deed::Collected)), (1, 2));
    assert_eq!(one.tally.of(Deed::Collected), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_happens() {
    let store = MemoryStore::new();
    let one = Door::opened(&store).await;
    until("the first has its turn", async || one.tally.of(Deed::Turn) == 1).await;
    let other = Door::open(&store);
    a_while().await;
    let before = store.revision();
    tokio::time::sleep(Duration::from_millis(2 * QUICK.pace.take_over)).await;
    assert_eq!(store.revision(), before);
    assert_eq!((one.tally.of(Deed::Turn), other.tally.of(Deed::Turn)), (1, 0), "the turn is kept");
}

#[tokio::test(start_paused = true)]
async fn a_keeper_looks_into_the_namespaces_that_the_one_before_it_let_go() {
    let store = MemoryStore::new();
    let one = Door::open_with(&store, Times { sweep_ms: 3_600_000, ..QUICK });
    one.create("namespaces", "", json!({ "metadata": { "name": "n" } })).await;
    one.delete("namespaces", "", "n", Propagation::Background).await;
    one.gone("namespaces", "", "n").await;
    one.keeper.abort();
    // As if the create had been on its way while the namespace went; and what was never ours.
    let late = json!({ "metadata": { "name": "late", "uid": "u1" } }).to_string();
    store.put("/registry/configmaps/n/late", late.clone());
    store.put("/registry/configmaps/never/late", late);
    let other = Door::open(&store);
    until("it is swept", async || {
        let rows = store.rows("/registry/configmaps/");
        rows.len() == 1 && rows[0].key.starts_with(b"/registry/configmaps/never/")
    })
    .await;
    a_while().await;
    assert_eq!(store.rows("/registry/configmaps/").len(), 1, "nobody let that namespace go");
    assert_eq!(other.tally.of(Deed::Turn), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_kept_again() {
    let store = MemoryStore::new();
    let door = Door::opened(&store).await;
    let a = door.map("a", json!([]), &[]).await;
    door.map("b", owned_by(&[(&a, false)]), &[]).await;
    a_while().await;
    store.set_available(false);
    tokio::time::sleep(Duration::from_millis(2 * QUICK.pace.stop)).await;
    store.set_available(true);
    until("the store is back", async || door.find_map("a").await.is_some()).await;
    door.delete("configmaps", "n", "a", Propagation::Background).await;
    door.map_gone("b").await;
    assert!(2 <= door.tally.of(Deed::Turn), "a turn that cannot be renewed ends");
}

#[tokio::test(start_paused = true)]
async fn what_came_into_a_namespace_too_late_is_swept() {
    let door = Door::opened(&MemoryStore::new()).await;
    door.map("a", json!([]), &[]).await;
    let now = meerkat_kubernetes::timestamp::Timestamp { seconds: 0, nanos: 0 };
    let sweep = async || {
        let swept = namespaces::empty(&door.storage, "n", 1_000, QUICK, now, &door.tally).await;
        assert_eq!(swept, Ok(queue::Outcome::Done));
    };
    sweep().await;
    assert!(door.find_map("a").await.is_some(), "the namespace is there, and stays");
    // As if the create had been on its way while the namespace went.
    door.storage.store().write(removal(&door).await).await.expect("removed");
    sweep().await;
    assert_eq!(door.find_map("a").await, None);
}

async fn removal(door: &Door) -> Write {
    let key = Bytes::from_static(b"/registry/namespaces/n");
    let (row, _) = door.storage.store().get(key.clone()).await.expect("read");
    Write { key, expected: row.expect("there").modified, change: Change::Delete, by: By::Door }
}
