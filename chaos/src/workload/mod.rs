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

use std::time::Instant;

use futures::future::BoxFuture;

use crate::Failure;
use crate::endpoint::Roster;
use crate::ground::Product;
use crate::record::{Trace, Verdict};

/// What a workload is started with. Each gets a seed and a key prefix of its own.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Whose servers.
    pub product: Product,
    /// The members to talk to, as they come and go.
    pub roster: Roster,
    /// What its choices are drawn from.
    pub seed: u64,
    /// All its keys begin with this.
    pub prefix: String,
    /// The start of the run: times are offsets from it.
    pub began: Instant,
    /// Where operations are told for the report.
    pub trace: Trace,
}

/// Clients at work.
pub trait Workload: Send {
    /// Its name, as in the scenario files.
    fn name(&self) -> &'static str;

    /// Ends the clients, reads what must be read from the healed cluster, and judges. A `Failure`
    /// is the harness's; what the system broke is a finding in a verdict.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>>;
}
