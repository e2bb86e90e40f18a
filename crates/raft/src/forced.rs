//! `--force-new-cluster`: a member goes on alone with what it has, when a majority is lost for good.
//!
//! Its log gets one more entry, which makes it the only member and counts as agreed on at once. So all
//! others are removed before it hears from anybody, and are turned away if they ever come back.
//!
//! Always true: nothing that the log has is dropped. An entry that this member did not know to be agreed
//! on may have been acknowledged by another, and whoever did not hear an answer must expect either.

use crate::log_store::LogStore;
use crate::node::StartError;
use crate::type_config::{Entry, LogId, Membership, PeerNode, StoredMembership, TypeConfig, Vote};
use meerkat_types::{MemberId, Term};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::type_config::alias::{CommittedLeaderIdOf, LeaderIdOf};
use openraft::{EntryPayload, RaftLogReader};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Makes `me` the only member, unless it is already, or has never been in a cluster. `state`: how far
/// the state is, and the membership there.
pub(crate) async fn go_alone(
    log: &mut LogStore,
    me: MemberId,
    state: (Option<LogId>, StoredMembership),
) -> Result<(), StartError> {
    append(log, me, state).await.map_err(|error| StartError::Forced(error.to_string()))
}

async fn append(
    log: &mut LogStore,
    me: MemberId,
    (applied, stored): (Option<LogId>, StoredMembership),
) -> io::Result<()> {
    let newest = newest_membership(log, applied, stored.membership().clone()).await?;
    let Some(alone) = alone(me, &newest)? else { return Ok(()) };
    let mut last = log.get_log_state().await?.last_log_id;
    // A state that was installed may be ahead of the log.
    if let Some(applied) = applied.filter(|applied| last.is_none_or(|last| last.index < applied.index)) {
        log.purge(applied).await?;
        last = Some(applied);
    }
    let vote = log.get_log_reader().await.read_vote().await?;
    let term = next_term(vote, last).0;
    let index = last.map_or(0, |last| last.index + 1);
    let log_id = LogId { leader_id: CommittedLeaderIdOf::<TypeConfig> { term, node_id: me }, index };
    tracing::warn!(
        member = %me, index, term, left_out = newest.nodes().count() - 1,
        "--force-new-cluster: this member goes on alone; all others are removed for ever"
    );
    let leader_id = LeaderIdOf::<TypeConfig> { term, node_id: me };
    log.save_vote(&Vote { leader_id, committed: false }).await?;
    let entry = Entry { log_id, payload: EntryPayload::Membership(alone) };
    log.blocking_append([entry]).await.map_err(|error| io::Error::other(error.to_string()))?;
    log.save_committed(Some(log_id)).await?;
    log.sync_barrier().await
}

/// The newest membership of the log, or else that of the state.
async fn newest_membership(
    log: &mut LogStore,
    applied: Option<LogId>,
    stored: Membership,
) -> io::Result<Membership> {
    let end = log.get_log_state().await?.last_log_id.map_or(0, |last| last.index + 1);
    let mut reader = log.get_log_reader().await;
    let mut newest = stored;
    let mut next = applied.map_or(0, |applied| applied.index + 1);
    while next < end {
        let entries = reader.limited_get_log_entries(next, end).await?;
        let Some(last) = entries.last() else { break };
        next = last.log_id.index + 1;
        for entry in entries {
            if let EntryPayload::Membership(membership) = entry.payload {
                newest = membership;
            }
        }
    }
    Ok(newest)
}

/// Above every term that this member knows of.
fn next_term(vote: Option<Vote>, last: Option<LogId>) -> Term {
    let promised = vote.map_or(0, |vote| vote.leader_id.term);
    Term(promised.max(last.map_or(0, |last| last.leader_id.term)) + 1)
}

/// The membership of `me` alone; `None` if that is what there is, or if there never was any.
fn alone(me: MemberId, newest: &Membership) -> io::Result<Option<Membership>> {
    let nodes: BTreeMap<MemberId, PeerNode> = newest.nodes().map(|(id, node)| (*id, node.clone())).collect();
    if nodes.is_empty() {
        return Ok(None);
    }
    let Some(own) = nodes.get(&me) else {
        let text =
            format!("member {me} is not in the newest membership that it knows, so it cannot go on alone");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let voters = BTreeSet::from([me]);
    if nodes.len() == 1 && newest.get_joint_config().iter().all(|config| *config == voters) {
        return Ok(None);
    }
    let own = PeerNode { becomes_voter: false, ..own.clone() };
    let membership = Membership::new(vec![voters], BTreeMap::from([(me, own)]));
    membership.map(Some).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(configs: &[&[u64]], all: &[u64]) -> Membership {
        let node = |id: &u64| {
            let node = PeerNode {
                name: format!("m{id}"),
                peer_urls: vec![format!("http://{id}")],
                becomes_voter: *id == 2,
            };
            (MemberId(*id), node)
        };
        let configs = configs.iter().map(|config| config.iter().copied().map(MemberId).collect()).collect();
        Membership::new(configs, all.iter().map(node).collect::<BTreeMap<_, _>>()).expect("a membership")
    }

    #[test]
    fn one_of_many_is_left_with_its_name_and_its_vote() {
        // Voters, everybody, me, and whether an entry is needed.
        type Case<'a> = (&'a [&'a [u64]], &'a [u64], u64, bool);
        let table: [Case<'_>; 6] = [
            (&[&[1, 2, 3]], &[1, 2, 3], 2, true),
            (&[&[1, 3], &[1, 2, 3]], &[1, 2, 3], 2, true),
            // A learner gets a vote.
            (&[&[1]], &[1, 2], 2, true),
            (&[&[2]], &[1, 2], 2, true),
            (&[&[2]], &[2], 2, false),
            (&[], &[], 2, false),
        ];
        for (configs, all, me, needed) in table {
            let left = alone(MemberId(me), &members(configs, all)).expect("a member");
            assert_eq!(left.is_some(), needed, "{configs:?} {all:?}");
            let Some(left) = left else { continue };
            assert_eq!(left.get_joint_config().to_vec(), [BTreeSet::from([MemberId(me)])]);
            let nodes: Vec<_> =
                left.nodes().map(|(id, node)| (id.0, node.name.clone(), node.becomes_voter)).collect();
            assert_eq!(nodes, [(me, format!("m{me}"), false)]);
        }
        assert!(alone(MemberId(4), &members(&[&[1, 2, 3]], &[1, 2, 3])).is_err(), "a stranger");
    }

    #[test]
    fn the_term_is_above_whatever_was_promised_or_written() {
        let vote = |term| Vote {
            leader_id: LeaderIdOf::<TypeConfig> { term, node_id: MemberId(1) },
            committed: true,
        };
        let last = |term| LogId {
            leader_id: CommittedLeaderIdOf::<TypeConfig> { term, node_id: MemberId(1) },
            index: 9,
        };
        assert_eq!(next_term(None, None), Term(1));
        assert_eq!(next_term(Some(vote(7)), Some(last(5))), Term(8));
        assert_eq!(next_term(Some(vote(3)), Some(last(5))), Term(6));
    }
}
