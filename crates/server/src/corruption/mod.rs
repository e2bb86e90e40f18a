//! Finding members whose data is not that of the others, and telling the cluster.
//!
//! Two checks. The digests of the log's effects are compared every few seconds by the leader, always: it
//! costs nothing and finds a member that applied the same log to another effect. What is stored is
//! compared when asked for (`--corrupt-check-time`, `--initial-corrupt-check`,
//! `--compact-hash-check-enabled`): it reads everything, and finds what a disk has changed.
//!
//! Always true: who could not be asked is reported as not checked, never as equal. On a difference the
//! alarm CORRUPT is raised, on which every member refuses changes until an operator has looked.

mod checker;
mod judge;

pub(crate) use checker::{CheckCounters, check_initially, run};

use std::time::Duration;

/// When the stored data of members is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptionChecks {
    /// At this interval; `None` for never.
    pub every: Option<Duration>,
    /// Of this member with the others, when it starts.
    pub initially: bool,
    /// At this interval, if something was compacted meanwhile.
    pub after_compaction: Option<Duration>,
}
