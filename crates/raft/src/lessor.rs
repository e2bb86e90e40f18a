//! Asking the leader about leases, wherever it is.
//!
//! Only a leader has deadlines, and only in memory, so a member whose client renews a lease asks the
//! leader's desk: its own, or over the peer port. Both questions may be asked again without harm, so
//! they are, until the time is over: a change of leader costs a client a wait, not an error.

use crate::leadership::Leadership;
use crate::network::link::{Links, Purpose};
use crate::network::wire::Missing;
use futures::future::BoxFuture;
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer as pb;
use meerkat_types::{LeaseId, LeaseTtl, LogIndex, MemberId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before asking again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Renewed(LeaseTtl),
    /// There is no such lease.
    Gone,
    /// It has expired and will soon be gone; whether it is, only the log can say. Ask again.
    Expiring,
}

/// What the leader knows of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRest {
    /// Whoever has applied this far knows of the lease what the leader knew.
    pub index: LogIndex,
    /// Time to live, and the milliseconds left of it: negative after the deadline. `None`: no such lease.
    pub rest: Option<(LeaseTtl, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LessorError {
    #[error("this member does not lead")]
    NotLeader,
    #[error("no leader is known")]
    NoLeader,
    #[error("the leader did not answer in time")]
    Timeout,
    #[error("this member is stopping")]
    Stopped,
}

/// Answers while this member leads. Every answer is confirmed by a majority, in a round begun after
/// the question: a leader that was deposed in silence promises nothing.
pub trait Lessor: Send + Sync + 'static {
    /// One answer for each lease, in order.
    fn renew(&self, leases: Vec<LeaseId>) -> BoxFuture<'static, Result<Vec<Renewal>, LessorError>>;
    fn rest(&self, lease: LeaseId) -> BoxFuture<'static, Result<LeaseRest, LessorError>>;
}

/// The leader's desk, wherever it is.
#[derive(Clone)]
pub struct LeaderLeases {
    links: Arc<Links>,
    leadership: Leadership,
    timeout: Duration,
    own: Arc<Mutex<Option<Arc<dyn Lessor>>>>,
}

impl LeaderLeases {
    pub(crate) fn new(links: Arc<Links>, leadership: Leadership, timeout: Duration) -> LeaderLeases {
        LeaderLeases { links, leadership, timeout, own: Arc::default() }
    }

    /// Who answers when this member leads. Until it is set, this member answers as if it did not.
    pub fn set_own(&self, desk: Arc<dyn Lessor>) {
        *self.own.lock() = Some(desk);
    }

    pub async fn renew(&self, leases: &[LeaseId]) -> Result<Vec<Renewal>, LessorError> {
        let leases: Arc<[LeaseId]> = leases.into();
        self.ask(|leader, left| Box::pin(self.clone().renew_at(leader, leases.clone(), left))).await
    }

    pub async fn rest(&self, lease: LeaseId) -> Result<LeaseRest, LessorError> {
        self.ask(|leader, left| Box::pin(self.clone().rest_at(leader, lease, left))).await
    }

    async fn renew_at(
        self,
        leader: MemberId,
        leases: Arc<[LeaseId]>,
        within: Duration,
    ) -> Result<Vec<Renewal>, LessorError> {
        if leader == self.links.identity().member {
            return self.own_desk()?.renew(leases.to_vec()).await;
        }
        let question = pb::RenewLeasesRequest { leases: leases.iter().map(|lease| lease.get()).collect() };
        let mut question = tonic::Request::new(question);
        question.set_timeout(within);
        let answer = self.link(leader)?.renew_leases(question).await.map_err(|_| LessorError::Timeout)?;
        renewals_from_wire(answer.into_inner(), leases.len())
    }

    async fn rest_at(
        self,
        leader: MemberId,
        lease: LeaseId,
        within: Duration,
    ) -> Result<LeaseRest, LessorError> {
        if leader == self.links.identity().member {
            return self.own_desk()?.rest(lease).await;
        }
        let mut question = tonic::Request::new(pb::RestOfLeaseRequest { lease: lease.get() });
        question.set_timeout(within);
        let answer = self.link(leader)?.rest_of_lease(question).await.map_err(|_| LessorError::Timeout)?;
        rest_from_wire(&answer.into_inner())
    }

    fn own_desk(&self) -> Result<Arc<dyn Lessor>, LessorError> {
        self.own.lock().clone().ok_or(LessorError::NotLeader)
    }

    fn link(&self, leader: MemberId) -> Result<crate::network::link::Link, LessorError> {
        let node = self.leadership.node(leader).ok_or(LessorError::NoLeader)?;
        self.links.to(leader, &node, Purpose::Forward).map_err(|_| LessorError::NoLeader)
    }

    /// Asks whoever leads, again and again, until one answers or the time is over.
    async fn ask<T>(
        &self,
        question: impl Fn(MemberId, Duration) -> BoxFuture<'static, Result<T, LessorError>>,
    ) -> Result<T, LessorError> {
        let deadline = Instant::now() + self.timeout;
        let mut last = LessorError::NoLeader;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let Some(leader) = self.leadership.wait_for_leader(left).await else {
                return Err(LessorError::NoLeader);
            };
            // A leader that falls silent is not waited for once another is known.
            let answer = tokio::select! {
                answer = tokio::time::timeout(left, question(leader, left)) => {
                    answer.unwrap_or(Err(LessorError::Timeout))
                }
                () = self.leadership.changed_from(Some(leader)) => Err(LessorError::NotLeader),
            };
            match answer {
                Err(LessorError::Stopped) => return Err(LessorError::Stopped),
                Err(error) => last = error,
                answered => return answered,
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let unled = self.leadership.known().is_none() || last == LessorError::NotLeader;
        Err(if unled { LessorError::NoLeader } else { last })
    }
}

pub(crate) fn lease_from_wire(number: i64) -> Result<LeaseId, Missing> {
    LeaseId::from_wire(number).ok_or(Missing("the name of a lease"))
}

pub(crate) fn leases_from_wire(numbers: &[i64]) -> Result<Vec<LeaseId>, Missing> {
    numbers.iter().map(|number| lease_from_wire(*number)).collect()
}

pub(crate) fn renewals_to_wire(
    answer: Result<Vec<Renewal>, LessorError>,
) -> Result<pb::RenewLeasesResponse, LessorError> {
    use pb::lease_renewal::Result as Wire;
    let renewal = |renewal: Renewal| {
        let result = match renewal {
            Renewal::Renewed(ttl) => Wire::TtlSeconds(ttl.seconds()),
            Renewal::Gone => Wire::Gone(true),
            Renewal::Expiring => Wire::Expiring(true),
        };
        pb::LeaseRenewal { result: Some(result) }
    };
    match answer {
        Ok(renewals) => Ok(pb::RenewLeasesResponse {
            not_leader: false,
            renewals: renewals.into_iter().map(renewal).collect(),
        }),
        Err(LessorError::NotLeader) => Ok(pb::RenewLeasesResponse { not_leader: true, renewals: Vec::new() }),
        Err(error @ (LessorError::NoLeader | LessorError::Timeout | LessorError::Stopped)) => Err(error),
    }
}

fn renewals_from_wire(wire: pb::RenewLeasesResponse, asked: usize) -> Result<Vec<Renewal>, LessorError> {
    use pb::lease_renewal::Result as Wire;
    // An answer that this version cannot read is no answer; the question is asked again.
    if wire.not_leader || wire.renewals.len() != asked {
        return Err(LessorError::NotLeader);
    }
    let renewal = |wire: pb::LeaseRenewal| match wire.result {
        Some(Wire::TtlSeconds(seconds)) => LeaseTtl::from_seconds(seconds).map(Renewal::Renewed),
        Some(Wire::Gone(_)) => Some(Renewal::Gone),
        Some(Wire::Expiring(_)) => Some(Renewal::Expiring),
        None => None,
    };
    wire.renewals.into_iter().map(|wire| renewal(wire).ok_or(LessorError::NotLeader)).collect()
}

pub(crate) fn rest_to_wire(
    answer: Result<LeaseRest, LessorError>,
) -> Result<pb::RestOfLeaseResponse, LessorError> {
    match answer {
        Ok(LeaseRest { index, rest }) => Ok(pb::RestOfLeaseResponse {
            not_leader: false,
            index: index.0,
            rest: rest.map(|(ttl, remaining_ms)| pb::LeaseRest { ttl_seconds: ttl.seconds(), remaining_ms }),
        }),
        Err(LessorError::NotLeader) => Ok(pb::RestOfLeaseResponse { not_leader: true, index: 0, rest: None }),
        Err(error @ (LessorError::NoLeader | LessorError::Timeout | LessorError::Stopped)) => Err(error),
    }
}

fn rest_from_wire(wire: &pb::RestOfLeaseResponse) -> Result<LeaseRest, LessorError> {
    if wire.not_leader {
        return Err(LessorError::NotLeader);
    }
    let rest = match &wire.rest {
        None => None,
        Some(rest) => {
            let ttl = LeaseTtl::from_seconds(rest.ttl_seconds).ok_or(LessorError::NotLeader)?;
            Some((ttl, rest.remaining_ms))
        }
    };
    Ok(LeaseRest { index: LogIndex(wire.index), rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_peer_port_and_a_refusal_is_not_an_answer() {
        let ttl = LeaseTtl::from_seconds(5).expect("in range");
        let renewals = vec![Renewal::Renewed(ttl), Renewal::Gone, Renewal::Expiring];
        let wire = renewals_to_wire(Ok(renewals.clone())).expect("an answer");
        assert_eq!(renewals_from_wire(wire.clone(), 3), Ok(renewals));
        assert_eq!(renewals_from_wire(wire, 2), Err(LessorError::NotLeader));
        let refused = renewals_to_wire(Err(LessorError::NotLeader)).expect("an answer");
        assert_eq!(renewals_from_wire(refused, 0), Err(LessorError::NotLeader));
        for rest in [None, Some((ttl, -7))] {
            let rest = LeaseRest { index: LogIndex(9), rest };
            assert_eq!(rest_from_wire(&rest_to_wire(Ok(rest)).expect("an answer")), Ok(rest));
        }
        let refused = rest_to_wire(Err(LessorError::NotLeader)).expect("an answer");
        assert_eq!(rest_from_wire(&refused), Err(LessorError::NotLeader));
        assert_eq!(renewals_to_wire(Err(LessorError::Stopped)), Err(LessorError::Stopped));
    }
}
