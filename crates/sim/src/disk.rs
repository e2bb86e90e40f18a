//! A member's log disk: the one that the log's own tests crash, with syncs that take time.

#[path = "../../raft/tests/it/sim_disk.rs"]
#[allow(dead_code)]
mod model;

use crate::host;
use meerkat_raft::log_store::disk::{LogDisk, LogFile};
use model::SimDisk;
use rand::Rng;
use rand::rngs::StdRng;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a sync takes, mostly and now and then.
const SYNC_MILLIS: u64 = 4;
const STALL_MILLIS: u64 = 120;

#[derive(Clone, Default)]
pub struct Disk {
    files: SimDisk,
    /// No sync ends before this time of the world.
    stalled_until: Arc<AtomicU64>,
}

impl Disk {
    /// What is left when the power goes: all that was synced, and of the rest what chance leaves.
    pub fn crash(&self, random: &mut StdRng) -> Disk {
        let pending = self.files.pending_bytes();
        let files = match random.random_range(0..4) {
            0 => self.files.crash_keeping_bytes(0),
            1 => self.files.crash_keeping_bytes(random.random_range(0..=pending)),
            2 => self.files.crash_keeping_sectors(|| random.random_bool(0.5)),
            _ => self.files.copy(),
        };
        Disk { files, stalled_until: self.stalled_until.clone() }
    }

    pub fn stall(&self, until: u64) {
        self.stalled_until.store(until, Ordering::Relaxed);
    }
}

impl LogDisk for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.files.open(name)
    }

    fn create(&self, name: &str, len: u64, head: &[u8]) -> io::Result<Arc<dyn LogFile>> {
        self.files.create(name, len, head)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn describe(&self, name: &str) -> String {
        self.files.describe(name)
    }

    fn sync_takes(&self) -> Duration {
        let stalls = rand::random_ratio(1, 100);
        let takes = rand::random_range(0..if stalls { STALL_MILLIS } else { SYNC_MILLIS });
        let stalled = self.stalled_until.load(Ordering::Relaxed).saturating_sub(host::now());
        Duration::from_millis(stalled.max(takes))
    }
}
