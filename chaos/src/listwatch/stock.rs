//! Objects put into the store by the hundred through the etcd door, and read back through it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use meerkat_proto::pb::etcdserver::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op};
use serde_json::{Value, json};

use super::truth::CONFIG_MAPS;
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::outcome::describe;

/// Under etcd's limit of 128 operations.
const OBJECTS_PER_TXN: usize = 100;
const TXNS_IN_FLIGHT: usize = 8;
const ATTEMPTS_MAX: usize = 10;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const PAGE: i64 = 10_000;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// An object to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub namespace: String,
    pub name: String,
    pub labels: Labels,
}

/// One row as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `namespace/name`.
    pub name: String,
    pub rv: u64,
    pub labels: Labels,
}

impl Item {
    pub fn key(&self) -> Bytes {
        format!("{CONFIG_MAPS}{}/{}", self.namespace, self.name).into()
    }

    /// As the list-watch door itself would store it.
    pub fn value(&self, mark: u64) -> Bytes {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": format!("00000000-0000-4000-8000-{mark:012x}"),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": self.labels,
            },
            "data": {"mark": mark.to_string()},
        });
        object.to_string().into()
    }
}

/// Stores all of them, a hundred at a revision.
pub async fn load(endpoint: &Endpoint, count: usize, item: impl Fn(usize) -> Item) -> Result<(), Failure> {
    let item = &item;
    let mut loading = stream::iter((0..count).step_by(OBJECTS_PER_TXN))
        .map(|first| {
            let put = |number: usize| {
                let item = item(number);
                let put =
                    PutRequest { key: item.key(), value: item.value(number as u64), ..Default::default() };
                RequestOp { request: Some(request_op::Request::RequestPut(put)) }
            };
            let success = (first..count.min(first + OBJECTS_PER_TXN)).map(put).collect();
            put_all(endpoint, TxnRequest { success, ..Default::default() })
        })
        .buffer_unordered(TXNS_IN_FLIGHT);
    while let Some(loaded) = loading.next().await {
        loaded?;
    }
    Ok(())
}

/// Tries again: putting the same value twice does no harm.
async fn put_all(endpoint: &Endpoint, request: TxnRequest) -> Result<(), Failure> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS_MAX {
        match endpoint.txn(request.clone(), ANSWER_WITHIN).await {
            Ok(_) => return Ok(()),
            Err(status) => last = describe(&status),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Failure::broken(format!("objects are refused {ATTEMPTS_MAX} times: {last}")))
}

/// Stores one, at a revision of its own, which is returned.
pub async fn put(endpoint: &Endpoint, item: &Item, mark: u64) -> Result<u64, Failure> {
    let request = PutRequest { key: item.key(), value: item.value(mark), ..Default::default() };
    let answer = endpoint.put(request, ANSWER_WITHIN).await;
    let answer =
        answer.map_err(|status| Failure::broken(format!("a put is refused: {}", describe(&status))))?;
    Ok(revision(answer.header.map(|header| header.revision)))
}

/// All that is below `/registry/configmaps/` and `under` at a revision, in the order of keys.
pub async fn rows(endpoint: &Endpoint, under: &str, at: u64) -> Result<Vec<Row>, Failure> {
    let prefix = format!("{CONFIG_MAPS}{under}");
    let mut end = prefix.clone().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let (mut from, mut rows) = (Bytes::from(prefix), Vec::new());
    loop {
        let request = RangeRequest {
            key: from.clone(),
            range_end: end.clone().into(),
            revision: i64::try_from(at).unwrap_or(i64::MAX),
            limit: PAGE,
            ..Default::default()
        };
        let page = endpoint.range(request, ANSWER_WITHIN).await;
        let page =
            page.map_err(|status| Failure::broken(format!("a range at {at}: {}", describe(&status))))?;
        for kv in page.kvs() {
            let value: Value = serde_json::from_slice(&kv.value)
                .map_err(|error| Failure::broken(format!("no JSON in the store: {error}")))?;
            let labels = labels_of(&value);
            rows.push(Row {
                name: super::truth::name_of(&kv.key, CONFIG_MAPS)?,
                rv: revision(Some(kv.mod_revision)),
                labels,
            });
        }
        match page.kvs().last() {
            Some(last) if page.more => from = [&last.key[..], b"\0"].concat().into(),
            _ => return Ok(rows),
        }
    }
}

/// One object of a list, as it was shown.
pub fn row_of(object: &Value) -> Result<Row, Failure> {
    let text = |name: &str| object["metadata"][name].as_str();
    match (text("namespace"), text("name"), text("resourceVersion").and_then(|rv| rv.parse().ok())) {
        (Some(namespace), Some(name), Some(rv)) => {
            Ok(Row { name: format!("{namespace}/{name}"), rv, labels: labels_of(object) })
        }
        _ => Err(Failure::broken(format!("an item without name or revision: {object}"))),
    }
}

fn labels_of(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn revision(revision: Option<i64>) -> u64 {
    revision.and_then(|revision| u64::try_from(revision).ok()).unwrap_or(0)
}
