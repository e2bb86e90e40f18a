//! Watches over HTTP.

use crate::rig::{MAPS, PATIENCE, Rig, config_map, version};
use meerkat_listwatch::door::DoorConfig;
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn changes_after_a_version() {
    let rig = Rig::new().await;
    let first = version(&rig.make("a", json!({})).await);
    let second = version(&rig.make("b", json!({})).await);
    let mut watch = rig.watch(&format!("{MAPS}?watch=1&resourceVersion={first}"), "").await;
    assert_eq!((watch.code, watch.headers["content-type"].to_str().ok()), (200, Some("application/json")));
    assert_eq!(watch.brief().await, ("ADDED".to_owned(), "b".to_owned(), second));
    let mut changed = config_map("a", json!({}));
    changed["data"]["a"] = json!("2\n");
    let changed = version(&rig.write("PUT", &format!("{MAPS}/a"), &changed).await.json());
    assert_eq!(watch.brief().await, ("MODIFIED".to_owned(), "a".to_owned(), changed));
    assert_eq!(rig.ask("DELETE", &format!("{MAPS}/a"), &[], "").await.code, 200);
    let (kind, name, gone) = watch.brief().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "a"));
    assert!(changed < gone);
    // The old form of a watch of one object.
    let mut old = rig.watch("/api/v1/watch/namespaces/default/configmaps/b", "").await;
    assert_eq!(old.brief().await, ("ADDED".to_owned(), "b".to_owned(), second));
}

#[tokio::test]
async fn who_is_cut_off_within_a_revision_is_told_all_of_it() {
    let rig = Rig::new().await;
    let before = version(&rig.make("first", json!({})).await);
    let objects: Vec<(String, String)> = (0..100)
        .map(|nth| (format!("m{nth:02}"), config_map(&format!("m{nth:02}"), json!({})).to_string()))
        .map(|(name, object)| (format!("/registry/configmaps/default/{name}"), object))
        .collect();
    let changes = objects.iter().map(|(key, object)| (key.as_str(), Some(object.clone().into())));
    let all = rig.store.transact(changes.collect());
    let path = |after: u64| format!("{MAPS}?watch=1&resourceVersion={after}");
    let mut watch = rig.watch(&path(before), "").await;
    let mut known = std::collections::BTreeSet::new();
    for _ in 0..37 {
        let (_, name, at) = watch.brief().await;
        assert_eq!(at, all);
        known.insert(name);
    }
    drop(watch);
    let last = version(&rig.make("last", json!({})).await);
    let mut watch = rig.watch(&path(all), "").await;
    loop {
        let (kind, name, at) = watch.brief().await;
        assert_eq!(kind, "ADDED");
        known.insert(name);
        if at == last {
            break;
        }
    }
    assert_eq!(known.len(), 101, "{known:?}");
    // One line is not cut.
    let mut watch = rig.watch(&path(last), "").await;
    assert!(watch.is_silent().await);
}

#[tokio::test]
async fn a_version_that_is_gone_is_told_in_the_stream_and_one_to_come_is_waited_for() {
    let store = Arc::new(MemoryStore::new());
    for nth in 0..20 {
        let object = config_map(&format!("m{nth}"), json!({}));
        store.put(&format!("/registry/configmaps/default/m{nth}"), object.to_string());
    }
    // A cache begins in the past as far as the store still has it.
    store.compact(15);
    let rig = Rig::with(DoorConfig::default(), store).await;
    assert_eq!(rig.get(MAPS).await.code, 200);
    let mut watch = rig.watch(&format!("{MAPS}?watch=true&resourceVersion=3"), "").await;
    assert_eq!(watch.code, 200);
    let event = watch.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!((&event["object"]["kind"], &event["object"]["reason"]), (&json!("Status"), &json!("Expired")));
    assert_eq!(watch.line().await, None);
    let mut future = rig.watch(&format!("{MAPS}?watch=true&resourceVersion=100000"), "").await;
    assert_eq!(future.code, 200);
    rig.make("x", json!({})).await;
    assert!(future.is_silent().await);
    // One that shows the state first waits, and gives up.
    let path = format!("{MAPS}?{STREAMING}&resourceVersion=100000");
    let mut state = rig.watch(&path, "").await;
    assert_eq!(state.code, 200);
    let event = state.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(504)));
    assert_eq!(rig.watch(&format!("{MAPS}?watch=true&resourceVersion=x"), "").await.code, 400);
    assert_eq!(rig.watch(&format!("{MAPS}?watch=true&sendInitialEvents=true"), "").await.code, 422);
    assert_eq!(rig.watch(&format!("{MAPS}?watch=true"), "application/yaml").await.code, 406);
}

/// The version and the annotation of a bookmark, wherever its form has them.
fn mark(object: &Value) -> (u64, bool) {
    let metadata = if object["kind"] == "Table" {
        &object["rows"][0]["object"]["metadata"]
    } else {
        &object["metadata"]
    };
    (version(object), metadata["annotations"]["k8s.io/initial-events-end"] == "true")
}

#[tokio::test]
async fn the_state_first_and_then_its_end() {
    let rig = Rig::new().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    for count in [0, 3] {
        for nth in 0..count {
            rig.make(&format!("m{nth}"), json!({})).await;
        }
        for accept in ["", table, partial] {
            let mut watch = rig.watch(&format!("{MAPS}?{STREAMING}"), accept).await;
            let mut newest = 0;
            for nth in 0..count {
                let event = watch.event().await;
                assert_eq!(event["type"], "ADDED");
                newest = newest.max(version(&event["object"]));
                if accept == table {
                    let columns = event["object"]["columnDefinitions"].as_array().expect("columns");
                    assert_eq!(columns.is_empty(), nth > 0);
                }
            }
            let event = watch.event().await;
            assert_eq!(event["type"], "BOOKMARK", "{accept}");
            let (revision, is_end) = mark(&event["object"]);
            assert!(is_end && newest <= revision, "{event}");
            rig.make("later", json!({})).await;
            let event = watch.event().await;
            assert_eq!(event["type"], "ADDED");
            assert_eq!(rig.ask("DELETE", &format!("{MAPS}/later"), &[], "").await.code, 200);
        }
    }
}

#[tokio::test]
async fn an_object_that_leaves_a_selector_is_deleted_and_added_when_it_is_back() {
    let rig = Rig::new().await;
    let first = version(&rig.make("a", json!({ "app": "web" })).await);
    let path = format!("{MAPS}?watch=true&labelSelector=app%3Dweb&resourceVersion={first}");
    let mut watch = rig.watch(&path, "").await;
    let flip = async |app: &str| {
        let patch = json!({ "metadata": { "labels": { "app": app } } });
        let reply = rig.patch(&format!("{MAPS}/a"), "application/merge-patch+json", &patch).await;
        assert_eq!(reply.code, 200, "{}", reply.text());
        version(&reply.json())
    };
    let left = flip("db").await;
    let event = watch.event().await;
    assert_eq!((&event["type"], version(&event["object"])), (&json!("DELETED"), left));
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "web");
    flip("other").await;
    let back = flip("web").await;
    assert_eq!(watch.brief().await, ("ADDED".to_owned(), "a".to_owned(), back));
}

#[tokio::test]
async fn protobuf_frames_have_their_length() {
    let rig = Rig::new().await;
    rig.make("a", json!({})).await;
    let accept = "application/vnd.kubernetes.protobuf;stream=watch";
    let path = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1");
    let reply = rig.get_as(&path, accept).await;
    assert_eq!((reply.code, reply.header("content-type")), (200, accept));
    let length = u32::from_be_bytes([reply.bytes[0], reply.bytes[1], reply.bytes[2], reply.bytes[3]]);
    assert_eq!(reply.bytes.len(), 4 + length as usize);
}

#[tokio::test]
async fn both_groups_of_events_are_one() {
    let rig = Rig::new().await;
    let mut watch = rig.watch("/apis/events.k8s.io/v1/namespaces/default/events?watch=true", "").await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e" }, "message": "hello",
        "involvedObject": { "kind": "Pod", "name": "x", "namespace": "default" }, "reason": "Test", "type": "Normal",
    });
    let made = rig.write("POST", "/api/v1/namespaces/default/events", &event).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let told = watch.event().await;
    assert_eq!(
        (&told["object"]["note"], &told["object"]["apiVersion"]),
        (&json!("hello"), &json!("events.k8s.io/v1"))
    );
    let list = rig.get("/apis/events.k8s.io/v1/events").await.json();
    assert_eq!(list["items"][0]["regarding"]["name"], "x");
}

/// A watch whose client takes next to nothing: its end of the connection has little room.
async fn stalled(rig: &Rig, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("little room");
    let mut stream = socket.connect(rig.address).await.expect("the door is open");
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream
}

/// What a watch begins with is kept as it was for as long as the watch is told of it.
#[tokio::test]
async fn who_takes_none_of_the_first_objects_does_not_keep_them() {
    const OBJECTS: usize = 1_200;
    let store = Arc::new(MemoryStore::new());
    for nth in 0..OBJECTS {
        let metadata =
            json!({ "name": format!("m{nth:04}"), "namespace": "default", "uid": nth.to_string() });
        let object = json!({ "metadata": metadata, "data": { "long": "x".repeat(8_000) } });
        store.put(&format!("/registry/configmaps/default/m{nth:04}"), object.to_string());
    }
    let config = DoorConfig { starting_stall: Duration::from_secs(3), ..DoorConfig::default() };
    let rig = Rig::with(config, store).await;
    while rig.get(&format!("{MAPS}?resourceVersion=0&fieldSelector=metadata.name%3Dm0000")).await.code != 200
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let path = format!("{MAPS}?{STREAMING}");
    let open = async || {
        let text = rig.get("/metrics").await.text();
        let line = text.lines().find(|line| line.starts_with("meerkat_listwatch_watches ")).expect("counted");
        line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    let mut stalls = stalled(&rig, &path).await;
    let mut reads = rig.watch(&path, "").await;
    let mut told = 0;
    while reads.event().await["type"] == "ADDED" {
        told += 1;
    }
    assert_eq!(told, OBJECTS, "who reads is told all");
    let began = std::time::Instant::now();
    while open().await != 1 {
        assert!(began.elapsed() < PATIENCE, "it is never given up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stalls.read_to_end(&mut rest)).await;
    read.expect("it ends").expect("in order");
    let count = |what: &str| String::from_utf8_lossy(&rest).matches(what).count();
    assert_eq!(count("initial-events-end"), 0);
    assert!(count("\"ADDED\"") < OBJECTS && rest.ends_with(b"0\r\n\r\n"), "{}", count("\"ADDED\""));
}
