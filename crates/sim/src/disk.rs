//! A member's log disk: the one that the log's own tests crash, with syncs that take time.

#[path = "../../raft/tests/it/sim_disk.rs"]
#[allow(dead_code)]
mod model;

use meerkat_raft::log_store::disk::{LogDisk, LogFile};
use model::SimDisk;
use rand::Rng;
use rand::rngs::StdRng;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What a sync takes, mostly and now and then.
const SYNC_MILLIS: u64 = 4;
const STALL_MILLIS: u64 = 120;

#[derive(Clone, Default)]
pub struct Disk(SimDisk);

impl Disk {
    /// What is left when the power goes: all that was synced, and of the rest what chance leaves.
    pub fn crash(&self, random: &mut StdRng) -> Disk {
        let pending = self.0.pending_bytes();
        Disk(match random.random_range(0..4) {
            0 => self.0.crash_keeping_bytes(0),
            1 => self.0.crash_keeping_bytes(random.random_range(0..=pending)),
            2 => self.0.crash_keeping_sectors(|| random.random_bool(0.5)),
            _ => self.0.copy(),
        })
    }
}

impl LogDisk for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.0.open(name)
    }

    fn create(&self, name: &str, len: u64, head: &[u8]) -> io::Result<Arc<dyn LogFile>> {
        self.0.create(name, len, head)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn describe(&self, name: &str) -> String {
        self.0.describe(name)
    }

    fn sync_takes(&self) -> Duration {
        let stalls = rand::random_ratio(1, 100);
        Duration::from_millis(rand::random_range(0..if stalls { STALL_MILLIS } else { SYNC_MILLIS }))
    }
}
