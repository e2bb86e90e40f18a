//! The clock of leases.
//!
//! ```text
//! clients' streams -> renewals (rounds) -> the leader's desk -> book
//! apply thread -> granted, ended ------------------------------> book
//! book -> expiry loop -> ExpireLease, NoteLeases -> the log
//! ```
//!
//! That a lease ends is agreed in the log; when, is the business of the leader alone, and of its
//! memory: a renewal appends nothing, unless what is left of the lease was noted, since a failover
//! would otherwise go by the old note.
//!
//! Promises, across any change of leader: no lease ends before its time to live has passed since the
//! last renewal that was answered; none is renewed after its end was decided; what a deposed leader
//! decides has no effect.

mod book;
mod desk;
mod expiry;
mod pace;
mod renewals;
mod scribe;

pub(crate) use book::Book;
pub(crate) use desk::{Desk, LeaseCounters};
pub(crate) use expiry::{Expiry, run_expiry};
pub(crate) use renewals::Renewals;
