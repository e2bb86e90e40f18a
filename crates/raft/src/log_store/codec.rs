//! Log ids, votes, entries and memberships as bytes.
//!
//! The encodings are part of the on-disk format (see `docs/on-disk-format.md`): little endian,
//! fixed fields first, lengths before what they measure. A membership begins with a version of its
//! own because the state and the peers store it too. Decoding never trusts a length: bytes that do
//! not end exactly where they should are an error, never a panic.

use crate::type_config::{
    EncodedProposal, Entry, LogId, Membership, PeerNode, StoredMembership, TypeConfig, Vote,
};
use bytes::{Buf, BufMut, Bytes};
use meerkat_types::MemberId;
use openraft::EntryPayload;
use openraft::type_config::alias::{CommittedLeaderIdOf, LeaderIdOf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const MEMBERSHIP_VERSION: u8 = 1;
/// As version 1, with a flag for each node: it becomes a voter. Only written where a flag is set, so
/// that an older program reads all it can.
const MEMBERSHIP_VERSION_WITH_FLAGS: u8 = 2;

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Nobody counts this far.
const COUNTER_END: u64 = 1 << 63;

/// Term, node and index of an entry, and which payload follows.
const ENTRY_HEAD_BYTES: usize = 25;

/// Exactly what `put_entry` will write, so that a place can be chosen before anything is encoded.
pub fn entry_bytes(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Blank => ENTRY_HEAD_BYTES,
        EntryPayload::Normal(proposal) => ENTRY_HEAD_BYTES + proposal.0.len(),
        EntryPayload::Membership(membership) => {
            // Rare and small: measured by encoding it.
            let mut bytes = Vec::new();
            put_membership(&mut bytes, membership);
            ENTRY_HEAD_BYTES + bytes.len()
        }
    }
}

pub fn put_log_id(out: &mut Vec<u8>, id: &LogId) {
    out.put_u64_le(id.leader_id.term);
    out.put_u64_le(id.leader_id.node_id.0);
    out.put_u64_le(id.index);
}

pub const VOTE_BYTES: usize = 17;
pub const LOG_ID_BYTES: usize = 24;

pub fn optional_log_id_bytes(id: Option<&LogId>) -> usize {
    1 + id.map_or(0, |_| LOG_ID_BYTES)
}

pub fn encode_log_id(id: &LogId) -> Bytes {
    let mut out = Vec::with_capacity(LOG_ID_BYTES);
    put_log_id(&mut out, id);
    out.into()
}

pub fn decode_log_id(bytes: &[u8]) -> io::Result<LogId> {
    whole(bytes, take_log_id)
}

pub fn put_optional_log_id(out: &mut Vec<u8>, id: Option<&LogId>) {
    match id {
        None => out.put_u8(0),
        Some(id) => {
            out.put_u8(1);
            put_log_id(out, id);
        }
    }
}

pub fn decode_optional_log_id(bytes: &[u8]) -> io::Result<Option<LogId>> {
    whole(bytes, take_optional_log_id)
}

pub fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.node_id.0);
    out.put_u8(u8::from(vote.committed));
}

pub fn encode_vote(vote: &Vote) -> Bytes {
    let mut out = Vec::with_capacity(VOTE_BYTES);
    put_vote(&mut out, vote);
    out.into()
}

pub fn decode_vote(bytes: &[u8]) -> io::Result<Vote> {
    whole(bytes, |input| {
        let leader_id = LeaderIdOf::<TypeConfig> { term: take_counter(input)?, node_id: take_member(input)? };
        let committed = take_flag(input)?;
        Ok(Vote { leader_id, committed })
    })
}

pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_log_id(out, &entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => out.put_u8(BLANK),
        EntryPayload::Normal(proposal) => {
            out.put_u8(NORMAL);
            out.put_slice(&proposal.0);
        }
        EntryPayload::Membership(membership) => {
            out.put_u8(MEMBERSHIP);
            put_membership(out, membership);
        }
    }
}

/// The log id alone, for a reader that does not need the rest.
pub fn decode_entry_log_id(bytes: &[u8]) -> io::Result<LogId> {
    take_log_id(&mut &bytes[..])
}

/// The proposal of the entry shares memory with `bytes`.
pub fn decode_entry(bytes: &Bytes) -> io::Result<Entry> {
    let mut input = bytes.as_ref();
    let log_id = take_log_id(&mut input)?;
    let kind = take_u8(&mut input)?;
    let payload = match kind {
        BLANK => whole(input, |_| Ok(EntryPayload::Blank))?,
        NORMAL => EntryPayload::Normal(EncodedProposal(bytes.slice(bytes.len() - input.len()..))),
        MEMBERSHIP => EntryPayload::Membership(whole(input, take_membership)?),
        other => return Err(malformed(format!("an entry of unknown kind {other}"))),
    };
    Ok(Entry { log_id, payload })
}

pub fn encode_membership(stored: &StoredMembership) -> Bytes {
    let mut out = Vec::new();
    put_optional_log_id(&mut out, stored.log_id().as_ref());
    put_membership(&mut out, stored.membership());
    out.into()
}

pub fn decode_membership(bytes: &[u8]) -> io::Result<StoredMembership> {
    whole(bytes, |input| {
        let log_id = take_optional_log_id(input)?;
        Ok(StoredMembership::new(log_id, take_membership(input)?))
    })
}

fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    let flags = membership.nodes().any(|(_, node)| node.becomes_voter);
    out.put_u8(if flags { MEMBERSHIP_VERSION_WITH_FLAGS } else { MEMBERSHIP_VERSION });
    let configs = membership.get_joint_config();
    put_len(out, configs.len());
    for voters in configs {
        put_len(out, voters.len());
        for voter in voters {
            out.put_u64_le(voter.0);
        }
    }
    put_len(out, membership.nodes().count());
    for (id, node) in membership.nodes() {
        out.put_u64_le(id.0);
        put_text(out, &node.name);
        put_len(out, node.peer_urls.len());
        for url in &node.peer_urls {
            put_text(out, url);
        }
        if flags {
            out.put_u8(u8::from(node.becomes_voter));
        }
    }
}

fn take_membership(input: &mut &[u8]) -> io::Result<Membership> {
    let version = take_u8(input)?;
    if ![MEMBERSHIP_VERSION, MEMBERSHIP_VERSION_WITH_FLAGS].contains(&version) {
        return Err(malformed(format!(
            "a membership of version {version}; this program knows up to {MEMBERSHIP_VERSION_WITH_FLAGS}"
        )));
    }
    let mut configs = Vec::new();
    for _ in 0..take_len(input)? {
        let mut voters = BTreeSet::new();
        for _ in 0..take_len(input)? {
            voters.insert(take_member(input)?);
        }
        configs.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..take_len(input)? {
        let id = take_member(input)?;
        let name = take_text(input)?;
        let mut peer_urls = Vec::new();
        for _ in 0..take_len(input)? {
            peer_urls.push(take_text(input)?);
        }
        let becomes_voter = version == MEMBERSHIP_VERSION_WITH_FLAGS && take_flag(input)?;
        nodes.insert(id, PeerNode { name, peer_urls, becomes_voter });
    }
    if configs.is_empty() && nodes.is_empty() {
        // The membership before there is one. openraft's constructor refuses to make it again.
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|err| malformed(format!("an impossible membership: {err}")))
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.put_u32_le(u32::try_from(len).expect("members and their URLs are counted in tens"));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.put_slice(text.as_bytes());
}

fn take_log_id(input: &mut &[u8]) -> io::Result<LogId> {
    let leader_id =
        CommittedLeaderIdOf::<TypeConfig> { term: take_counter(input)?, node_id: take_member(input)? };
    Ok(LogId { leader_id, index: take_counter(input)? })
}

/// A term or an index: below where adding one could overflow.
fn take_counter(input: &mut &[u8]) -> io::Result<u64> {
    let counter = take_u64(input)?;
    if COUNTER_END <= counter { Err(malformed(format!("a counter at {counter}"))) } else { Ok(counter) }
}

fn take_optional_log_id(input: &mut &[u8]) -> io::Result<Option<LogId>> {
    if take_flag(input)? { take_log_id(input).map(Some) } else { Ok(None) }
}

fn take_u8(input: &mut &[u8]) -> io::Result<u8> {
    input.try_get_u8().map_err(|_| cut_off())
}

fn take_flag(input: &mut &[u8]) -> io::Result<bool> {
    match take_u8(input)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(malformed(format!("a flag of value {other}"))),
    }
}

fn take_u64(input: &mut &[u8]) -> io::Result<u64> {
    input.try_get_u64_le().map_err(|_| cut_off())
}

fn take_member(input: &mut &[u8]) -> io::Result<MemberId> {
    take_u64(input).map(MemberId)
}

/// A count. Each thing counted takes at least a byte, so a larger count than that is refused
/// before anybody loops over it.
fn take_len(input: &mut &[u8]) -> io::Result<usize> {
    let len = input.try_get_u32_le().map_err(|_| cut_off())? as usize;
    if len > input.len() { Err(cut_off()) } else { Ok(len) }
}

fn take_text(input: &mut &[u8]) -> io::Result<String> {
    let len = take_len(input)?;
    let (text, rest) = input.split_at(len);
    *input = rest;
    String::from_utf8(text.to_vec()).map_err(|_| malformed("a text that is not UTF-8".to_owned()))
}

/// Decodes all of `bytes`, and refuses what is left over.
fn whole<T>(bytes: &[u8], decode: impl FnOnce(&mut &[u8]) -> io::Result<T>) -> io::Result<T> {
    let mut input = bytes;
    let value = decode(&mut input)?;
    if input.is_empty() { Ok(value) } else { Err(malformed(format!("{} bytes too many", input.len()))) }
}

fn cut_off() -> io::Error {
    malformed("it ends too early".to_owned())
}

fn malformed(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_id(term: u64, node: u64, index: u64) -> LogId {
        LogId { leader_id: CommittedLeaderIdOf::<TypeConfig> { term, node_id: MemberId(node) }, index }
    }

    fn membership() -> Membership {
        let node = |name: &str, urls: &[&str]| PeerNode {
            name: name.into(),
            peer_urls: urls.iter().map(|u| (*u).into()).collect(),
            becomes_voter: false,
        };
        let nodes = BTreeMap::from([
            (MemberId(1), node("a", &["http://127.0.0.1:1", "http://[::1]:1"])),
            (MemberId(2), node("b", &["http://127.0.0.1:2"])),
            (MemberId(u64::MAX), node("", &[])),
        ]);
        Membership::new(
            vec![BTreeSet::from([MemberId(1)]), BTreeSet::from([MemberId(1), MemberId(2)])],
            nodes,
        )
        .expect("valid membership")
    }

    /// With a member on its way to a vote.
    fn flagged() -> Membership {
        let plain = membership();
        let nodes = plain
            .nodes()
            .map(|(id, node)| (*id, PeerNode { becomes_voter: *id == MemberId(u64::MAX), ..node.clone() }));
        let nodes: BTreeMap<MemberId, PeerNode> = nodes.collect();
        Membership::new(vec![BTreeSet::from([MemberId(1), MemberId(2)])], nodes).expect("valid membership")
    }

    #[test]
    fn only_a_membership_with_flags_needs_the_newer_version() {
        let version = |membership| encode_membership(&StoredMembership::new(None, membership))[1];
        assert_eq!(version(membership()), MEMBERSHIP_VERSION);
        assert_eq!(version(flagged()), MEMBERSHIP_VERSION_WITH_FLAGS);
    }

    #[test]
    fn every_payload_of_an_entry_reads_back() {
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(EncodedProposal(Bytes::new())),
            EntryPayload::Normal(EncodedProposal(Bytes::from_static(b"hello"))),
            EntryPayload::Membership(membership()),
            EntryPayload::Membership(flagged()),
            EntryPayload::Membership(Membership::default()),
        ];
        for payload in payloads {
            let entry = Entry { log_id: log_id(3, 9, 1 << 40), payload };
            let mut bytes = Vec::new();
            put_entry(&mut bytes, &entry);
            assert_eq!(bytes.len(), entry_bytes(&entry));
            assert_eq!(decode_entry(&bytes.clone().into()).expect("entry"), entry);
            assert_eq!(decode_entry_log_id(&bytes).expect("log id"), entry.log_id);
        }
    }

    #[test]
    fn memberships_votes_and_log_ids_read_back() {
        for log_id in [None, Some(log_id(1, 2, 3))] {
            let stored = StoredMembership::new(log_id, membership());
            assert_eq!(decode_membership(&encode_membership(&stored)).expect("membership"), stored);
        }
        let nothing = StoredMembership::default();
        assert_eq!(decode_membership(&encode_membership(&nothing)).expect("membership"), nothing);
        for vote in [Vote::new(5, MemberId(6)), Vote::new_committed(7, MemberId(8))] {
            assert_eq!(decode_vote(&encode_vote(&vote)).expect("vote"), vote);
        }
        let id = log_id(COUNTER_END - 1, u64::MAX, 1);
        assert_eq!(decode_log_id(&encode_log_id(&id)).expect("log id"), id);
    }

    #[test]
    fn a_membership_cut_anywhere_or_followed_by_more_is_refused() {
        let bytes = encode_membership(&StoredMembership::new(Some(log_id(1, 2, 3)), flagged()));
        for len in 0..bytes.len() {
            assert!(decode_membership(&bytes[..len]).is_err(), "cut at {len}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(decode_membership(&longer).is_err());
    }

    #[test]
    fn a_counter_that_nobody_can_have_reached_is_refused() {
        for id in [log_id(COUNTER_END, 1, 1), log_id(1, 1, u64::MAX)] {
            assert!(decode_log_id(&encode_log_id(&id)).is_err(), "{id}");
        }
        assert!(decode_vote(&encode_vote(&Vote::new(u64::MAX, MemberId(1)))).is_err());
    }

    #[test]
    fn an_absurd_count_is_refused_without_looping() {
        let bytes = [0, MEMBERSHIP_VERSION, 0xff, 0xff, 0xff, 0xff];
        assert!(decode_membership(&bytes).is_err());
    }
}
