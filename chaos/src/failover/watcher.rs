//! One watch of a client library, and the record of what it told its application.
//!
//! The record is one connection long, however often the library moved: a library that resumes has to
//! look to its application as if nothing had happened, and is judged as such.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_client::watch::{Changes, Watch, WatchStatus};
use meerkat_client::{Client, Event, EventKind, KeyValue, Keys, Revision};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::stage::Stage;
use crate::Failure;
use crate::watch::{Kind, Reply, Seen, Session, Stored, ValuePrint, WatchLog, WatchSpec};

/// What a watcher asks for and how it reads.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Names it in findings.
    pub name: String,
    /// What it asks for.
    pub watch: WatchSpec,
    /// Rest after each revision: a slow reader if not zero.
    pub rest: Duration,
    /// Revisions the library may buffer for it.
    pub buffer: Option<usize>,
}

impl Spec {
    /// A quick reader.
    pub fn quick(name: impl Into<String>, watch: WatchSpec) -> Self {
        Self { name: name.into(), watch, ..Self::default() }
    }

    /// A slow one, with little room.
    pub fn slow(name: impl Into<String>, watch: WatchSpec) -> Self {
        Self { rest: Duration::from_millis(25), buffer: Some(8), ..Self::quick(name, watch) }
    }

    /// Whether it hears of every write at once, so that its silences tell something.
    pub fn tells_time(&self) -> bool {
        let whole = WatchSpec::of_all();
        let all = (&self.watch.key, &self.watch.range_end) == (&whole.key, &whole.range_end);
        all && self.rest.is_zero() && !self.watch.no_put
    }
}

/// What a watcher was told.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// In the form that the checker reads.
    pub log: WatchLog,
    /// The first revision it is owed.
    pub from: i64,
    /// How often the library went on elsewhere, if it says.
    pub resumes: u64,
    /// Why it ended before it was told to.
    pub ended: Option<String>,
}

/// What a watcher and its owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The last revision told.
    pub(super) last: AtomicI64,
    /// It will be told nothing more.
    pub(super) over: AtomicBool,
    hurry: AtomicBool,
    stop: Notify,
}

impl Shared {
    /// Rests as a slow reader does, unless it is late.
    pub(super) async fn rest(&self, rest: Duration) {
        if !rest.is_zero() && !self.hurry.load(Ordering::Relaxed) {
            tokio::time::sleep(rest).await;
        }
    }

    /// Done when the owner wants the record.
    pub(super) async fn stopped(&self) {
        self.stop.notified().await;
    }
}

/// A watcher at work.
#[derive(Debug)]
pub struct Watcher {
    spec: Spec,
    line: usize,
    status: Option<watch::Receiver<WatchStatus>>,
    shared: Arc<Shared>,
    task: JoinHandle<Record>,
}

impl Watcher {
    /// Starts a watch of the library. Times are counted from `began`.
    pub fn start(client: &Client, line: usize, spec: Spec, began: Instant) -> Self {
        let asked = &spec.watch;
        let mut builder = client.watch(keys(asked));
        if 0 < asked.start_revision {
            builder = builder.from(Revision::new(asked.start_revision));
        }
        if asked.prev_kv {
            builder = builder.previous();
        }
        if asked.progress_notify {
            builder = builder.marks();
        }
        if asked.no_delete {
            builder = builder.only_puts();
        }
        if asked.no_put {
            builder = builder.only_deletes();
        }
        if let Some(buffer) = spec.buffer {
            builder = builder.buffer(buffer);
        }
        let watch = builder.start();
        let status = Some(watch.monitor());
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(follow(watch, spec.clone(), began, shared.clone()));
        Self { spec, line, status, shared, task }
    }

    /// A watcher of another library, which the caller follows.
    #[cfg(feature = "etcd-client")]
    pub(super) fn of_another(line: usize, spec: Spec, shared: Arc<Shared>, task: JoinHandle<Record>) -> Self {
        Self { spec, line, status: None, shared, task }
    }

    /// What it asked for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The member it hangs on now, if that can be known.
    pub fn hangs_on(&self, stage: &mut Stage) -> Option<usize> {
        match &self.status {
            Some(status) => {
                let endpoint = status.borrow().endpoint.clone()?;
                stage.member_at(self.line, &endpoint)
            }
            None => stage.busiest(self.line),
        }
    }

    /// The last revision it was told of.
    pub fn last(&self) -> i64 {
        self.shared.last.load(Ordering::Relaxed)
    }

    /// Whether it will be told nothing more.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed)
    }

    /// Lets a slow reader catch up.
    pub fn hurry(&self) {
        self.shared.hurry.store(true, Ordering::Relaxed);
    }

    /// Ends it and takes the record.
    pub async fn finish(self) -> Result<Record, Failure> {
        self.shared.stop.notify_one();
        let mut record =
            self.task.await.map_err(|error| Failure::harness(format!("a watcher ended: {error}")))?;
        record.resumes = self.status.map_or(record.resumes, |status| status.borrow().resumes);
        Ok(record)
    }
}

async fn follow(mut watch: Watch, spec: Spec, began: Instant, shared: Arc<Shared>) -> Record {
    let mut replies = Vec::new();
    let mut ended = None;
    let mut from = spec.watch.start_revision;
    if from == 0 {
        tokio::select! {
            () = watch.live() => from = watch.status().next.map_or(0, Revision::get),
            () = shared.stopped() => return record(&spec, 0, Vec::new(), None),
        }
    }
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            () = shared.stopped() => break,
        };
        match next {
            Some(Ok(changes)) => {
                let reply = reply(changes, spec.watch.prev_kv, began.elapsed());
                // What was buffered before the status was read is owed too.
                from = from.min(reply.events.first().map_or(from, Seen::revision));
                shared.last.store(reply.revision, Ordering::Relaxed);
                replies.push(reply);
                shared.rest(spec.rest).await;
            }
            Some(Err(error)) => ended = Some(error.to_string()),
            None => {
                shared.over.store(true, Ordering::Relaxed);
                ended = ended.or_else(|| Some("it ended without a word".to_owned()));
                break;
            }
        }
    }
    record(&spec, from, replies, ended)
}

/// The record as one connection: created, told, and perhaps ended.
pub(super) fn record(spec: &Spec, from: i64, told: Vec<Reply>, ended: Option<String>) -> Record {
    let created = Reply { created: true, revision: (from - 1).max(0), ..Reply::default() };
    let end = ended.iter().map(|why| Reply {
        canceled: true,
        cancel_reason: why.clone(),
        at: told.last().map_or(Duration::ZERO, |reply| reply.at),
        ..Reply::default()
    });
    let end: Vec<Reply> = end.collect();
    let mut replies = vec![created];
    replies.extend(told);
    replies.extend(end);
    let mut log = WatchLog::new(spec.name.clone(), spec.watch.clone());
    log.sessions.push(Session { asked: spec.watch.start_revision, replies, ..Session::default() });
    Record { log, from, resumes: 0, ended }
}

fn keys(spec: &WatchSpec) -> Keys {
    match spec.range_end.as_ref() {
        [] => Keys::one(spec.key.clone()),
        [0] if spec.key.as_ref() == b"\0" => Keys::all(),
        [0] => Keys::from(spec.key.clone()),
        _ => Keys::span(spec.key.clone(), spec.range_end.clone()),
    }
}

fn reply(changes: Changes, previous: bool, at: Duration) -> Reply {
    let events = changes.events.iter().map(|event| seen(event, previous)).collect();
    Reply { at, revision: changes.revision.get(), events, ..Reply::default() }
}

fn seen(event: &Event, previous: bool) -> Seen {
    let prev = event.previous.as_ref().filter(|_| previous).map(stored);
    match &event.kind {
        EventKind::Put(kv) => {
            Seen { kind: Kind::Put, key: Bytes::copy_from_slice(&kv.key), now: stored(kv), prev }
        }
        EventKind::Delete { key, modified } => {
            let now = Stored { mod_revision: modified.get(), ..Stored::default() };
            Seen { kind: Kind::Delete, key: Bytes::copy_from_slice(key), now, prev }
        }
    }
}

fn stored(kv: &KeyValue) -> Stored {
    Stored {
        create_revision: kv.created.get(),
        mod_revision: kv.modified.get(),
        version: kv.version,
        lease: kv.lease.map_or(0, |lease| lease.get()),
        value: ValuePrint::of(&kv.value),
    }
}
