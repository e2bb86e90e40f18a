//! A machine on a directory of its own, with the log it was fed.

use meerkat_engine::{Db, DbOptions};
use meerkat_state::{Applied, Compactor, LogEntry, Machine, Payload, Progress, StateReader};
use meerkat_types::{Command, LogIndex, LogPosition, MemberId, Proposal, RequestId, Term};
use tempfile::TempDir;

pub struct Rig {
    pub machine: Option<Machine>,
    pub reader: StateReader,
    directory: TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        let mut rig = Rig { machine: None, reader: StateReader::new(), directory };
        rig.open();
        rig
    }

    /// On a database that was made in another way than by applying a log.
    pub fn prepared(prepare: impl FnOnce(Db)) -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        prepare(Db::open(directory.path().join("state"), &DbOptions::default()).expect("open"));
        let mut rig = Rig { machine: None, reader: StateReader::new(), directory };
        rig.open();
        rig
    }

    pub fn open(&mut self) {
        let small = DbOptions {
            block_cache_bytes: 4 << 20,
            write_buffer_bytes: 4 << 20,
            flush_on_close: false,
            ..DbOptions::default()
        };
        let db = Db::open(self.directory.path().join("state"), &small).expect("open");
        self.machine = Some(Machine::open(db, &self.reader).expect("recover"));
    }

    /// Closes the database; what was not flushed is lost, as in a crash.
    pub fn crash(&mut self) {
        // A published point would keep the old database open.
        self.reader = StateReader::new();
        self.machine = None;
        self.open();
    }

    pub fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("open")
    }

    pub fn db(&self) -> Db {
        self.machine.as_ref().expect("open").db().clone()
    }

    pub fn apply(&mut self, entries: &[LogEntry]) -> Vec<Applied> {
        self.machine().apply(entries).expect("apply")
    }

    pub fn compactor(&self) -> Compactor {
        Compactor::new(self.db())
    }

    pub fn compact_fully(&self) {
        let compactor = self.compactor();
        for _ in 0..100_000 {
            if compactor.step(7).expect("step") != Progress::More {
                return;
            }
        }
        panic!("compaction does not end");
    }
}

/// Numbers commands as a log would, with a clock that sometimes goes back.
#[derive(Default)]
pub struct Log {
    pub entries: Vec<LogEntry>,
}

impl Log {
    /// Of the next entry.
    pub fn term(&self) -> Term {
        Term(1 + self.entries.len() as u64 / 50)
    }

    pub fn push(&mut self, payload: Payload) -> &LogEntry {
        let index = self.entries.len() as u64;
        let position =
            LogPosition { term: self.term(), node: MemberId(1 + index / 70 % 3), index: LogIndex(index) };
        self.entries.push(LogEntry { position, payload });
        &self.entries[self.entries.len() - 1]
    }

    pub fn command(&mut self, command: Command) -> LogEntry {
        let index = self.entries.len() as u64;
        let stamp_ms = 1_700_000_000_000 + index * 10 - (index % 7) * 15;
        self.push(Payload::Command(Proposal { id: RequestId(index), stamp_ms, asker: None, command })).clone()
    }
}

/// Says how to repeat a run that fails.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with: MEERKAT_SEED={} cargo test --release -p meerkat-state --test it", self.0);
        }
    }
}

/// The seeds to run: one named in the environment, or the first `number`.
pub fn seeds(number: u64) -> Vec<u64> {
    match std::env::var("MEERKAT_SEED") {
        Ok(seed) => vec![seed.parse().expect("MEERKAT_SEED is a number")],
        Err(_) => (1..=number).collect(),
    }
}
