//! Alarms: what is wrong with a member, as all members have agreed to see it.

use crate::MemberId;
use std::fmt;

/// One alarm of one member. Ordered by kind first, as they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    pub kind: AlarmKind,
    /// Whose trouble it is. An operator may name anybody, members or not.
    pub member: MemberId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// The member has no room: the cluster takes no more data until it has.
    NoSpace,
    /// The member's data is not that of the others: the cluster takes no more changes.
    Corrupt,
}

/// Who raises or clears an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmBy {
    /// The cluster itself. What it has raised it may clear, once the reason is gone.
    Cluster,
    /// A person. What a person has raised only a person clears.
    Operator,
}

impl fmt::Display for AlarmKind {
    /// The name that etcd's tools and health checks know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AlarmKind::NoSpace => "NOSPACE",
            AlarmKind::Corrupt => "CORRUPT",
        })
    }
}
