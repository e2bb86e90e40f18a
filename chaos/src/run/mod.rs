//! Runs put together from parts: a ground, workloads, nemeses, a schedule; all from one seed.
//!
//! Reading order: a `Setting` is what a workload is started with; it asks the `Roster` for members
//! to talk to and tells the `Trace` what it did; when the faults are over and the cluster has been
//! healed, it is ended and answers with a `Verdict` for each promise it judged. A `plan` is read from
//! a scenario file, a `schedule` drawn from it, and `conduct` carries both out on a ground; `command`
//! is all of that for one line of words.

pub mod command;
pub mod conduct;
pub mod plan;
pub mod roster;
pub mod sample;
pub mod schedule;
pub mod settle;
pub mod trace;

use std::time::Instant;

use futures::future::BoxFuture;

use crate::Failure;
use crate::driver::Product;
pub use roster::Roster;
pub use trace::Trace;

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

/// What was found about one promise.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verdict {
    /// The workload that made the history.
    pub workload: String,
    /// The promise, in the words of docs/guarantees.md where it has some.
    pub promise: String,
    /// How many operations, events or pairs were judged: zero proves nothing and is shown as such.
    pub judged: u64,
    /// What broke it; empty if it held. The first few name the offending operations.
    pub findings: Vec<String>,
}
