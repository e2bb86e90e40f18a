//! What a seed decides before anything runs: which work, how members are tuned, how rough it gets.

use meerkat_server::config::Tuning;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub const MEMBERS: usize = 3;

/// Seeds from here on have no faults but stalls too short for an election, with the default timing.
pub const STEADY_FROM: u64 = 1 << 32;
/// Stalls are shorter than this.
pub const STALL_MILLIS: u64 = 700;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Unique writes, and reads of a register that they share.
    Register,
    /// A mix of writes that watchers look on at, and compactions.
    Watch,
    /// Leases that are renewed, let go and revoked, with keys on them.
    Lease,
    /// As Register, and nobody may stand for election meanwhile.
    Steady,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub work: Work,
    pub heartbeat_ms: u64,
    pub election_ms: u64,
    /// When faults begin and end, in milliseconds of the world.
    pub rough_from: u64,
    pub rough_until: u64,
    /// The longest pause between two faults.
    pub calm_millis: u64,
    pub flush_entries: u64,
    pub keep_entries: u64,
    pub flush_interval_ms: u64,
    pub segment_bytes: u64,
    pub cache_bytes: u64,
    pub watch_ring_bytes: u64,
}

impl Setup {
    pub fn of(seed: u64) -> Setup {
        let mut random = StdRng::seed_from_u64(seed ^ 0x005e_7095);
        let mut one_of = |choices: &[u64]| choices[random.random_range(0..choices.len())];
        let steady = STEADY_FROM <= seed;
        let (heartbeat_ms, election_ms, rough_from) =
            if steady { (100, 1_000, 4_000) } else { (40, 300, 600) };
        let rough_millis = one_of(&[1_200, 2_000, 4_000]);
        Setup {
            seed,
            work: match seed % 8 {
                _ if steady => Work::Steady,
                0 | 2 | 4 | 6 => Work::Register,
                7 => Work::Lease,
                _ => Work::Watch,
            },
            heartbeat_ms,
            election_ms,
            rough_from,
            rough_until: rough_from + if steady { 20_000 } else { rough_millis },
            calm_millis: one_of(&[300, 600, 1_200]),
            flush_entries: one_of(&[10, 40, 10_000]),
            keep_entries: one_of(&[3, 20, 5_000]),
            flush_interval_ms: one_of(&[250, 1_000, 30_000]),
            segment_bytes: one_of(&[2 << 10, 8 << 10, 32 << 10]),
            cache_bytes: one_of(&[512, 8 << 10, 1 << 20]),
            watch_ring_bytes: one_of(&[2 << 10, 64 << 10, 1 << 20]),
        }
    }

    pub fn tuning(&self) -> Tuning {
        Tuning {
            log_segment_bytes: self.segment_bytes,
            log_cache_bytes: self.cache_bytes,
            flush_interval_ms: self.flush_interval_ms,
            snapshot_keep_entries: self.keep_entries,
            watch_ring_bytes: self.watch_ring_bytes,
            ..Tuning::default()
        }
    }
}
