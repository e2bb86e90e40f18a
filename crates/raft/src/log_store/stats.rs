//! What the log has done since it was opened, for metrics.
//!
//! Plain counters that only grow; reading them takes no lock and tears nothing worse than two
//! counters apart. The buckets are those of `etcd_disk_wal_fsync_duration_seconds`.

use crate::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub struct LogStats {
    /// Writes to segment files, each of everything that was queued.
    pub write: Histogram,
    pub sync: Histogram,
    appends: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Default for LogStats {
    fn default() -> LogStats {
        let histogram = || Histogram::new(Duration::from_millis(1), 14);
        LogStats {
            write: histogram(),
            sync: histogram(),
            appends: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }
}

impl LogStats {
    /// Entries appended.
    pub fn appends(&self) -> u64 {
        self.appends.load(Ordering::Relaxed)
    }

    /// Writes to segment files: each carries everything that was queued.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    pub(super) fn count_append(&self) {
        self.appends.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize, took: Duration) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.write.observe(took);
    }

    pub(super) fn count_sync(&self, took: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_syncs_have_etcds_buckets() {
        let stats = LogStats::default();
        for millis in [0, 1, 2, 3, 8192, 8193] {
            stats.count_write(100, Duration::from_millis(millis));
            stats.count_sync(Duration::from_millis(millis));
        }
        for histogram in [&stats.write, &stats.sync] {
            let filled: Vec<(f64, u64)> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
            assert_eq!(filled, [(0.001, 2), (0.002, 1), (0.004, 1), (8.192, 1), (f64::INFINITY, 1)]);
        }
        assert_eq!((stats.writes(), stats.bytes(), stats.syncs()), (6, 600, 6));
    }
}
