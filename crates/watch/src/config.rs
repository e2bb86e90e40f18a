//! How much the hub may hold, each with its reason.

/// Sizes in bytes are estimates of what revisions take in memory, one encoded form included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// Recent revisions kept for whoever is a little late.
    pub ring_bytes: usize,
    /// What all streams together may hold beyond the ring: history on its way to late watchers.
    pub memory_bytes: usize,
    /// Deliveries that may wait in a stream, whatever its watchers, and for each of its watchers.
    pub outbox_items: usize,
    pub outbox_items_per_watcher: usize,
    /// History read ahead for one stream.
    pub stream_history_bytes: usize,
    /// Events and bytes of one read of history; one read serves all who are near. Less than fits into
    /// a stream, or some of it would be read again: revisions weigh about twice their bytes.
    pub scan_events: usize,
    pub scan_bytes: usize,
    /// Revisions dealt from the ring before others get the lock.
    pub ring_round: usize,
    /// Keys and range ends of all watchers together.
    pub keys_bytes: usize,
    /// Small revisions of one watcher share an answer up to this size.
    pub merge_bytes: usize,
    /// Read history on the task that asks, and not on a thread of its own: simulation has one thread.
    pub reads_inline: bool,
}

impl Default for WatchConfig {
    fn default() -> WatchConfig {
        WatchConfig {
            ring_bytes: 64 << 20,
            memory_bytes: 128 << 20,
            outbox_items: 256,
            outbox_items_per_watcher: 4,
            stream_history_bytes: 2 << 20,
            scan_events: 2_000,
            scan_bytes: 512 << 10,
            ring_round: 1_000,
            merge_bytes: 32 << 10,
            keys_bytes: 128 << 20,
            reads_inline: false,
        }
    }
}

impl WatchConfig {
    /// A revision above this is never kept in the ring: it would push out everybody else's.
    pub(crate) fn ring_entry_bytes_max(&self) -> usize {
        self.ring_bytes / 8
    }

    /// How many deliveries may wait in a stream with that many watchers.
    pub(crate) fn outbox_items_max(&self, watchers: usize) -> usize {
        self.outbox_items.saturating_add(self.outbox_items_per_watcher.saturating_mul(watchers))
    }
}
