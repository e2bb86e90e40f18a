//! What the log has done since it was opened, for metrics.
//!
//! Plain counters that only grow; reading them takes no lock and tears nothing worse than two
//! counters apart. The buckets are those of `etcd_disk_wal_fsync_duration_seconds`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for sync times: bucket n counts those up to 0.001 × 2^n seconds.
pub const SYNC_BUCKETS: usize = 14;

#[derive(Debug, Default)]
pub struct LogStats {
    appends: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    /// The last one counts what is above every bound.
    sync_buckets: [AtomicU64; SYNC_BUCKETS + 1],
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

    /// All syncs together.
    pub fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.sync_nanos.load(Ordering::Relaxed))
    }

    /// Syncs by duration: (upper bound in seconds, syncs in this bucket alone). The last bound is
    /// infinite.
    pub fn sync_buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.sync_buckets.iter().enumerate().map(|(n, count)| {
            let bound = if n < SYNC_BUCKETS { bucket_bound(n).as_secs_f64() } else { f64::INFINITY };
            (bound, count.load(Ordering::Relaxed))
        })
    }

    pub(super) fn count_append(&self) {
        self.appends.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_sync(&self, took: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let bucket = (0..SYNC_BUCKETS).find(|n| took <= bucket_bound(*n)).unwrap_or(SYNC_BUCKETS);
        self.sync_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }
}

fn bucket_bound(n: usize) -> Duration {
    Duration::from_millis(1 << n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_falls_into_the_first_bucket_that_holds_it() {
        let stats = LogStats::default();
        for millis in [0, 1, 2, 3, 8192, 8193] {
            stats.count_sync(Duration::from_millis(millis));
        }
        let filled: Vec<(f64, u64)> = stats.sync_buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.001, 2), (0.002, 1), (0.004, 1), (8.192, 1), (f64::INFINITY, 1)]);
        assert_eq!(stats.syncs(), 6);
    }
}
