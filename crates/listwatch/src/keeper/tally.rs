//! What a keeper has done, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Tally {
    turns: AtomicU64,
    collected: AtomicU64,
    orphaned: AtomicU64,
    namespaces: AtomicU64,
    definitions: AtomicU64,
    failures: AtomicU64,
}

/// One thing that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It became this door's turn.
    Turn,
    /// An object was deleted, or marked, since its owners are gone.
    Collected,
    /// An object has an owner less, and stays.
    Orphaned,
    /// A namespace was emptied.
    Namespace,
    /// A definition's objects were removed.
    Definition,
    /// A look that will be tried again.
    Failure,
}

impl Deed {
    pub const ALL: [Deed; 6] =
        [Deed::Turn, Deed::Collected, Deed::Orphaned, Deed::Namespace, Deed::Definition, Deed::Failure];

    /// The name and the help of its metric.
    pub fn metric(self) -> (&'static str, &'static str) {
        match self {
            Deed::Turn => ("keeper_turns_total", "Times this door became the keeper."),
            Deed::Collected => ("keeper_collected_total", "Objects deleted since their owners are gone."),
            Deed::Orphaned => ("keeper_orphaned_total", "Objects that lost an owner and stay."),
            Deed::Namespace => ("keeper_namespaces_emptied_total", "Namespaces emptied."),
            Deed::Definition => {
                ("keeper_definitions_emptied_total", "Definitions whose objects were removed.")
            }
            Deed::Failure => ("keeper_failures_total", "Looks that failed and are tried again."),
        }
    }
}

impl Tally {
    pub fn add(&self, deed: Deed) {
        self.counter(deed).fetch_add(1, Ordering::Relaxed);
    }

    pub fn of(&self, deed: Deed) -> u64 {
        self.counter(deed).load(Ordering::Relaxed)
    }

    fn counter(&self, deed: Deed) -> &AtomicU64 {
        match deed {
            Deed::Turn => &self.turns,
            Deed::Collected => &self.collected,
            Deed::Orphaned => &self.orphaned,
            Deed::Namespace => &self.namespaces,
            Deed::Definition => &self.definitions,
            Deed::Failure => &self.failures,
        }
    }
}
