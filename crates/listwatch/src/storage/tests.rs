//! The storage over a store in memory.

use super::{Answer, Part, Patch, Place, Storage, Writer};
use crate::write_options::{ApplyOptions, DeleteOptions, Preconditions, WriteOptions};
use crate::write_rules::Endpoint;
use meerkat_kubernetes::negotiation::PatchForm;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::schema::FieldValidation;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_watchcache::cacher::filter::{Filter, Scope, Term, Test};
use meerkat_watchcache::cacher::store::Listed;
use meerkat_watchcache::feed::Feeds;
use meerkat_watchcache::list_plan::{ListPlan, ReadAt};
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use std::num::NonZeroU64;
use std::sync::Arc;

mod built_in;
mod definitions;
mod lists;
mod races;
mod writes;

/// A storage, its store, and shorthand for requests to it.
struct Bench {
    store: MemoryStore,
    storage: Arc<Storage>,
}

const WHOLE: Part = Part::Of(Endpoint::Whole);

impl Bench {
    /// With a namespace `n`.
    async fn new() -> Bench {
        let store = MemoryStore::new();
        let shared: Arc<dyn meerkat_watchcache::store::Store> = Arc::new(store.clone());
        let bench = Bench { storage: Storage::new(shared.clone(), Feeds::new(shared)), store };
        let namespace = json!({ "metadata": { "name": "n" } });
        bench.create("namespaces", "", namespace).await.expect("a namespace");
        bench
    }

    fn kind(&self, plural: &str) -> Arc<Kind> {
        let kinds = self.storage.kinds().now();
        kinds.kinds().find(|kind| kind.plural == plural).unwrap_or_else(|| panic!("no {plural}")).clone()
    }

    async fn create(&self, plural: &str, namespace: &str, body: Value) -> Result<Value, Refusal> {
        let answer = self.create_with(plural, namespace, body, &WriteOptions::default()).await?;
        assert!(answer.created);
        Ok(answer.object)
    }

    async fn create_with(
        &self,
        plural: &str,
        namespace: &str,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Answer, Refusal> {
        let kind = self.kind(plural);
        self.storage
            .create(Place { kind: &kind, namespace, name: "", writer: Writer::Door }, body, options, "maker")
            .await
    }

    async fn get(&self, plural: &str, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let kind = self.kind(plural);
        let entry = self
            .storage
            .get(Place { kind: &kind, namespace, name, writer: Writer::Door }, ReadAt::MostRecent)
            .await?;
        Ok(serde_json::from_slice(entry.json()).expect("JSON"))
    }

    async fn update(&self, plural: &str, part: Part, body: Value) -> Result<Answer, Refusal> {
        let kind = self.kind(plural);
        let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
        let namespace = if kind.is_namespaced() { "n" } else { "" };
        let place = Place { kind: &kind, namespace, name: &name, writer: Writer::Door };
        self.storage.update(place, part, body, &WriteOptions::default(), "changer").await
    }

    async fn merge(&self, plural: &str, part: Part, name: &str, body: Value) -> Result<Value, Refusal> {
        let patch = Patch::Of { form: PatchForm::Merge, body, options: WriteOptions::default() };
        let kind = self.kind(plural);
        let namespace = if kind.is_namespaced() { "n" } else { "" };
        let place = Place { kind: &kind, namespace, name, writer: Writer::Door };
        self.storage.patch(place, part, &patch, "patcher").await.map(|answer| answer.object)
    }

    async fn apply(&self, plural: &str, manager: &str, force: bool, body: Value) -> Result<Answer, Refusal> {
        let kind = self.kind(plural);
        let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
        let (write, manager) = (WriteOptions::default(), manager.to_owned());
        let patch = Patch::Apply { body, options: ApplyOptions { write, manager, force } };
        let place = Place { kind: &kind, namespace: "n", name: &name, writer: Writer::Door };
        self.storage.patch(place, WHOLE, &patch, "").await
    }

    async fn delete(&self, plural: &str, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let kind = self.kind(plural);
        let place = Place { kind: &kind, namespace, name, writer: Writer::Door };
        self.storage.delete(place, &DeleteOptions::default()).await.map(|answer| answer.object)
    }

    /// Until the cache of the kind has all that is in the store.
    async fn settle(&self, plural: &str) {
        let at = ReadAt::NotOlderThan(self.store.revision());
        let feed = self.storage.feeds().of(&self.kind(plural)).expect("a feed");
        for _ in 0..1_000 {
            if feed.version(at).await.is_ok() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("the cache of {plural} is never ready");
    }

    /// The cache of the kind begins anew, and knows nothing of the past.
    async fn forget(&self, plural: &str) {
        self.storage.feeds().end(self.kind(plural).storage.as_deref().expect("it is stored"));
        self.settle(plural).await;
    }

    async fn list(&self, plural: &str, filter: &Filter, plan: &ListPlan) -> Result<Listed, Refusal> {
        self.storage.list(&self.kind(plural), filter, plan).await
    }
}

fn config(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value },
    })
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

fn code(answer: Result<impl Sized, Refusal>) -> u16 {
    answer.map_or_else(|refusal| refusal.code(), |_| 200)
}
