//! The leader is asked to hand over to another member (`Maintenance.MoveLeader`), under load.
//!
//! A refusal is an answer: the one that was asked may have lost its place meanwhile, the other may
//! be behind or down.

use std::time::Duration;

use futures::FutureExt;
use meerkat_proto::pb::etcdserver::StatusResponse;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::{Blow, Nemesis, sight};
use crate::ground::{Done, Ground};
use crate::outcome::describe;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Who hands over to whom: the leader, and any other voter that answers.
pub fn choose(statuses: &[(usize, StatusResponse)], dice: &mut StdRng) -> Option<(usize, usize)> {
    let leader = sight::leader_among(statuses)?;
    let others: Vec<usize> = statuses
        .iter()
        .filter(|(member, status)| *member != leader && !status.is_learner)
        .map(|(member, _)| *member)
        .collect();
    others.choose(dice).map(|heir| (leader, *heir))
}

/// Asks whoever leads to hand over to this member; what comes of it is not waited for.
pub async fn hand_over(ground: &mut dyn Ground, heir: usize) {
    let statuses = sight::statuses(ground).await;
    let target = statuses.iter().find(|(member, _)| *member == heir).map(|(_, status)| sight::id(status));
    if let (Some(leader), Some(target)) = (sight::leader_among(&statuses), target)
        && leader != heir
    {
        let _refused = ground.endpoint(leader).move_leader(target, ANSWER_WITHIN).await.is_err();
    }
}

/// Asks once; there is nothing to undo.
#[derive(Debug, Default)]
pub struct LeaderTransfer;

impl Nemesis for LeaderTransfer {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let statuses = sight::statuses(ground).await;
            let Some((leader, heir)) = choose(&statuses, dice) else {
                return Ok(Blow::not_made("nobody leads, or nobody is there to take over"));
            };
            let target =
                statuses.iter().find(|(member, _)| *member == heir).map_or(0, |(_, it)| sight::id(it));
            let answer = ground.endpoint(leader).move_leader(target, ANSWER_WITHIN).await;
            let end = match answer {
                Ok(_) => "done".to_owned(),
                Err(status) => describe(&status),
            };
            let what = format!("{} hands over to {}: {end}", ground.name(leader), ground.name(heir));
            Ok(Blow::made(what, vec![leader, heir]))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, _ground: &'a mut dyn Ground) -> Done<'a> {
        async { Ok(()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::ResponseHeader;
    use rand::SeedableRng;

    #[test]
    fn the_heir_is_a_voter_and_not_the_leader() {
        let status = |own, is_learner| {
            let header = Some(ResponseHeader { member_id: own, ..Default::default() });
            StatusResponse { header, leader: 1, raft_term: 2, is_learner, ..Default::default() }
        };
        let statuses = [(0, status(1, false)), (1, status(2, true)), (2, status(3, false))];
        for seed in 0..20 {
            assert_eq!(choose(&statuses, &mut StdRng::seed_from_u64(seed)), Some((0, 2)));
        }
        assert_eq!(choose(&statuses[1..], &mut StdRng::seed_from_u64(1)), None, "nobody leads");
        assert_eq!(choose(&statuses[..2], &mut StdRng::seed_from_u64(1)), None, "nobody to take over");
    }
}
