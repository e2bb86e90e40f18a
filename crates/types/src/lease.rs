//! Leases: by name, and what is agreed about each.

use crate::LogIndex;
use std::time::Duration;

/// Any number but zero; zero is how the wire spells "no lease".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(i64);

impl LeaseId {
    /// `None` for the wire's zero.
    pub fn from_wire(id: i64) -> Option<LeaseId> {
        if id == 0 { None } else { Some(LeaseId(id)) }
    }

    pub fn get(self) -> i64 {
        self.0
    }
}

impl std::fmt::Display for LeaseId {
    /// As etcd's tools print it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How long a lease lives when it is not renewed, in whole seconds: from one to
/// [`crate::limits::LEASE_TTL_SECONDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseTtl(i64);

impl LeaseTtl {
    pub fn from_seconds(seconds: i64) -> Option<LeaseTtl> {
        (1..=crate::limits::LEASE_TTL_SECONDS_MAX).contains(&seconds).then_some(LeaseTtl(seconds))
    }

    pub fn seconds(self) -> i64 {
        self.0
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.unsigned_abs())
    }
}

/// A lease as the cluster agreed on it. Its deadline is not among that: deadlines are the leader's, by
/// the leader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// The index of the log entry that granted it. A name may be used again after its lease ended; what
    /// was decided about the old lease must not meet the new one.
    pub granted: LogIndex,
    pub ttl: LeaseTtl,
    /// What was left of it when a leader last noted so, if it was not renewed since. A new leader gives
    /// it this long, and the whole time if there is no note.
    pub remaining: Option<Duration>,
}

impl Lease {
    /// How long a new leader lets it live.
    pub fn left_to_live(&self) -> Duration {
        self.remaining.unwrap_or(self.ttl.duration())
    }
}
