//! What the common operations cost the thread that asks, in nanoseconds of processor time each.
//! Prints a table; asserts nothing.
//!
//! `cargo run --release -p meerkat-state --example cost [KEYS]`

use bytes::Bytes;
use meerkat_engine::{Db, DbOptions};
use meerkat_state::{Compactor, LogEntry, Machine, Payload, Progress, StateReader};
use meerkat_types::{
    Command, Compact, Consistency, Key, KeyRange, LogIndex, LogPosition, MemberId, NewLease, NewValue,
    Proposal, Put, RangeQuery, RequestId, RevisionBounds, Sort, Term,
};

/// Nanoseconds that this thread has run for: unlike the time of day, a busy machine hardly changes it.
fn thread_cpu_ns() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    times.split(' ').next().and_then(|first| first.parse().ok()).expect("a number comes first")
}

fn timed<R>(what: &str, operations: usize, work: impl FnOnce() -> R) -> R {
    let start = thread_cpu_ns();
    let result = work();
    println!("{what:<42} {:>9} ns", (thread_cpu_ns() - start) / operations as u64);
    result
}

fn key(number: usize) -> Key {
    Key::new(Bytes::from(format!("/registry/pods/default/pod-{number:08}"))).expect("not empty")
}

struct Feed {
    machine: Machine,
    index: u64,
}

impl Feed {
    fn entry(&mut self, command: Command) -> LogEntry {
        let position = LogPosition { term: Term(1), node: MemberId(1), index: LogIndex(self.index) };
        self.index += 1;
        let proposal = Proposal { id: RequestId(self.index), stamp_ms: self.index, asker: None, command };
        LogEntry { position, payload: Payload::Command(proposal) }
    }

    fn puts(&mut self, what: &str, keys: impl Iterator<Item = usize>, batch: usize) {
        let value = Bytes::from(vec![b'v'; 256]);
        let entries: Vec<_> = keys
            .map(|number| {
                self.entry(Command::Put(Put {
                    key: key(number),
                    value: NewValue::Set(value.clone()),
                    lease: NewLease::Set(None),
                    want_previous: false,
                }))
            })
            .collect();
        timed(what, entries.len(), || {
            for batch in entries.chunks(batch) {
                self.machine.apply(batch).expect("apply");
            }
        });
    }
}

fn query(keys: KeyRange, limit: Option<usize>) -> RangeQuery {
    RangeQuery {
        keys,
        at: None,
        limit,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

fn reads(reader: &StateReader, keys: usize) {
    let scattered = |n: usize| n.wrapping_mul(7_919) % keys;
    timed("point get", 100_000, || {
        for n in 0..100_000 {
            reader.range(&query(KeyRange::One(key(scattered(n))), None)).expect("range");
        }
    });
    for start in [0, keys / 2, keys.saturating_sub(2_000)] {
        timed(&format!("page of 500 from {start}, with count"), 200, || {
            for _ in 0..200 {
                reader.range(&query(KeyRange::From(key(start)), Some(500))).expect("range");
            }
        });
    }
    let end = |start: usize| key(start + 1_000).into_bytes();
    timed("range of 1000 keys", 200, || {
        for n in 0..200 {
            let start = scattered(n).min(keys.saturating_sub(1_000));
            let keys = KeyRange::Span { first: key(start), end: end(start) };
            reader.range(&query(keys, None)).expect("range");
        }
    });
    let past = meerkat_types::Revision::new(reader.current_revision().get() - 10_000);
    timed("page of 500, 10000 revisions back", 20, || {
        for _ in 0..20 {
            let query = RangeQuery { at: Some(past), ..query(KeyRange::From(key(0)), Some(500)) };
            reader.range(&query).expect("range");
        }
    });
    timed("point get, 10000 revisions back", 10_000, || {
        for n in 0..10_000 {
            let query = RangeQuery { at: Some(past), ..query(KeyRange::One(key(scattered(n))), None) };
            reader.range(&query).expect("range");
        }
    });
}

fn main() {
    let keys = std::env::args().nth(1).map_or(100_000, |keys| keys.parse().expect("KEYS is a number"));
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &DbOptions::default()).expect("open");
    let reader = StateReader::new();
    let mut feed = Feed { machine: Machine::open(db.clone(), &reader).expect("open"), index: 0 };
    feed.puts("put of a new key, batches of 64", 0..keys, 64);
    let scattered = |n: usize| n.wrapping_mul(7_919) % keys;
    feed.puts("put of an old key, batches of 64", (0..50_000).map(scattered), 64);
    feed.puts("put of an old key, one by one", (0..50_000).map(scattered), 1);
    feed.machine.set_publish_events(false);
    feed.puts("the same without events", (0..50_000).map(scattered), 1);
    reads(&reader, keys);
    timed("flush", 1, || db.flush().expect("flush"));
    println!("after the flush:");
    reads(&reader, keys);
    let command = Command::Compact(Compact { revision: reader.current_revision() });
    let entry = feed.entry(command);
    feed.machine.apply(&[entry]).expect("apply");
    let compactor = Compactor::new(db.clone());
    timed("compaction, for each event", keys + 150_000, || {
        while compactor.step(1_000).expect("step") == Progress::More {}
    });
    timed("hash of all", 1, || reader.hash_kv(None).expect("hash"));
    println!("{:?} {:?}", db.approximate_size(), db.memory_usage());
}
