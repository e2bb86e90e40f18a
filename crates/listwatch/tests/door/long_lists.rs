//! Long lists, in the forms that are made anew of each object: nobody else waits for them.

use crate::rig::{MAPS, Rig};
use http_body_util::BodyExt;
use meerkat_listwatch::door::DoorConfig;
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBJECTS: usize = 10_000;
const OBJECT_BYTES: usize = 500;
const ATTEMPTS: usize = 10;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const FORMS: [&str; 3] = [TABLE, "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Most of an object is in its metadata, of which a row of a table has all.
fn filled() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let long = "x".repeat(OBJECT_BYTES);
    for nth in 0..OBJECTS {
        let name = format!("m{nth:05}");
        let metadata = json!({
            "name": name, "namespace": "default", "uid": name, "annotations": { "long": long },
        });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        store.put(&format!("/registry/configmaps/default/{name}"), object.to_string());
    }
    store
}

async fn ready() -> Rig {
    let rig = Rig::with(DoorConfig::default(), filled()).await;
    rig.until(&format!("{MAPS}?resourceVersion=0&fieldSelector=metadata.name%3Dm00000"), 200).await;
    rig
}

/// What became of others while a long list was made.
#[derive(Debug)]
struct Others {
    /// How many were answered.
    answered: usize,
    slowest: Duration,
    /// What the list itself took.
    took: Duration,
}

impl Others {
    /// By a share of the whole, so that a slow machine is slow in both.
    fn were_served(&self) -> bool {
        5 <= self.answered && self.slowest < Duration::from_millis(100).max(self.took / 5)
    }
}

async fn ask_beside(rig: &Rig, form: &str) -> Others {
    let path = format!("{MAPS}/m00007");
    let reading = async {
        let began = Instant::now();
        let mut body = rig.send("GET", MAPS, &[("accept", form)], "").await.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.expect("a whole list").into_data().expect("data").len();
        }
        assert!(OBJECTS * OBJECT_BYTES < bytes, "{form}: {bytes}");
        began.elapsed()
    };
    let mut reading = std::pin::pin!(reading);
    let (mut slowest, mut answered) = (Duration::ZERO, 0);
    let took = loop {
        let began = Instant::now();
        let other = rig.get(&path);
        tokio::select! {
            took = &mut reading => break took,
            reply = other => {
                assert_eq!(reply.code, 200);
                slowest = slowest.max(began.elapsed());
                answered += 1;
            }
        }
    };
    Others { answered, slowest, took }
}

/// All on one thread: whatever does not make room for others is seen, and each time; a machine that stands
/// still for a moment does so once or twice.
#[tokio::test]
async fn others_are_answered_while_a_long_list_is_made() {
    let rig = ready().await;
    for form in FORMS {
        let mut seen = Vec::new();
        while !seen.last().is_some_and(Others::were_served) {
            assert!(seen.len() < ATTEMPTS, "{form}: {seen:?}");
            seen.push(ask_beside(&rig, form).await);
        }
    }
}
