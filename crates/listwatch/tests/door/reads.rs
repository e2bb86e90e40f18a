//! Gets and lists, in every form.

use crate::rig::{MAPS, PATIENCE, Rig, version};
use meerkat_listwatch::door::DoorConfig;
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn items_of_built_in_lists_carry_no_type() {
    let rig = Rig::new().await;
    let made = rig.make("a", json!({ "x": "y" })).await;
    let event = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "ConfigMap", "name": "a", "namespace": "default" },
        "reason": "Test", "type": "Normal",
    });
    assert_eq!(rig.write("POST", "/api/v1/namespaces/default/events", &event).await.code, 201);
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    for (path, kind) in [(MAPS, "ConfigMapList"), (events, "EventList")] {
        for (query, accept) in [("", ""), ("?pretty=true", ""), ("", "application/yaml")] {
            let reply = rig.get_as(&format!("{path}{query}"), accept).await;
            let list: Value = if accept.is_empty() {
                reply.json()
            } else {
                serde_norway::from_slice(&reply.bytes).expect("YAML")
            };
            assert_eq!(list["kind"], kind);
            let item = &list["items"][0];
            assert_eq!((item.get("kind"), item.get("apiVersion")), (None, None), "{path} {query} {accept}");
        }
    }
    let mut item = rig.get(MAPS).await.json()["items"][0].clone();
    item["kind"] = json!("ConfigMap");
    item["apiVersion"] = json!("v1");
    assert_eq!(item, made, "nothing else is left out");
    let gone = rig.ask("DELETE", MAPS, &[], "").await.json();
    assert_eq!((gone["items"][0].get("kind"), &gone["items"][0]["metadata"]["name"]), (None, &json!("a")));
}

#[tokio::test]
async fn versions_of_lists() {
    let rig = Rig::new().await;
    let first = version(&rig.make("a", json!({})).await);
    rig.make("b", json!({})).await;
    // Exactly that version, and the answer says so.
    let path = format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let list = rig.get(&path).await.json();
    assert_eq!((names(&list), version(&list)), (vec!["a"], first));
    let path = format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=NotOlderThan");
    let list = rig.get(&path).await.json();
    assert_eq!(names(&list), ["a", "b"]);
    assert!(first < version(&list));
    // In the future.
    let reply = rig.get(&format!("{MAPS}?resourceVersion=1000000&resourceVersionMatch=Exact")).await;
    assert_eq!((reply.code, reply.header("retry-after")), (504, "1"));
    let status = reply.json();
    assert_eq!(
        (&status["reason"], &status["details"]["causes"][0]["reason"]),
        (&json!("Timeout"), &json!("ResourceVersionTooLarge"))
    );
    // Gone, and the cache is behind what is left.
    rig.store.compact(rig.store.put("/elsewhere", "x"));
    let path = format!("{MAPS}?resourceVersion=2&resourceVersionMatch=Exact");
    let mut reply = rig.get(&path).await;
    // A cache that is being filled anew asks to come back.
    while reply.code == 429 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        reply = rig.get(&path).await;
    }
    assert_eq!((reply.code, &reply.json()["reason"]), (410, &json!("Expired")));
    for path in ["?resourceVersion=x", "?continue=x", "?limit=x"] {
        assert_eq!(rig.get(&format!("{MAPS}{path}")).await.code, 400, "{path}");
    }
    assert_eq!(rig.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await.code, 422);
}

#[tokio::test]
async fn pages_are_of_one_version_while_others_write() {
    let store = Arc::new(MemoryStore::new());
    for nth in 0..10_000 {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("m{nth:05}"), "namespace": "default", "uid": nth.to_string() } });
        store.put(&format!("/registry/configmaps/default/m{nth:05}"), object.to_string());
    }
    let rig = Rig::with(DoorConfig::default(), store).await;
    let (mut seen, mut token, mut revision) = (Vec::new(), String::new(), None);
    loop {
        let list = rig.get(&format!("{MAPS}?limit=1500&continue={token}")).await;
        assert_eq!(list.code, 200, "{}", list.text());
        let list = list.json();
        seen.extend(names(&list).into_iter().map(str::to_owned));
        assert_eq!(*revision.get_or_insert(version(&list)), version(&list));
        rig.make(&format!("m{:05}x", seen.len()), json!({})).await;
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
        assert_eq!(list["metadata"]["remainingItemCount"], 10_000 - seen.len());
    }
    assert_eq!(seen.len(), 10_000);
    assert!(seen.is_sorted());
    // A list at any version has no pages; one that is not older has.
    let list = rig.get(&format!("{MAPS}?limit=10&resourceVersion=0")).await.json();
    assert!(10_000 <= names(&list).len() && list["metadata"].get("continue").is_none());
    let path = format!("{MAPS}?limit=10&resourceVersion=1&resourceVersionMatch=NotOlderThan");
    let list = rig.get(&path).await.json();
    assert_eq!(names(&list).len(), 10);
    // The version of the pages is lost.
    let token = list["metadata"]["continue"].as_str().expect("a token").to_owned();
    rig.store.compact(rig.store.revision());
    let at_one = meerkat_watchcache::continue_token::ContinueToken::after(
        "m00009",
        meerkat_watchcache::continue_token::ContinueAt::Exact(1),
    );
    let reply = rig.get(&format!("{MAPS}?limit=10&continue={}", at_one.encode())).await;
    assert_eq!(reply.code, 410, "{}", reply.text());
    let fresh = reply.json()["metadata"]["continue"].as_str().expect("a token to go on").to_owned();
    let list = rig.get(&format!("{MAPS}?limit=10&continue={fresh}")).await.json();
    assert_eq!(names(&list)[0], "m00010");
    assert_ne!(token, fresh);
}

#[tokio::test]
async fn forms_of_answers() {
    let rig = Rig::new().await;
    rig.make("a", json!({ "app": "web" })).await;
    let one = format!("{MAPS}/a");
    let table = rig.get_as(&one, TABLE).await.json();
    assert_eq!((&table["kind"], &table["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let table = rig.get_as(&format!("{MAPS}?includeObject=Object"), TABLE).await.json();
    assert_eq!(table["rows"][0]["object"]["data"]["a"], "1");
    let list = rig.get_as(MAPS, PARTIAL_LIST).await.json();
    assert_eq!((&list["kind"], names(&list)), (&json!("PartialObjectMetadataList"), vec!["a"]));
    assert!(list["items"][0].get("data").is_none());
    let yaml = rig.get_as(&one, "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("kind: ConfigMap\n"), "{}", yaml.text());
    assert!(rig.get_as(MAPS, "application/yaml").await.text().contains("kind: ConfigMapList\n"));
    for path in [one.as_str(), MAPS] {
        let reply = rig.get_as(path, "application/vnd.kubernetes.protobuf").await;
        assert_eq!(reply.header("content-type"), "application/vnd.kubernetes.protobuf");
        assert!(reply.bytes.starts_with(b"k8s\0"));
    }
    assert_eq!(rig.get_as(&one, "image/png").await.code, 406);
    let indented = rig.ask("GET", MAPS, &[("user-agent", "curl/8")], "").await;
    assert!(indented.text().starts_with("{\n    \"kind\": \"ConfigMapList\""));
    assert_eq!(rig.get(MAPS).await.text().lines().count(), 1);
    assert_eq!(rig.get(MAPS).await.header("cache-control"), "no-cache, private");
    let head = rig.ask("HEAD", &one, &[], "").await;
    assert_eq!((head.code, head.bytes.len()), (200, 0));
    assert_ne!(head.header("content-length"), "0");
    assert_eq!(rig.ask("HEAD", &format!("{MAPS}/none"), &[], "").await.code, 404);
}

#[tokio::test]
async fn what_there_is_not() {
    let rig = Rig::new().await;
    for (method, path, code) in [
        ("GET", "/api/v1/nothings", 404),
        ("GET", "/apis/none.example/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/pods/x/log", 404),
        ("GET", "/nowhere", 404),
        ("PUT", MAPS, 405),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/version", 405),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ("GET", "/api/v1/namespaces/default/configmaps/x", 404),
    ] {
        let reply = rig.ask(method, path, &[], "").await;
        assert_eq!((reply.code, &reply.json()["kind"]), (code, &json!("Status")), "{method} {path}");
    }
}

#[tokio::test]
async fn selectors_narrow() {
    let rig = Rig::new().await;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        rig.make(name, json!({ "app": app })).await;
    }
    for (query, wanted) in [
        ("labelSelector=app%3Dweb", vec!["a", "c"]),
        ("labelSelector=app%20notin%20(web)", vec!["b"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name%3Db&labelSelector=app%3Dweb", vec![]),
        ("fieldSelector=metadata.namespace%3Dother", vec![]),
    ] {
        let list = rig.get(&format!("{MAPS}?{query}")).await.json();
        assert_eq!(names(&list), wanted, "{query}");
        assert!(list["metadata"].get("remainingItemCount").is_none());
    }
    assert_eq!(rig.get(&format!("{MAPS}?fieldSelector=data.a%3D1")).await.code, 400);
    let gone = rig.ask("DELETE", &format!("{MAPS}?labelSelector=app%3Dweb"), &[], "").await;
    assert_eq!(gone.code, 200, "{}", gone.text());
    assert_eq!(names(&rig.get(MAPS).await.json()), ["b"]);
}

#[tokio::test]
async fn what_is_begun_is_answered_when_the_door_closes() {
    let rig = Rig::new().await;
    let mut watch = rig.watch(&format!("{MAPS}?watch=true"), "").await;
    assert_eq!(watch.code, 200);
    assert!(rig.close().await < PATIENCE / 4);
    assert_eq!(watch.line().await, None);
}
