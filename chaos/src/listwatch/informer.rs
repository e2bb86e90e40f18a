//! A client that lists once and then watches for ever, as informers do, and writes down what it is told.
//!
//! A stream that ends is resumed after the last revision it knows, from the next server in turn. It
//! lists again only when it is told that this revision has expired.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::http::{self, Lines, Next};
use crate::Failure;
use crate::checker::list_watch::{Note, Record, Selector, Told, Type, print};

/// The resource that is followed, in all namespaces.
const PATH: &str = "/api/v1/configmaps";
const INITIAL_END: &str = "k8s.io/initial-events-end";
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// A server that says nothing at all for so long is left: bookmarks do not come every second.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// What an informer does.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    /// Tried in turn.
    pub servers: Vec<String>,
    /// The one to begin with.
    pub first: usize,
    pub selector: Selector,
    /// Has its list sent as initial events of the watch.
    pub initial_events: bool,
    /// How long one of its watches lasts, if it says so. A bookmark comes shortly before the end.
    pub lasts: Option<Duration>,
}

/// An informer at work. Ends when dropped.
#[derive(Debug)]
pub struct Informer {
    spec: Spec,
    shared: Arc<Shared>,
    task: JoinHandle<Result<(), Failure>>,
}

#[derive(Debug, Default)]
struct Shared {
    notes: Mutex<Vec<Note>>,
    position: AtomicU64,
    resumes: AtomicU64,
    listed: AtomicBool,
}

impl Informer {
    pub fn start(spec: Spec) -> Informer {
        let shared = Arc::new(Shared::default());
        let own = Follow { spec: spec.clone(), shared: shared.clone(), turn: spec.first };
        Informer { spec, shared, task: tokio::spawn(own.run()) }
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The last revision that it knows of.
    pub fn position(&self) -> u64 {
        self.shared.position.load(Ordering::Acquire)
    }

    pub fn is_level(&self) -> bool {
        self.shared.listed.load(Ordering::Acquire)
    }

    pub fn resumes(&self) -> u64 {
        self.shared.resumes.load(Ordering::Relaxed)
    }

    /// Ends it; an error if it had given up by itself.
    pub async fn finish(mut self) -> Result<Record, Failure> {
        if self.task.is_finished() {
            let ended = (&mut self.task).await;
            ended.map_err(|error| Failure::harness(format!("an informer's task ended: {error}")))??;
        }
        self.task.abort();
        let notes = std::mem::take(&mut *self.shared.notes.lock());
        Ok(Record { name: self.spec.name.clone(), selector: self.spec.selector.clone(), notes })
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Follow {
    spec: Spec,
    shared: Arc<Shared>,
    turn: usize,
}

/// What ended a watch.
enum Ended {
    Stream,
    Expired,
}

impl Follow {
    async fn run(mut self) -> Result<(), Failure> {
        loop {
            let begun = match self.spec.initial_events {
                true => self.watch_list().await?,
                false => self.list().await?.map(|after| (after, None)),
            };
            let Some((mut after, mut lines)) = begun else {
                self.move_on().await;
                continue;
            };
            self.shared.listed.store(true, Ordering::Release);
            loop {
                let opened = match lines.take() {
                    Some(lines) => Some(lines),
                    None => self.resume(after).await,
                };
                if let Some(mut lines) = opened {
                    match self.follow(&mut lines, &mut after).await? {
                        Ended::Stream => {}
                        Ended::Expired => break,
                    }
                }
                self.move_on().await;
            }
        }
    }

    async fn move_on(&mut self) {
        self.turn += 1;
        tokio::time::sleep(RETRY_AFTER).await;
    }

    fn server(&self) -> &str {
        &self.spec.servers[self.turn % self.spec.servers.len()]
    }

    fn note(&self, note: Note) {
        self.shared.notes.lock().push(note);
    }

    fn reach(&self, rv: u64) {
        self.shared.position.store(rv, Ordering::Release);
    }

    fn selector(&self) -> String {
        let chosen = self.spec.selector.as_ref();
        chosen.map_or_else(String::new, |(key, value)| format!("&labelSelector={key}%3D{value}"))
    }

    /// What all its watches ask for.
    fn watch(&self) -> String {
        let lasts =
            self.spec.lasts.map_or_else(String::new, |lasts| format!("&timeoutSeconds={}", lasts.as_secs()));
        format!("watch=1&allowWatchBookmarks=true{lasts}{}", self.selector())
    }

    /// A list; none if the server is not there or not ready.
    async fn list(&self) -> Result<Option<u64>, Failure> {
        let path = format!("{PATH}?limit=0{}", self.selector());
        let Ok(answered) = http::ask(self.server(), "GET", &path, None).await else { return Ok(None) };
        if answered.status != 200 {
            return Ok(None);
        }
        let list = answered.json()?;
        let rv = rv_of(&list)?;
        let mut objects = BTreeMap::new();
        for item in list["items"].as_array().into_iter().flatten() {
            objects.insert(name_of(item)?, (rv_of(item)?, print(item)));
        }
        self.note(Note::Listed { rv, objects });
        self.reach(rv);
        Ok(Some(rv))
    }

    /// A watch that begins with what is there; none if it ends before all of that was told.
    async fn watch_list(&self) -> Result<Option<(u64, Option<Lines>)>, Failure> {
        let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let path = format!("{PATH}?{initial}&{}", self.watch());
        let Ok(mut lines) = Lines::begin(self.server(), &path).await else { return Ok(None) };
        let mut objects = BTreeMap::new();
        loop {
            let Some(event) = self.next(&mut lines).await? else { return Ok(None) };
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ADDED") => {
                    objects.insert(name_of(object)?, (rv_of(object)?, print(object)));
                }
                Some("BOOKMARK") if object["metadata"]["annotations"][INITIAL_END] == "true" => {
                    let rv = rv_of(object)?;
                    self.note(Note::Listed { rv, objects });
                    self.reach(rv);
                    return Ok(Some((rv, Some(lines))));
                }
                Some("ERROR") => return Ok(None),
                _ => return Err(Failure::broken(format!("among initial events: {event}"))),
            }
        }
    }

    async fn resume(&self, after: u64) -> Option<Lines> {
        let path = format!("{PATH}?resourceVersion={after}&{}", self.watch());
        let lines = Lines::begin(self.server(), &path).await.ok()?;
        self.note(Note::Resumed { after });
        self.shared.resumes.fetch_add(1, Ordering::Relaxed);
        Some(lines)
    }

    async fn follow(&self, lines: &mut Lines, after: &mut u64) -> Result<Ended, Failure> {
        while let Some(event) = self.next(lines).await? {
            let object = &event["object"];
            let kind = match event["type"].as_str() {
                Some("ADDED") => Type::Added,
                Some("MODIFIED") => Type::Modified,
                Some("DELETED") => Type::Deleted,
                Some("BOOKMARK") => {
                    let rv = rv_of(object)?;
                    self.note(Note::Bookmark { rv });
                    *after = rv;
                    self.reach(rv);
                    continue;
                }
                Some("ERROR") if object["code"] == 410 => {
                    self.note(Note::Expired { after: *after });
                    return Ok(Ended::Expired);
                }
                // A server that has lost its store for a while: another one may have it.
                Some("ERROR") => return Ok(Ended::Stream),
                _ => return Err(Failure::broken(format!("an event of no known type: {event}"))),
            };
            if object["kind"] != "ConfigMap" || object["apiVersion"] != "v1" {
                return Err(Failure::broken(format!("an event that does not say its kind: {event}")));
            }
            let rv = rv_of(object)?;
            self.note(Note::Told(Told { kind, name: name_of(object)?, rv, print: print(object) }));
            *after = rv;
            self.reach(rv);
        }
        Ok(Ended::Stream)
    }

    /// The next event; none once the stream has ended or says nothing.
    async fn next(&self, lines: &mut Lines) -> Result<Option<Value>, Failure> {
        match tokio::time::timeout(SILENT_MAX, lines.next()).await {
            Ok(Ok(Next::Event(event))) => Ok(Some(event)),
            Ok(Ok(Next::End)) | Err(_) => Ok(None),
            Ok(Err(failure)) => Err(failure.during(&self.spec.name)),
        }
    }
}

pub(super) fn rv_of(object: &Value) -> Result<u64, Failure> {
    let rv = object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
    rv.ok_or_else(|| Failure::broken(format!("without a resourceVersion: {object}")))
}

pub(super) fn name_of(object: &Value) -> Result<String, Failure> {
    let part = |name: &str| object["metadata"][name].as_str();
    match (part("namespace"), part("name")) {
        (Some(namespace), Some(name)) => Ok(format!("{namespace}/{name}")),
        _ => Err(Failure::broken(format!("without a name: {object}"))),
    }
}
