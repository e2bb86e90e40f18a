//! Wanted differences of watches, each with the row of the contract or of the list of incidents behind it.
//!
//! Each is applied in one place only, which names it, and is counted.

/// A wanted difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// C.2 'start < 0': refused at once; 3.5.1 takes it for a very old revision. Etcd is not asked,
    /// and the reply that later versions give is put in its place.
    NegativeStart,
    /// C.4 'Requested': answered only if there is a watcher and every one has caught up and begun;
    /// 3.5.1 answers always. Its answer is taken away.
    ProgressAnsweredAlways,
    /// C.2 'start == compact_revision', incidents 18089 and 19179: the deletion at the compacted
    /// revision itself is delivered; 3.5.1 loses it, with a put of the same key in that revision.
    DeletionAtTheBound,
    /// C.2 'prev_kv': a previous value below the compacted revision may still be there, and must
    /// then be right; etcd never has it.
    PreviousValueKept,
    /// C.4 'Periodic', incident 20221: no progress mark below the revision a watcher begins at;
    /// 3.5.1 sends them.
    MarkBeforeTheStart,
}
