//! Keeps the log short: decides when the state is flushed and how far the log may then be purged.
//!
//! Always true: the log is purged only up to what the state has on disk, keeps `keep_entries`
//! behind that for followers that lag a little, and keeps everything a snapshot in transfer still
//! needs.

use crate::log_store::LogStore;
use crate::state_machine::{MeerkatRaft, StateHandle};
use crate::type_config::index_of;
use meerkat_types::LogIndex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the policy looks.
const TICK: Duration = Duration::from_millis(200);

/// When to flush, and what to keep.
#[derive(Clone, Debug)]
pub struct LogPolicy {
    /// Bytes of log since the last flush that force one: bounds replay at start.
    pub flush_log_bytes: u64,
    /// Entries since the last flush that force one.
    pub flush_entries: u64,
    /// Time since the last flush that forces one, if anything was applied: lets an idle member
    /// release its log.
    pub flush_interval: Duration,
    /// Entries kept behind the flushed state.
    pub keep_entries: u64,
}

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    applied: LogIndex,
    flushed: LogIndex,
    log_bytes_since_flush: u64,
    since_flush: Duration,
}

impl LogPolicy {
    fn wants_flush(&self, seen: &Seen) -> bool {
        let behind = seen.applied.since(seen.flushed);
        behind > 0
            && (self.flush_entries <= behind
                || self.flush_log_bytes <= seen.log_bytes_since_flush
                || self.flush_interval <= seen.since_flush)
    }

    /// The last index that may go; `None` when nothing may.
    fn purge_upto(&self, flushed: LogIndex, purged: LogIndex, pinned: Option<LogIndex>) -> Option<LogIndex> {
        let upto = LogIndex(flushed.0.saturating_sub(self.keep_entries));
        let upto = pinned.map_or(upto, |pin| upto.min(LogIndex(pin.0.saturating_sub(1))));
        // Not worth a record for less than a tenth of what is kept.
        (purged + self.keep_entries / 10 < upto).then_some(upto)
    }
}

/// Runs until Raft stops.
pub(crate) async fn run(policy: LogPolicy, raft: MeerkatRaft, log: LogStore, shared: Arc<StateHandle>) {
    let mut flushed_at = Instant::now();
    let mut asked_at_index = LogIndex(0);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Ok((snapshot, purged)) = positions(&raft) else { return };
        let applied = index_of(shared.applied_state().0.as_ref());
        if asked_at_index <= snapshot && asked_at_index != LogIndex(0) {
            flushed_at = Instant::now();
            asked_at_index = LogIndex(0);
        }
        let seen = Seen {
            applied,
            flushed: snapshot,
            log_bytes_since_flush: log.bytes_since(snapshot.next()),
            since_flush: flushed_at.elapsed(),
        };
        if asked_at_index == LogIndex(0) && policy.wants_flush(&seen) {
            asked_at_index = applied;
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
        if let Some(upto) = policy.purge_upto(snapshot, purged, shared.pins.lowest(Instant::now()))
            && raft.trigger().purge_log(upto.0).await.is_err()
        {
            return;
        }
    }
}

/// Where the last snapshot ends and up to where the log is purged.
fn positions(raft: &MeerkatRaft) -> Result<(LogIndex, LogIndex), ()> {
    use openraft::async_runtime::watch::WatchReceiver;
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    if metrics.running_state.is_err() {
        return Err(());
    }
    Ok((index_of(metrics.snapshot.as_ref()), index_of(metrics.purged.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> LogPolicy {
        LogPolicy {
            flush_log_bytes: 1_000,
            flush_entries: 100,
            flush_interval: Duration::from_secs(30),
            keep_entries: 50,
        }
    }

    fn purge_upto(flushed: u64, purged: u64, pinned: Option<u64>) -> Option<u64> {
        let (flushed, purged) = (LogIndex(flushed), LogIndex(purged));
        policy().purge_upto(flushed, purged, pinned.map(LogIndex)).map(|upto| upto.0)
    }

    fn check_flush(applied: u64, bytes: u64, seconds: u64, expected: bool) {
        let seen = Seen {
            applied: LogIndex(applied),
            flushed: LogIndex(10),
            log_bytes_since_flush: bytes,
            since_flush: Duration::from_secs(seconds),
        };
        assert_eq!(policy().wants_flush(&seen), expected, "{seen:?}");
    }

    #[test]
    fn a_flush_is_forced_by_bytes_entries_or_time() {
        check_flush(11, 0, 0, false);
        check_flush(110, 0, 0, true);
        check_flush(11, 1_000, 0, true);
        check_flush(11, 0, 30, true);
    }

    #[test]
    fn nothing_applied_since_means_nothing_to_flush() {
        check_flush(10, 9_999, 999, false);
    }

    #[test]
    fn what_the_state_has_on_disk_may_go_but_for_what_followers_need() {
        assert_eq!(purge_upto(1_000, 0, None), Some(950));
        assert_eq!(purge_upto(1_000, 949, None), None, "too little to bother");
        assert_eq!(purge_upto(30, 0, None), None);
    }

    #[test]
    fn a_snapshot_in_transfer_keeps_the_log_behind_it() {
        assert_eq!(purge_upto(1_000, 0, Some(500)), Some(499));
        assert_eq!(purge_upto(1_000, 499, Some(500)), None);
    }
}
