//! The black-box suites: one program, a suite per module, so that everything is linked once.
//!
//! `cargo xtask test` runs each module as a suite of its own, in a process of its own, one test at a
//! time. By hand: `cargo test --release -p meerkat-chaos --test it -- crash:: --test-threads=1 --nocapture`.

mod auth_differential;
mod bad_input;
mod big_store;
mod churn;
mod client_failover;
mod client_fate;
mod clocks;
mod cluster_differential;
mod crash;
mod deploy;
mod differential;
mod disks;
mod fail_stop;
mod failover_time;
mod fault_points;
mod incidents;
mod lease_differential;
mod lease_incidents;
mod lease_precision;
mod listwatch;
mod listwatch_failover;
mod listwatch_index;
mod listwatch_many;
mod lock_differential;
mod maintenance;
mod membership;
mod membership_chaos;
mod netns;
mod pause;
mod smoke;
mod snapshot;
mod watch_beyond;
mod watch_crash;
mod watch_differential;
mod watch_incidents;
mod watch_many;
mod watch_stalled;
mod workloads;

/// A fixed seed, so that a red run is red again; another one through the environment.
fn seed(fixed: u64) -> u64 {
    std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fixed)
}
