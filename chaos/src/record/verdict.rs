//! What was found about one promise.

use serde::{Deserialize, Serialize};

/// What was found about one promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
