//! What clients see while the store is cut off, after it was replaced, and when a part of the door fails.

use crate::rig::{MAPS, Rig, version};
use serde_json::json;

fn changes(after: u64) -> String {
    format!("{MAPS}?watch=true&resourceVersion={after}")
}

#[tokio::test]
async fn a_door_that_is_cut_off_sends_clients_elsewhere_and_takes_them_back() {
    let rig = Rig::new().await;
    let first = version(&rig.make("a", json!({})).await);
    let mut watch = rig.watch(&changes(first), "").await;
    assert_eq!(watch.code, 200);
    rig.store.set_cut_off(true);
    assert_eq!(watch.line().await, None, "it ends, and in order");
    for (path, code) in [
        ("/livez", 200),
        ("/readyz", 503),
        (&*changes(first), 429),
        (MAPS, 503),
        (&*format!("{MAPS}/a"), 503),
        (&*format!("{MAPS}?resourceVersion=0"), 200),
    ] {
        let reply = rig.get(path).await;
        assert_eq!(reply.code, code, "{path}: {}", reply.text());
        assert_eq!(
            reply.headers.contains_key("retry-after"),
            [429, 503].contains(&code) && path != "/readyz",
            "{path}"
        );
    }
    rig.store.set_cut_off(false);
    rig.until("/readyz", 200).await;
    let second = version(&rig.make("b", json!({})).await);
    let mut watch = rig.watch(&changes(first), "").await;
    assert_eq!(watch.brief().await, ("ADDED".to_owned(), "b".to_owned(), second));
}

#[tokio::test]
async fn a_client_of_a_store_that_was_replaced_is_told_to_begin_anew() {
    let rig = Rig::new().await;
    for nth in 0..20 {
        rig.make(&format!("old-{nth}"), json!({})).await;
    }
    let known = version(&rig.get(MAPS).await.json());
    let mut watch = rig.watch(&changes(known), "").await;
    assert_eq!(watch.code, 200);
    assert!(watch.is_silent().await);
    rig.store.replace();
    for _ in 0..20 {
        let reply = rig.get(MAPS).await;
        assert!(reply.code != 200 || reply.json()["items"] == json!([]), "{}", reply.text());
    }
    let event = watch.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.line().await, None);
    // The namespaces that clients take for granted are there again, too.
    rig.until("/api/v1/namespaces/default", 200).await;
    rig.until(MAPS, 200).await;
    let made = version(&rig.make("new", json!({})).await);
    assert!(made < known, "{made} is not below {known}");
    let mut late = rig.watch(&changes(known), "").await;
    assert_eq!(late.event().await["object"]["code"], json!(410), "and not silence for ever");
}

#[tokio::test]
async fn a_kind_whose_cache_fails_is_served_again() {
    let rig = Rig::new().await;
    let first = version(&rig.make("a", json!({})).await);
    let mut watch = rig.watch(&changes(first), "").await;
    assert_eq!(watch.code, 200);
    rig.store.panic_once("/registry/configmaps/");
    assert_eq!(watch.line().await, None);
    rig.until(MAPS, 200).await;
    let second = version(&rig.make("b", json!({})).await);
    let mut watch = rig.watch(&changes(first), "").await;
    assert_eq!(watch.brief().await, ("ADDED".to_owned(), "b".to_owned(), second));
}
