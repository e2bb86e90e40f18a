//! The workloads of composed runs, by the names that scenario files use.

use super::{Setting, Workload};
use super::{bank, churn, lease, lock, multi_txn, register, set, watch};
use crate::Failure;

/// All names.
pub const ALL: &[&str] = &["register", "txn", "set", "bank", "watch", "lease", "lock", "churn"];

/// Starts one; none if there is no such workload. Must be called on a runtime.
pub fn by_name(name: &str, setting: Setting) -> Option<Result<Box<dyn Workload>, Failure>> {
    Some(match name {
        "register" => Ok(register::start(setting)),
        "txn" => Ok(multi_txn::start(setting)),
        "set" => Ok(set::start(setting)),
        "bank" => Ok(bank::start(setting)),
        "watch" => Ok(watch::start(setting)),
        "lease" => Ok(lease::start(setting)),
        "lock" => Ok(lock::start(setting)),
        "churn" => Ok(churn::start(setting)),
        _ => return None,
    })
}
