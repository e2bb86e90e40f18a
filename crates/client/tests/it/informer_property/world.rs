//! A store in a few lists, which forgets nothing and can be asked what was so at any revision; and a
//! source that reads it while things go wrong, as a seed says.

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, unfold};
use meerkat_client::informer::{ListWatch, Page, PageRequest, SourceError};
use meerkat_client::watch::Changes;
use meerkat_client::{Event, EventKind, KeyValue, Revision};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub type State = BTreeMap<Bytes, KeyValue>;

/// The truth.
pub struct World {
    /// What was in the range at each revision, from 1 on.
    states: Vec<State>,
    /// What each of them changed in the range.
    changes: Vec<Vec<Event>>,
    pub compacted: i64,
    /// Whether sources are to fail now and then.
    pub troubled: bool,
}

impl World {
    pub fn new() -> World {
        let empty = State::new();
        World {
            states: vec![empty.clone(), empty],
            changes: vec![Vec::new(), Vec::new()],
            compacted: 0,
            troubled: true,
        }
    }

    pub fn current(&self) -> i64 {
        self.states.len() as i64 - 1
    }

    pub fn at(&self, revision: i64) -> Option<&State> {
        self.states.get(usize::try_from(revision).ok()?)
    }

    pub fn changed_at(&self, revision: i64) -> &[Event] {
        &self.changes[revision as usize]
    }

    /// One transaction: each key gets the value, or is deleted.
    pub fn commit(&mut self, writes: &[(Bytes, Option<Bytes>)]) {
        let modified = Revision::new(self.current() + 1);
        let mut state = self.states[self.states.len() - 1].clone();
        let mut events = Vec::new();
        for (key, value) in writes {
            let before = state.remove(key);
            let kind = match (value, before) {
                (Some(value), before) => {
                    let created = before.as_ref().map_or(modified, |kv| kv.created);
                    let version = before.map_or(0, |kv| kv.version) + 1;
                    let (key, value) = (key.clone(), value.clone());
                    let kv = KeyValue { key: key.clone(), value, created, modified, version, lease: None };
                    state.insert(key, kv.clone());
                    EventKind::Put(kv)
                }
                (None, Some(_)) => EventKind::Delete { key: key.clone(), modified },
                (None, None) => continue,
            };
            events.push(Event { kind, previous: None });
        }
        self.states.push(state);
        self.changes.push(events);
    }

    pub fn compact(&mut self) {
        self.compacted = self.current();
    }
}

/// How a source breaks its word in a way that no informer could notice, for the judge to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Now and then a revision is left out of a watch.
    LostRevision,
    /// Now and then the first event of a revision is left out.
    TornRevision,
    /// Now and then a list ends before its last object.
    ShortList,
    /// Now and then a mark says that more was delivered than was.
    FalseMark,
    /// Pages are read at the newest revision and not at that of the first.
    LoosePages,
}

/// See the module.
pub struct Source {
    pub world: Arc<Mutex<World>>,
    pub draws: Arc<Mutex<StdRng>>,
    pub lie: Option<Lie>,
}

impl Source {
    pub fn new(world: &Arc<Mutex<World>>, seed: u64, lie: Option<Lie>) -> Source {
        let draws = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        Source { world: Arc::clone(world), draws, lie }
    }

    fn read(&self, request: &PageRequest) -> Result<Page, SourceError> {
        let mut world = self.world.lock();
        let mut draws = self.draws.lock();
        if world.troubled && draws.random_bool(0.12) {
            return Err(SourceError::failed("a page that did not come"));
        }
        if world.troubled && request.at.is_some() && draws.random_bool(0.15) {
            world.compact();
        }
        let mut at = request.at.map_or(world.current(), Revision::get);
        if at < world.compacted {
            return Err(SourceError::Compacted);
        }
        let claimed = Revision::new(at);
        if self.lie == Some(Lie::LoosePages) {
            at = world.current();
        }
        let Some(state) = world.at(at) else { return Err(SourceError::failed("the future")) };
        let above = |key: &Bytes| request.after.as_ref().is_none_or(|after| after < key);
        let mut kvs: Vec<KeyValue> = state.values().filter(|kv| above(&kv.key)).cloned().collect();
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let mut more = limit < kvs.len();
        kvs.truncate(limit);
        if self.lie == Some(Lie::ShortList) && 1 < kvs.len() && draws.random_bool(0.3) {
            kvs.pop();
            more = false;
        }
        Ok(Page { revision: claimed, kvs, more })
    }
}

impl ListWatch for Source {
    type Watch = BoxStream<'static, Result<Changes, SourceError>>;

    async fn list(&self, request: PageRequest) -> Result<Page, SourceError> {
        let wait = self.draws.lock().random_range(0..150);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.read(&request)
    }

    fn watch(&self, from: Revision) -> Self::Watch {
        let watching = Watching {
            world: Arc::clone(&self.world),
            draws: Arc::clone(&self.draws),
            lie: self.lie,
            next: from.get(),
            over: false,
        };
        unfold(watching, |mut watching| async {
            let item = watching.next_item().await?;
            Some((item, watching))
        })
        .boxed()
    }
}

struct Watching {
    world: Arc<Mutex<World>>,
    draws: Arc<Mutex<StdRng>>,
    lie: Option<Lie>,
    /// Everything below has been said.
    next: i64,
    over: bool,
}

impl Watching {
    async fn next_item(&mut self) -> Option<Result<Changes, SourceError>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(item) = self.look() {
                self.over |= item.is_err();
                return Some(item);
            }
            let wait = self.draws.lock().random_range(1..30);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }

    fn look(&mut self) -> Option<Result<Changes, SourceError>> {
        let world = Arc::clone(&self.world);
        let world = world.lock();
        let draws = Arc::clone(&self.draws);
        let mut draws = draws.lock();
        if self.next <= world.compacted {
            return Some(Err(SourceError::Compacted));
        }
        if world.troubled {
            match draws.random_range(0..100) {
                0..3 => return Some(Err(SourceError::failed("the connection broke"))),
                3..5 => {
                    self.over = true;
                    return None;
                }
                // A mark again, perhaps an old one.
                5..10 => {
                    let revision = Revision::new(draws.random_range(0..self.next));
                    return Some(Ok(Changes { revision, events: Vec::new() }));
                }
                // Something again that was said before: passed over, or answered with a list.
                10 => return said_before(&world, self.next),
                _ => {}
            }
        }
        self.go_on(&world, &mut draws)
    }

    fn go_on(&mut self, world: &World, draws: &mut StdRng) -> Option<Result<Changes, SourceError>> {
        let behind = self.next <= world.current();
        if behind && self.lie == Some(Lie::FalseMark) && draws.random_bool(0.2) {
            let revision = Revision::new(world.current());
            return Some(Ok(Changes { revision, events: Vec::new() }));
        }
        while self.next <= world.current() {
            let revision = Revision::new(self.next);
            let mut events = world.changed_at(self.next).to_vec();
            self.next += 1;
            if self.lie == Some(Lie::LostRevision) && draws.random_bool(0.1) {
                continue;
            }
            if self.lie == Some(Lie::TornRevision) && 1 < events.len() && draws.random_bool(0.3) {
                events.remove(0);
            }
            if !events.is_empty() {
                return Some(Ok(Changes { revision, events }));
            }
        }
        let mark = Changes { revision: Revision::new(world.current()), events: Vec::new() };
        draws.random_bool(0.1).then_some(Ok(mark))
    }
}

fn said_before(world: &World, next: i64) -> Option<Result<Changes, SourceError>> {
    let again = (1..next).rev().find(|revision| !world.changed_at(*revision).is_empty())?;
    let events = world.changed_at(again).to_vec();
    Some(Ok(Changes { revision: Revision::new(again), events }))
}
