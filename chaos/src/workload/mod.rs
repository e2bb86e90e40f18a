//! Load that records what it did.
//!
//! `unique` writes and reads under faults for the checkers; `counter` raises one number and watches
//! for reads that go back; `churn` comes and goes; `fill` makes a store large, quickly; `latency`
//! measures. The workloads of composed runs are in `catalogue`, each a `crew` of clients with a checker of its own; `wire` spells
//! their requests.

pub mod bank;
pub mod catalogue;
pub mod churn;
pub mod counter;
pub mod crew;
pub mod fill;
pub mod latency;
pub mod lease;
pub mod lock;
pub mod multi_txn;
pub mod register;
pub mod set;
pub mod unique;
pub mod watch;
pub mod wire;
