//! Why a command ends, and with which exit status.
//!
//! The statuses are `etcdctl`'s, since scripts test for them. Only `main` exits the process;
//! everything else returns one of these.

use std::fmt;

use meerkat_proto::reason;

/// A request that was refused or never answered.
pub const STATUS_ERROR: u8 = 1;
/// A question about leases, or a renewal, that failed: `etcdctl` gives these a status of their own.
pub const STATUS_BAD_CONNECTION: u8 = 2;
/// Input that is not in the grammar it should be in.
pub const STATUS_BAD_INPUT: u8 = 3;
/// A combination of options that has no meaning.
pub const STATUS_BAD_FEATURE: u8 = 4;
/// Wrong number or kind of arguments.
pub const STATUS_BAD_ARGUMENTS: u8 = 128;

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: u8,
    /// Empty when everything was said already.
    pub message: String,
}

impl Failure {
    pub fn error(message: impl Into<String>) -> Failure {
        Failure { status: STATUS_ERROR, message: message.into() }
    }

    pub fn bad_connection(message: impl Into<String>) -> Failure {
        Failure { status: STATUS_BAD_CONNECTION, message: message.into() }
    }

    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure { status: STATUS_BAD_INPUT, message: message.into() }
    }

    pub fn bad_feature(message: impl Into<String>) -> Failure {
        Failure { status: STATUS_BAD_FEATURE, message: message.into() }
    }

    pub fn bad_arguments(message: impl Into<String>) -> Failure {
        Failure { status: STATUS_BAD_ARGUMENTS, message: message.into() }
    }

    /// A failure whose reason the user has read already.
    pub fn already_told() -> Failure {
        Failure { status: STATUS_ERROR, message: String::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::error(reason::of_system(&error))
    }
}
