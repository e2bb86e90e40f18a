//! The record of leases, their keys and what happened around them. Plain data.
//!
//! Times are offsets from one monotonic start, all taken by the clients' clock: when something was
//! sent, and when its answer was there. What lies between is the server's secret.

use std::time::Duration;

use bytes::Bytes;

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub from: Duration,
    /// When it was over.
    pub until: Duration,
}

impl Span {
    /// Whether two stretches have a moment in common.
    pub fn meets(&self, other: Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }

    /// How long it was.
    pub fn length(&self) -> Duration {
        self.until.saturating_sub(self.from)
    }
}

/// Everything of one run.
#[derive(Clone, Debug, Default)]
pub struct LeaseHistory {
    /// Every lease whose grant was acknowledged.
    pub leases: Vec<LeaseRecord>,
    /// Changes of leader: the old one was last proved to lead at the beginning of each stretch, the
    /// new one first at its end.
    pub leader_changes: Vec<Span>,
    /// Stretches in which nobody was proved to lead, though the leader did not change.
    pub outages: Vec<Span>,
    /// Stretches in which some member was stopped: what it had been sent, it may act on afterwards.
    pub pauses: Vec<Span>,
    /// Stretches in which this program itself got no processor time, and could not see.
    pub stalls: Vec<Span>,
    /// How many members were watched.
    pub members: usize,
    /// When the watchers stopped looking.
    pub ended: Duration,
}

/// One lease.
#[derive(Clone, Debug, Default)]
pub struct LeaseRecord {
    /// Its id.
    pub id: i64,
    /// How long it lives from a renewal on, as granted.
    pub ttl: Duration,
    /// From the sending of the grant to its answer.
    pub grant: Span,
    /// Attempts to renew it, in order.
    pub renewals: Vec<Renewal>,
    /// The attempt to revoke it, if there was one.
    pub revoke: Option<Revoke>,
    /// Keys whose attachment was acknowledged.
    pub keys: Vec<KeyRecord>,
    /// When answers were there that said it does not exist.
    pub said_gone: Vec<Duration>,
}

/// One attempt to renew a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// From its sending to its answer, or to when the client stopped waiting.
    pub span: Span,
    /// What became of it.
    pub end: RenewalEnd,
}

/// What became of an attempt to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalEnd {
    /// Acknowledged, with this many seconds to live.
    Renewed(i64),
    /// The lease does not exist.
    Gone,
    /// No answer: it may have renewed the lease, or not, or may yet.
    Unknown,
}

/// The attempt to revoke a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// From its sending to its answer, or to when the client stopped waiting.
    pub span: Span,
    /// Whether it was acknowledged; if not, it may have happened.
    pub acknowledged: bool,
}

/// One key of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name.
    pub key: Bytes,
    /// Its deletion, each time it was told.
    pub deaths: Vec<Death>,
}

/// A deletion as one watcher was told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// On which member.
    pub member: usize,
    /// When it was told.
    pub at: Duration,
    /// At which revision it happened.
    pub revision: i64,
}

impl LeaseRecord {
    /// When its keys were first seen to be gone.
    pub fn first_death(&self) -> Option<Duration> {
        self.keys.iter().flat_map(|key| &key.deaths).map(|death| death.at).min()
    }

    /// When the last of its keys was first seen to be gone; none while some key was not.
    pub fn last_death(&self) -> Option<Duration> {
        let first = |key: &KeyRecord| key.deaths.iter().map(|death| death.at).min();
        let firsts: Option<Vec<Duration>> = self.keys.iter().map(first).collect();
        firsts?.into_iter().max()
    }
}
