//! The Maintenance service: how this member is, and the hashes that prove members equal.

use super::header::Headers;
use super::status;
use crate::config::Config;
use crate::version::{SERVER_VERSION, STORAGE_VERSION};
use futures::stream::BoxStream;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::maintenance_server::Maintenance;
use meerkat_raft::RaftNode;
use meerkat_state::HashKv;
use meerkat_types::{MemberId, Revision};
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(crate) struct MaintenanceService {
    raft: Arc<RaftNode>,
    headers: Headers,
    quota_backend_bytes: Option<u64>,
}

impl MaintenanceService {
    pub(crate) fn new(raft: Arc<RaftNode>, headers: Headers, config: &Config) -> MaintenanceService {
        MaintenanceService { raft, headers, quota_backend_bytes: config.quota_backend_bytes }
    }

    async fn hash_at(&self, revision: Option<Revision>) -> Result<HashKv, Status> {
        let reader = self.raft.reader().clone();
        let hashed = meerkat_raft::threads::spawn_blocking(move || reader.hash_kv(revision));
        hashed.await.map_err(|error| status::worker_lost(&error))?.map_err(|error| status::read(&error))
    }
}

fn wire_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    async fn status(
        &self,
        _request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let raft = self.raft.status();
        let size = self.raft.database().approximate_size().map_err(|error| status::unreadable(&error))?;
        let mut errors = Vec::new();
        if raft.leader.is_none() {
            errors.push(EtcdError::NoLeader.message().to_owned());
        }
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.headers.now()),
            version: SERVER_VERSION.to_owned(),
            db_size: wire_size(size.total_bytes),
            leader: raft.leader.map_or(0, |leader| leader.0),
            raft_index: raft.committed_index,
            raft_term: raft.term,
            raft_applied_index: raft.applied_index,
            errors,
            db_size_in_use: wire_size(size.live_bytes),
            is_learner: raft.learner,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: self.quota_backend_bytes.map_or(0, wire_size),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    async fn hash(&self, _request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let hashed = self.hash_at(None).await?;
        Ok(Response::new(pb::HashResponse { header: Some(self.headers.now()), hash: hashed.hash }))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        let revision = request.into_inner().revision;
        let hashed = self.hash_at((0 < revision).then(|| Revision::new(revision))).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: Some(self.headers.now()),
            hash: hashed.hash,
            compact_revision: hashed.compacted.get(),
            hash_revision: hashed.hash_revision.get(),
        }))
    }

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        match pb::alarm_request::AlarmAction::try_from(request.into_inner().action) {
            // No alarm can be raised yet, so none is.
            Ok(pb::alarm_request::AlarmAction::Get) => {
                Ok(Response::new(pb::AlarmResponse { header: Some(self.headers.now()), alarms: vec![] }))
            }
            Ok(_) => Err(status::not_yet("Alarm other than GET")),
            Err(_) => Err(status::unknown_action("alarm action")),
        }
    }

    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        Err(status::not_yet("Defragment"))
    }

    type SnapshotStream = BoxStream<'static, Result<pb::SnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        _request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(status::not_yet("Snapshot"))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        let to = MemberId(request.into_inner().target_id);
        self.raft.move_leader(to).await.map_err(status::move_leader)?;
        Ok(Response::new(pb::MoveLeaderResponse::default()))
    }

    async fn downgrade(
        &self,
        _request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        Err(status::not_yet("Downgrade"))
    }
}
