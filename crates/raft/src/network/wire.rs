//! openraft's messages to and from the peers' wire.
//!
//! A message that lacks a part it must have is refused, never filled in: it came from a peer we do
//! not understand.

use crate::log_store::codec;
use crate::type_config::{EncodedProposal, Entry, LogId, StoredMembership, TypeConfig, Vote};
use meerkat_proto::pb::peer as pb;
use meerkat_types::MemberId;
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};
use openraft::vote::RaftLeaderId;
use openraft::vote::leader_id_adv::LeaderId;

#[derive(Debug, thiserror::Error)]
#[error("the peer's message has no {0}")]
pub(crate) struct Missing(pub &'static str);

pub(crate) fn log_id_to_wire(id: &LogId) -> pb::LogId {
    pb::LogId { term: id.leader_id.term, node: id.leader_id.node_id.0, index: id.index }
}

/// Neither terms nor positions get here by counting: whoever says so is no peer, and what is below can be
/// counted on from without care.
const BELIEVABLE_END: u64 = 1 << 62;

pub(crate) fn log_id_from_wire(wire: pb::LogId) -> Result<LogId, Missing> {
    if BELIEVABLE_END <= wire.term.max(wire.index) {
        return Err(Missing("believable position"));
    }
    Ok(LogId { leader_id: LeaderId::new(wire.term, MemberId(wire.node)), index: wire.index })
}

pub(crate) fn optional_log_id_from_wire(wire: Option<pb::LogId>) -> Result<Option<LogId>, Missing> {
    wire.map(log_id_from_wire).transpose()
}

pub(crate) fn vote_to_wire(vote: &Vote) -> pb::Ballot {
    pb::Ballot { term: vote.leader_id.term, node: vote.leader_id.node_id.0, committed: vote.committed }
}

pub(crate) fn vote_from_wire(wire: Option<pb::Ballot>) -> Result<Vote, Missing> {
    let wire = wire.ok_or(Missing("ballot"))?;
    if BELIEVABLE_END <= wire.term {
        return Err(Missing("believable term"));
    }
    Ok(Vote { leader_id: LeaderId::new(wire.term, MemberId(wire.node)), committed: wire.committed })
}

pub(crate) fn append_to_wire(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        ballot: Some(vote_to_wire(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id_to_wire),
        committed: request.leader_commit.as_ref().map(log_id_to_wire),
        entries: request.entries.into_iter().map(entry_to_wire).collect(),
    }
}

pub(crate) fn append_from_wire(wire: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Missing> {
    Ok(AppendEntriesRequest {
        vote: vote_from_wire(wire.ballot)?,
        prev_log_id: optional_log_id_from_wire(wire.previous)?,
        leader_commit: optional_log_id_from_wire(wire.committed)?,
        entries: wire.entries.into_iter().map(entry_from_wire).collect::<Result<_, _>>()?,
    })
}

fn entry_to_wire(entry: Entry) -> pb::Entry {
    use pb::entry::Payload as Wire;
    let payload = match entry.payload {
        EntryPayload::Blank => Wire::Blank(true),
        EntryPayload::Normal(EncodedProposal(bytes)) => Wire::Proposal(bytes),
        EntryPayload::Membership(membership) => {
            Wire::Membership(codec::encode_membership(&StoredMembership::new(None, membership)))
        }
    };
    pb::Entry { id: Some(log_id_to_wire(&entry.log_id)), payload: Some(payload) }
}

fn entry_from_wire(wire: pb::Entry) -> Result<Entry, Missing> {
    use pb::entry::Payload as Wire;
    let payload = match wire.payload.ok_or(Missing("payload in an entry"))? {
        Wire::Blank(_) => EntryPayload::Blank,
        Wire::Proposal(bytes) => EntryPayload::Normal(EncodedProposal(bytes)),
        Wire::Membership(bytes) => {
            let stored = codec::decode_membership(&bytes);
            let stored = stored.map_err(|_| Missing("readable membership in an entry"))?;
            EntryPayload::Membership(stored.membership().clone())
        }
    };
    Ok(Entry { log_id: log_id_from_wire(wire.id.ok_or(Missing("position in an entry"))?)?, payload })
}

pub(crate) fn append_result_to_wire(result: StreamAppendResult<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::Result as Wire;
    let result = match result {
        Ok(matched) => Wire::Matched(pb::Matched { upto: matched.as_ref().map(log_id_to_wire) }),
        Err(StreamAppendError::Conflict(at)) => Wire::Conflict(log_id_to_wire(&at)),
        Err(StreamAppendError::HigherVote(vote)) => Wire::HigherBallot(vote_to_wire(&vote)),
    };
    pb::AppendResponse { result: Some(result) }
}

pub(crate) fn append_result_from_wire(
    wire: pb::AppendResponse,
) -> Result<StreamAppendResult<TypeConfig>, Missing> {
    use pb::append_response::Result as Wire;
    Ok(match wire.result.ok_or(Missing("result"))? {
        Wire::Matched(matched) => Ok(optional_log_id_from_wire(matched.upto)?),
        Wire::Conflict(at) => Err(StreamAppendError::Conflict(log_id_from_wire(at)?)),
        Wire::HigherBallot(ballot) => Err(StreamAppendError::HigherVote(vote_from_wire(Some(ballot))?)),
    })
}

pub(crate) fn vote_request_to_wire(request: &VoteRequest<TypeConfig>) -> pb::VoteRequest {
    pb::VoteRequest {
        ballot: Some(vote_to_wire(&request.vote)),
        last: request.last_log_id.as_ref().map(log_id_to_wire),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from_wire(wire: pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Missing> {
    let mut request = VoteRequest::new(vote_from_wire(wire.ballot)?, optional_log_id_from_wire(wire.last)?);
    request.leadership_transfer = wire.leadership_transfer;
    Ok(request)
}

pub(crate) fn vote_response_to_wire(response: &VoteResponse<TypeConfig>) -> pb::VoteResponse {
    pb::VoteResponse {
        ballot: Some(vote_to_wire(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(log_id_to_wire),
    }
}

pub(crate) fn vote_response_from_wire(wire: pb::VoteResponse) -> Result<VoteResponse<TypeConfig>, Missing> {
    Ok(VoteResponse::new(vote_from_wire(wire.ballot)?, optional_log_id_from_wire(wire.last)?, wire.granted))
}

pub(crate) fn transfer_to_wire(request: &TransferLeaderRequest<TypeConfig>) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        from: Some(vote_to_wire(request.from_leader())),
        to: request.to_node_id().0,
        last: request.last_log_id().map(log_id_to_wire),
    }
}

pub(crate) fn transfer_from_wire(
    wire: pb::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, Missing> {
    Ok(TransferLeaderRequest::new(
        vote_from_wire(wire.from)?,
        MemberId(wire.to),
        optional_log_id_from_wire(wire.last)?,
    ))
}
