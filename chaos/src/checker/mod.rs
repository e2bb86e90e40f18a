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
use crate::record::Verdict;
use crate::record::history::{FinalState, History};

/// All promises that one history and the final state can be judged by.
pub fn verdicts(history: &History, state: &FinalState) -> [Verdict; 3] {
    let (acknowledged, refused, _) = history.counts();
    let verdict = |promise, judged, findings| Verdict::new("unique", promise, judged, findings);
    let kept = acknowledged::check(history, state);
    [
        verdict("no acknowledged write is lost", acknowledged + refused, kept),
        verdict("revisions are dense", state.stored.len(), revision_dense::check(state)),
        verdict(
            "reads and writes are linearizable",
            history.reads.len() + acknowledged,
            linearizable::check(history, state),
        ),
    ]
}

/// The same where the first that was broken is enough.
pub fn check_all(history: &History, state: &FinalState) -> Result<(), Failure> {
    verdicts(history, state).into_iter().try_for_each(Verdict::held)
}
