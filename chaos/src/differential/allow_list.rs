//! Differences from the etcd compared with that are wanted, each with the contract's row.
//!
//! The contract says: where versions differ, behave as late 3.6. The etcd compared with is 3.5.1.
//! Keep this short, and never add a row that the contract does not have.

use super::request::{Answer, Request};
use meerkat_proto::error_text::EtcdError;

/// A wanted difference.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Where the contract says so.
    pub contract: &'static str,
    /// What differs.
    pub what: &'static str,
    /// Why no answer of a run ever shows it, or how an answer that does is recognised.
    pub handling: Handling,
}

/// How a row is kept out of the comparison.
#[derive(Clone, Copy, Debug)]
pub enum Handling {
    /// The generator never asks for it.
    NeverAsked,
    /// Answers that differ in just this way are accepted.
    Accepted(fn(&Request, &Answer, &Answer) -> bool),
}

/// All of them.
pub const ROWS: &[Row] = &[
    Row {
        contract: "B.3 'sort enum unknown', G 'InvalidSortOption', J 'validate every enum on arrival'",
        what: "unknown enum values are refused; 3.5.1 takes them",
        handling: Handling::NeverAsked,
    },
    Row {
        contract: "A.1 'KV', RangeStream",
        what: "a method that 3.5.1 does not have",
        handling: Handling::NeverAsked,
    },
    Row {
        contract: "B.5 'Pre-apply check of taken branch only'",
        what: "of several things wrong in one txn, 3.6 names the first operation's, 3.5.1 a put's before a range's",
        handling: Handling::Accepted(a_range_is_named_before_a_put),
    },
];

/// Both refuse the whole txn: etcd for a put in it, Meerkat for a range that stands before that put.
fn a_range_is_named_before_a_put(request: &Request, etcd: &Answer, meerkat: &Answer) -> bool {
    let says = |answer: &Answer, errors: [EtcdError; 2]| matches!(answer, Answer::Refused(_, text) if errors.iter().any(|error| error.message() == text));
    matches!(request, Request::Txn(_))
        && says(etcd, [EtcdError::KeyNotFound, EtcdError::LeaseNotFound])
        && says(meerkat, [EtcdError::Compacted, EtcdError::FutureRev])
}

/// The row that allows this difference, if there is one.
pub fn allowed(request: &Request, etcd: &Answer, meerkat: &Answer) -> Option<&'static Row> {
    ROWS.iter().find(|row| match row.handling {
        Handling::NeverAsked => false,
        Handling::Accepted(recognises) => recognises(request, etcd, meerkat),
    })
}
