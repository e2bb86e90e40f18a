//! The objects of a list-watch door as a source.
//!
//! Losing a member, a connection or a deadline is settled in here: the next member goes on after the last
//! resourceVersion. The informer hears only of history that is gone, and of members that all refuse.

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use rand::Rng;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Informer;
use super::builder::{Builder, Undecoded};
use super::list_watch::{ListWatch, Page, PageRequest, SourceError};
use crate::Revision;
use crate::listwatch::events::{Batch, Lines, Listed, Told, next_batch, read_line, read_list};
use crate::listwatch::follow::{Follow, Input, Next};
use crate::listwatch::route::Route;
use crate::listwatch::wire::{Call, Failed, Reply, whole};
use crate::listwatch::{Door, Resource};
use crate::watch::Changes;

/// For a member to begin an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// For the rest of a page, once it has begun.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch that tells nothing for so long has its member asked whether it still serves.
const SILENCE: Duration = Duration::from_secs(5);

impl Informer<()> {
    /// An informer of the objects of a list-watch door. Keys are `namespace/name`, or the name alone for
    /// objects without a namespace.
    pub fn objects(door: &Door, resource: Resource) -> Undecoded<ObjectSource> {
        Informer::from_source(ObjectSource::new(door, resource))
    }
}

impl Undecoded<ObjectSource> {
    /// Objects become what serde makes of their JSON: a type of yours, or a `serde_json::Value`.
    pub fn json<T: DeserializeOwned + Send + Sync + 'static>(self) -> Builder<ObjectSource, T> {
        self.decode(|kv| serde_json::from_slice(&kv.value))
    }

    /// Where its watch is, for those who look on.
    pub fn trail(&self) -> Trail {
        self.source.trail()
    }
}

/// See the module. Of an object's history a door tells only the last change: `created` is `modified` here,
/// `version` is 1, and there is no lease.
#[derive(Debug)]
pub struct ObjectSource {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    door: Door,
    resource: Resource,
    route: Mutex<Route>,
    /// How the list that is being read goes on.
    next_page: Mutex<Option<NextPage>>,
    trail: Trail,
}

#[derive(Debug)]
struct NextPage {
    at: Revision,
    after: Bytes,
    token: String,
}

/// Where the watch of an [`ObjectSource`] is, and how often it was opened.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    counts: Arc<(AtomicU64, AtomicUsize)>,
}

impl Trail {
    /// Watches that a member has opened so far. All but the first resumed one before it, or followed a list.
    pub fn opened(&self) -> u64 {
        self.counts.0.load(Ordering::Relaxed)
    }

    /// The member that opened the last one, by its place among those of the door.
    pub fn member(&self) -> Option<usize> {
        self.counts.1.load(Ordering::Relaxed).checked_sub(1)
    }

    fn note(&self, member: usize) {
        self.counts.0.fetch_add(1, Ordering::Relaxed);
        self.counts.1.store(member + 1, Ordering::Relaxed);
    }
}

impl ObjectSource {
    /// The objects of this resource. Which member is asked first is drawn.
    pub fn new(door: &Door, resource: Resource) -> ObjectSource {
        let members = door.members().len();
        let route = Mutex::new(Route::new(members, rand::rng().random_range(0..members)));
        let (door, next_page, trail) = (door.clone(), Mutex::new(None), Trail::default());
        ObjectSource { inner: Arc::new(Inner { door, resource, route, next_page, trail }) }
    }

    /// Where its watch is, for those who look on.
    pub fn trail(&self) -> Trail {
        self.inner.trail.clone()
    }
}

impl ListWatch for ObjectSource {
    type Watch = BoxStream<'static, Result<Changes, SourceError>>;

    async fn list(&self, request: PageRequest) -> Result<Page, SourceError> {
        let token = match self.inner.token_for(&request) {
            Ok(token) => token,
            // Only the page after the last one can be had.
            Err(Forgotten) => return Err(SourceError::Compacted),
        };
        let listed = self.inner.page(&self.inner.resource.list_path(request.limit, token.as_deref())).await?;
        self.inner.remember(&listed);
        Ok(Page { revision: listed.revision, more: listed.token.is_some(), kvs: listed.kvs })
    }

    fn watch(&self, from: Revision) -> Self::Watch {
        let after = Revision::new(from.get().saturating_sub(1));
        let following = Following::new(Arc::clone(&self.inner), after);
        stream::unfold(following, |mut following| async {
            let told = following.next().await;
            Some((told, following))
        })
        .boxed()
    }
}

/// The page asked for is not the one after the last.
struct Forgotten;

impl Inner {
    fn token_for(&self, request: &PageRequest) -> Result<Option<String>, Forgotten> {
        let remembered = self.next_page.lock().take();
        let (Some(at), Some(after)) = (request.at, &request.after) else { return Ok(None) };
        let page = remembered.filter(|page| page.at == at && page.after == after);
        page.map(|page| Some(page.token)).ok_or(Forgotten)
    }

    fn remember(&self, listed: &Listed) {
        let next = listed.token.clone().zip(listed.kvs.last());
        let next = next.map(|(token, last)| NextPage { at: listed.revision, after: last.key.clone(), token });
        *self.next_page.lock() = next;
    }

    /// One page, from the first member that gives it: each is asked at most once.
    async fn page(&self, path: &str) -> Result<Listed, SourceError> {
        let wait = self.route.lock().choose(Instant::now());
        tokio::time::sleep(wait).await;
        let tries = self.route.lock().members();
        let mut last = SourceError::failed("no member was asked");
        for _ in 0..tries {
            let member = self.route.lock().at();
            let (rest, error) = match self.page_from(member, path).await {
                Ok(listed) => {
                    self.route.lock().worked(member);
                    return Ok(listed);
                }
                Err(Unlisted::Final(error)) => return Err(error),
                Err(Unlisted::Elsewhere(rest, error)) => (rest, error),
            };
            last = error;
            let wait = self.route.lock().failed(member, rest, Instant::now(), rand::random());
            if !wait.is_zero() {
                break;
            }
        }
        Err(last)
    }

    async fn page_from(&self, member: usize, path: &str) -> Result<Listed, Unlisted> {
        let elsewhere = |why: String| Unlisted::Elsewhere(None, SourceError::failed(why));
        let sent = self.door.wire().send(&self.door.url(member, path), &Call::get(), ANSWER_TIMEOUT).await;
        let Reply { code, retry_after, body } = sent.map_err(|failed| match failed {
            Failed::NotSent(why) | Failed::Lost(why) => elsewhere(why),
        })?;
        if code == 410 {
            return Err(Unlisted::Final(SourceError::Compacted));
        }
        let body = whole(body, PAGE_TIMEOUT).await.map_err(elsewhere)?;
        if code == 200 {
            return read_list(&body).map_err(elsewhere);
        }
        let error = crate::listwatch::Error::answered(crate::Fate::NotDone, code, &body);
        let error = SourceError::Failed(Box::new(error));
        match code {
            429 | 500.. => Err(Unlisted::Elsewhere(retry_after, error)),
            _ => Err(Unlisted::Final(error)),
        }
    }
}

/// Why a member gave no page.
enum Unlisted {
    /// Another member may.
    Elsewhere(Option<Duration>, SourceError),
    /// No other would.
    Final(SourceError),
}

/// One watch over all its members.
struct Following {
    inner: Arc<Inner>,
    follow: Follow,
    next: Option<Next>,
    body: Option<Incoming>,
    lines: Lines,
    waiting: VecDeque<Told>,
}

impl Following {
    fn new(inner: Arc<Inner>, after: Revision) -> Following {
        let (lines, waiting) = (Lines::default(), VecDeque::new());
        Following { inner, follow: Follow::new(after), next: None, body: None, lines, waiting }
    }

    async fn next(&mut self) -> Result<Changes, SourceError> {
        loop {
            let next = match self.next.take() {
                Some(next) => next,
                None => {
                    let mut route = self.inner.route.lock();
                    self.follow.start(&mut route, Instant::now(), rand::random())
                }
            };
            let input = match next {
                Next::Expired => return Err(SourceError::Compacted),
                Next::Refused { code } => {
                    return Err(SourceError::failed(format!("the watch was refused with {code}")));
                }
                Next::Wait(wait) => {
                    self.body = None;
                    tokio::time::sleep(wait).await;
                    Input::Waited
                }
                Next::Probe { member } => {
                    Input::Probed(self.inner.door.wire().serves(&self.inner.door.url(member, "")).await)
                }
                Next::Open { member, after, lifetime_s } => self.open(member, after, lifetime_s).await,
                Next::Read => match self.read().await {
                    Ok(changes) => {
                        self.step(Input::Told(changes.revision));
                        return Ok(changes);
                    }
                    Err(input) => input,
                },
            };
            self.step(input);
        }
    }

    fn step(&mut self, input: Input) {
        let mut route = self.inner.route.lock();
        self.next = Some(self.follow.step(input, &mut route, Instant::now(), rand::random()));
    }

    async fn open(&mut self, member: usize, after: Revision, lifetime_s: u64) -> Input {
        self.body = None;
        (self.lines, self.waiting) = (Lines::default(), VecDeque::new());
        let path = self.inner.resource.watch_path(&after.to_string(), lifetime_s);
        let url = self.inner.door.url(member, &path);
        match self.inner.door.wire().send(&url, &Call::get(), ANSWER_TIMEOUT).await {
            Ok(Reply { code: 200, body, .. }) => {
                self.body = Some(body);
                self.inner.trail.note(member);
                Input::Opened
            }
            Ok(Reply { code, retry_after, .. }) => Input::Refused { code, retry_after },
            Err(failed) => {
                tracing::debug!(?failed, url, "a watch was not opened");
                Input::Unreachable
            }
        }
    }

    /// The next thing told, or what happened instead.
    async fn read(&mut self) -> Result<Changes, Input> {
        loop {
            match next_batch(&mut self.waiting) {
                Some(Batch::Changes(changes)) => return Ok(changes),
                Some(Batch::Error { code, retry_after }) => return Err(ended_by(code, retry_after)),
                None => {}
            }
            let Some(body) = &mut self.body else { return Err(Input::Broken) };
            let piece = match tokio::time::timeout(SILENCE, body.frame()).await {
                Err(_) => return Err(Input::Silent),
                Ok(None) => return Err(Input::Ended),
                Ok(Some(Err(_))) => return Err(Input::Broken),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            self.take_in(&piece).map_err(|why| {
                tracing::warn!(why, "a watch told something that is not understood");
                Input::Broken
            })?;
        }
    }

    fn take_in(&mut self, piece: &[u8]) -> Result<(), String> {
        self.lines.push(piece)?;
        while let Some(line) = self.lines.next() {
            if !line.is_empty() {
                self.waiting.push_back(read_line(&line)?);
            }
        }
        Ok(())
    }
}

/// An error within a watch is the member's, unless it is about the version.
fn ended_by(code: u16, retry_after: Option<Duration>) -> Input {
    match code {
        410 => Input::Refused { code, retry_after },
        _ => Input::Refused { code: code.max(500), retry_after },
    }
}
