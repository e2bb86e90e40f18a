//! Outcomes that somebody on this member waits for, by the name of the proposal.
//!
//! Bounded in count and in bytes. A proposal whose waiter is gone (it timed out, or its client left)
//! is not proposed any more: nobody would learn of it, and a write that happens minutes after its
//! client gave up surprises everybody.

use crate::propose::ProposeError;
use meerkat_fault::Mutex;
use meerkat_types::{Outcome, RequestId, limits};
use std::collections::HashMap;
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct Waiters {
    /// Taken for a moment by proposers and by the apply thread; nothing else is held with it.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<RequestId, Waiter>,
    bytes: usize,
}

struct Waiter {
    outcome: oneshot::Sender<Outcome>,
    bytes: usize,
    /// It was handed to a leader, so it may be in a log.
    submitted: bool,
}

/// One caller's wait. Dropping it gives up.
pub(crate) struct Waiting<'w> {
    waiters: &'w Waiters,
    id: RequestId,
}

impl Waiters {
    /// `bytes` is the weight of the proposal while it waits.
    pub(crate) fn add(
        &self,
        id: RequestId,
        bytes: usize,
    ) -> Result<(Waiting<'_>, oneshot::Receiver<Outcome>), ProposeError> {
        let (outcome, receiver) = oneshot::channel();
        let mut table = self.table.lock();
        if limits::PROPOSALS_PENDING_MAX <= table.waiting.len()
            || limits::PROPOSALS_PENDING_BYTES_MAX < table.bytes + bytes
        {
            return Err(ProposeError::Overloaded);
        }
        table.bytes += bytes;
        table.waiting.insert(id, Waiter { outcome, bytes, submitted: false });
        Ok((Waiting { waiters: self, id }, receiver))
    }

    pub(crate) fn pending(&self) -> usize {
        self.table.lock().waiting.len()
    }

    /// Whether somebody still waits; notes that the proposal is now out of our hands.
    pub(crate) fn submit(&self, id: RequestId) -> bool {
        match self.table.lock().waiting.get_mut(&id) {
            Some(waiter) => {
                waiter.submitted = true;
                true
            }
            None => false,
        }
    }

    /// The proposal came back: it is in no log.
    pub(crate) fn came_back(&self, id: RequestId) {
        if let Some(waiter) = self.table.lock().waiting.get_mut(&id) {
            waiter.submitted = false;
        }
    }

    /// Called by the apply thread, after the outcome is visible to readers.
    pub(crate) fn deliver(&self, outcomes: impl Iterator<Item = (RequestId, Outcome)>) {
        let mut table = self.table.lock();
        for (id, outcome) in outcomes {
            if let Some(waiter) = table.remove(id) {
                // The caller may have given up; then nobody is left to tell.
                let _ = waiter.outcome.send(outcome);
            }
        }
    }
}

impl Table {
    fn remove(&mut self, id: RequestId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        self.bytes -= waiter.bytes;
        Some(waiter)
    }
}

impl Waiting<'_> {
    /// Whether the proposal may be in a log by now.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.waiters.table.lock().waiting.get(&self.id).is_none_or(|waiter| waiter.submitted)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.table.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_bounded_in_count_and_forgotten() {
        let waiters = Waiters::default();
        let mut kept = Vec::new();
        for id in 0..limits::PROPOSALS_PENDING_MAX as u64 {
            kept.push(waiters.add(RequestId(id), 1).expect("room"));
        }
        assert!(matches!(waiters.add(RequestId(u64::MAX), 1), Err(ProposeError::Overloaded)));
        drop(kept.pop());
        assert!(waiters.add(RequestId(u64::MAX), 1).is_ok());
    }

    #[test]
    fn waiters_are_bounded_in_bytes() {
        let waiters = Waiters::default();
        let all = waiters.add(RequestId(1), limits::PROPOSALS_PENDING_BYTES_MAX).expect("room");
        assert!(matches!(waiters.add(RequestId(2), 1), Err(ProposeError::Overloaded)));
        drop(all);
        assert!(waiters.add(RequestId(2), 1).is_ok());
    }

    #[test]
    fn a_proposal_nobody_waits_for_is_not_submitted() {
        let waiters = Waiters::default();
        let (waiting, _outcome) = waiters.add(RequestId(1), 1).expect("room");
        assert!(!waiting.may_have_happened());
        assert!(waiters.submit(RequestId(1)));
        assert!(waiting.may_have_happened());
        waiters.came_back(RequestId(1));
        assert!(!waiting.may_have_happened());
        drop(waiting);
        assert!(!waiters.submit(RequestId(1)));
    }
}
