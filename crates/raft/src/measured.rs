//! What this member has measured of itself since it started, for metrics.

use crate::histogram::Histogram;
use meerkat_types::MemberId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The state: changes, and moves of all of it.
#[derive(Debug)]
pub struct StateTimes {
    /// Batches, from their decoding to the answers of their proposers.
    pub apply: Histogram,
    /// The part of it that changes the state and commits it to the engine.
    pub commit: Histogram,
    /// Checkpoints made for followers that lag too far.
    pub checkpoint: Histogram,
    /// Snapshots installed.
    pub install: Histogram,
    pub received: Arc<SnapshotSyncs>,
    slow_applies: AtomicU64,
    installing: AtomicU64,
}

impl Default for StateTimes {
    fn default() -> StateTimes {
        StateTimes {
            apply: Histogram::new(Duration::from_micros(100), 20),
            commit: Histogram::new(Duration::from_millis(1), 14),
            checkpoint: Histogram::new(Duration::from_millis(10), 17),
            install: Histogram::new(Duration::from_millis(100), 10),
            received: Arc::default(),
            slow_applies: AtomicU64::new(0),
            installing: AtomicU64::new(0),
        }
    }
}

impl StateTimes {
    /// Counts a read that took longer than it should among what was slow to apply, as etcd does.
    pub fn count_slow(&self) {
        self.slow_applies.fetch_add(1, Ordering::Relaxed);
    }

    pub fn slow_applies(&self) -> u64 {
        self.slow_applies.load(Ordering::Relaxed)
    }

    /// Snapshots that are being installed right now.
    pub fn installing(&self) -> u64 {
        self.installing.load(Ordering::Relaxed)
    }

    /// Whether the batch was slow: took longer than `expected`.
    pub(crate) fn applied(&self, took: Duration, expected: Duration) -> bool {
        self.apply.observe(took);
        let is_slow = expected < took;
        if is_slow {
            self.slow_applies.fetch_add(1, Ordering::Relaxed);
        }
        is_slow
    }

    /// Counts as under way until the answer is dropped.
    pub(crate) fn begin_install(&self) -> Installing<'_> {
        self.installing.fetch_add(1, Ordering::Relaxed);
        Installing { times: self, began: Instant::now() }
    }
}

/// Syncs of snapshots that came from other members.
#[derive(Debug)]
pub struct SnapshotSyncs {
    /// Of single files.
    pub files: Histogram,
    /// Of the directories that name all of them.
    pub directories: Histogram,
}

impl Default for SnapshotSyncs {
    fn default() -> SnapshotSyncs {
        let histogram = || Histogram::new(Duration::from_millis(1), 14);
        SnapshotSyncs { files: histogram(), directories: histogram() }
    }
}

pub(crate) struct Installing<'a> {
    times: &'a StateTimes,
    began: Instant,
}

impl Drop for Installing<'_> {
    fn drop(&mut self) {
        self.times.install.observe(self.began.elapsed());
        self.times.installing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The removal of what was compacted away.
#[derive(Debug)]
pub struct CompactionTimes {
    /// Single steps, between which others work.
    pub step: Histogram,
    /// Whole compactions, pauses included.
    pub whole: Histogram,
}

impl Default for CompactionTimes {
    fn default() -> CompactionTimes {
        CompactionTimes {
            step: Histogram::new(Duration::from_millis(1), 13),
            whole: Histogram::new(Duration::from_millis(100), 14),
        }
    }
}

/// What went to and came from one other member.
#[derive(Debug)]
pub struct PeerTraffic {
    /// From a heartbeat to its answer.
    pub round_trip: Histogram,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    failures: AtomicU64,
}

impl Default for PeerTraffic {
    fn default() -> PeerTraffic {
        PeerTraffic {
            round_trip: Histogram::new(Duration::from_micros(100), 15),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }
}

impl PeerTraffic {
    /// Bytes of entries and heartbeats sent to it.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of entries and heartbeats that came from it.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Calls that did not reach it, or that it refused.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// One other member, as this one sees it.
#[derive(Clone, Debug)]
pub struct PeerView {
    pub member: MemberId,
    /// It is connected.
    pub active: bool,
    pub traffic: Arc<PeerTraffic>,
}
