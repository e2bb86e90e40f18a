//! What a feed counts, as of one moment.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedCounters {
    /// Below `/registry/`.
    pub place: String,
    pub ready: bool,
    /// The store does not hear of what others write: watchers are sent elsewhere.
    pub cut_off: bool,
    pub objects: usize,
    /// How far the cache has come; 0 if it is not ready.
    pub revision: u64,
    /// Watchers to whom the next event goes at once.
    pub watchers_live: usize,
    /// Those who catch up from the ring.
    pub watchers_parked: usize,
    /// Those who are still shown the objects that they began with.
    pub watchers_starting: usize,
    pub ring_events: usize,
    pub ring_capacity: usize,
    /// Frames made.
    pub encodes: u64,
    pub tally: Tally,
}

/// What only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines put into the queues of watchers when their event came.
    pub dispatched: u64,
    pub events: u64,
    /// Places and watchers that were looked at to find whom the events concern.
    pub visited: u64,
    /// Watchers that were woken, for whatever reason.
    pub woken: u64,
    pub parked: u64,
    pub forgotten: u64,
    /// Times that the cache was filled, but for the first.
    pub relists: u64,
    /// Times that the store was cut off.
    pub cut_offs: u64,
    /// Values that were no objects.
    pub undecodable: u64,
    pub checks: u64,
    /// Checks that found the cache otherwise than the store.
    pub mismatches: u64,
}
