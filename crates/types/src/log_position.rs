//! Where an entry stands in the replicated log.

use crate::MemberId;
use std::fmt;
use std::ops::Add;

/// Counts the leaders: each election that succeeds is in a term of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Counts the entries of the log; the first is 1, and 0 stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

/// Term and node of the leader that proposed an entry, and its index. Positions are ordered as
/// the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    pub term: Term,
    pub node: MemberId,
    pub index: LogIndex,
}

impl LogIndex {
    #[must_use]
    pub const fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }

    /// How many entries it is above `earlier`; 0 if it is not.
    pub const fn since(self, earlier: LogIndex) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for LogIndex {
    type Output = LogIndex;

    fn add(self, entries: u64) -> LogIndex {
        LogIndex(self.0 + entries)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
