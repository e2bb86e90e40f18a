//! The header of every answer: filled here and nowhere else.

use meerkat_proto::pb::etcdserver::ResponseHeader;
use meerkat_raft::RaftNode;
use meerkat_types::Revision;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Headers {
    raft: Arc<RaftNode>,
}

impl Headers {
    pub(crate) fn new(raft: Arc<RaftNode>) -> Headers {
        Headers { raft }
    }

    /// For an answer about the store at `revision`.
    pub(crate) fn at(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader { revision: revision.get(), ..self.without_revision() }
    }

    /// For an answer about the store as it is now.
    pub(crate) fn now(&self) -> ResponseHeader {
        self.at(self.raft.reader().current_revision())
    }

    /// For an answer that is not about the store: etcd leaves the revision zero there.
    pub(crate) fn without_revision(&self) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.raft.cluster_id().0,
            member_id: self.raft.member_id().0,
            revision: 0,
            raft_term: self.raft.leadership().term().0,
        }
    }
}
