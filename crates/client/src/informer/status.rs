//! How an informer is doing.

use std::sync::Arc;

use crate::Revision;

/// What an informer says of itself. From [`Informer::status`](super::Informer::status), or followed
/// with [`Informer::monitor`](super::Informer::monitor).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerStatus {
    /// What it is doing.
    pub phase: Phase,
    /// The revision the cache equals. Nothing before the first list is complete.
    pub revision: Option<Revision>,
    /// Whole lists shown so far. All but the first are due to compaction, or to a source that broke
    /// its word.
    pub lists: u64,
    /// Watches opened so far.
    pub watches: u64,
    /// Requests that failed so far: pages and watches, compaction included.
    pub failures: u64,
    /// The last of them, in words.
    pub last_failure: Option<Arc<str>>,
    /// Values that could not be decoded so far. Those that matter now are in
    /// [`Snapshot::rejected`](super::Snapshot::rejected).
    pub decode_errors: u64,
}

impl InformerStatus {
    /// Whole lists shown after the first one.
    pub fn relists(&self) -> u64 {
        self.lists.saturating_sub(1)
    }
}

/// What an informer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading the range page by page. The cache shows what it showed before.
    #[default]
    Listing,
    /// Following changes.
    Watching,
    /// Resting after a failure, before it asks again.
    Waiting,
    /// Over: stopped, dropped, or its decoder panicked. The cache no longer changes.
    Stopped,
}

/// The informer has stopped, so what was waited for will not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has stopped; start another one")]
pub struct Stopped;
