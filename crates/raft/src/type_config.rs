//! openraft's type parameters, named once.

use bytes::Bytes;
use meerkat_types::{LogIndex, MemberId};
use std::fmt;

openraft::declare_raft_types!(
    /// What this cluster replicates, and who takes part.
    pub TypeConfig:
        D = EncodedProposal,
        R = (),
        NodeId = MemberId,
        Node = PeerNode,
        AsyncRuntime = crate::runtime::Supervised,
);

pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// Who is in the cluster, and who votes.
pub type Membership = openraft::Membership<MemberId, PeerNode>;
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;

/// openraft counts entries by bare numbers; 0 before the first.
pub(crate) fn index_of(id: Option<&LogId>) -> LogIndex {
    LogIndex(id.map_or(0, |id| id.index))
}

/// A proposal in the log's own encoding (see `entry`). It stays bytes from the proposer through
/// the log and the network to the apply thread of every member: encoded once, decoded once each.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedProposal(pub Bytes);

impl fmt::Debug for EncodedProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proposal of {} bytes", self.0.len())
    }
}

impl fmt::Display for EncodedProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Where a member's peers reach it. Replicated with the membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNode {
    pub name: String,
    pub peer_urls: Vec<String>,
    /// Added as a voter: it gets its vote as soon as it has caught up. Of no meaning once it has it.
    pub becomes_voter: bool,
}

impl fmt::Display for PeerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.peer_urls.join(","))
    }
}
