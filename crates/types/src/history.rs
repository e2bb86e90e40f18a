//! A read of past revisions: the question and the answer.

use crate::{EventBatch, Revision};

/// Which events, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    pub first: Revision,
    /// Inclusive; a revision that does not exist yet ends at the newest.
    pub last: Revision,
    /// The read ends with the revision in which this many events were walked, left out ones included.
    pub events_max: usize,
    /// The read ends with the revision in which keys, values and previous values given out weigh
    /// this much.
    pub bytes_max: usize,
    /// Whether events come with their previous values. Those at the compacted revision never do: the
    /// state before it is gone for every reader.
    pub with_previous: bool,
    /// Leaves out each event whose key has a later one, within the asked revisions or after them. A
    /// revision of which nothing is left has no batch.
    pub newest_only: bool,
}

/// Whole revisions, oldest first.
#[derive(Clone, Debug)]
pub struct HistoryAnswer {
    pub batches: Vec<EventBatch>,
    /// Where the next read goes on; above the asked last when everything was read.
    pub next: Revision,
}
