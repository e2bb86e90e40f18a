//! Our own admin service: what proves members equal beyond etcd's hashes, and when things happened.

mod times;
mod watchers;

use futures::stream::BoxStream;
use meerkat_proto::pb::admin as pb;
use meerkat_proto::pb::admin::admin_server::Admin;
use meerkat_raft::RaftNode;
use meerkat_types::Revision;
use meerkat_watch::Hub;
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(crate) struct AdminService {
    raft: Arc<RaftNode>,
    hub: Hub,
    times: times::Times,
}

impl AdminService {
    pub(crate) fn new(raft: Arc<RaftNode>, hub: Hub) -> AdminService {
        AdminService { hub, times: times::Times::new(raft.clone()), raft }
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn state_digest(
        &self,
        _request: Request<pb::StateDigestRequest>,
    ) -> Result<Response<pb::StateDigestResponse>, Status> {
        let reader = self.raft.reader();
        let digest = reader.digest();
        Ok(Response::new(pb::StateDigestResponse {
            member_id: self.raft.member_id().0,
            log_term: digest.position.map_or(0, |at| at.term.0),
            log_index: digest.position.map_or(0, |at| at.index.0),
            revision: digest.revision.get(),
            compacted_revision: Revision::compacted_to_wire(reader.compacted_revision()),
            digest: bytes::Bytes::copy_from_slice(&digest.bytes),
            digest_version: u32::from(meerkat_state::DIGEST_VERSION),
        }))
    }

    type ListWatchersStream = BoxStream<'static, Result<pb::ListWatchersResponse, Status>>;

    async fn list_watchers(
        &self,
        _request: Request<pb::ListWatchersRequest>,
    ) -> Result<Response<Self::ListWatchersStream>, Status> {
        Ok(Response::new(watchers::list(self.hub.clone(), self.raft.member_id())))
    }

    async fn revision_at_time(
        &self,
        request: Request<pb::RevisionAtTimeRequest>,
    ) -> Result<Response<pb::RevisionAtTimeResponse>, Status> {
        self.times.revision_at_time(request.into_inner()).await.map(Response::new)
    }

    async fn key_times(
        &self,
        request: Request<pb::KeyTimesRequest>,
    ) -> Result<Response<pb::KeyTimesResponse>, Status> {
        self.times.key_times(request.into_inner()).await.map(Response::new)
    }
}
