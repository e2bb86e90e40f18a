//! Runs the scripts of a few actors in every order that keeps each script's own.

use crate::store::Write;
use crate::world::{Seen, World};
use meerkat_types::{KeyRange, Revision};
use meerkat_watch::{Filter, SlowPolicy, WatchConfig, WatchId, WatchRequest, WatchStart};

/// One thing an actor does. There is one stream.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Put(&'static str),
    /// Too large for the ring.
    PutHuge(&'static str),
    Publish,
    Overrun,
    /// A snapshot with that many further revisions.
    Install(usize),
    /// Up to what is visible.
    Compact,
    Register(WatchStart),
    Cancel(i64),
    Resume,
    RequestProgress,
    Tick,
    /// One revision or answer.
    TakeOne,
    TakeAll,
    Step,
    Read,
    Deal,
}

pub struct Case {
    pub config: WatchConfig,
    pub policy: SlowPolicy,
    pub before: &'static [Act],
    pub actors: Vec<Vec<Act>>,
}

/// A ring of eight small revisions, and a queue of that many.
pub fn small(outbox_items: usize) -> WatchConfig {
    WatchConfig {
        ring_bytes: 8 * 450,
        memory_bytes: 2_000,
        outbox_items,
        outbox_items_per_watcher: 0,
        stream_history_bytes: 1_000,
        scan_events: 2,
        scan_bytes: 1_000,
        ring_round: 1,
        merge_bytes: 0,
        keys_bytes: 10_000,
        reads_inline: false,
    }
}

/// Nothing is kept: every revision comes from history.
pub fn without_ring(outbox_items: usize) -> WatchConfig {
    WatchConfig { ring_bytes: 0, ..small(outbox_items) }
}

pub const fn at(revision: i64) -> WatchStart {
    WatchStart::At(Revision::new(revision))
}

impl Case {
    /// What was seen in each order.
    pub fn run(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut order = Vec::new();
        self.extend(&mut vec![0; self.actors.len()], &mut order, &mut seen);
        seen
    }

    fn extend(&self, done: &mut Vec<usize>, order: &mut Vec<Act>, seen: &mut Vec<Seen>) {
        let mut is_whole = true;
        for actor in 0..self.actors.len() {
            let Some(act) = self.actors[actor].get(done[actor]) else { continue };
            is_whole = false;
            done[actor] += 1;
            order.push(*act);
            self.extend(done, order, seen);
            order.pop();
            done[actor] -= 1;
        }
        if is_whole {
            let shown = Shown(self, order);
            seen.push(self.run_one(order));
            drop(shown);
        }
    }

    fn run_one(&self, order: &[Act]) -> Seen {
        let mut world = World::new(self.config);
        world.open(self.policy, false);
        self.before.iter().chain(order).for_each(|act| act.run(&mut world));
        world.come_to_rest(0);
        while !world.readers[0].resumes.is_empty() {
            world.resume(0);
            world.come_to_rest(0);
        }
        world.close_all();
        world.seen()
    }
}

/// Says in which order it was that failed.
struct Shown<'a>(&'a Case, &'a [Act]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Shown(case, order) = self;
            eprintln!("{:?} {:?}\nbefore {:?}\nthen {order:?}", case.policy, case.config, case.before);
        }
    }
}

impl Act {
    fn run(self, world: &mut World) {
        match self {
            Act::Put(key) => world.commit(&[Write::Put { key, size: 1 }]),
            Act::PutHuge(key) => world.commit(&[Write::Put { key, size: 1_000 }, Write::Delete { key: "b" }]),
            Act::Publish => world.publish(),
            Act::Overrun => world.overrun(),
            Act::Install(revisions) => {
                let writes: &[Write] = &[Write::Put { key: "a", size: 2 }];
                world.install(&vec![writes; revisions], None);
            }
            Act::Compact => world.store.compact(world.store.current()),
            Act::Register(start) => world.register(0, everything_from(start)),
            Act::Cancel(id) => world.cancel(0, WatchId::new(id)),
            Act::Resume => world.resume(0),
            Act::RequestProgress => world.request_progress(0),
            Act::Tick => world.tick(0),
            Act::TakeOne => drop(world.take(0, 1)),
            Act::TakeAll => drop(world.take(0, 100_000)),
            Act::Step if world.readings() == 0 => drop(world.step()),
            Act::Step => {}
            Act::Read => world.read(),
            Act::Deal => world.deal(),
        }
    }
}

fn everything_from(start: WatchStart) -> WatchRequest {
    WatchRequest {
        id: None,
        range: KeyRange::everything(),
        start,
        filter: Filter::default(),
        previous: true,
        fragment: false,
        progress: true,
    }
}
