//! The bodies of the calls between members, requests and answers.

use crate::lessor;
use crate::log_store::codec;
use crate::membership;
use crate::network::wire;
use crate::type_config::{PeerNode, StoredMembership};
use bytes::Bytes;
use meerkat_mangle::Fuzz;
use meerkat_proto::pb::peer as pb;
use meerkat_types::MemberId;
use openraft::Membership;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

fn ballot() -> Option<pb::Ballot> {
    Some(pb::Ballot { term: 3, node: 7, committed: true })
}

fn at(number: u64) -> Option<pb::LogId> {
    Some(pb::LogId { term: 3, node: 7, index: number })
}

fn stored_membership() -> Bytes {
    let node =
        PeerNode { name: "m".into(), peer_urls: vec!["http://127.0.0.1:2380".into()], becomes_voter: true };
    let nodes = BTreeMap::from([(MemberId(7), node.clone()), (MemberId(8), node)]);
    let membership = Membership::new(
        vec![BTreeSet::from([MemberId(7)]), BTreeSet::from([MemberId(7), MemberId(8)])],
        nodes,
    );
    codec::encode_membership(&StoredMembership::new(None, membership.expect("a membership")))
}

fn samples() -> Vec<Vec<u8>> {
    use pb::entry::Payload;
    let payloads = [
        Payload::Blank(true),
        Payload::Proposal(Bytes::from_static(b"a proposal")),
        Payload::Membership(stored_membership()),
    ];
    let entries = payloads.into_iter().zip(10..);
    let entries = entries.map(|(payload, index)| pb::Entry { id: at(index), payload: Some(payload) });
    let add = pb::AddMember { id: 9, peer_urls: vec!["http://a:1".into()], learner: true };
    vec![
        pb::AppendRequest { ballot: ballot(), previous: at(9), committed: at(8), entries: entries.collect() }
            .encode_to_vec(),
        pb::AppendRequest { ballot: ballot(), ..Default::default() }.encode_to_vec(),
        pb::VoteRequest { ballot: ballot(), last: at(9), leadership_transfer: true }.encode_to_vec(),
        pb::VoteResponse { ballot: ballot(), granted: true, last: at(9) }.encode_to_vec(),
        pb::TransferLeaderRequest { from: ballot(), to: 8, last: at(9) }.encode_to_vec(),
        pb::AppendResponse { result: Some(pb::append_response::Result::Conflict(at(9).expect("a place"))) }
            .encode_to_vec(),
        pb::ChangeMembersRequest { change: Some(pb::change_members_request::Change::Add(add)), again: true }
            .encode_to_vec(),
        pb::RenewLeasesRequest { leases: vec![1, -5, i64::MAX] }.encode_to_vec(),
    ]
}

/// Every body is read as every message: each is a mutation of the others.
fn read(bytes: &[u8]) -> bool {
    let mut read = 0;
    if let Ok(append) = pb::AppendRequest::decode(bytes).map(wire::append_from_wire) {
        read += usize::from(append.is_ok());
    }
    if let Ok(vote) = pb::VoteRequest::decode(bytes).map(wire::vote_request_from_wire) {
        read += usize::from(vote.is_ok());
    }
    if let Ok(vote) = pb::VoteResponse::decode(bytes).map(wire::vote_response_from_wire) {
        read += usize::from(vote.is_ok());
    }
    if let Ok(transfer) = pb::TransferLeaderRequest::decode(bytes).map(wire::transfer_from_wire) {
        read += usize::from(transfer.is_ok());
    }
    if let Ok(answer) = pb::AppendResponse::decode(bytes).map(wire::append_result_from_wire) {
        read += usize::from(answer.is_ok());
    }
    if let Ok(change) = pb::ChangeMembersRequest::decode(bytes).map(membership::change_from_wire) {
        read += usize::from(change.is_ok());
    }
    if let Ok(renew) = pb::RenewLeasesRequest::decode(bytes) {
        read += usize::from(lessor::leases_from_wire(&renew.leases).is_ok());
    }
    0 < read
}

#[test]
fn a_mutated_message_of_a_peer_is_refused_or_read() {
    let fuzz = Fuzz::new("peers", include_str!("../../corpus/peers.txt"), samples());
    fuzz.run(20_000, read);
}

/// What is read can be counted on from: the next term and the next entry exist.
#[test]
fn a_place_that_no_log_has_is_not_read() {
    for number in [u64::MAX, u64::MAX - 1, 1 << 62] {
        let far = pb::LogId { term: 1, node: 1, index: number };
        let late = pb::Ballot { term: number, node: 1, committed: true };
        assert!(wire::log_id_from_wire(far).is_err(), "{number}");
        assert!(wire::vote_from_wire(Some(late)).is_err(), "{number}");
        let request = pb::AppendRequest { ballot: ballot(), committed: Some(far), ..Default::default() };
        assert!(wire::append_from_wire(request).is_err(), "{number}");
    }
}
