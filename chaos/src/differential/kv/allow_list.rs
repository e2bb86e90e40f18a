//! Wanted differences of the KV service.

use meerkat_proto::error_text::EtcdError;

use crate::differential::allow_list::{Handling, Row};
use crate::differential::request::{Answer, Request};

/// All of them.
pub const ROWS: &[Row<Request, Answer>] = &[
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
