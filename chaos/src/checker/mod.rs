//! A history in, findings out: one file for each promise.
//!
//! Every checker is a plain function without I/O that returns what it found wrong, in words, and an
//! empty list when nothing is. Each is tested with histories that are known to be bad: a checker
//! that cannot fail proves nothing.

pub mod acknowledged;
pub mod agreement;
pub mod bank;
pub mod fencing;
pub mod flat;
pub mod lease_bounds;
pub mod linearizable;
pub mod list_watch;
pub mod model;
pub mod not_worse;
pub mod one_leader;
pub mod register;
pub mod revision_dense;
pub mod revision_order;
pub mod serializable;
pub mod set;
pub mod watch_acks;
pub mod watch_history;
pub mod watch_properties;

use crate::Failure;
use crate::record::history::{FinalState, History};

/// All promises that one history and the final state can be judged by.
pub fn check_all(history: &History, state: &FinalState) -> Result<(), Failure> {
    Failure::from_findings("no acknowledged write is lost", acknowledged::check(history, state))?;
    Failure::from_findings("revisions are dense", revision_dense::check(state))?;
    Failure::from_findings("reads and writes are linearizable", linearizable::check(history, state))
}
