//! A point in the store's history.

use std::fmt;

/// Revision 1 is the empty store; every write transaction that changes a key takes the next one.
///
/// Signed because the wire is signed; a stored revision is always at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(i64);

impl Revision {
    /// The revision of a store nothing was ever written to.
    pub const EMPTY_STORE: Revision = Revision(1);

    pub const fn new(value: i64) -> Revision {
        Revision(value)
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// How the wire and the disk spell a compacted revision: -1 for "never compacted".
    pub fn compacted_to_wire(compacted: Option<Revision>) -> i64 {
        compacted.map_or(-1, Revision::get)
    }

    pub fn compacted_from_wire(number: i64) -> Option<Revision> {
        (number != -1).then_some(Revision(number))
    }

    #[must_use]
    pub const fn previous(self) -> Revision {
        Revision(self.0 - 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
