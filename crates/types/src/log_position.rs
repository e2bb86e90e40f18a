//! Where an entry stands in the replicated log.

/// Term and node of the leader that proposed an entry, and its index. Positions are ordered as
/// the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    pub term: u64,
    pub node: u64,
    pub index: u64,
}
