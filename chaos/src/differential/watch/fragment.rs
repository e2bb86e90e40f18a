//! A revision larger than a response may be: cut for those who asked for it, whole for the others.
//!
//! Small keys become a large revision when all of them are deleted at once and their previous values
//! are wanted. Both clusters run with a small limit of request bytes, which is also, with etcd's
//! overhead added, the size at which responses are cut.

use std::time::Duration;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, PutRequest, WatchCreateRequest};
use meerkat_proto::pb::mvcc::Event;

use super::transcript::{Life, Transcript};
use super::wire::WatchStream;
use crate::Failure;
use crate::differential::engine::shown;
use crate::differential::members::Members;
use crate::differential::request::{Answer, Request};
use crate::driver::{ClusterSpec, Product};

const LIMIT_FLAG: &str = "--max-request-bytes=65536";
/// The limit of the flag, and what etcd adds to it.
const RESPONSE_BYTES_MAX: usize = 65_536 + 512 * 1024;
const KEYS: usize = 40;
const VALUE_BYTES: usize = 40_000;
const _: () = assert!(2 * RESPONSE_BYTES_MAX < KEYS * VALUE_BYTES);
const PREFIX: &[u8] = b"large/";
const PREFIX_END: &[u8] = b"large0";
/// Nothing more than what is owed may come after it.
const QUIET: Duration = Duration::from_millis(300);

/// Runs it on one member of each.
pub async fn run(product: Product) -> Result<(), Failure> {
    let etcd = start(Product::Etcd).await?;
    let other = start(product).await?;
    let (mut one, mut two) = (hear(&etcd).await?, hear(&other).await?);
    println!("watch fragments: etcd {one:?}, {product:?} {two:?}");
    let mut findings = one.findings("etcd");
    findings.extend(two.findings("other"));
    for (live, other) in [(&mut one.live, &mut two.live), (&mut one.whole, &mut two.whole)] {
        if live.take_events() != other.take_events() {
            findings.push("live watchers were given different events".to_owned());
        }
    }
    if one.late.take_events() != two.late.take_events() {
        findings.push("late watchers were given different events".to_owned());
    }
    if product == Product::Meerkat && two.late.pieces == 0 {
        // Etcd cuts here too, unless the events are ready before the reply to the creation is sent.
        findings.push("other: a late watcher was given the revision whole".to_owned());
    }
    Failure::from_findings("a large revision is cut for those who asked", findings)?;
    etcd.cluster.finish()?;
    other.cluster.finish()
}

async fn start(product: Product) -> Result<Members, Failure> {
    Members::start(&ClusterSpec::new(product, 1).with_flags(&[LIMIT_FLAG])).await
}

/// What three watchers of the same large revision heard.
struct Heard {
    /// Asked for pieces before it happened.
    live: Part,
    /// Did not ask.
    whole: Part,
    /// Asked for pieces after it happened.
    late: Part,
    violations: Vec<String>,
}

struct Part {
    events: Vec<Event>,
    responses: usize,
    pieces: usize,
    bytes_max: usize,
}

impl Part {
    fn of(life: Option<&Life>) -> Self {
        let life = life.cloned().unwrap_or_default();
        Self {
            events: life.events,
            responses: life.responses,
            pieces: life.pieces,
            bytes_max: life.response_bytes_max,
        }
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, part) in [("live", &self.live), ("whole", &self.whole), ("late", &self.late)] {
            let (count, cuts, bytes) = (part.events.len(), part.pieces, part.bytes_max);
            write!(f, "{name}: {count} events, {cuts} cuts, largest {bytes} bytes; ")?;
        }
        Ok(())
    }
}

impl Heard {
    fn findings(&self, whose: &str) -> Vec<String> {
        let mut findings = self.violations.clone();
        let (live, whole, late) = (&self.live, &self.whole, &self.late);
        if [live, whole, late].iter().any(|part| part.events.len() != KEYS || part.responses != 1) {
            findings.push("not every event in one response".to_owned());
        }
        if live.pieces < 2 || RESPONSE_BYTES_MAX <= live.bytes_max {
            findings.push(format!("cut {} times, the largest {} bytes", live.pieces, live.bytes_max));
        }
        if whole.pieces != 0 || whole.bytes_max < KEYS * VALUE_BYTES {
            findings.push("cut for a watcher that did not ask for it".to_owned());
        }
        findings.into_iter().map(|what| format!("{whose}: {what}")).collect()
    }
}

async fn hear(side: &Members) -> Result<Heard, Failure> {
    for number in 0..KEYS {
        let key = [PREFIX, format!("{number:03}").as_bytes()].concat();
        let put = PutRequest { key: key.into(), value: vec![b'v'; VALUE_BYTES].into(), ..Default::default() };
        expect(side.change(0, &Request::Put(put)).await)?;
    }
    let live = watch(side, 0, true).await?;
    let whole = watch(side, 0, false).await?;
    let delete = DeleteRangeRequest {
        key: Bytes::from_static(PREFIX),
        range_end: Bytes::from_static(PREFIX_END),
        prev_kv: false,
    };
    let revision = expect(side.change(0, &Request::Delete(delete)).await)?;
    let late = watch(side, revision, true).await?;
    let complete = |heard: &Transcript| heard.lives(0).first().is_some_and(|life| KEYS <= life.events.len());
    let mut violations = Vec::new();
    for stream in [&live, &whole, &late] {
        stream.await_heard("the whole revision", complete).await?;
    }
    tokio::time::sleep(QUIET).await;
    for stream in [&live, &whole, &late] {
        violations.extend(stream.look(|heard| heard.violations().to_vec()));
    }
    let part = |stream: &WatchStream| stream.look(|heard| Part::of(heard.lives(0).first()));
    Ok(Heard { live: part(&live), whole: part(&whole), late: part(&late), violations })
}

async fn watch(side: &Members, start_revision: i64, fragment: bool) -> Result<WatchStream, Failure> {
    let stream = side.watch(0, false);
    let request = WatchCreateRequest {
        key: Bytes::from_static(PREFIX),
        range_end: Bytes::from_static(PREFIX_END),
        start_revision,
        prev_kv: true,
        fragment,
        ..Default::default()
    };
    stream.send(RequestUnion::CreateRequest(request)).await?;
    stream.await_heard("a reply", |heard| 0 < heard.replies).await?;
    Ok(stream)
}

fn expect(answer: Answer) -> Result<i64, Failure> {
    match answer.header() {
        Some(header) => Ok(header.revision),
        None => Err(Failure::broken(format!("refused: {}", shown(&answer)))),
    }
}
