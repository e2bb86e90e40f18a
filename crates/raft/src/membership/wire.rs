//! Changes of the membership to and from the peers' wire.

use super::rules::{ChangeRefusal, MemberChange};
use super::{ChangeError, Changed};
use crate::leadership::Peer;
use crate::network::wire::Missing;
use meerkat_proto::pb::peer as pb;
use meerkat_types::{LogIndex, MemberId};

pub(super) fn change_to_wire(change: &MemberChange, again: bool) -> pb::ChangeMembersRequest {
    use pb::change_members_request::Change as Wire;
    let change = match change.clone() {
        MemberChange::Add { id, peer_urls, learner } => {
            Wire::Add(pb::AddMember { id: id.0, peer_urls, learner })
        }
        MemberChange::Remove { id } => Wire::Remove(id.0),
        MemberChange::Update { id, peer_urls } => Wire::Update(pb::UpdateMember { id: id.0, peer_urls }),
        MemberChange::Promote { id } => Wire::Promote(id.0),
    };
    pb::ChangeMembersRequest { change: Some(change), again }
}

pub(crate) fn change_from_wire(wire: pb::ChangeMembersRequest) -> Result<(MemberChange, bool), Missing> {
    use pb::change_members_request::Change as Wire;
    let change = match wire.change.ok_or(Missing("change that this version knows"))? {
        Wire::Add(pb::AddMember { id, peer_urls, learner }) => {
            MemberChange::Add { id: MemberId(id), peer_urls, learner }
        }
        Wire::Remove(id) => MemberChange::Remove { id: MemberId(id) },
        Wire::Update(pb::UpdateMember { id, peer_urls }) => {
            MemberChange::Update { id: MemberId(id), peer_urls }
        }
        Wire::Promote(id) => MemberChange::Promote { id: MemberId(id) },
    };
    Ok((change, wire.again))
}

/// An error is for the caller's network to report: the outcome is unknown.
pub(crate) fn changed_to_wire(
    result: Result<Changed, ChangeError>,
) -> Result<pb::ChangeMembersResponse, ChangeError> {
    use pb::change_members_response::Result as Wire;
    let result = match result {
        Ok(changed) => Wire::Changed(pb::MembersChanged {
            index: changed.index.0,
            members: changed.members.into_iter().map(|peer| description(peer, String::new())).collect(),
        }),
        Err(ChangeError::NotLeader) => Wire::NotLeader(true),
        Err(ChangeError::Refused(refusal)) => Wire::Refused(refusal_to_wire(refusal).into()),
        Err(error @ (ChangeError::Timeout | ChangeError::Stopped)) => return Err(error),
    };
    Ok(pb::ChangeMembersResponse { result: Some(result) })
}

/// An answer that this version cannot read is no answer.
pub(super) fn changed_from_wire(wire: pb::ChangeMembersResponse) -> Result<Changed, ChangeError> {
    use pb::change_members_response::Result as Wire;
    match wire.result {
        Some(Wire::Changed(changed)) => Ok(Changed {
            index: LogIndex(changed.index),
            members: changed.members.into_iter().map(peer).collect(),
        }),
        Some(Wire::NotLeader(_)) => Err(ChangeError::NotLeader),
        Some(Wire::Refused(number)) => {
            let refusal = pb::MemberRefusal::try_from(number).ok().and_then(refusal_from_wire);
            Err(refusal.map_or(ChangeError::Timeout, ChangeError::Refused))
        }
        None => Err(ChangeError::Timeout),
    }
}

pub(crate) fn description(peer: Peer, name: String) -> pb::MemberDescription {
    pb::MemberDescription { id: peer.id.0, name, peer_urls: peer.peer_urls, learner: peer.learner }
}

fn peer(wire: pb::MemberDescription) -> Peer {
    Peer { id: MemberId(wire.id), name: wire.name, peer_urls: wire.peer_urls, learner: wire.learner }
}

fn refusal_to_wire(refusal: ChangeRefusal) -> pb::MemberRefusal {
    match refusal {
        ChangeRefusal::IdExists => pb::MemberRefusal::IdExists,
        ChangeRefusal::UrlExists => pb::MemberRefusal::UrlExists,
        ChangeRefusal::NotEnoughStarted => pb::MemberRefusal::NotEnoughStarted,
        ChangeRefusal::NotFound => pb::MemberRefusal::NotFound,
        ChangeRefusal::NotLearner => pb::MemberRefusal::NotLearner,
        ChangeRefusal::LearnerNotReady => pb::MemberRefusal::LearnerNotReady,
        ChangeRefusal::TooManyLearners => pb::MemberRefusal::TooManyLearners,
        ChangeRefusal::Unhealthy => pb::MemberRefusal::Unhealthy,
    }
}

fn refusal_from_wire(wire: pb::MemberRefusal) -> Option<ChangeRefusal> {
    Some(match wire {
        pb::MemberRefusal::Unspecified => return None,
        pb::MemberRefusal::IdExists => ChangeRefusal::IdExists,
        pb::MemberRefusal::UrlExists => ChangeRefusal::UrlExists,
        pb::MemberRefusal::NotEnoughStarted => ChangeRefusal::NotEnoughStarted,
        pb::MemberRefusal::NotFound => ChangeRefusal::NotFound,
        pb::MemberRefusal::NotLearner => ChangeRefusal::NotLearner,
        pb::MemberRefusal::LearnerNotReady => ChangeRefusal::LearnerNotReady,
        pb::MemberRefusal::TooManyLearners => ChangeRefusal::TooManyLearners,
        pb::MemberRefusal::Unhealthy => ChangeRefusal::Unhealthy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_their_answers_survive_the_peer_port() {
        let peer_urls = vec!["http://a:1".to_owned()];
        let changes = [
            MemberChange::Add { id: MemberId(1), peer_urls: peer_urls.clone(), learner: true },
            MemberChange::Remove { id: MemberId(2) },
            MemberChange::Update { id: MemberId(3), peer_urls: peer_urls.clone() },
            MemberChange::Promote { id: MemberId(4) },
        ];
        for change in changes {
            let read = change_from_wire(change_to_wire(&change, true)).expect("reads");
            assert_eq!(read, (change, true));
        }
        let members = vec![Peer { id: MemberId(1), name: String::new(), peer_urls, learner: true }];
        let mut answers = vec![Ok(Changed { index: LogIndex(7), members }), Err(ChangeError::NotLeader)];
        let all = (1..=8).map(|number| pb::MemberRefusal::try_from(number).expect("known"));
        let all = all.map(|wire| refusal_from_wire(wire).expect("known"));
        answers.extend(all.map(|refusal| Err(ChangeError::Refused(refusal))));
        for answer in answers {
            let wire = changed_to_wire(answer.clone()).expect("an answer");
            assert_eq!(changed_from_wire(wire), answer);
        }
        assert_eq!(changed_to_wire(Err(ChangeError::Stopped)), Err(ChangeError::Stopped));
        assert_eq!(changed_from_wire(pb::ChangeMembersResponse::default()), Err(ChangeError::Timeout));
    }
}
