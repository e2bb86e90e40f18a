//! Breaks clusters of real processes on purpose, then proves from outside that they kept their
//! promises.
//!
//! The modules lie in layers, and each uses only those below it: `cargo xtask tidy` holds the table
//! (xtask/src/tidy/layers.rs). From below: `record` is what happened, as plain data; `checker` judges it,
//! purely. `endpoint` speaks to members through the raw generated stubs, so that no client of ours can hide
//! a fault; a `ground` is where members stand, and `driver` starts, kills and pauses them there. `watch`,
//! `lease`, `listwatch` and `failover` are clients that write down what they are told. `workload` makes load,
//! `nemesis` does harm, `report` shows both; `run` puts them together from one seed. `differential` compares
//! answers with those of real etcd; a `scenario` is a whole run, for the tests and for the command.
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
pub mod lease;
pub mod listwatch;
pub mod metrics;
pub mod nemesis;
pub mod outcome;
pub mod patience;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod watch;
pub mod workload;

pub use failure::Failure;
pub use patience::Patience;
