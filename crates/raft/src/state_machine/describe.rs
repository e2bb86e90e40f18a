//! openraft's names for what the state calls by its own.

use crate::entry;
use crate::log_store::codec;
use crate::snapshot::StateSnapshot;
use crate::type_config::{Entry, LogId, SnapshotMeta, StoredMembership, TypeConfig};
use meerkat_state::{LogEntry, Payload, SnapshotInfo, StateError};
use meerkat_types::{LogIndex, LogPosition, RequestId, Term};
use openraft::EntryPayload;
use openraft::type_config::alias::SnapshotOf;
use openraft::vote::RaftLeaderId;
use openraft::vote::leader_id_adv::LeaderId;
use std::io;

pub(crate) fn position(id: &LogId) -> LogPosition {
    LogPosition { term: Term(id.leader_id.term), node: id.leader_id.node_id, index: LogIndex(id.index) }
}

pub(crate) fn log_id(position: &LogPosition) -> LogId {
    LogId { leader_id: LeaderId::new(position.term.0, position.node), index: position.index.0 }
}

/// An entry as the state wants it, and the name of its proposal, if it has one.
pub(crate) fn log_entry(raft_entry: Entry) -> io::Result<(LogEntry, Option<RequestId>)> {
    let at = raft_entry.log_id;
    let mut id = None;
    let payload = match raft_entry.payload {
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(encoded) => {
            let proposal = entry::decode(encoded.0).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("log entry {}: {error}", at.index))
            })?;
            id = Some(proposal.id);
            Payload::Command(proposal)
        }
        EntryPayload::Membership(membership) => Payload::Membership {
            members: membership.nodes().map(|(id, _)| *id).collect(),
            bytes: codec::encode_membership(&StoredMembership::new(Some(at), membership)),
        },
    };
    Ok((LogEntry { position: position(&at), payload }, id))
}

pub(crate) fn entry_bytes(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(encoded) => encoded.0.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    }
}

pub(crate) fn membership(bytes: Option<&[u8]>) -> io::Result<StoredMembership> {
    bytes.map_or_else(|| Ok(StoredMembership::default()), codec::decode_membership)
}

pub(crate) fn snapshot_meta(info: &SnapshotInfo) -> io::Result<SnapshotMeta> {
    Ok(SnapshotMeta {
        last_log_id: info.applied.as_ref().map(log_id),
        last_membership: membership(info.membership.as_ref().map(|(_, bytes)| bytes.as_ref()))?,
    })
}

/// The state error that stops the member, as openraft carries it.
pub(crate) fn fatal(error: StateError) -> io::Error {
    io::Error::other(error)
}

/// Whether a received state is the one that was announced: its own files say where it ends.
pub(crate) fn verify(
    snapshot: &SnapshotOf<TypeConfig, StateSnapshot>,
    announced: Option<LogId>,
) -> io::Result<()> {
    let dir = snapshot.snapshot.dir().ok_or_else(|| io::Error::other("no files arrived"))?;
    let found = meerkat_state::snapshot_info_at(dir).map_err(fatal)?.applied.as_ref().map(log_id);
    if found == announced {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the files end at {found:?}, and {announced:?} was announced"),
    ))
}
