//! Who is in the cluster, and how that changes.
//!
//! openraft's membership is the only record. `rules` decides, purely, whether a change may be; `step`
//! turns it into the next membership; `changer` makes it, on the leader, one at a time; `keeper` gives
//! a vote to those who wait for theirs; `anywhere` brings a change to whoever leads.
//!
//! Always true: two memberships in a row differ by at most one voter, so that one log entry is a
//! whole change and nothing is left half done by a crash. A member that is added as a voter counts in
//! no quorum before it has caught up, so adding one that never starts costs nobody's writes.

mod anywhere;
mod changer;
mod keeper;
mod rules;
mod step;
mod wire;

pub use anywhere::MemberChanges;
pub(crate) use changer::Changer;
pub use rules::{ChangeRefusal, MemberChange, Rules};
pub(crate) use wire::{change_from_wire, changed_to_wire, description};

use crate::leadership::Peer;
use meerkat_types::LogIndex;

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its place in the log.
    pub index: LogIndex,
    /// All members after it, in ascending order of id.
    pub members: Vec<Peer>,
}

/// Why a change was not made, or is not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("{0}")]
    Refused(ChangeRefusal),
    #[error("this member does not lead")]
    NotLeader,
    /// It may have been made, or may yet be.
    #[error("the change was not made in time")]
    Timeout,
    #[error("this member is stopping")]
    Stopped,
}
