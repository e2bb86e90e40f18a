//! A read of neighbouring keys: the question and the answer.

use crate::{KeyRange, KeyValue, Revision};
use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    pub keys: KeyRange,
    /// `None` reads the current state.
    pub at: Option<Revision>,
    /// How many key-values to answer with; `None` for all.
    pub limit: Option<usize>,
    pub sort: Sort,
    pub consistency: Consistency,
    pub keys_only: bool,
    pub count_only: bool,
    pub bounds: RevisionBounds,
}

/// How fresh the answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// At least as new as every write acknowledged before the question, anywhere.
    Linearizable,
    /// Whatever this member has applied.
    Serializable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub order: SortOrder,
    pub target: SortTarget,
}

impl Sort {
    pub const BY_KEY: Sort = Sort { order: SortOrder::None, target: SortTarget::Key };
}

/// `None` is not "unsorted": by key it is ascending; by another target it is ascending too, but a
/// limit then cuts in key order *before* the sort (a quirk that clients of etcd see).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    None,
    Ascend,
    Descend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortTarget {
    Key,
    Version,
    Created,
    Modified,
    Value,
}

/// Inclusive bounds on revisions; `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevisionBounds {
    pub modified_first: Option<Revision>,
    pub modified_last: Option<Revision>,
    pub created_first: Option<Revision>,
    pub created_last: Option<Revision>,
}

impl RevisionBounds {
    pub fn is_unbounded(&self) -> bool {
        *self == RevisionBounds::default()
    }

    pub fn admits(&self, created: Revision, modified: Revision) -> bool {
        self.modified_first.is_none_or(|first| first <= modified)
            && self.modified_last.is_none_or(|last| modified <= last)
            && self.created_first.is_none_or(|first| first <= created)
            && self.created_last.is_none_or(|last| created <= last)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAnswer {
    pub kvs: KvPage,
    /// A limit cut the answer short.
    pub more: bool,
    /// Live keys in the range, whatever the limit and the bounds.
    pub count: u64,
    /// The revision of the state that was read from, not the one that was asked for.
    pub revision: Revision,
}

/// Key-values of an answer, in the cheapest form their reader could make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvPage {
    Decoded(Vec<KeyValue>),
    /// `len` elements, each already in the wire form of a repeated message field number 2: the tag
    /// byte 0x12, the length as a varint, and the protobuf KeyValue.
    Wire {
        bytes: Bytes,
        len: usize,
    },
}

impl KvPage {
    pub const fn empty() -> KvPage {
        KvPage::Decoded(Vec::new())
    }

    pub fn len(&self) -> usize {
        match self {
            KvPage::Decoded(kvs) => kvs.len(),
            KvPage::Wire { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
