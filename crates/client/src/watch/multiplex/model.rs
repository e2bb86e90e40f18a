//! Several watches over one stream slot against a simulated member, with everything that goes wrong:
//! streams die with what is on its way, readers dawdle until their watches are parked, and the member is
//! of one of two kinds. The newer answers requests for progress in order with events, if at all. The
//! older, like etcd 3.5.1, answers them at once and past events that are still queued. With both,
//! creations are answered past events and marks, as in etcd, where the two have queues of their own.
//!
//! Each watch has to deliver every revision of its key once and in order. Believing the older member's
//! marks is known to lose revisions, and so is believing a mark for a watch that was created after it;
//! the judge is made to prove that it notices either.

use super::*;
use crate::namespace::Namespace;
use crate::watch::mailbox::{Budget, Mailbox};
use crate::watch::wire::Order;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::poll_fn;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::mvcc;
use meerkat_types::{Filter, Key, KeyRange, WatchStart};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

const SCHEDULES: u64 = 600;
const STEPS: usize = 400;
const WATCHES: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Newer,
    Older,
}

/// A watcher at the member: its key, its next revision, and whether its creation was answered.
struct Watcher {
    key: u8,
    next: i64,
    start: i64,
    announced: bool,
}

struct World {
    chance: SmallRng,
    kind: Kind,
    /// The key each revision wrote; the first two entries are no revisions.
    history: Vec<u8>,
    watchers: BTreeMap<i64, Watcher>,
    /// Answers and events leave through queues of their own, as in etcd.
    answers: VecDeque<pb::WatchResponse>,
    events: VecDeque<pb::WatchResponse>,
    multiplex: Multiplex,
    readers: Vec<(Arc<Mailbox>, Vec<i64>)>,
    now: Instant,
}

impl World {
    fn new(seed: u64, kind: Kind) -> World {
        let inbox = Arc::new(Inbox::default());
        let mut multiplex = Multiplex::new(inbox.clone(), false);
        let now = Instant::now();
        multiplex.open("m".into(), false, now);
        let mut chance = SmallRng::seed_from_u64(seed);
        let mut readers = Vec::new();
        for key in 0..WATCHES {
            let budget = Arc::new(Budget::default());
            let buffer = chance.random_range(1..4);
            let mailbox = Mailbox::new(Serial(key.into()), buffer, budget, inbox.clone());
            let mailbox = Arc::new(mailbox);
            let order = Order {
                range: KeyRange::One(Key::new(Bytes::from(vec![key])).expect("a key")),
                namespace: Namespace::default(),
                previous: false,
                filter: Filter::default(),
                marks: false,
                verbatim: false,
            };
            let from = WatchStart::At(Revision::new(2));
            multiplex.add(Start { order, from, mailbox: mailbox.clone() });
            readers.push((mailbox, Vec::new()));
        }
        World {
            chance,
            kind,
            history: vec![u8::MAX; 2],
            watchers: BTreeMap::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            multiplex,
            readers,
            now,
        }
    }

    fn current(&self) -> i64 {
        self.history.len() as i64 - 1
    }

    fn respond(&self, id: i64) -> pb::WatchResponse {
        let header = Some(pb::ResponseHeader { revision: self.current(), ..Default::default() });
        pb::WatchResponse { header, watch_id: id, ..Default::default() }
    }

    /// The member takes one request.
    fn request(&mut self) {
        if !self.multiplex.has_request() {
            return;
        }
        let Some(request) = self.multiplex.next_request() else { return };
        match request.request_union.expect("a request") {
            RequestUnion::CreateRequest(create) if create.watch_id == PROBE_ID => {
                let refused = pb::WatchResponse { created: true, canceled: true, ..self.respond(NO_ID) };
                self.answers.push_back(refused);
            }
            RequestUnion::CreateRequest(create) => {
                let (key, start) = (create.key[0], create.start_revision);
                let watcher = Watcher { key, next: start, start, announced: false };
                self.watchers.insert(create.watch_id, watcher);
                self.answers.push_back(pb::WatchResponse { created: true, ..self.respond(create.watch_id) });
            }
            RequestUnion::CancelRequest(cancel) => {
                if self.watchers.remove(&cancel.watch_id).is_some() {
                    let reply = pb::WatchResponse { canceled: true, ..self.respond(cancel.watch_id) };
                    self.answers.push_back(reply);
                }
            }
            RequestUnion::ProgressRequest(_) => self.progress(),
        }
    }

    fn progress(&mut self) {
        let current = self.current();
        let level = |watcher: &Watcher| current < watcher.next && watcher.start <= current;
        match self.kind {
            Kind::Older => self.answers.push_back(self.respond(NO_ID)),
            Kind::Newer if !self.watchers.is_empty() && self.watchers.values().all(level) => {
                self.events.push_back(self.respond(NO_ID));
            }
            Kind::Newer => {}
        }
    }

    /// The member queues some of what it owes to one watcher.
    fn publish(&mut self) {
        let current = self.current();
        let behind: Vec<i64> =
            self.watchers.iter().filter(|(_, watcher)| watcher.next <= current).map(|(id, _)| *id).collect();
        if behind.is_empty() {
            return;
        }
        let id = behind[self.chance.random_range(0..behind.len())];
        let many = self.chance.random_range(1..4);
        let Some(watcher) = self.watchers.get_mut(&id) else { return };
        let last = current.min(watcher.next + many);
        let due = (watcher.next..=last).filter(|at| self.history[*at as usize] == watcher.key);
        let events: Vec<mvcc::Event> = due
            .map(|at| {
                let key = Bytes::from(vec![watcher.key]);
                let kv = mvcc::KeyValue { key, mod_revision: at, ..Default::default() };
                mvcc::Event { kv: Some(kv), ..Default::default() }
            })
            .collect();
        watcher.next = last + 1;
        if !events.is_empty() {
            let response = pb::WatchResponse { events, ..self.respond(id) };
            self.events.push_back(response);
        }
    }

    /// One response arrives. Events wait for their watcher's creation to be answered.
    fn receive(&mut self, belief: Belief) {
        let announced = |id: i64| self.watchers.get(&id).is_none_or(|watcher| watcher.announced);
        let ready = self.events.front().is_some_and(|response| announced(response.watch_id));
        let response = if ready && (self.answers.is_empty() || self.chance.random_bool(0.3)) {
            self.events.pop_front()
        } else {
            self.answers.pop_front()
        };
        let Some(response) = response else { return };
        if response.created
            && let Some(watcher) = self.watchers.get_mut(&response.watch_id)
        {
            watcher.announced = true;
        }
        match belief {
            Belief::Right => {}
            Belief::EarlyMarks => self.multiplex.stream.marks = Marks::True,
            Belief::MarksFromBeforeTheCreation => {
                for entry in self.multiplex.watches.values_mut() {
                    entry.created_at = Revision::new(0);
                }
            }
            Belief::MarksAskedBeforeTheCreation => {
                for entry in self.multiplex.watches.values_mut() {
                    entry.asked_before = 0;
                }
            }
        }
        assert_eq!(self.multiplex.response(response, self.now), Heard::Fine);
    }

    fn read(&mut self, index: usize) {
        let (mailbox, told) = &mut self.readers[index];
        if let Some(Some(item)) = poll_fn(|context| mailbox.poll(context)).now_or_never() {
            told.push(item.expect("no error").revision.get());
        }
        self.multiplex.attend();
    }

    fn kill(&mut self) {
        self.watchers.clear();
        self.answers.clear();
        self.events.clear();
        self.multiplex.lost(self.now, "lost");
        self.multiplex.open("m".into(), false, self.now);
    }

    fn step(&mut self, belief: Belief) {
        match self.chance.random_range(0..100) {
            0..12 => {
                let key = self.chance.random_range(0..=WATCHES);
                self.history.push(key);
            }
            12..32 => self.request(),
            32..47 => self.publish(),
            47..77 => self.receive(belief),
            77..92 => {
                let index = self.chance.random_range(0..self.readers.len());
                self.read(index);
            }
            92..96 => self.multiplex.ask_progress(),
            96..98 => self.multiplex.ask_probe(),
            _ => self.kill(),
        }
    }

    /// The faults end, and everybody reads.
    fn settle(&mut self, belief: Belief) {
        for _ in 0..4 * STEPS {
            self.request();
            self.publish();
            self.receive(belief);
            for index in 0..self.readers.len() {
                self.read(index);
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        for (key, (_, told)) in self.readers.iter().enumerate() {
            let due: Vec<i64> =
                (2..=self.current()).filter(|at| usize::from(self.history[*at as usize]) == key).collect();
            if *told != due {
                return Err(format!("watch {key} was due {due:?} and told {told:?}"));
            }
        }
        Ok(())
    }
}

/// What a wrong client believes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Belief {
    Right,
    EarlyMarks,
    MarksFromBeforeTheCreation,
    MarksAskedBeforeTheCreation,
}

fn run(seed: u64, kind: Kind, belief: Belief) -> Result<(), String> {
    let mut world = World::new(seed, kind);
    for _ in 0..STEPS {
        world.step(belief);
    }
    world.settle(belief);
    world.judge().map_err(|what| format!("seed {seed}, {kind:?}: {what}"))
}

#[test]
fn no_schedule_loses_repeats_or_reorders_a_revision_on_either_kind_of_member() {
    for kind in [Kind::Newer, Kind::Older] {
        for seed in 0..SCHEDULES {
            if let Err(what) = run(seed, kind, Belief::Right) {
                panic!("{what}");
            }
        }
    }
}

#[test]
fn believing_the_marks_of_an_older_member_would_lose_revisions() {
    assert!((0..SCHEDULES).any(|seed| run(seed, Kind::Older, Belief::EarlyMarks).is_err()));
}

#[test]
fn believing_a_mark_for_a_watch_created_after_it_would_lose_revisions() {
    assert!((0..SCHEDULES).any(|seed| run(seed, Kind::Newer, Belief::MarksFromBeforeTheCreation).is_err()));
}

#[test]
fn counting_no_mark_that_was_asked_for_before_the_creation_would_lose_revisions() {
    assert!((0..SCHEDULES).any(|seed| run(seed, Kind::Newer, Belief::MarksAskedBeforeTheCreation).is_err()));
}
