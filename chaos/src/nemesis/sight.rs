//! What a nemesis sees before it strikes, and waits for while it heals.

use std::time::{Duration, Instant};

use futures::future::join_all;
use meerkat_proto::pb::etcdserver::StatusResponse;

use crate::Failure;
use crate::ground::{self, Change, Ground};

const ASK_WITHIN: Duration = Duration::from_millis(400);
/// A fault is no less a fault when nobody leads, so this is not waited for long.
const LEADER_WITHIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// The members there are, and which of them leads, if one says so within a short time.
pub async fn members(ground: &mut dyn Ground) -> (Vec<usize>, Option<usize>) {
    (ground::enlisted(ground), leader(ground).await)
}

/// The member that says that it leads, in the highest term.
pub async fn leader(ground: &mut dyn Ground) -> Option<usize> {
    let deadline = Instant::now() + LEADER_WITHIN;
    loop {
        let leader = leader_among(&statuses(ground).await);
        if leader.is_some() || deadline < Instant::now() {
            return leader;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The status of every enlisted member that answers.
pub async fn statuses(ground: &mut dyn Ground) -> Vec<(usize, StatusResponse)> {
    let asked = ground::enlisted(ground).into_iter().map(|member| {
        let endpoint = ground.endpoint(member);
        async move { Some((member, endpoint.status(ASK_WITHIN).await.ok()?)) }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Who of these leads.
pub fn leader_among(statuses: &[(usize, StatusResponse)]) -> Option<usize> {
    let leading = statuses.iter().filter(|(_, status)| status.leader != 0 && status.leader == id(status));
    leading.max_by_key(|(_, status)| status.raft_term).map(|(member, _)| *member)
}

/// The cluster's own number for the member that answered.
pub fn id(status: &StatusResponse) -> u64 {
    status.header.as_ref().map_or(0, |header| header.member_id)
}

/// `m1 (leader), m2`.
pub fn names(ground: &dyn Ground, members: &[usize], leader: Option<usize>) -> String {
    let name = |member: &usize| {
        let role = if leader == Some(*member) { " (leader)" } else { "" };
        format!("{}{role}", ground.name(*member))
    };
    members.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Starts those of these that belong to the cluster and do not run.
pub async fn start(ground: &mut dyn Ground, members: &[usize]) -> Result<(), Failure> {
    for member in members {
        if ground.enlisted(*member) && !ground.is_running(*member).await? {
            ground.start(*member, Change::default()).await?;
        }
    }
    Ok(())
}

/// Waits until a member answers a linearizable read. False if it does not in time, or ends.
pub async fn serves(ground: &mut dyn Ground, member: usize, within: Duration) -> Result<bool, Failure> {
    let deadline = Instant::now() + within;
    let endpoint = ground.endpoint(member);
    while Instant::now() < deadline {
        if !ground.is_running(member).await? {
            return Ok(false);
        }
        if endpoint.linearizable_probe(Duration::from_secs(1)).await.is_ok() {
            return Ok(true);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(false)
}

/// The same for a member that was just started: one that ends instead has broken a promise. False if
/// it is merely late.
pub async fn comes_back(ground: &mut dyn Ground, member: usize, within: Duration) -> Result<bool, Failure> {
    if serves(ground, member, within).await? {
        return Ok(true);
    }
    if ground.is_running(member).await? {
        return Ok(false);
    }
    Err(ended_by_itself(ground, member))
}

/// What is said of a member that is not there though nobody ended it.
pub fn ended_by_itself(ground: &dyn Ground, member: usize) -> Failure {
    Failure::broken(format!("{} has ended by itself: {}", ground.name(member), ground.tail(member)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::ResponseHeader;

    fn status(own: u64, leader: u64, raft_term: u64) -> StatusResponse {
        let header = Some(ResponseHeader { member_id: own, ..Default::default() });
        StatusResponse { header, leader, raft_term, ..Default::default() }
    }

    #[test]
    fn the_leader_of_the_highest_term_is_the_leader() {
        let deposed = (0, status(7, 7, 3));
        let leads = (1, status(8, 8, 4));
        let follows = (2, status(9, 8, 4));
        assert_eq!(leader_among(&[deposed.clone(), leads, follows.clone()]), Some(1));
        assert_eq!(leader_among(&[deposed, follows.clone()]), Some(0), "the best that is known");
        assert_eq!(leader_among(&[follows, (3, status(0, 0, 9))]), None);
    }
}
