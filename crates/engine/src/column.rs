//! The closed list of column families: what kinds of rows there are.
//!
//! The names are part of the on-disk format. A family is never renamed or reused; a new one needs a
//! new format version in the state's `meta`.

/// One ordered key space of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// User key to its newest version: every read of the present.
    Head,
    /// Revision to event: history, in the order in which it happened.
    Log,
    /// User key and revision to what the key was then: reads of the past.
    Versions,
    /// First key of a bucket to how many keys live in it.
    Counts,
    /// Lease to its terms, and lease and key for each key that is attached to one.
    Leases,
    /// A few small rows about the whole: applied position, revisions, membership, format.
    Meta,
}

impl Column {
    pub const ALL: [Column; 6] =
        [Column::Head, Column::Log, Column::Versions, Column::Counts, Column::Leases, Column::Meta];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Column::Head => "head",
            Column::Log => "log",
            Column::Versions => "versions",
            Column::Counts => "counts",
            Column::Leases => "leases",
            Column::Meta => "meta",
        }
    }
}
