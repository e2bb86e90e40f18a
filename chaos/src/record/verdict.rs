//! What was found about one promise.

use serde::{Deserialize, Serialize};

use crate::Failure;

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

impl Verdict {
    /// What was found about a promise of this workload.
    pub fn new(workload: &str, promise: &str, judged: usize, findings: Vec<String>) -> Self {
        Self { workload: workload.to_owned(), promise: promise.to_owned(), judged: judged as u64, findings }
    }

    /// Fails if the promise was broken.
    pub fn held(self) -> Result<(), Failure> {
        Failure::from_findings(&self.promise, self.findings)
    }
}
