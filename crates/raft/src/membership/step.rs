//! From a change to the membership after it.

use super::rules::MemberChange;
use crate::type_config::{Membership, PeerNode};
use meerkat_types::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// How a change is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// As this membership, which differs by at most one voter and in no node that stays.
    Append(Membership),
    /// As other addresses for members that stay.
    SetNodes(BTreeMap<MemberId, PeerNode>),
}

/// The next membership for a change that the rules allow; `None` if it cannot be written as one step.
pub(super) fn step(now: &Membership, change: &MemberChange) -> Option<Step> {
    let mut voters = sole_config(now)?;
    let mut nodes: BTreeMap<MemberId, PeerNode> = now.nodes().map(|(id, node)| (*id, node.clone())).collect();
    match change {
        MemberChange::Add { id, peer_urls, learner } => {
            let node =
                PeerNode { name: String::new(), peer_urls: peer_urls.clone(), becomes_voter: !learner };
            nodes.insert(*id, node);
        }
        MemberChange::Remove { id } => {
            voters.remove(id);
            nodes.remove(id);
        }
        MemberChange::Update { id, peer_urls } => {
            let node = PeerNode { peer_urls: peer_urls.clone(), ..nodes.get(id)?.clone() };
            return Some(Step::SetNodes(BTreeMap::from([(*id, node)])));
        }
        MemberChange::Promote { id } => {
            voters.insert(*id);
        }
    }
    Membership::new(vec![voters], nodes).ok().map(Step::Append)
}

/// Whether a change that was asked for before is there.
pub(super) fn is_made(now: &Membership, change: &MemberChange) -> bool {
    match change {
        MemberChange::Add { id, peer_urls, .. } | MemberChange::Update { id, peer_urls } => {
            now.get_node(id).is_some_and(|node| node.peer_urls == *peer_urls)
        }
        MemberChange::Remove { id } => now.get_node(id).is_none(),
        MemberChange::Promote { id } => now.voter_ids().any(|voter| voter == *id),
    }
}

/// Those who were added as voters and have no vote yet.
pub(super) fn waiting(now: &Membership) -> Vec<MemberId> {
    let waits = |id: &MemberId| now.get_node(id).is_some_and(|node| node.becomes_voter);
    now.learner_ids().filter(waits).collect()
}

fn sole_config(now: &Membership) -> Option<BTreeSet<MemberId>> {
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

    fn members(voters: &[u64], nodes: &[(u64, PeerNode)]) -> Membership {
        let nodes: BTreeMap<_, _> = nodes.iter().map(|(id, node)| (MemberId(*id), node.clone())).collect();
        Membership::new(vec![voters.iter().copied().map(MemberId).collect()], nodes).expect("valid")
    }

    fn check(now: &Membership, change: MemberChange, expected: Membership) {
        assert_eq!(step(now, &change), Some(Step::Append(expected.clone())));
        assert!(!is_made(now, &change) && is_made(&expected, &change), "{change:?}");
    }

    #[test]
    fn each_change_is_one_membership() {
        let one = members(&[1], &[(1, node("a", false))]);
        let added = members(&[1], &[(1, node("a", false)), (2, node("b", true))]);
        let urls = vec!["b".to_owned()];
        check(
            &one,
            MemberChange::Add { id: MemberId(2), peer_urls: urls.clone(), learner: false },
            added.clone(),
        );
        let learner = members(&[1], &[(1, node("a", false)), (2, node("b", false))]);
        check(&one, MemberChange::Add { id: MemberId(2), peer_urls: urls, learner: true }, learner.clone());
        let both = members(&[1, 2], &[(1, node("a", false)), (2, node("b", false))]);
        check(&learner, MemberChange::Promote { id: MemberId(2) }, both.clone());
        check(&learner, MemberChange::Remove { id: MemberId(2) }, one.clone());
        check(&both, MemberChange::Remove { id: MemberId(2) }, one);
        assert_eq!(waiting(&added), [MemberId(2)]);
        assert_eq!(waiting(&learner), []);
    }

    #[test]
    fn an_update_keeps_all_but_the_urls() {
        let now = members(&[1], &[(1, node("a", false)), (2, node("b", true))]);
        let change = MemberChange::Update { id: MemberId(2), peer_urls: vec!["c".to_owned()] };
        let nodes = BTreeMap::from([(MemberId(2), node("c", true))]);
        assert_eq!(step(&now, &change), Some(Step::SetNodes(nodes)));
        assert_eq!(step(&now, &MemberChange::Update { id: MemberId(9), peer_urls: vec![] }), None);
    }

    #[test]
    fn the_last_voter_cannot_go() {
        let now = members(&[1], &[(1, node("a", false))]);
        assert_eq!(step(&now, &MemberChange::Remove { id: MemberId(1) }), None);
    }
}
