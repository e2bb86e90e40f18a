//! From a change to the membership after it.

use super::rules::Change;
use crate::type_config::PeerNode;
use meerkat_types::MemberId;
use openraft::Membership;
use std::collections::{BTreeMap, BTreeSet};

type Members = Membership<MemberId, PeerNode>;

/// How a change is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// As this membership, which differs by at most one voter and in no node that stays.
    Append(Members),
    /// As other addresses for members that stay.
    SetNodes(BTreeMap<MemberId, PeerNode>),
}

/// The next membership for a change that the rules allow; `None` if it cannot be written as one step.
pub(super) fn step(now: &Members, change: &Change) -> Option<Step> {
    let mut voters = sole_config(now)?;
    let mut nodes: BTreeMap<MemberId, PeerNode> = now.nodes().map(|(id, node)| (*id, node.clone())).collect();
    match change {
        Change::Add { id, peer_urls, learner } => {
            let node =
                PeerNode { name: String::new(), peer_urls: peer_urls.clone(), becomes_voter: !learner };
            nodes.insert(*id, node);
        }
        Change::Remove { id } => {
            voters.remove(id);
            nodes.remove(id);
        }
        Change::Update { id, peer_urls } => {
            let node = PeerNode { peer_urls: peer_urls.clone(), ..nodes.get(id)?.clone() };
            return Some(Step::SetNodes(BTreeMap::from([(*id, node)])));
        }
        Change::Promote { id } => {
            voters.insert(*id);
        }
    }
    Membership::new(vec![voters], nodes).ok().map(Step::Append)
}

/// Whether a change that was asked for before is there.
pub(super) fn is_made(now: &Members, change: &Change) -> bool {
    match change {
        Change::Add { id, peer_urls, .. } | Change::Update { id, peer_urls } => {
            now.get_node(id).is_some_and(|node| node.peer_urls == *peer_urls)
        }
        Change::Remove { id } => now.get_node(id).is_none(),
        Change::Promote { id } => now.voter_ids().any(|voter| voter == *id),
    }
}

/// Those who were added as voters and have no vote yet.
pub(super) fn waiting(now: &Members) -> Vec<MemberId> {
    let waits = |id: &MemberId| now.get_node(id).is_some_and(|node| node.becomes_voter);
    now.learner_ids().filter(waits).collect()
}

fn sole_config(now: &Members) -> Option<BTreeSet<MemberId>> {
    match now.get_joint_config().as_slice() {
        [voters] => Some(voters.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: &str, becomes_voter: bool) -> PeerNode {
        PeerNode { name: String::new(), peer_urls: vec![url.to_owned()], becomes_voter }
    }

    fn members(voters: &[u64], nodes: &[(u64, PeerNode)]) -> Members {
        let nodes: BTreeMap<_, _> = nodes.iter().map(|(id, node)| (MemberId(*id), node.clone())).collect();
        Membership::new(vec![voters.iter().copied().map(MemberId).collect()], nodes).expect("valid")
    }

    fn check(now: &Members, change: Change, expected: Members) {
        assert_eq!(step(now, &change), Some(Step::Append(expected.clone())));
        assert!(!is_made(now, &change) && is_made(&expected, &change), "{change:?}");
    }

    #[test]
    fn each_change_is_one_membership() {
        let one = members(&[1], &[(1, node("a", false))]);
        let added = members(&[1], &[(1, node("a", false)), (2, node("b", true))]);
        let urls = vec!["b".to_owned()];
        check(&one, Change::Add { id: MemberId(2), peer_urls: urls.clone(), learner: false }, added.clone());
        let learner = members(&[1], &[(1, node("a", false)), (2, node("b", false))]);
        check(&one, Change::Add { id: MemberId(2), peer_urls: urls, learner: true }, learner.clone());
        let both = members(&[1, 2], &[(1, node("a", false)), (2, node("b", false))]);
        check(&learner, Change::Promote { id: MemberId(2) }, both.clone());
        check(&learner, Change::Remove { id: MemberId(2) }, one.clone());
        check(&both, Change::Remove { id: MemberId(2) }, one);
        assert_eq!(waiting(&added), [MemberId(2)]);
        assert_eq!(waiting(&learner), []);
    }

    #[test]
    fn an_update_keeps_all_but_the_urls() {
        let now = members(&[1], &[(1, node("a", false)), (2, node("b", true))]);
        let change = Change::Update { id: MemberId(2), peer_urls: vec!["c".to_owned()] };
        let nodes = BTreeMap::from([(MemberId(2), node("c", true))]);
        assert_eq!(step(&now, &change), Some(Step::SetNodes(nodes)));
        assert_eq!(step(&now, &Change::Update { id: MemberId(9), peer_urls: vec![] }), None);
    }

    #[test]
    fn the_last_voter_cannot_go() {
        let now = members(&[1], &[(1, node("a", false))]);
        assert_eq!(step(&now, &Change::Remove { id: MemberId(1) }), None);
    }
}
