//! Everything at random against a plain list of what happened: each watcher is told exactly what it is
//! owed, in order and once, until it is ended.

use super::*;
use crate::cacher::event::Event;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What was told: the kind, the key, the revision.
type Fact = (EventType, Arc<str>, u64);

struct Reader {
    watcher: Watcher,
    filter: Filter,
    initial: Vec<Entry>,
    told: Vec<Fact>,
    /// The revision of the last bookmark.
    marked: u64,
    has_end: bool,
    wants_state: bool,
    /// How likely it reads when it could.
    pace: f64,
}

#[derive(Debug, Default)]
struct Seen {
    told: usize,
    initial: usize,
    ended: usize,
    whole: usize,
    marks: usize,
    parked: u64,
    relists: u64,
    forgotten: u64,
}

struct World {
    rng: StdRng,
    setup: Setup,
    shape: Shape,
    /// The objects at each revision.
    states: BTreeMap<u64, BTreeMap<Arc<str>, Entry>>,
    history: Vec<Arc<Event>>,
    readers: Vec<Reader>,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> World {
        let ring = RingLimits { events_min: 20, events_max: 160, ..RingLimits::default() };
        let check_every = Duration::from_secs(7);
        let settings = FeedSettings { ring, check_every, ..FeedSettings::default() };
        World {
            rng: StdRng::seed_from_u64(seed),
            setup: Setup::with(MemoryStore::new(), settings),
            shape: Shape::of(&pods()),
            states: BTreeMap::from([(1, BTreeMap::new())]),
            history: Vec::new(),
            readers: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn value(&mut self, key: &str) -> String {
        let rng = &mut self.rng;
        if rng.random_bool(0.02) {
            return "no object".to_owned();
        }
        let label = ["web", "db", "x"][rng.random_range(0..3)];
        let node = ["n1", "n2", ""][rng.random_range(0..3)];
        let text = pod(key, label, node);
        if rng.random_bool(0.1) { text.replace("\"uid\":\"", "\"uid\":\"again-") } else { text }
    }

    /// One revision, of one key mostly.
    fn write(&mut self) {
        let count = if self.rng.random_bool(0.05) { self.rng.random_range(2..25) } else { 1 };
        let mut changes: Vec<(String, Option<String>)> = Vec::new();
        for _ in 0..count {
            let key =
                format!("{}/{}", ["a", "ab", "b"][self.rng.random_range(0..3)], self.rng.random_range(0..12));
            let value = self.rng.random_bool(0.7).then(|| self.value(&key));
            changes.push((key, value));
        }
        let full: Vec<String> = changes.iter().map(|(key, _)| format!("/registry/pods/{key}")).collect();
        let writes = full.iter().zip(&changes);
        let writes = writes.map(|(key, (_, value))| (key.as_str(), value.clone().map(bytes::Bytes::from)));
        let before = self.setup.store.revision();
        let revision = self.setup.store.transact(writes.collect());
        if before < revision {
            self.record(revision, changes);
        }
    }

    fn record(&mut self, revision: u64, changes: Vec<(String, Option<String>)>) {
        let mut state = self.states.last_key_value().expect("the first").1.clone();
        for (key, value) in changes {
            let entry =
                value.and_then(|value| Entry::decode(&self.shape, &key, value.as_bytes(), revision).ok());
            let encodes = Arc::default();
            match entry {
                Some(entry) => {
                    let old = state.insert(entry.key().clone(), entry.clone());
                    self.history.push(Event::put(old, entry, 0, &encodes));
                }
                None => {
                    let old = state.remove(key.as_str());
                    self.history.extend(old.map(|old| Event::deleted(old, revision, 0, &encodes)));
                }
            }
        }
        self.states.insert(revision, state);
    }

    fn filter(&mut self) -> Filter {
        let rng = &mut self.rng;
        let scope = match rng.random_range(0..4) {
            0 => Scope::namespace("a"),
            1 => Scope::object("ab", &rng.random_range(0..12).to_string()),
            _ => Scope::all(),
        };
        let mut terms = Vec::new();
        if rng.random_bool(0.4) {
            let test = [Test::Equals("web".into()), Test::NotEquals("db".into())];
            terms.push(Term::label("app", test[rng.random_range(0..2)].clone()));
        }
        if rng.random_bool(0.3) {
            terms.push(Term::field("spec.nodeName", Test::Equals(["n1", ""][rng.random_range(0..2)].into())));
        }
        Filter::new(scope, terms)
    }

    async fn start(&mut self) {
        let filter = self.filter();
        let current = self.setup.store.revision();
        let begin = match self.rng.random_range(0..6) {
            0 | 1 => state(ReadAt::MostRecent),
            2 => state(ReadAt::AnyCached),
            3 => WatchBegin::Changes(ChangesAfter::MostRecent),
            4 => WatchBegin::Changes(ChangesAfter::Cached),
            _ => WatchBegin::Changes(ChangesAfter::Revision(self.rng.random_range(1..current + 3))),
        };
        let Ok(watcher) = self.setup.watch(begin, filter.clone()).await else { return };
        let after = watcher.began_after();
        if begin == state(ReadAt::MostRecent) {
            assert!(current <= after, "{after} is older than the request");
        }
        let wants_state = matches!(begin, WatchBegin::State { .. });
        let pace = [0.02, 0.3, 0.9][self.rng.random_range(0..3)];
        let (initial, told) = (Vec::new(), Vec::new());
        self.readers.push(Reader {
            watcher,
            filter,
            initial,
            told,
            marked: 0,
            has_end: false,
            wants_state,
            pace,
        });
    }

    /// Whether it goes on.
    async fn read(&mut self, number: usize) -> bool {
        let reader = &mut self.readers[number];
        let Ok(items) = tokio::time::timeout(Duration::from_millis(1), reader.watcher.next()).await else {
            return true;
        };
        let Some(items) = items else {
            self.seen.ended += 1;
            self.finish(number);
            return false;
        };
        assert!(!items.is_empty());
        for item in items {
            match item {
                Item::Initial(entry) => {
                    assert!(reader.told.is_empty() && reader.wants_state);
                    reader.initial.push(entry);
                }
                Item::Line(line) => {
                    let event = &line.event;
                    assert!(reader.marked < event.revision(), "a bookmark said that this was told");
                    reader.told.push((line.kind, event.key().clone(), event.revision()));
                }
                Item::Bookmark { revision, mark } => {
                    assert!(reader.marked <= revision);
                    let first = !std::mem::replace(&mut reader.has_end, true);
                    assert_eq!(mark == Mark::InitialEventsEnd, first && reader.wants_state);
                    reader.marked = revision;
                    self.seen.marks += 1;
                }
                Item::Expired => panic!("this store is never replaced"),
            }
        }
        self.judge(number);
        true
    }

    fn owed(&self, reader: &Reader, upto: u64) -> Vec<Fact> {
        let after = reader.watcher.began_after();
        let events = self.history.iter().filter(|event| after < event.revision() && event.revision() <= upto);
        let facts = events.flat_map(|event| {
            let kinds = event.told(&reader.filter).iter();
            kinds.map(|kind| (*kind, event.key().clone(), event.revision()))
        });
        facts.collect()
    }

    /// What was told is whole up to some revision.
    fn judge(&self, number: usize) {
        let reader = &self.readers[number];
        let upto = reader.told.last().map_or(0, |fact| fact.2).max(reader.marked);
        assert_eq!(reader.told, self.owed(reader, upto), "{:?}", reader.filter);
        if reader.wants_state {
            let after = reader.watcher.began_after();
            let (_, then) = self.states.range(..=after).next_back().expect("the first is at 1");
            let mut wanted: Vec<&Entry> =
                then.values().filter(|entry| reader.filter.matches(entry)).collect();
            wanted.sort_by_key(|entry| entry.revision());
            assert_eq!(reader.initial.iter().collect::<Vec<_>>(), wanted);
        }
    }

    fn finish(&mut self, number: usize) {
        let reader = self.readers.swap_remove(number);
        self.seen.told += reader.told.len();
        self.seen.initial += reader.initial.len();
    }

    async fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..45 => self.write(),
            45..48 => (0..30).for_each(|_| self.write()),
            48..58 if self.readers.len() < 25 => self.start().await,
            58..60 => self.setup.store.break_watches(),
            60 if self.rng.random_bool(0.3) => {
                // What the cache has not seen yet is gone.
                self.setup.store.hold_watches(true);
                (0..3).for_each(|_| self.write());
                self.setup.store.compact(self.setup.store.revision());
                self.setup.store.hold_watches(false);
            }
            61 => {
                self.setup.store.set_available(false);
                tokio::time::sleep(Duration::from_millis(300)).await;
                self.setup.store.set_available(true);
            }
            62 if !self.readers.is_empty() => {
                let number = self.rng.random_range(0..self.readers.len());
                self.finish(number);
            }
            _ => tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..400))).await,
        }
        for number in (0..self.readers.len()).rev() {
            if self.rng.random_bool(self.readers[number].pace) {
                self.read(number).await;
            }
        }
    }

    /// Everybody who is still there reads all.
    async fn end(&mut self) {
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.write();
        let current = self.setup.store.revision();
        self.setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
        for number in (0..self.readers.len()).rev() {
            let mut goes_on = true;
            while goes_on && self.readers[number].told != self.owed(&self.readers[number], current) {
                goes_on = self.read(number).await;
            }
            if goes_on {
                self.seen.whole += 1;
                self.finish(number);
            }
        }
        let counters = self.setup.feed.counters();
        assert_eq!(counters.tally.mismatches, 0);
        assert_eq!((counters.watchers_live, counters.watchers_parked, counters.watchers_starting), (0, 0, 0));
        self.seen.parked += counters.tally.parked;
        self.seen.relists += counters.tally.relists;
        self.seen.forgotten += counters.tally.forgotten;
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_is_told_exactly_what_matches_or_is_ended() {
    let mut all = Seen::default();
    for seed in 0..4 {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.step().await;
        }
        world.end().await;
        let seen = world.seen;
        all.told += seen.told;
        all.initial += seen.initial;
        all.ended += seen.ended;
        all.whole += seen.whole;
        all.marks += seen.marks;
        all.parked += seen.parked;
        all.relists += seen.relists;
        all.forgotten += seen.forgotten;
    }
    // A model that never comes to the hard places proves nothing.
    assert!(all.told > 2_000 && all.initial > 200 && all.whole > 15 && all.marks > 50, "{all:?}");
    assert!(all.parked > 30 && all.relists > 3 && all.forgotten > 3 && all.ended > 15, "{all:?}");
}
