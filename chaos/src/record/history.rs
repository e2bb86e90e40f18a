//! The record of a run: who asked what, when, and what came back.
//!
//! Times are offsets from one monotonic start, so those of different clients compare. The write
//! workload gives every write an identity of its own, stored under a key of its own, so that the
//! final state tells exactly which writes happened, in which order, and how often.

use std::time::Duration;

use crate::outcome::Outcome;

/// The identity of one write: no two writes of a run share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

impl WriteId {
    /// The `sequence`th write of a writer.
    pub fn new(writer: u32, sequence: u32) -> Self {
        Self(u64::from(writer) << 32 | u64::from(sequence))
    }

    /// Whether this write also sets the shared register, in the same transaction. A property of the
    /// identity, so that the final state can be read without the history beside it.
    pub fn sets_register(self) -> bool {
        self.0 & 1 == 1
    }
}

/// One write, from its client's side. `Ok` carries the revision it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which write.
    pub id: WriteId,
    /// When it was sent.
    pub invoked: Duration,
    /// When its outcome was known.
    pub returned: Duration,
    /// What its client knows.
    pub outcome: Outcome<i64>,
}

/// One answered linearizable read of the register. Unanswered ones prove nothing and are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The member that answered.
    pub member: usize,
    /// When it was sent.
    pub invoked: Duration,
    /// When it was answered.
    pub returned: Duration,
    /// The store's revision in the answer's header.
    pub revision: i64,
    /// The write found in the register, with its revision.
    pub register: Option<(WriteId, i64)>,
}

/// Everything the clients of one run did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All writes, in no order.
    pub writes: Vec<Write>,
    /// All answered reads, in no order.
    pub reads: Vec<Read>,
}

impl History {
    /// Adds what another client recorded.
    pub fn absorb(&mut self, other: History) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
    }

    /// How many writes were acknowledged, refused, and left unknown.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&Outcome<i64>) -> bool| {
            self.writes.iter().filter(|write| wanted(&write.outcome)).count()
        };
        (
            count(|outcome| matches!(outcome, Outcome::Ok(_))),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Unknown(_))),
        )
    }
}

/// One write as the store holds it after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which write.
    pub id: WriteId,
    /// The revision it happened at.
    pub revision: i64,
    /// How often its key was written: more than once means that it was applied twice.
    pub version: i64,
}

/// The store after a run.
#[derive(Clone, Debug, Default)]
pub struct FinalState {
    /// The revision before the run's first write.
    pub started_at: i64,
    /// The revision after its last.
    pub revision: i64,
    /// Every write found, in key order.
    pub stored: Vec<Stored>,
}
