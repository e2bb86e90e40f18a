//! Why a proposal may have run out of time: etcd's guesses, by etcd's rule.

use crate::leadership::Leadership;
use crate::network::link::Links;
use meerkat_types::MemberId;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutCause {
    Unknown,
    /// It was proposed shortly before this member took the lead: the one before may have taken the
    /// proposal with it.
    LeaderFailure,
    /// The leader, or a leader's majority, was not connected all the time.
    ConnectionLost,
}

/// Who leads, and since when its connections stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    None,
    /// This member, with so many of all members connected since the proposal.
    Mine {
        connected: usize,
        members: usize,
    },
    /// Another, connected since the proposal or not.
    Others {
        connected: bool,
    },
}

/// Judges a proposal made so long ago.
pub(crate) fn of_proposal(age: Duration, leadership: &Leadership, links: &Links) -> TimeoutCause {
    let me = links.identity().member;
    let connected = |peer: MemberId| links.presence().connected_for(peer).is_some_and(|time| age < time);
    let lead = match leadership.known() {
        None => Lead::None,
        Some(leader) if leader == me => {
            let members = leadership.nodes();
            let connected = members.keys().filter(|id| **id == me || connected(**id)).count();
            Lead::Mine { connected, members: members.len() }
        }
        Some(leader) => Lead::Others { connected: connected(leader) },
    };
    judge(age, leadership.took_lead(), leadership.election_timeout(), lead)
}

/// `took_lead`: how long ago this member last took the lead, if it ever did.
fn judge(age: Duration, took_lead: Option<Duration>, election_timeout: Duration, lead: Lead) -> TimeoutCause {
    let before_election = took_lead.and_then(|took_lead| age.checked_sub(took_lead));
    if before_election.is_some_and(|before| Duration::ZERO < before && before < 2 * election_timeout) {
        return TimeoutCause::LeaderFailure;
    }
    let lost = match lead {
        Lead::None => false,
        Lead::Mine { connected, members } => connected < members / 2 + 1,
        Lead::Others { connected } => !connected,
    };
    if lost { TimeoutCause::ConnectionLost } else { TimeoutCause::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_that_timed_out_is_blamed_as_in_etcd() {
        use TimeoutCause::{ConnectionLost, LeaderFailure, Unknown};
        let mine = |connected| Lead::Mine { connected, members: 3 };
        let others = |connected| Lead::Others { connected };
        // Proposed seven seconds ago; this member leads since so many milliseconds, if ever.
        for (took_lead_ms, lead, expected) in [
            (None, Lead::None, Unknown),
            (None, mine(3), Unknown),
            (None, mine(2), Unknown),
            (None, mine(1), ConnectionLost),
            (None, others(true), Unknown),
            (None, others(false), ConnectionLost),
            // Led before the proposal.
            (Some(9_000), mine(3), Unknown),
            (Some(7_000), mine(1), ConnectionLost),
            // Took the lead within two election timeouts after it.
            (Some(6_900), mine(1), LeaderFailure),
            (Some(5_001), others(false), LeaderFailure),
            (Some(5_000), others(true), Unknown),
            (Some(100), mine(2), Unknown),
        ] {
            let took_lead = took_lead_ms.map(Duration::from_millis);
            let cause = judge(Duration::from_secs(7), took_lead, Duration::from_secs(1), lead);
            assert_eq!(cause, expected, "{took_lead_ms:?} {lead:?}");
        }
    }
}
