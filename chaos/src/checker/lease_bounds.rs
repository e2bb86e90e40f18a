//! No key dies before its time, and none lives much longer.
//!
//! *Too early*: a key, or its lease, seen to be gone before the TTL is over, counted from the
//! **sending** of the last acknowledged renewal (or of the grant). The server may count from a later
//! moment, never from an earlier one. Only a revoke that somebody sent excuses it.
//!
//! *Too late*: a key seen to be there later than the TTL and the lateness allowed, counted from the
//! **answer** to the last renewal, plus, for each change of leader since, the time in which nobody
//! led, the election time-out by which a new leader waits, and what it cannot know: up to one
//! interval of checkpoints has passed unrecorded. Where nothing is recorded, each new leader begins the
//! whole TTL again, so only the last of them counts.
//!
//! While nobody is proved to lead, with or without a change, nothing can be ended nor recorded; such
//! times are allowed for too.
//!
//! Whatever is not known widens the time allowed, never narrows it. A renewal without an answer may
//! have counted, up to when its client stopped waiting and what it had sent could no longer be acted
//! on: it cannot excuse an early death, but it does excuse a late one.

use std::time::Duration;

use crate::record::lease::{LeaseHistory, LeaseRecord, RenewalEnd, Span};

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How late a lease may end under one leader.
    pub lateness: Duration,
    /// How often what is left of a TTL is recorded; none if never, so that each new leader begins
    /// the whole TTL again.
    pub checkpoint: Option<Duration>,
    /// The election time-out.
    pub election: Duration,
    /// How long a request may go on being acted on after its client went away.
    pub straggle: Duration,
}

/// What is wrong with a history.
pub fn check(history: &LeaseHistory, bounds: &Bounds) -> Vec<String> {
    let judge = Judge { history, bounds };
    let mut findings: Vec<String> = Vec::new();
    for lease in &history.leases {
        findings.extend(judge.too_early(lease));
        findings.extend(judge.too_late(lease));
        findings.extend(judge.after_revoke(lease));
        findings.extend(judge.wrong_ttl(lease));
        findings.extend(judge.not_together(lease));
    }
    findings
}

/// How close to its bounds a history came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margins {
    /// Leases that ended by the clock.
    pub expired: usize,
    /// Of those, leases that lived through a change of leader since their last renewal.
    pub expired_after_change: usize,
    /// The least time by which one outlived what was promised.
    pub beyond_promise_min: Duration,
    /// The most by which one outlived its TTL, with the same leader all the time.
    pub late_max: Duration,
    /// The most by which one change of leader made one live longer, beyond the time in which nobody
    /// led.
    pub late_per_change_max: Duration,
    /// The least that was left of what is allowed.
    pub below_limit_min: Duration,
}

/// Measures a history.
pub fn margins(history: &LeaseHistory, bounds: &Bounds) -> Margins {
    let judge = Judge { history, bounds };
    let mut margins =
        Margins { beyond_promise_min: Duration::MAX, below_limit_min: Duration::MAX, ..Margins::default() };
    for lease in history.leases.iter().filter(|lease| lease.revoke.is_none()) {
        let (Some(first), Some(last)) = (lease.first_death(), lease.last_death()) else { continue };
        let limit = judge.limit(lease, last);
        let late = last.saturating_sub(limit.expected);
        margins.expired += 1;
        margins.beyond_promise_min = margins.beyond_promise_min.min(first.saturating_sub(promised(lease)));
        margins.below_limit_min = margins.below_limit_min.min(limit.allowed.saturating_sub(last));
        match u32::try_from(limit.changes) {
            Ok(changes) if 0 < changes => {
                margins.expired_after_change += 1;
                let each = late.saturating_sub(limit.leaderless) / changes;
                margins.late_per_change_max = margins.late_per_change_max.max(each);
            }
            _ => margins.late_max = margins.late_max.max(late),
        }
    }
    margins
}

/// Leases whose end was not seen although it was not yet overdue: about these nothing is proved.
pub fn undecided(history: &LeaseHistory, bounds: &Bounds) -> usize {
    let judge = Judge { history, bounds };
    let open = |lease: &&LeaseRecord| {
        !lease.keys.is_empty()
            && lease.last_death().is_none()
            && history.ended <= judge.limit(lease, history.ended).allowed
    };
    history.leases.iter().filter(open).count()
}

/// Until when the lease was certain to live: the server has said so.
fn promised(lease: &LeaseRecord) -> Duration {
    let renewed = |end: RenewalEnd| matches!(end, RenewalEnd::Renewed(_));
    let last = lease.renewals.iter().filter(|renewal| renewed(renewal.end)).map(|renewal| renewal.span.from);
    lease.grant.from.max(last.max().unwrap_or_default()) + lease.ttl
}

/// How much of a stretch the others cover, no moment counted twice. What passed unseen outside of it
/// delayed nothing.
fn covered<'a>(others: impl IntoIterator<Item = &'a Span>, stretch: Span) -> Duration {
    let mut others: Vec<&Span> = others.into_iter().filter(|other| other.meets(stretch)).collect();
    others.sort_by_key(|other| other.from);
    let (mut total, mut counted) = (Duration::ZERO, stretch.from);
    for other in others {
        let (from, until) = (other.from.max(counted), other.until.min(stretch.until));
        total += until.saturating_sub(from);
        counted = counted.max(until);
    }
    total
}

struct Judge<'a> {
    history: &'a LeaseHistory,
    bounds: &'a Bounds,
}

/// When a lease must have ended.
struct Limit {
    /// Without anything going wrong.
    expected: Duration,
    /// With all that is allowed.
    allowed: Duration,
    /// Changes of leader that were counted.
    changes: usize,
    /// The time they took.
    leaderless: Duration,
}

impl Judge<'_> {
    fn too_early(&self, lease: &LeaseRecord) -> Option<String> {
        let renewals = lease.renewals.iter().filter(|renewal| renewal.end == RenewalEnd::Gone);
        let gone = renewals.map(|renewal| renewal.span.until).chain(lease.said_gone.iter().copied());
        let seen = gone.chain(lease.first_death()).min()?;
        if lease.revoke.is_some_and(|revoke| revoke.span.from <= seen) {
            return None;
        }
        let promised = promised(lease);
        (seen < promised).then(|| {
            format!(
                "lease {}: gone at {seen:?}, {:?} before the end of its TTL of {:?}: {}",
                lease.id,
                promised - seen,
                lease.ttl,
                self.life(lease)
            )
        })
    }

    fn too_late(&self, lease: &LeaseRecord) -> Option<String> {
        if lease.keys.is_empty() {
            return None;
        }
        let seen = lease.last_death().unwrap_or(self.history.ended);
        let limit = self.limit(lease, seen);
        (limit.allowed < seen).then(|| {
            format!(
                "lease {}: {} at {seen:?}, {:?} later than allowed (expected {:?}, {} change(s) of leader): {}",
                lease.id,
                if lease.last_death().is_some() { "ended" } else { "still there" },
                seen - limit.allowed,
                limit.expected,
                limit.changes,
                self.life(lease)
            )
        })
    }

    /// The limit by the last renewal that was acknowledged, or by one after it that may have
    /// counted, whichever is later.
    fn limit(&self, lease: &LeaseRecord, seen: Duration) -> Limit {
        let renewed = |end: RenewalEnd| matches!(end, RenewalEnd::Renewed(_));
        let last = lease.renewals.iter().rposition(|renewal| renewed(renewal.end));
        let certain = last.map_or(lease.grant, |index| lease.renewals[index].span);
        let mut limit = self.limit_from(lease, certain, seen);
        for renewal in &lease.renewals[last.map_or(0, |index| index + 1)..] {
            if renewal.end == RenewalEnd::Unknown {
                let other = self.limit_from(lease, self.widened(renewal.span), seen);
                if limit.allowed < other.allowed {
                    limit = other;
                }
            }
        }
        limit
    }

    /// The limit if the last renewal counted at some moment of a stretch.
    fn limit_from(&self, lease: &LeaseRecord, renewed: Span, seen: Duration) -> Limit {
        let expected = renewed.until + lease.ttl;
        let life = Span { from: renewed.from, until: seen };
        let changes: Vec<&Span> =
            self.history.leader_changes.iter().filter(|change| change.meets(life)).collect();
        let due = Span { from: expected, until: seen };
        // An outage before the lease was due delayed nothing: deadlines do not move with it. Unless a
        // later leader goes by what could not be recorded in it.
        let affected = if changes.is_empty() { due } else { life };
        let outages = self.history.outages.iter().filter(|outage| outage.meets(affected));
        let leaderless: Duration = changes.iter().copied().chain(outages).map(Span::length).sum();
        let allowed = match self.bounds.checkpoint {
            Some(unrecorded) => {
                let for_changes: Duration = changes.iter().map(|_| self.bounds.election + unrecorded).sum();
                expected + leaderless + for_changes + covered(&self.history.stalls, due)
            }
            None => {
                let again = |change: &&Span| change.until + self.bounds.election + lease.ttl;
                let from = changes.iter().map(again).max().map_or(expected, |again| again.max(expected));
                let blind = self.history.stalls.iter().chain(&self.history.outages);
                from + covered(blind, Span { from, until: seen })
            }
        };
        Limit { expected, allowed: allowed + self.bounds.lateness, changes: changes.len(), leaderless }
    }

    /// When a request that was not answered may have been acted on. A member that was stopped
    /// meanwhile acts on what it finds when it wakes, and may find several stops later.
    fn widened(&self, asked: Span) -> Span {
        let mut span = asked;
        for pause in &self.history.pauses {
            if pause.meets(span) {
                span.until = span.until.max(pause.until);
            }
        }
        Span { until: span.until + self.bounds.straggle, ..span }
    }

    /// Once a revoke is acknowledged the keys are gone.
    fn after_revoke(&self, lease: &LeaseRecord) -> Option<String> {
        let revoke = lease.revoke.filter(|revoke| revoke.acknowledged)?;
        if lease.keys.is_empty() {
            return None;
        }
        let seen = lease.last_death().unwrap_or(self.history.ended);
        let telling = Span { from: revoke.span.until, until: seen };
        let blind = self.history.leader_changes.iter().chain(&self.history.outages);
        let blind = blind.chain(&self.history.stalls);
        let blind: Duration = blind.filter(|span| span.meets(telling)).map(Span::length).sum();
        let limit = revoke.span.until + self.bounds.lateness + blind;
        (limit < seen).then(|| {
            format!("lease {}: revoked at {:?}, its keys are there at {seen:?}", lease.id, revoke.span.until)
        })
    }

    fn wrong_ttl(&self, lease: &LeaseRecord) -> Option<String> {
        let granted = i64::try_from(lease.ttl.as_secs()).ok()?;
        let wrong = lease.renewals.iter().find_map(|renewal| match renewal.end {
            RenewalEnd::Renewed(ttl) if ttl != granted => Some(ttl),
            _ => None,
        })?;
        Some(format!("lease {}: granted for {granted} s, a renewal was answered with {wrong} s", lease.id))
    }

    /// All keys of a lease go in one revision, and every member tells so, once.
    fn not_together(&self, lease: &LeaseRecord) -> Option<String> {
        let deaths = || lease.keys.iter().flat_map(|key| key.deaths.iter().map(move |death| (key, death)));
        let (_, first) = deaths().next()?;
        if let Some((key, death)) = deaths().find(|(_, death)| death.revision != first.revision) {
            return Some(format!(
                "lease {}: keys went at revisions {} and {} ({})",
                lease.id,
                first.revision,
                death.revision,
                key.key.escape_ascii()
            ));
        }
        for key in &lease.keys {
            for member in 0..self.history.members {
                let told = key.deaths.iter().filter(|death| death.member == member).count();
                if told != 1 {
                    return Some(format!(
                        "lease {}: member {member} told {told} times that {} is gone",
                        lease.id,
                        key.key.escape_ascii()
                    ));
                }
            }
        }
        None
    }

    /// What is needed to see why: the last attempts to renew, and the changes of leader.
    fn life(&self, lease: &LeaseRecord) -> String {
        let last = lease.renewals.len().saturating_sub(4);
        let whole = Span { from: lease.grant.from, until: lease.last_death().unwrap_or(self.history.ended) };
        let changes: Vec<&Span> =
            self.history.leader_changes.iter().filter(|change| change.meets(whole)).collect();
        format!(
            "granted {:?}, last renewals {:?}, revoke {:?}, changes of leader {changes:?}",
            lease.grant,
            &lease.renewals[last..],
            lease.revoke
        )
    }
}

#[cfg(test)]
mod tests;
