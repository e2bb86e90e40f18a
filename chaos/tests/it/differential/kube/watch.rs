//! Watches and leases of kube-apiserver: what its caches are told, and in which words.
//!
//! How events are batched is the server's own affair; what is compared is everything that a cache makes of
//! them: every event with what was there before, every mark, every end.

use std::time::{Duration, Instant};

use meerkat_chaos::differential::request::{Answer, Request};
use meerkat_chaos::driver::Cluster;
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::watch::WatchStream;
use meerkat_chaos::watch::stream::Next;
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, LeaseGrantRequest, TxnRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest,
    WatchResponse,
};
use meerkat_proto::pb::mvcc::Event;
use meerkat_proto::pb::mvcc::event::EventType;

use super::shapes::{self, COMPACT_KEY};
use super::{Rows, WITHIN, broken};

const CONFIGS: &str = "/registry/configmaps/default/";
const EVENTS: &str = "/registry/events/default/";
/// kube-apiserver asks so often while a consistent read waits.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// In seconds; long enough for the objects to come to their lease on a machine that does much else.
const TTL: u64 = 8;
/// No reply of a watch concerns nobody but this one.
const NO_WATCHER: i64 = -1;

/// What a server told, and everything wrong with it in itself.
#[derive(Debug, Default)]
pub struct Told {
    pub said: Vec<String>,
    pub findings: Vec<String>,
}

impl Told {
    fn expect(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.findings.push(what.into());
        }
    }
}

pub async fn hear(cluster: &Cluster, rows: &mut Rows) -> Result<Told, Failure> {
    let endpoint = cluster.members()[0].endpoint();
    let mut told = Told::default();
    changes(endpoint, &mut told).await.map_err(|failure| failure.during("changes"))?;
    consistent_read(endpoint, &mut told).await.map_err(|failure| failure.during("consistent read"))?;
    marks(endpoint, &mut told).await.map_err(|failure| failure.during("marks"))?;
    compactor(endpoint, &mut told).await.map_err(|failure| failure.during("compactor"))?;
    lease(endpoint, &mut told).await.map_err(|failure| failure.during("lease"))?;
    for row in ["Watch", "Watch-cache init", "Consistent reads", "Periodic progress", "Compaction", "Leases"]
    {
        rows.saw(row);
    }
    rows.saw("Errors matched");
    Ok(told)
}

/// One stream with one watcher on it.
struct Heard {
    stream: WatchStream,
    id: i64,
    /// The revision in the reply to its creation.
    created_at: i64,
}

impl Heard {
    async fn open(endpoint: &Endpoint, create: WatchCreateRequest) -> Result<Self, Failure> {
        let stream = endpoint.watch(&[("hasleader", "true")])?;
        stream.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await;
        let mut heard = Self { stream, id: 0, created_at: 0 };
        let reply = heard.next().await?;
        if !reply.created || reply.canceled {
            return Err(Failure::broken(format!("the reply to a creation is {reply:?}")));
        }
        heard.id = reply.watch_id;
        heard.created_at = revision(&reply);
        Ok(heard)
    }

    async fn next(&mut self) -> Result<WatchResponse, Failure> {
        match self.stream.next(WITHIN).await {
            Next::Response(response) => Ok(*response),
            other => Err(Failure::broken(format!("instead of a response: {other:?}"))),
        }
    }

    /// So many events; whatever else is said meanwhile is an error.
    async fn events(&mut self, number: usize) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        while events.len() < number {
            let response = self.next().await?;
            if response.events.is_empty() && !response.canceled && !response.created {
                continue; // A mark.
            }
            if response.events.is_empty() || response.watch_id != self.id {
                return Err(Failure::broken(format!("instead of events: {response:?}")));
            }
            events.extend(response.events);
        }
        Ok(events)
    }
}

fn revision(response: &WatchResponse) -> i64 {
    response.header.as_ref().map_or(0, |header| header.revision)
}

/// A write that must be taken; returns its revision.
async fn write(endpoint: &Endpoint, txn: TxnRequest) -> Result<i64, Failure> {
    match Request::Txn(txn).send(endpoint).await {
        Answer::Txn(done) if done.succeeded => Ok(done.header.map_or(0, |header| header.revision)),
        other => Err(Failure::broken(format!(
            "a write was answered {}",
            meerkat_chaos::differential::engine::shown(&other)
        ))),
    }
}

/// A cache is filled from a list and told what comes after: events with what was there before.
async fn changes(endpoint: &Endpoint, told: &mut Told) -> Result<(), Failure> {
    let (one, two) = (format!("{CONFIGS}one"), format!("{CONFIGS}two"));
    let first = write(endpoint, shapes::create(&one, "1", 0)).await?;
    let list = endpoint.range(shapes::page(CONFIGS, None, 10_000, 0), WITHIN).await.map_err(broken)?;
    let from = list.header.map_or(0, |header| header.revision);
    let mut heard = Heard::open(endpoint, shapes::watch(CONFIGS, from + 1)).await?;
    let second = write(endpoint, shapes::update(&one, "2", 0, first)).await?;
    write(endpoint, shapes::create(&two, vec![b'y'; 1_200_000], 0)).await?;
    // Both the large object and what was before it.
    let large = from + 2;
    let third = write(endpoint, shapes::update(&two, vec![b'z'; 1_200_000], 0, large)).await?;
    write(endpoint, shapes::delete(&one, second, false)).await?;
    write(endpoint, shapes::delete(&two, third, false)).await?;
    let events = heard.events(5).await?;
    let had: Vec<Option<i64>> =
        events.iter().map(|event| event.prev_kv.as_ref().map(|kv| kv.mod_revision)).collect();
    told.expect(
        had == [Some(first), None, Some(large), Some(second), Some(third)],
        format!("an update or a deletion without what was there before: {had:?}"),
    );
    let bare = |event: &&Event| {
        let kv = event.kv.as_ref().expect("an event has a key");
        event.r#type() == EventType::Delete
            && kv.value.is_empty()
            && kv.create_revision == 0
            && kv.version == 0
    };
    told.expect(events.iter().filter(bare).count() == 2, "a deletion is its key and its revision");
    told.said.push(format!("created {} {}", heard.id, heard.created_at));
    told.said.extend(events.iter().map(shown));
    // Another cache, that begins in the past.
    let mut late = Heard::open(endpoint, shapes::watch(CONFIGS, from + 1)).await?;
    told.expect(late.events(5).await? == events, "a cache that comes later is told something else");
    Ok(())
}

/// Values may be large: what they are is seen by their length and their ends.
fn shown(event: &Event) -> String {
    let kv = |kv: &meerkat_proto::pb::mvcc::KeyValue| {
        let (head, tail) = (kv.value.first(), kv.value.last());
        format!(
            "{:?} {}/{}/{} lease {} {:?}..{:?} of {}",
            kv.key,
            kv.create_revision,
            kv.mod_revision,
            kv.version,
            kv.lease != 0,
            head,
            tail,
            kv.value.len()
        )
    };
    format!("{:?} {:?} was {:?}", event.r#type(), event.kv.as_ref().map(kv), event.prev_kv.as_ref().map(kv))
}

/// The revision as of now, and then marks until the cache has reached it, with a write in between.
async fn consistent_read(endpoint: &Endpoint, told: &mut Told) -> Result<(), Failure> {
    let mut heard = Heard::open(endpoint, shapes::watch(CONFIGS, 0)).await?;
    let key = format!("{CONFIGS}seen");
    write(endpoint, shapes::create(&key, "1", 0)).await?;
    let now = endpoint.range(shapes::page(CONFIGS, None, 1, 0), WITHIN).await.map_err(broken)?;
    let now = now.header.map_or(0, |header| header.revision);
    let patience = Patience::of(format!("a mark at {now}"), WITHIN);
    let (mut seen, mut mark) = (0, 0);
    while mark < now {
        patience.lasts(format_args!("the last is {mark}"))?;
        let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
        heard.stream.send(WatchRequest { request_union: Some(progress) }).await;
        while let Next::Response(response) = heard.stream.next(ASK_AGAIN).await {
            seen = response
                .events
                .iter()
                .filter_map(|event| event.kv.as_ref())
                .fold(seen, |_, kv| kv.mod_revision);
            if response.events.is_empty() {
                told.expect(
                    response.watch_id == NO_WATCHER,
                    format!("a mark that was asked for: {response:?}"),
                );
                mark = revision(&response);
                break;
            }
        }
    }
    told.expect(seen == now, format!("a mark at {mark} before the event at {now}: seen {seen}"));
    told.expect(mark == now, format!("a mark at {mark} though nothing is newer than {now}"));
    let took = patience.came()?;
    println!("a cache knew after {took:?} that it had reached revision {now}");
    Ok(())
}

/// Without being asked: of the watcher itself, at a revision that a list has shown.
async fn marks(endpoint: &Endpoint, told: &mut Told) -> Result<(), Failure> {
    let mut heard = Heard::open(endpoint, shapes::watch("/registry/nothing/", 0)).await?;
    let mark = heard.next().await?;
    told.expect(mark.watch_id == heard.id && mark.events.is_empty(), format!("a periodic mark: {mark:?}"));
    told.expect(revision(&mark) == heard.created_at, format!("a mark not as of now: {mark:?}"));
    Ok(())
}

/// Every server watches whose turn it was; one that comes too late for its history is told.
async fn compactor(endpoint: &Endpoint, told: &mut Told) -> Result<(), Failure> {
    let turns = endpoint.range(shapes::get(COMPACT_KEY, 0), WITHIN).await.map_err(broken)?;
    let turns = turns.kvs().first().map_or(0, |kv| kv.version);
    let mut heard = Heard::open(endpoint, shapes::watch_key(COMPACT_KEY)).await?;
    let compacted = heard.created_at;
    write(endpoint, shapes::compact_turn(turns, compacted)).await?;
    let events = heard.events(1).await?;
    told.said.extend(events.iter().map(shown));
    let compact = CompactionRequest { revision: compacted, physical: false };
    endpoint.compact(compact, WITHIN).await.map_err(broken)?;
    let mut late = Heard::open(endpoint, shapes::watch(CONFIGS, compacted - 1)).await?;
    let end = late.next().await?;
    told.expect(
        end.canceled && end.compact_revision == compacted && end.events.is_empty(),
        format!("a watch from before {compacted} ends with {end:?}"),
    );
    told.said.push(format!("{} {} {:?}", revision(&end), end.compact_revision, end.cancel_reason));
    Ok(())
}

/// An object of kind Event: it goes by itself, and its watchers are told what it was.
async fn lease(endpoint: &Endpoint, told: &mut Told) -> Result<(), Failure> {
    let began = Instant::now();
    let grant = LeaseGrantRequest { ttl: TTL as i64, id: 0 };
    let grant = endpoint.lease_grant(grant, WITHIN).await.map_err(broken)?;
    told.said.push(format!("lease of {} s {:?}", grant.ttl, grant.error));
    let mut heard = Heard::open(endpoint, shapes::watch(EVENTS, 0)).await?;
    let keys = ["one", "two"].map(|name| format!("{EVENTS}{name}"));
    // One lease for many objects.
    for key in &keys {
        write(endpoint, shapes::create(key, "hello", grant.id)).await?;
    }
    let first = heard.created_at + 1;
    write(endpoint, shapes::update(&keys[0], "again", grant.id, first)).await?;
    let events = heard.events(5).await?;
    told.expect(Duration::from_secs(TTL) <= began.elapsed(), "a lease ended before its time");
    let ends = &events[3..];
    let revisions = ends.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision);
    told.expect(revisions.clone().all(|at| at == first + 3), "the objects of a lease go in one revision");
    told.expect(
        ends.iter().all(|event| event.prev_kv.as_ref().is_some_and(|kv| kv.lease == grant.id)),
        "an object whose lease ended is told of with what it was",
    );
    told.said.extend(events.iter().map(shown));
    Ok(())
}
