//! Leases as a client on the wire sees them, written down for the checker.
//!
//! Reading order: `keeper` is a client that holds leases and writes down what it was told
//! (`record::lease`), `holder` one that does so as it is bid; `witness` sees keys die on every member;
//! `leaders` sees who led; `partition` cuts members off. Nothing here judges, but for how late is too
//! late, which all who do have in common.

pub mod holder;
pub mod keeper;
pub mod leaders;
pub mod partition;
pub mod witness;

pub use crate::endpoint::{KeepAliveStream, keep_alive as stream};
pub use holder::Holder;
pub use keeper::Keepers;
pub use leaders::LeaderWatch;
pub use witness::Witnesses;

use std::time::Duration;

/// How late a lease may end under one leader. Short forms run beside much else on small machines, which
/// stand still for seconds; one that ends too early is held against the cluster in either form.
pub fn lateness() -> Duration {
    Duration::from_secs(if crate::binary::long_forms_wanted() { 1 } else { 3 })
}
