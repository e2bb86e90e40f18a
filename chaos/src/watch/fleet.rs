//! A motley lot of followers, so that a run meets every kind of watcher: of one key, a prefix, a
//! range and everything; filtered or not; from the past, from now and from the future; quick, slow
//! and restless ones.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;

use super::follower::{self, Following, Manner};
use super::writers;
use crate::Failure;
use crate::checker::watch_history::WatchHistory;
use crate::driver::Product;
use crate::endpoint::Endpoint;
use crate::record::watch::{SLOW, WatchLog, WatchSpec};

/// How far in the future a watcher may start.
const FUTURE: i64 = 60;
/// What may be on its way to a slow reader: the least that HTTP/2 begins with.
const SLOW_WINDOW: u32 = 65_535;

/// Followers at work, in the order they were added.
#[derive(Debug)]
pub struct Fleet {
    endpoints: Vec<Endpoint>,
    product: Product,
    began: Instant,
    under: String,
    floor: i64,
    followers: Vec<Following>,
}

impl Fleet {
    /// An empty one.
    pub fn new(endpoints: &[Endpoint], product: Product, began: Instant) -> Self {
        let under = String::new();
        Self { endpoints: endpoints.to_vec(), product, began, under, floor: 1, followers: Vec::new() }
    }

    /// The same for what is written under a prefix from a revision on, in a store shared with others.
    #[must_use]
    pub fn under(self, under: &str, floor: i64) -> Self {
        Self { under: under.to_owned(), floor, ..self }
    }

    /// Adds one of each kind, spread over the members, starting around a revision.
    pub fn add_one_of_each(&mut self, random: &mut StdRng, around: i64) -> Result<(), Failure> {
        for (kind, spec) in kinds(&self.under) {
            let start = start_revision(random, self.floor, around);
            let spec = vary(random, spec).from(start);
            let manner = self.manner(random);
            let number = self.followers.len();
            let pace = if manner.window.is_some() { "slow" } else { "quick" };
            let coalesces = manner.metadata.contains(&(SLOW, "coalesce"));
            let slow =
                manner.metadata.iter().find(|(name, _)| *name == SLOW).map_or("", |(_, policy)| policy);
            let name = format!("{number} ({kind}, {pace} {slow}, from {start}, {})", wishes(&spec));
            let log = WatchLog { coalesces, ..WatchLog::new(name, spec) };
            let first = number % self.endpoints.len();
            self.followers.push(follower::start(&self.endpoints, first, self.began, log, manner)?);
        }
        Ok(())
    }

    fn manner(&self, random: &mut StdRng) -> Manner {
        let slow = random.random_bool(0.25);
        let mut metadata = Vec::new();
        if self.product == Product::Meerkat {
            metadata.push(("meerkat-watch-progress-interval", "1s"));
            let policy = if slow { random.random_range(0..3) } else { 0 };
            metadata.extend([None, Some("cancel"), Some("coalesce")][policy].map(|slow| (SLOW, slow)));
        }
        let millis = |random: &mut StdRng, from, upto| Duration::from_millis(random.random_range(from..upto));
        Manner {
            pause: if slow { millis(random, 20, 150) } else { Duration::ZERO },
            window: slow.then_some(SLOW_WINDOW),
            patience: millis(random, 1_000, 2_500),
            restless: random.random_bool(0.4).then(|| millis(random, 200, 4_000)),
            asks_progress: random.random_bool(0.4).then(|| millis(random, 50, 500)),
            trusts_marks: self.product == Product::Meerkat,
            metadata,
            seed: random.random(),
        }
    }

    /// For each, in order: what it asked for, and the next revision it has not had.
    pub fn standing(&self) -> impl Iterator<Item = (&WatchSpec, i64)> {
        self.followers.iter().map(|one| (one.spec(), one.next()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.followers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.followers.is_empty()
    }

    /// The lowest revision that any of them has still to hear of; none while one has heard nothing.
    pub fn slowest(&self) -> Option<i64> {
        self.followers.iter().map(Following::next).min().filter(|next| 0 < *next)
    }

    /// From now on all read as fast as they can.
    pub fn hurry(&self) {
        self.followers.iter().for_each(Following::hurry);
    }

    /// Whether each has been sent the last event that the history owes it.
    pub fn has_heard_all(&self, history: &WatchHistory) -> bool {
        self.followers.iter().all(|one| one.has_heard_all(history))
    }

    /// Ends them all and returns their records.
    pub async fn finish(self) -> Result<Vec<WatchLog>, Failure> {
        let mut logs = Vec::new();
        for follower in self.followers {
            logs.push(follower.finish().await?);
        }
        Ok(logs)
    }
}

fn kinds(under: &str) -> Vec<(&'static str, WatchSpec)> {
    let key = |prefix, number| writers::key_under(under, prefix, number);
    let prefix = |prefix: &str| WatchSpec::of_prefix(format!("{under}{prefix}").as_bytes());
    let (everything, from_b) = if under.is_empty() {
        (WatchSpec::of_all(), WatchSpec::of_range(b"b/", b"\0"))
    } else {
        (prefix(""), WatchSpec { key: prefix("b/").key, ..prefix("") })
    };
    vec![
        ("everything", everything),
        ("prefix a/", prefix("a/")),
        ("prefix c/", prefix("c/")),
        ("key", WatchSpec::of_key(&key(0, 3))),
        ("key", WatchSpec::of_key(&key(2, 5))),
        ("from b/", from_b),
        ("range", WatchSpec::of_range(&key(0, 6), &key(1, 6))),
        ("range", WatchSpec::of_range(&key(1, 2), &key(2, 9))),
    ]
}

fn vary(random: &mut StdRng, spec: WatchSpec) -> WatchSpec {
    let filter = random.random_range(0..6);
    WatchSpec {
        no_put: filter == 0,
        no_delete: filter == 1,
        prev_kv: random.random_bool(0.5),
        progress_notify: random.random_bool(0.5),
        fragment: random.random_bool(0.5),
        ..spec
    }
}

/// What a watcher asked for beside its range, for its name.
fn wishes(spec: &WatchSpec) -> String {
    let each = [
        (spec.no_put, "no puts"),
        (spec.no_delete, "no deletions"),
        (spec.prev_kv, "previous values"),
        (spec.progress_notify, "marks"),
        (spec.fragment, "pieces"),
    ];
    let asked: Vec<&str> = each.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    asked.join(", ")
}

fn start_revision(random: &mut StdRng, floor: i64, around: i64) -> i64 {
    match random.random_range(0..10) {
        0..4 => 0,
        4..8 => random.random_range(floor..=around.max(floor)),
        8 => around,
        _ => around + random.random_range(1..FUTURE),
    }
}
