//! Objects and informers through the list-watch door of real members, which are killed one after the
//! other.

use crate::patience::{PATIENCE, until, within};
use crate::server::{Cluster, Kind, Options};
use meerkat_client::Informer;
use meerkat_client::informer::Delta;
use meerkat_client::listwatch::{Door, Objects, Resource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

async fn cluster() -> (Cluster, Door) {
    let options = Options { listwatch: true, ..Options::default() };
    let cluster = Cluster::start_with(Kind::Meerkat, 3, &options);
    drop(cluster.client_when_ready().await);
    let door = Door::new(cluster.members.iter().map(|member| member.door.clone())).expect("a door");
    for member in &cluster.members {
        serves(&member.door).await;
    }
    (cluster, door)
}

/// Waits until this very member answers reads of what is now.
async fn serves(door: &str) {
    let end = Instant::now() + PATIENCE;
    let alone = Door::new([door]).expect("a door").timeout(Duration::from_secs(1));
    while let Err(error) = alone.objects(&settings()).list().await {
        assert!(Instant::now() < end, "{door} does not serve: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn settings() -> Resource {
    Resource::core("configmaps").namespace("default").labels("test=objects")
}

fn setting(name: &str, number: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "test": "objects" } },
        "data": { "number": number.to_string() },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_written_read_and_deleted() {
    let (_cluster, door) = cluster().await;
    let objects = door.objects(&settings());
    let made = objects.create(&setting("a", 1)).await.expect("created");
    assert!(objects.create(&setting("a", 1)).await.expect_err("there already").is_already_exists());
    let mut changed = made.clone();
    changed["data"]["number"] = json!("2");
    objects.update(&changed).await.expect("updated");
    assert!(objects.update(&changed).await.expect_err("of an old version").is_conflict());
    objects.patch("a", &json!({ "data": { "more": "yes" } })).await.expect("patched");
    let read = objects.get("a").await.expect("there");
    assert_eq!(read["data"], json!({ "number": "2", "more": "yes" }));
    assert_eq!(objects.list().await.expect("a list").items.len(), 1);
    objects.delete("a").await.expect("deleted");
    assert!(objects.get("a").await.expect_err("gone").is_not_found());
}

#[derive(Default)]
struct Writing {
    stop: AtomicBool,
    done: AtomicU64,
}

/// Writes until it is told to stop, and counts what succeeds: whatever a write became, the name is written
/// again later.
async fn write(objects: Objects, writing: Arc<Writing>) {
    for number in 0_u64.. {
        if writing.stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("s{:02}", number % 20);
        let written = match number % 3 {
            0 => objects.create(&setting(&name, number)).await,
            1 => objects.patch(&name, &json!({ "data": { "number": number.to_string() } })).await,
            _ => objects.delete(&name).await,
        };
        writing.done.fetch_add(u64::from(written.is_ok()), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_goes_on_through_the_loss_of_every_member_without_a_list() {
    let (mut cluster, door) = cluster().await;
    let objects = door.objects(&settings());
    for number in 0..10 {
        objects.create(&setting(&format!("first-{number}"), number)).await.expect("created");
    }
    let source = Informer::objects(&door, settings());
    let trail = source.trail();
    let informer = source.json::<Value>().page_size(3).start();
    within("the first list", informer.wait_for_sync()).await.expect("synced");
    assert_eq!(informer.store().len(), 10, "of four pages");
    let mut told = informer.subscribe();
    let follower = tokio::spawn(async move {
        let mut view: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        while let Some(delta) = told.next().await {
            match delta {
                Delta::Deleted { last, unseen } => {
                    assert!(!unseen, "a delete went unseen");
                    view.remove(last.key.as_ref());
                }
                other => {
                    let object = other.object();
                    let before = view.insert(object.key.to_vec(), object.modified.get());
                    assert!(before.is_none_or(|before| before < object.modified.get()));
                }
            }
        }
        view
    });
    let writing = Arc::new(Writing::default());
    let writer = tokio::spawn(write(objects.clone(), Arc::clone(&writing)));
    until("a watch is open", || trail.member().is_some()).await;
    for _ in 0..3 {
        // The one that the informer watches.
        let member = trail.member().expect("a watch is open");
        cluster.members[member].kill();
        until("the watch is elsewhere", || trail.member() != Some(member)).await;
        let before = writing.done.load(Ordering::Relaxed);
        until("writes go on", || before + 10 < writing.done.load(Ordering::Relaxed)).await;
        cluster.members[member].restart();
        serves(&cluster.members[member].door).await;
    }
    writing.stop.store(true, Ordering::Relaxed);
    writer.await.expect("no panic");
    // One more, so that there is a version to wait for.
    let last = objects.create(&setting("last", 0)).await.expect("created");
    let version: i64 =
        last["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
    let reached = informer.wait_for_revision(meerkat_client::Revision::new(version));
    within("the last version", reached).await.expect("running");
    let status = informer.status();
    assert_eq!(status.relists(), 0, "{status:?}");
    let listed: BTreeMap<Vec<u8>, i64> =
        objects.list().await.expect("a list").items.iter().map(entry).collect();
    let cached =
        informer.store().list().iter().map(|object| (object.key.to_vec(), object.modified.get())).collect();
    assert_eq!(listed, cached);
    informer.stop().await;
    assert_eq!(follower.await.expect("told in order"), cached);
}

fn entry(object: &Value) -> (Vec<u8>, i64) {
    let text = |field: &str| object["metadata"][field].as_str().expect("text").to_owned();
    let key = format!("{}/{}", text("namespace"), text("name"));
    (key.into_bytes(), text("resourceVersion").parse().expect("a number"))
}
