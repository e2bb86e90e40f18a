//! `--consistency` of the commands that read.

use crate::failure::Failure;

/// What `--consistency` says.
pub fn linearizable(consistency: &str) -> Result<bool, Failure> {
    match consistency {
        "l" => Ok(true),
        "s" => Ok(false),
        other => Err(Failure::bad_feature(format!("unknown consistency flag {other:?}"))),
    }
}
