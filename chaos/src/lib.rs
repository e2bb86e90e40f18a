//! Breaks clusters of real processes on purpose, then proves from outside that they kept their
//! promises.
//!
//! Reading order: `driver` starts, kills and pauses members; `endpoint` speaks to them through the
//! raw generated stubs, so that no client of ours can hide a fault, and `metrics` are its numbers; `workload` makes the load and
//! records it in a `history`; `watch` records what watchers are sent, `lease` what becomes of leases; `checker` judges histories, purely; `differential` compares answers
//! with those of real etcd; `scenario` puts these together, once, for the tests and for the long
//! forms of the command. `run` puts together any `ground`, workloads and `nemesis` from one seed.
//!
//! Links nothing of the server it tests, so the same code judges an older build, or etcd as the
//! control. Only `failover` puts a client library between itself and the members: it tests that.

pub mod binary;
pub mod checker;
pub mod differential;
pub mod driver;
pub mod endpoint;
pub mod failover;
pub mod failure;
pub mod ground;
pub mod history;
pub mod lease;
pub mod listwatch;
pub mod metrics;
pub mod nemesis;
pub mod outcome;
pub mod report;
pub mod run;
pub mod scenario;
pub mod watch;
pub mod workload;

pub use failure::Failure;
