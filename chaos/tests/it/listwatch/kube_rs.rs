//! kube-rs: the Api, the watcher in both ways of listing, the reflector, and a Controller with a finalizer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams,
    PostParams,
};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event as Finalize, finalizer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, reflector};
use kube::{Api, Client, Config, Resource, ResourceExt};
use meerkat_chaos::driver::Cluster;
use meerkat_chaos::listwatch::start;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::{Failure, Patience};
use serde_json::json;

const STEP_WITHIN: Duration = Duration::from_secs(15);

pub fn client(cluster: &Cluster, member: usize) -> Result<Client, Failure> {
    let url = cluster.members()[member].listwatch_url();
    let uri = url.parse().map_err(|error| Failure::harness(format!("{url}: {error}")))?;
    Client::try_from(Config::new(uri)).map_err(|error| Failure::harness(format!("{url}: {error}")))
}

fn kube(error: kube::Error) -> Failure {
    Failure::broken(format!("kube-rs: {error:?}"))
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

async fn within<T>(what: &str, step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    Patience::of(what, STEP_WITHIN).wait(step).await?.map_err(|failure| failure.during(what))
}

#[test]
fn objects_are_written_and_read_through_the_api() {
    run_test("kube-rs Api", Duration::from_secs(60), async {
        let cluster = start(3).await?;
        let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster, 0)?);
        let elsewhere: Api<ConfigMap> = Api::default_namespaced(client(&cluster, 1)?);
        let made = api.create(&PostParams::default(), &config_map("a", "1")).await.map_err(kube)?;
        let read = elsewhere.get("a").await.map_err(kube)?;
        assert_eq!(read, made, "another member knows it at once");
        let patch = json!({ "metadata": { "labels": { "app": "web" } } });
        api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(kube)?;
        let selected = ListParams::default().labels("app=web").limit(5);
        let listed = elsewhere.list(&selected).await.map_err(kube)?;
        assert_eq!(listed.items.len(), 1);
        let metadata = api.get_metadata("a").await.map_err(kube)?;
        assert_eq!(metadata.labels().get("app").map(String::as_str), Some("web"));
        let error = api.replace("a", &PostParams::default(), &made).await.expect_err("it is an old version");
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error:?}");
        let applied = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "value": "2" } });
        let params = PatchParams::apply("test").force();
        let applied = api.patch("a", &params, &Patch::Apply(&applied)).await.map_err(kube)?;
        assert_eq!(applied.data.and_then(|data| data.get("value").cloned()).as_deref(), Some("2"));
        api.delete("a", &DeleteParams::default()).await.map_err(kube)?;
        let gone = elsewhere.get_opt("a").await.map_err(kube)?;
        assert_eq!(gone, None);
        cluster.finish()
    });
}

/// What one watcher is told, from an object that was there to one that is gone.
async fn watched(client: Client, config: watcher::Config) -> Result<(), Failure> {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config_map("old", "1")).await.map_err(kube)?;
    let mut stream = watcher::watcher(api.clone(), config).boxed();
    let mut told = Vec::new();
    within("a watcher", async {
        while let Some(event) =
            stream.try_next().await.map_err(|error| Failure::broken(format!("{error:?}")))?
        {
            match event {
                Event::Init => told.push("init".to_owned()),
                Event::InitApply(object) => told.push(format!("has {}", object.name_any())),
                Event::InitDone => {
                    told.push("ready".to_owned());
                    api.create(&PostParams::default(), &config_map("new", "1")).await.map_err(kube)?;
                }
                Event::Apply(object) => {
                    told.push(format!("applied {}", object.name_any()));
                    api.delete("new", &DeleteParams::default()).await.map_err(kube)?;
                }
                Event::Delete(object) => {
                    told.push(format!("deleted {}", object.name_any()));
                    break;
                }
            }
        }
        Ok(())
    })
    .await?;
    assert_eq!(told, ["init", "has old", "ready", "applied new", "deleted new"]);
    api.delete("old", &DeleteParams::default()).await.map_err(kube)?;
    Ok(())
}

#[test]
fn a_watcher_is_told_everything_in_both_ways_of_listing() {
    run_test("kube-rs watcher", Duration::from_secs(60), async {
        let cluster = start(3).await?;
        for member in 0..3 {
            watched(client(&cluster, member)?, watcher::Config::default()).await?;
            watched(client(&cluster, member)?, watcher::Config::default().any_semantic()).await?;
            watched(client(&cluster, member)?, watcher::Config::default().streaming_lists()).await?;
        }
        cluster.finish()
    });
}

#[test]
fn a_reflector_holds_what_the_store_holds() {
    run_test("kube-rs reflector", Duration::from_secs(60), async {
        let cluster = start(3).await?;
        let client = client(&cluster, 2)?;
        let api: Api<ConfigMap> = Api::all(client.clone());
        let (store, writer) = reflector::store();
        let stream = reflector(writer, watcher::watcher(api, watcher::Config::default().streaming_lists()));
        let follower = tokio::spawn(stream.applied_objects().for_each(|_| std::future::ready(())));
        let own: Api<ConfigMap> = Api::default_namespaced(client);
        for number in 0..100 {
            let name = format!("r-{}", number % 20);
            if number % 3 == 2 {
                own.delete(&name, &DeleteParams::default()).await.ok();
            } else {
                let patch = Patch::Apply(config_map(&name, &number.to_string()));
                own.patch(&name, &PatchParams::apply("test").force(), &patch).await.map_err(kube)?;
            }
        }
        let listed = own.list(&ListParams::default()).await.map_err(kube)?;
        let versions = |objects: &[Arc<ConfigMap>]| {
            let mut rows: Vec<(String, Option<String>)> =
                objects.iter().map(|object| (object.name_any(), object.resource_version())).collect();
            rows.sort();
            rows
        };
        let expected = versions(&listed.items.into_iter().map(Arc::new).collect::<Vec<_>>());
        within("the reflector", async {
            while versions(&store.state()) != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        })
        .await?;
        follower.abort();
        cluster.finish()
    });
}

fn lamps() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("rust.example.com", "v1", "Lamp"), "lamps")
}

async fn define_lamps(client: Client) -> Result<(), Failure> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let definition: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "lamps.rust.example.com" },
        "spec": {
            "group": "rust.example.com", "scope": "Namespaced", "names": { "plural": "lamps", "kind": "Lamp" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "on": { "type": "boolean" } } },
                    "status": { "type": "object", "properties": { "lit": { "type": "boolean" } } } } } } }],
        },
    }))
    .map_err(|error| Failure::harness(error.to_string()))?;
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    api.create(&PostParams::default(), &definition).await.map_err(kube)?;
    Ok(())
}

/// Counts what the controller did.
#[derive(Default)]
struct Done {
    lit: AtomicUsize,
    cleaned: AtomicUsize,
}

async fn reconcile(lamp: Arc<DynamicObject>, context: Arc<(Client, Done)>) -> Result<Action, kube::Error> {
    let (client, done) = &*context;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &lamp.namespace().unwrap_or_default(), &lamps());
    let name = lamp.name_any();
    let result = finalizer(&api, "rust.example.com/switch-off", lamp, |event| async {
        match event {
            Finalize::Apply(lamp) => {
                let lit = json!({ "status": { "lit": lamp.data["spec"]["on"] } });
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&lit)).await?;
                done.lit.fetch_add(1, Ordering::Relaxed);
            }
            Finalize::Cleanup(_) => {
                done.cleaned.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok::<Action, kube::Error>(Action::await_change())
    })
    .await;
    result.map_err(|error| match error {
        kube::runtime::finalizer::Error::ApplyFailed(error)
        | kube::runtime::finalizer::Error::CleanupFailed(error)
        | kube::runtime::finalizer::Error::AddFinalizer(error)
        | kube::runtime::finalizer::Error::RemoveFinalizer(error) => error,
        other => kube::Error::Service(Box::new(other)),
    })
}

#[test]
fn a_controller_with_a_finalizer_reconciles_and_cleans_up() {
    run_test("kube-rs Controller", Duration::from_secs(90), async {
        let cluster = start(3).await?;
        let client = client(&cluster, 0)?;
        define_lamps(client.clone()).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &lamps());
        let context = Arc::new((client.clone(), Done::default()));
        let controller = Controller::new_with(api.clone(), watcher::Config::default(), lamps());
        let retry = |_: Arc<DynamicObject>, _: &kube::Error, _: Arc<(Client, Done)>| {
            Action::requeue(Duration::from_millis(200))
        };
        let running = tokio::spawn(
            controller.run(reconcile, retry, context.clone()).for_each(|_| std::future::ready(())),
        );
        for number in 0..5 {
            let mut lamp = DynamicObject::new(&format!("lamp-{number}"), &lamps());
            lamp.data = json!({ "spec": { "on": true } });
            api.create(&PostParams::default(), &lamp).await.map_err(kube)?;
        }
        within("all lamps lit", async {
            loop {
                let lamps = api.list(&ListParams::default()).await.map_err(kube)?;
                if lamps.items.iter().all(|lamp| lamp.data["status"]["lit"] == json!(true)) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await?;
        for number in 0..5 {
            api.delete(&format!("lamp-{number}"), &DeleteParams::default()).await.map_err(kube)?;
        }
        within("all lamps gone", async {
            while !api.list(&ListParams::default()).await.map_err(kube)?.items.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        })
        .await?;
        running.abort();
        assert_eq!(context.1.cleaned.load(Ordering::Relaxed), 5, "each was cleaned up before it went");
        assert!(5 <= context.1.lit.load(Ordering::Relaxed));
        cluster.finish()
    });
}

#[test]
fn a_cluster_has_its_first_namespaces() {
    run_test("kube-rs namespaces", Duration::from_secs(60), async {
        let cluster = start(1).await?;
        let api: Api<Namespace> = Api::all(client(&cluster, 0)?);
        let names: Vec<String> =
            api.list(&ListParams::default()).await.map_err(kube)?.iter().map(Namespace::name_any).collect();
        assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
        assert_eq!(Namespace::plural(&()), "namespaces");
        cluster.finish()
    });
}
