//! The Cluster service: who is in the cluster. Changing it comes with a later version.

use super::header::Headers;
use super::status;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::cluster_server::Cluster;
use meerkat_raft::RaftNode;
use meerkat_types::MemberId;
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(crate) struct ClusterService {
    raft: Arc<RaftNode>,
    headers: Headers,
}

impl ClusterService {
    pub(crate) fn new(raft: Arc<RaftNode>, headers: Headers) -> ClusterService {
        ClusterService { raft, headers }
    }

    /// In ascending order of id; a member that has not started yet has no name and no client URLs.
    fn members(&self) -> Vec<pb::Member> {
        let published = self.raft.reader().members();
        let member = |peer: meerkat_raft::Peer| {
            let attributes = published.iter().find(|known| known.member == MemberId(peer.id));
            pb::Member {
                id: peer.id,
                name: attributes.map(|known| known.name.clone()).unwrap_or_default(),
                peer_ur_ls: peer.peer_urls,
                client_ur_ls: attributes.map(|known| known.client_urls.clone()).unwrap_or_default(),
                is_learner: peer.learner,
            }
        };
        self.raft.leadership().peers().into_iter().map(member).collect()
    }
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        if request.into_inner().linearizable {
            self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
        }
        let header = Some(self.headers.without_revision());
        Ok(Response::new(pb::MemberListResponse { header, members: self.members() }))
    }

    async fn member_add(
        &self,
        _request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(status::not_yet("MemberAdd"))
    }

    async fn member_remove(
        &self,
        _request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(status::not_yet("MemberRemove"))
    }

    async fn member_update(
        &self,
        _request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        Err(status::not_yet("MemberUpdate"))
    }

    async fn member_promote(
        &self,
        _request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(status::not_yet("MemberPromote"))
    }
}
