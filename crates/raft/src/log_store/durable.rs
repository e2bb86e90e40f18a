//! How far the log is safe on this member's disk, for the apply thread.
//!
//! A commit is the cluster's word; this is the disk's. Apply must not let the state run ahead of
//! the local log (a crash would leave a state that the log contradicts), so it waits here before it
//! writes a batch.
//!
//! ```text
//!   first … durable … last        durable ≤ last, moved up by a finished sync,
//!                                 moved down at once by a truncate
//!   installed                     a floor of its own: a snapshot stands for the log below it
//! ```
//!
//! The mark is a log id, never an index: an index would still be "reached" by entries that were
//! truncated since. Never wait here on an async task: the wait blocks its thread.

use super::failure::Failure;
use crate::type_config::LogId;
use meerkat_fault::{Condvar, Mutex};
use std::io;
use std::sync::Arc;

/// Handle to the watermark. Clones share it.
#[derive(Clone)]
pub struct DurableLog {
    shared: Arc<Shared>,
}

struct Shared {
    /// Guards the mark only. May be taken while the ledger's lock is held, never the other way.
    mark: Mutex<Mark>,
    moved: Condvar,
    /// The same, for an apply that is a task.
    task_moved: tokio::sync::Notify,
}

impl Shared {
    fn tell_moved(&self) {
        self.moved.notify_all();
        self.task_moved.notify_waiters();
    }
}

struct Mark {
    log: Option<LogId>,
    installed: Option<LogId>,
    /// Nothing more will become durable.
    ended: Option<Failure>,
}

impl Mark {
    fn durable(&self) -> Option<LogId> {
        self.log.max(self.installed)
    }

    fn covers(&self, id: &LogId) -> bool {
        [self.log, self.installed]
            .into_iter()
            .flatten()
            // Along one log, ids grow with the index; asking for both guards against comparing
            // ids of two different logs.
            .any(|durable| durable >= *id && durable.index >= id.index)
    }
}

impl DurableLog {
    pub(super) fn new(log: Option<LogId>) -> DurableLog {
        let mark = Mutex::new(Mark { log, installed: None, ended: None });
        DurableLog {
            shared: Arc::new(Shared { mark, moved: Condvar::new(), task_moved: tokio::sync::Notify::new() }),
        }
    }

    /// The last log id that a crash cannot take away.
    pub fn durable(&self) -> Option<LogId> {
        self.shared.mark.lock().durable()
    }

    /// Blocks until the log is durable up to `id`. An error is final: the log has failed, or it
    /// was closed first.
    pub fn wait_durable(&self, id: &LogId) -> io::Result<()> {
        let mut mark = self.shared.mark.lock();
        loop {
            if mark.covers(id) {
                return Ok(());
            }
            if let Some(failure) = &mark.ended {
                return Err(failure.to_error());
            }
            self.shared.moved.wait(&mut mark);
        }
    }

    /// Returns when `wait_durable` would not block.
    pub async fn until_durable(&self, id: &LogId) {
        loop {
            let moved = self.shared.task_moved.notified();
            {
                let mark = self.shared.mark.lock();
                if mark.covers(id) || mark.ended.is_some() {
                    return;
                }
            }
            moved.await;
        }
    }

    /// An installed snapshot stands for the log up to `id`.
    pub fn raise(&self, id: LogId) {
        let mut mark = self.shared.mark.lock();
        mark.installed = mark.installed.max(Some(id));
        drop(mark);
        self.shared.tell_moved();
    }

    /// A sync finished; the log on disk ends at `log`.
    pub(super) fn synced(&self, log: Option<LogId>) {
        self.shared.mark.lock().log = log;
        self.shared.tell_moved();
    }

    /// The log was truncated to end at `last`; what was durable above it no longer counts.
    pub(super) fn lower(&self, last: Option<LogId>) {
        let mut mark = self.shared.mark.lock();
        mark.log = lower_of(mark.log, last);
    }

    pub(super) fn end(&self, failure: Failure) {
        self.shared.mark.lock().ended.get_or_insert(failure);
        self.shared.tell_moved();
    }
}

/// The one that stands earlier in the log.
pub(super) fn lower_of(a: Option<LogId>, b: Option<LogId>) -> Option<LogId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.index <= b.index { a } else { b }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_store::codec;

    fn id(term: u64, index: u64) -> LogId {
        let mut bytes = Vec::new();
        for number in [term, 1, index] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        codec::decode_log_id(&bytes).expect("log id")
    }

    #[test]
    fn a_truncate_lowers_the_mark_and_a_sync_raises_it_again() {
        let log = DurableLog::new(Some(id(1, 10)));
        log.lower(Some(id(1, 5)));
        assert_eq!(log.durable(), Some(id(1, 5)));
        log.synced(Some(id(2, 6)));
        assert_eq!(log.durable(), Some(id(2, 6)));
        log.lower(None);
        assert_eq!(log.durable(), None);
    }

    #[test]
    fn a_snapshot_is_a_floor_under_a_truncate() {
        let log = DurableLog::new(Some(id(1, 10)));
        log.raise(id(3, 20));
        log.lower(None);
        assert_eq!(log.durable(), Some(id(3, 20)));
        log.wait_durable(&id(1, 4)).expect("covered by the snapshot");
    }

    #[test]
    fn a_later_leader_at_a_lower_index_does_not_count() {
        let log = DurableLog::new(Some(id(2, 3)));
        log.end(Failure::closed());
        assert!(log.wait_durable(&id(1, 5)).is_err());
    }

    #[test]
    fn a_waiter_wakes_when_its_entry_is_durable_and_when_the_log_ends() {
        let log = DurableLog::new(None);
        let waiter = {
            let log = log.clone();
            std::thread::spawn(move || (log.wait_durable(&id(1, 1)), log.wait_durable(&id(1, 2))))
        };
        log.synced(Some(id(1, 1)));
        while !waiter.is_finished() {
            log.end(Failure::closed());
            std::thread::yield_now();
        }
        let (first, second) = waiter.join().expect("waiter");
        first.expect("became durable");
        second.expect_err("closed before it was durable");
    }
}
