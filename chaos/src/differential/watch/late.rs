//! Watchers that come late to a long history: longer than any server sends in one go.
//!
//! Etcd sends at most a thousand revisions in a response and reads history in passes; Meerkat has
//! bounds of its own. Wherever they cut, a late watcher must be given the same events, go over to
//! what happens now without a gap, and never see a revision in two parts.

use std::time::Duration;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, PutRequest, TxnRequest, WatchCreateRequest};
use meerkat_proto::pb::mvcc::Event;

use super::transcript::{Life, Transcript};
use crate::Failure;
use crate::differential::compare::{HiddenValues, difference};
use crate::differential::engine::shown;
use crate::differential::members::Members;
use crate::differential::request::{Request, put_op};
use crate::driver::{ClusterSpec, Product};

/// More than a thousand.
const REVISIONS: usize = 1_300;
/// Every so many revisions one has many large values.
const LARGE_EVERY: usize = 100;
const LARGE_OPS: usize = 100;
const LARGE_BYTES: usize = 8_000;
/// Revisions written while the watchers are on their way.
const MEANWHILE: usize = 40;
const QUIET: Duration = Duration::from_millis(300);

/// Runs it on one member of each.
pub async fn run(product: Product) -> Result<(), Failure> {
    let etcd = Members::start(&ClusterSpec::new(Product::Etcd, 1)).await?;
    let other = Members::start(&ClusterSpec::new(product, 1)).await?;
    write(&etcd, &other, 0..REVISIONS).await?;
    let revision = etcd.level(0).await?;
    let requests = requests(revision);
    let (one, two) = (open(&etcd, &requests).await?, open(&other, &requests).await?);
    write(&etcd, &other, REVISIONS..REVISIONS + MEANWHILE).await?;
    let last = etcd.level(0).await?;
    let (mut one, mut two) = (one.hear(last).await?, two.hear(last).await?);
    let events: usize = one.lives.iter().map(Vec::len).sum();
    println!("watch late: {} watchers, {last} revisions, {events} events", requests.len());
    let mut findings = std::mem::take(&mut one.violations);
    findings.append(&mut two.violations);
    for (index, request) in requests.iter().enumerate() {
        if one.lives[index] != two.lives[index] {
            let counts = (one.lives[index].len(), two.lives[index].len());
            findings.push(format!("events differ, {counts:?} of them: {request:?}"));
        }
    }
    Failure::from_findings("late watchers are given the same", findings)?;
    etcd.cluster.finish()?;
    other.cluster.finish()
}

/// All kinds of late watchers, the last event of each being the same last put.
fn requests(revision: i64) -> Vec<WatchCreateRequest> {
    let starts = [1, 2, revision / 2, revision - 1_001, revision - 1_000, revision - 999, revision];
    let mut requests = Vec::new();
    for start_revision in starts {
        for (prev_kv, fragment) in [(false, false), (true, false), (true, true)] {
            let filters = if fragment { vec![1] } else { Vec::new() };
            requests.push(WatchCreateRequest {
                range_end: Bytes::from_static(b"\0"),
                start_revision,
                prev_kv,
                fragment,
                filters,
                ..Default::default()
            });
        }
    }
    requests
}

struct Open {
    stream: super::wire::WatchStream,
    watchers: i64,
}

struct Heard {
    lives: Vec<Vec<Event>>,
    violations: Vec<String>,
}

async fn open(side: &Members, requests: &[WatchCreateRequest]) -> Result<Open, Failure> {
    let stream = side.watch(0, false);
    for request in requests {
        stream.send(RequestUnion::CreateRequest(request.clone())).await?;
    }
    stream.await_heard("replies", |heard| requests.len() <= heard.replies).await?;
    Ok(Open { stream, watchers: i64::try_from(requests.len()).unwrap_or(i64::MAX) })
}

impl Open {
    /// Everything, up to the revision of the last put and nothing after it.
    async fn hear(self, last: i64) -> Result<Heard, Failure> {
        let reached =
            |heard: &Transcript, id| heard.lives(id).first().is_some_and(|life| last <= life.last_revision());
        let all = |heard: &Transcript| (0..self.watchers).all(|id| reached(heard, id));
        self.stream.await_heard("everything to late watchers", all).await?;
        tokio::time::sleep(QUIET).await;
        Ok(self.stream.look(|heard| Heard {
            lives: (0..self.watchers).map(|id| events(heard.lives(id).first())).collect(),
            violations: heard.violations().to_vec(),
        }))
    }
}

fn events(life: Option<&Life>) -> Vec<Event> {
    life.map(|life| life.events.clone()).unwrap_or_default()
}

/// The same writes to both, the last of them a put.
async fn write(etcd: &Members, other: &Members, numbers: std::ops::Range<usize>) -> Result<(), Failure> {
    let last = numbers.end - 1;
    for number in numbers {
        let request = match number {
            _ if number % LARGE_EVERY == LARGE_EVERY / 2 => large(number),
            _ if number % 7 == 3 && number != last => delete(number - 1),
            _ => Request::Put(put(number % 50, vec![b'v'; 20])),
        };
        let (one, two) = tokio::join!(etcd.change(0, &request), other.change(0, &request));
        if let Some(what) = difference(&request, &one, &two, &HiddenValues::new()) {
            return Err(Failure::broken(format!("{what}: {} and {}", shown(&one), shown(&two))));
        }
    }
    Ok(())
}

fn put(number: usize, value: Vec<u8>) -> PutRequest {
    PutRequest {
        key: format!("late/{number:03}").into_bytes().into(),
        value: value.into(),
        ..Default::default()
    }
}

fn delete(number: usize) -> Request {
    Request::Delete(DeleteRangeRequest { key: put(number % 50, Vec::new()).key, ..Default::default() })
}

fn large(seed: usize) -> Request {
    let op = |number: usize| {
        let value = vec![b'a' + (seed / LARGE_EVERY % 26) as u8; LARGE_BYTES];
        put_op(put(100 + number, value))
    };
    Request::Txn(TxnRequest { success: (0..LARGE_OPS).map(op).collect(), ..Default::default() })
}
