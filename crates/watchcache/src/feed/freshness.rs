//! Those who wait for a revision, each with the way to tell it.

use crate::cacher::freshness::{Freshness, Wait, WaiterId};
use std::collections::HashMap;
use tokio::sync::oneshot;

pub(super) struct Waiters {
    freshness: Freshness,
    callers: HashMap<WaiterId, oneshot::Sender<()>>,
}

pub(super) enum Waiting {
    Reached,
    For(WaiterId, oneshot::Receiver<()>),
    Refused,
}

impl Waiters {
    /// Nothing is reached before the first list.
    pub(super) fn new() -> Waiters {
        Waiters { freshness: Freshness::new(0), callers: HashMap::new() }
    }

    pub(super) fn wait(&mut self, revision: u64, deadline_ms: u64) -> Waiting {
        match self.freshness.wait(revision, deadline_ms) {
            Wait::Reached => Waiting::Reached,
            Wait::Refused => Waiting::Refused,
            Wait::Waiting(id) => {
                let (caller, told) = oneshot::channel();
                self.callers.insert(id, caller);
                Waiting::For(id, told)
            }
        }
    }

    pub(super) fn leave(&mut self, id: WaiterId) {
        self.freshness.leave(id);
        self.callers.remove(&id);
    }

    pub(super) fn reach(&mut self, revision: u64) {
        let reached = self.freshness.reach(revision);
        self.tell(reached);
    }

    /// What is waited for soonest.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.freshness.lowest()
    }

    /// The cache was filled anew, perhaps at a lower revision.
    pub(super) fn restart(&mut self, revision: u64) {
        let reached = self.freshness.restart(revision);
        self.tell(reached);
    }

    fn tell(&mut self, reached: Vec<WaiterId>) {
        for caller in reached.iter().filter_map(|id| self.callers.remove(id)) {
            // Who has left in the meantime need not know.
            let _ = caller.send(());
        }
    }
}
