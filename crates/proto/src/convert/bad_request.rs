//! Why a request is refused on its face, before any state is looked at.
//!
//! `Display` is the exact text that goes out with [`BadRequest::code`]. Most are etcd's own, by way
//! of [`EtcdError`]; the rest are ours, for what etcd lets pass unnoticed.

use crate::error_text::EtcdError;
use tonic::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("{}", EtcdError::EmptyKey)]
    EmptyKey,
    /// "Keep the value" came with a value.
    #[error("{}", EtcdError::ValueProvided)]
    ValueProvided,
    /// "Keep the lease" came with a lease.
    #[error("{}", EtcdError::LeaseProvided)]
    LeaseProvided,
    #[error("{}", EtcdError::InvalidSortOption)]
    UnknownSort,
    /// Too many operations, or transactions nested too deeply to be counted out.
    #[error("{}", EtcdError::TooManyOps)]
    TooManyOperations,
    /// One transaction would write a key twice, or write one it also deletes.
    #[error("{}", EtcdError::DuplicateKey)]
    DuplicateKey,
    /// An operation of a transaction says nothing. The text is etcd's, odd as it is.
    #[error("{}", EtcdError::KeyNotFound)]
    EmptyOperation,
    #[error("unknown compare result {0}")]
    UnknownCompareResult(i32),
    #[error("unknown compare target {0}")]
    UnknownCompareTarget(i32),
    #[error("RangeStream does not support custom sort orders")]
    StreamSorted,
    #[error("RangeStream does not support revision filters")]
    StreamBounded,
}

impl BadRequest {
    /// The error clients know this as; `None` for those that have no name.
    pub fn etcd_error(self) -> Option<EtcdError> {
        match self {
            BadRequest::EmptyKey => Some(EtcdError::EmptyKey),
            BadRequest::ValueProvided => Some(EtcdError::ValueProvided),
            BadRequest::LeaseProvided => Some(EtcdError::LeaseProvided),
            BadRequest::UnknownSort => Some(EtcdError::InvalidSortOption),
            BadRequest::TooManyOperations => Some(EtcdError::TooManyOps),
            BadRequest::DuplicateKey => Some(EtcdError::DuplicateKey),
            BadRequest::EmptyOperation => Some(EtcdError::KeyNotFound),
            BadRequest::UnknownCompareResult(_)
            | BadRequest::UnknownCompareTarget(_)
            | BadRequest::StreamSorted
            | BadRequest::StreamBounded => None,
        }
    }

    pub fn code(self) -> Code {
        match self {
            BadRequest::StreamSorted | BadRequest::StreamBounded => Code::Unimplemented,
            BadRequest::EmptyKey
            | BadRequest::ValueProvided
            | BadRequest::LeaseProvided
            | BadRequest::UnknownSort
            | BadRequest::TooManyOperations
            | BadRequest::DuplicateKey
            | BadRequest::EmptyOperation
            | BadRequest::UnknownCompareResult(_)
            | BadRequest::UnknownCompareTarget(_) => Code::InvalidArgument,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_goes_out_with_its_code_and_text() {
        let table = [
            (BadRequest::EmptyKey, Code::InvalidArgument, "etcdserver: key is not provided"),
            (BadRequest::ValueProvided, Code::InvalidArgument, "etcdserver: value is provided"),
            (BadRequest::LeaseProvided, Code::InvalidArgument, "etcdserver: lease is provided"),
            (BadRequest::UnknownSort, Code::InvalidArgument, "etcdserver: invalid sort option"),
            (
                BadRequest::TooManyOperations,
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
            ),
            (
                BadRequest::DuplicateKey,
                Code::InvalidArgument,
                "etcdserver: duplicate key given in txn request",
            ),
            (BadRequest::EmptyOperation, Code::InvalidArgument, "etcdserver: key not found"),
            (BadRequest::UnknownCompareResult(9), Code::InvalidArgument, "unknown compare result 9"),
            (BadRequest::UnknownCompareTarget(-1), Code::InvalidArgument, "unknown compare target -1"),
            (
                BadRequest::StreamSorted,
                Code::Unimplemented,
                "RangeStream does not support custom sort orders",
            ),
            (BadRequest::StreamBounded, Code::Unimplemented, "RangeStream does not support revision filters"),
        ];
        for (refusal, code, text) in table {
            assert_eq!((refusal.code(), refusal.to_string().as_str()), (code, text), "{refusal:?}");
            if let Some(known) = refusal.etcd_error() {
                assert_eq!((known.code(), known.message()), (code, text), "{refusal:?}");
            }
        }
    }
}
