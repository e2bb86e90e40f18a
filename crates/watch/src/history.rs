//! What lies behind the ring: the store's own record of every revision.

use meerkat_types::{EventBatch, Revision};

/// Where history begins and ends, both of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The newest revision that readers of this member see.
    pub current: Revision,
    /// The oldest revision that can be read; below zero if all can.
    pub oldest: Revision,
}

/// One read of history, for all late watchers near `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    pub first: Revision,
    pub last: Revision,
    pub events_max: usize,
    pub bytes_max: usize,
    /// Somebody wants to know what was before.
    pub with_previous: bool,
    /// Leave out what a later event of the same key has overtaken.
    pub newest_only: bool,
}

/// Whole revisions, oldest first.
#[derive(Clone, Debug)]
pub struct Past {
    pub batches: Vec<EventBatch>,
    /// Everything below this was read.
    pub next: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryError {
    /// Revisions below `oldest` are gone.
    Compacted { oldest: Revision },
    /// The disk does not answer.
    Failed(String),
}

/// Never called with the hub's lock held, but for [`History::horizon`], which must not block.
pub trait History: Send + Sync + 'static {
    fn horizon(&self) -> Horizon;
    fn read(&self, scan: &Scan) -> Result<Past, HistoryError>;
}
