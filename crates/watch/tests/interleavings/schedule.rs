//! Chance decides what happens next. A schedule is a list of actions, each with dice of its own, and
//! any list can be carried out in any world, so that what fails can be made shorter by leaving
//! actions out.

use crate::reader::Reader;
use crate::store::{Store, Write};
use crate::world::{Seen, World};
use bytes::Bytes;
use meerkat_types::{Key, KeyRange, Revision};
use meerkat_watch::{Filter, SlowPolicy, WatchConfig, WatchId, WatchRequest, WatchStart};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Commit,
    Publish,
    Overrun,
    Install,
    Compact,
    Open,
    Close,
    Register,
    Resume,
    Cancel,
    RequestProgress,
    Tick,
    Take,
    Stall,
    Step,
    Read,
    Deal,
    TakeLarge,
    GoOnLarge,
    EndLarge,
    PassTime,
    FailHistory,
    LoseLeader,
    Stop,
}

/// How often each is drawn, where it is drawn at all.
const KINDS: [(Kind, u32); 24] = [
    (Kind::Commit, 60),
    (Kind::Publish, 60),
    (Kind::Overrun, 3),
    (Kind::Install, 4),
    (Kind::Compact, 8),
    (Kind::Open, 6),
    (Kind::Close, 2),
    (Kind::Register, 25),
    (Kind::Resume, 5),
    (Kind::Cancel, 5),
    (Kind::RequestProgress, 6),
    (Kind::Tick, 8),
    (Kind::Take, 60),
    (Kind::Stall, 4),
    (Kind::Step, 30),
    (Kind::Read, 20),
    (Kind::Deal, 25),
    (Kind::TakeLarge, 15),
    (Kind::GoOnLarge, 3),
    (Kind::EndLarge, 3),
    (Kind::PassTime, 10),
    (Kind::FailHistory, 1),
    (Kind::LoseLeader, 1),
    (Kind::Stop, 1),
];

#[derive(Clone, Copy, Debug)]
pub struct Action {
    pub kind: Kind,
    dice: u64,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    pub config: WatchConfig,
    /// Reads of history that may be under way at once.
    readings_max: usize,
    streams_max: usize,
    /// Streams that are not read until all others have everything.
    stuck: usize,
    pub actions: Vec<Action>,
}

const KEYS: [&str; 5] = ["a", "aa", "ab", "b", "c"];

impl Schedule {
    /// Each schedule leaves some kinds of action out and has others more often: what only shows in
    /// the absence of something is found too.
    pub fn draw(seed: u64) -> Schedule {
        let mut dice = SmallRng::seed_from_u64(seed);
        let weights: Vec<(Kind, u32)> = KINDS
            .iter()
            .map(|(kind, weight)| {
                let needed = matches!(kind, Kind::Commit | Kind::Publish | Kind::Register | Kind::Take);
                let factor =
                    if needed { [1, 1, 2, 4].choose(&mut dice) } else { [0, 1, 1, 3].choose(&mut dice) };
                (*kind, weight * factor.expect("not empty"))
            })
            .collect();
        let length = dice.random_range(20..140);
        let draw = |dice: &mut SmallRng| {
            let drawn = weights.choose_weighted(dice, |(_, weight)| *weight).expect("some weigh something");
            Action { kind: drawn.0, dice: dice.random() }
        };
        Schedule {
            config: draw_config(&mut dice),
            readings_max: dice.random_range(1..3),
            streams_max: dice.random_range(1..6),
            stuck: dice.random_range(0..3),
            actions: (0..length).map(|_| draw(&mut dice)).collect(),
        }
    }

    /// The same world, and other things that happen in it.
    pub fn with(&self, actions: Vec<Action>) -> Schedule {
        Schedule { actions, ..self.clone() }
    }

    pub fn run(&self) -> Seen {
        let mut world = World::new(self.config);
        for action in &self.actions {
            self.act(&mut world, *action);
        }
        world.come_to_rest(self.stuck.min(world.readers.len()));
        world.come_to_rest(0);
        world.close_all();
        world.seen()
    }

    fn act(&self, world: &mut World, action: Action) {
        let dice = &mut SmallRng::seed_from_u64(action.dice);
        match action.kind {
            Kind::Commit => world.commit(&draw_writes(dice, self.huge())),
            Kind::Publish => world.publish(),
            Kind::Overrun => world.overrun(),
            Kind::Install => self.install(world, dice),
            Kind::Compact => {
                let back = dice.random_range(0..8);
                world.store.compact(Revision::new(world.store.current().get() - back));
            }
            Kind::Open => self.open(world, dice),
            Kind::Step if world.readings() < self.readings_max => drop(world.step()),
            Kind::Step => {}
            Kind::Read => world.read(),
            Kind::Deal => world.deal(),
            Kind::PassTime => world.pass_time(dice.random_range(1..50)),
            Kind::FailHistory if dice.random_bool(0.2) => world.fail_history(),
            Kind::LoseLeader if dice.random_bool(0.3) => world.lose_leader(),
            Kind::Stop if dice.random_bool(0.1) => world.stop(),
            Kind::FailHistory | Kind::LoseLeader | Kind::Stop => {}
            _ => self.act_on_stream(world, action.kind, dice),
        }
    }

    fn act_on_stream(&self, world: &mut World, kind: Kind, dice: &mut SmallRng) {
        if world.readers.is_empty() {
            self.open(world, dice);
        }
        let at = dice.random_range(0..world.readers.len());
        let budget = [1, 100, 500, 2_000, 100_000][dice.random_range(0..5)];
        let stalls = world.now_ms() < world.readers[at].stalled_until_ms;
        match kind {
            Kind::Close => world.close(at),
            Kind::Register => {
                let request = draw_request(&world.store, &world.readers[at], dice);
                world.register(at, request);
            }
            Kind::Cancel => {
                let id = world.readers[at].ids().choose(dice).copied();
                world.cancel(at, id.unwrap_or(WatchId::new(dice.random_range(-1..9))));
            }
            Kind::Resume => world.resume(at),
            Kind::RequestProgress => world.request_progress(at),
            Kind::Tick => world.tick(at),
            Kind::Take if !stalls => drop(world.take(at, budget)),
            Kind::TakeLarge if !stalls => world.take_large(at, budget),
            Kind::Stall => world.readers[at].stalled_until_ms = world.now_ms() + dice.random_range(1..200),
            Kind::GoOnLarge => world.go_on_large(at),
            Kind::EndLarge => world.end_large(at),
            _ => {}
        }
    }

    fn open(&self, world: &mut World, dice: &mut SmallRng) {
        if world.readers.len() < self.streams_max {
            let policy = [SlowPolicy::Wait, SlowPolicy::Wait, SlowPolicy::Coalesce, SlowPolicy::Cancel];
            world.open(policy[dice.random_range(0..4)], dice.random_bool(0.3));
        }
    }

    /// The size of a value that is too large for the ring.
    fn huge(&self) -> usize {
        self.config.ring_bytes / 16 + 1
    }

    fn install(&self, world: &mut World, dice: &mut SmallRng) {
        let revisions: Vec<Vec<Write>> =
            (0..dice.random_range(0..6)).map(|_| draw_writes(dice, self.huge())).collect();
        let revisions: Vec<&[Write]> = revisions.iter().map(Vec::as_slice).collect();
        let current = world.store.current().get() + revisions.len() as i64;
        let compact = dice.random_bool(0.3).then(|| Revision::new(current - dice.random_range(0..5)));
        world.install(&revisions, compact);
    }
}

/// Mostly one small event; at times several, the same key twice, or one of `huge` bytes.
pub fn draw_writes(dice: &mut SmallRng, huge: usize) -> Vec<Write> {
    let events = [1, 1, 1, 1, 2, 3][dice.random_range(0..6)];
    let is_huge = dice.random_bool(0.06);
    let draw = |_| {
        let key = KEYS[dice.random_range(0..KEYS.len())];
        if dice.random_bool(0.25) {
            return Write::Delete { key };
        }
        let size = if is_huge { huge } else { dice.random_range(0..4) };
        Write::Put { key, size }
    };
    (0..events).map(draw).collect()
}

/// From a ring that keeps nothing to one that keeps all, and outboxes of one item and up.
fn draw_config(dice: &mut SmallRng) -> WatchConfig {
    let ring_bytes = [0, 3_300, 3_500, 5_500, 9_000, 40_000][dice.random_range(0..6)];
    WatchConfig {
        ring_bytes,
        memory_bytes: [0, 0, 500, 1_500, 100_000][dice.random_range(0..5)],
        outbox_items: dice.random_range(1..5),
        outbox_items_per_watcher: [0, 0, 1, 4][dice.random_range(0..4)],
        stream_history_bytes: [1, 500, 1_500, 6_000][dice.random_range(0..4)],
        scan_events: [1, 2, 5, 100][dice.random_range(0..4)],
        scan_bytes: [1, 10, 1_000, 100_000][dice.random_range(0..4)],
        ring_round: [1, 2, 100][dice.random_range(0..3)],
        merge_bytes: [0, 900, 10_000][dice.random_range(0..3)],
        keys_bytes: 100_000,
        reads_inline: false,
    }
}

pub fn draw_request(store: &Store, reader: &Reader, dice: &mut SmallRng) -> WatchRequest {
    let id = match dice.random_range(0..10) {
        0..7 => None,
        7 => reader.ids().choose(dice).copied(),
        _ => Some(WatchId::new(dice.random_range(-1..6))),
    };
    let current = store.current().get();
    let start = match dice.random_range(0..10) {
        0..3 => WatchStart::Live,
        3..6 => WatchStart::At(Revision::new(dice.random_range(-1..=current + 4))),
        6 => WatchStart::At(Revision::new(1)),
        _ => WatchStart::At(Revision::new((current + dice.random_range(-4..=2)).max(1))),
    };
    WatchRequest {
        id,
        range: draw_range(dice),
        start,
        filter: Filter { no_put: dice.random_bool(0.1), no_delete: dice.random_bool(0.15) },
        previous: dice.random_bool(0.4),
        fragment: false,
        progress: dice.random_bool(0.5),
    }
}

fn draw_range(dice: &mut SmallRng) -> KeyRange {
    let key = |text: &'static str| Key::new(Bytes::from_static(text.as_bytes())).expect("not empty");
    let one = KEYS[dice.random_range(0..KEYS.len())];
    match dice.random_range(0..10) {
        0..4 => KeyRange::One(key(one)),
        4..6 => KeyRange::From(key(one)),
        6..8 => KeyRange::prefix(b"a"),
        8 => KeyRange::everything(),
        _ => {
            let end = KEYS[dice.random_range(0..KEYS.len())];
            KeyRange::Span { first: key(one), end: Bytes::from_static(end.as_bytes()) }
        }
    }
}
