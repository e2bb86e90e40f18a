//! Whether a stream's client may see what it asks to watch.
//!
//! Looked at when a watcher is made, with the whole range that it asked for, and not again: what is
//! taken from a user later does not end what runs, as in etcd.

use crate::auth::{Credentials, Guard};
use crate::grpc::status;
use meerkat_proto::error_text::EtcdError;
use meerkat_types::{KeyRange, Refusal};

pub(super) struct Reader {
    guard: Guard,
    credentials: Credentials,
}

impl Reader {
    pub(super) fn new(guard: Guard, credentials: Credentials) -> Reader {
        Reader { guard, credentials }
    }

    /// If not, with what the client is to be told.
    pub(super) fn may_watch(&self, keys: &KeyRange) -> Result<(), &'static str> {
        match self.guard.may_read_now(&self.credentials, keys) {
            Ok(()) => Ok(()),
            Err(Refusal::Auth(refusal)) => Err(reason(status::auth_refusal(refusal))),
            Err(_) => Err(reason(EtcdError::PermissionDenied)),
        }
    }
}

/// As Go's clients write an error with its code.
const fn reason(error: EtcdError) -> &'static str {
    match error {
        EtcdError::UserEmpty => "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
        EtcdError::InvalidAuthToken => {
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
        }
        EtcdError::AuthOldRevision => {
            "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old"
        }
        _ => "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_code_and_the_text() {
        for error in [
            EtcdError::UserEmpty,
            EtcdError::InvalidAuthToken,
            EtcdError::AuthOldRevision,
            EtcdError::PermissionDenied,
        ] {
            let expected = format!("rpc error: code = {:?} desc = {}", error.code(), error.message());
            assert_eq!(reason(error), expected);
        }
        assert_eq!(reason(EtcdError::UserNotFound), reason(EtcdError::PermissionDenied));
    }
}
