//! The Maintenance service: how this member is, and the hashes that prove members equal.

use super::downgrade::{self, Minor};
use super::header::Headers;
use super::{snapshot, status};
use crate::auth::NotAdmin;
use crate::config::Config;
use crate::version::{CLUSTER_VERSION, SERVER_VERSION, STORAGE_VERSION};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::maintenance_server::Maintenance;
use meerkat_raft::RaftNode;
use meerkat_state::HashKv;
use meerkat_types::{Alarm, AlarmBy, AlarmKind, Command, MemberId, Outcome, Refusal, Revision};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Alarms and versions are a few bytes.
const ENTRY_BYTES_MAX: usize = 1_024;

pub(crate) struct MaintenanceService {
    raft: Arc<RaftNode>,
    headers: Headers,
    quota_backend_bytes: Option<u64>,
    disk_free_min_bytes: u64,
}

impl MaintenanceService {
    pub(crate) fn new(raft: Arc<RaftNode>, headers: Headers, config: &Config) -> MaintenanceService {
        MaintenanceService {
            raft,
            headers,
            quota_backend_bytes: config.quota_backend_bytes,
            disk_free_min_bytes: config.tuning.disk_free_min_bytes,
        }
    }

    async fn hash_at(&self, revision: Option<Revision>) -> Result<HashKv, Status> {
        let reader = self.raft.reader().clone();
        let hashed = meerkat_raft::threads::spawn_blocking(move || reader.hash_kv(revision));
        hashed.await.map_err(|error| status::worker_lost(&error))?.map_err(|error| status::read(&error))
    }
}

impl MaintenanceService {
    async fn propose(&self, command: Command) -> Result<Outcome, Status> {
        let outcome = self.raft.proposer().propose(command, ENTRY_BYTES_MAX).await;
        outcome.map_err(|error| status::propose(&error))
    }

    /// What was changed, which is nothing where nothing was named.
    async fn change_alarm(&self, alarm: Option<Alarm>, raise: bool) -> Result<Vec<Alarm>, Status> {
        let Some(alarm) = alarm else {
            // As old as an answer that was agreed on.
            self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
            return Ok(Vec::new());
        };
        let by = AlarmBy::Operator;
        let command = match raise {
            true => Command::RaiseAlarm { alarm, by },
            false => Command::ClearAlarm { alarm, by },
        };
        match self.propose(command).await? {
            Outcome::AlarmRaised | Outcome::AlarmCleared(true) => Ok(vec![alarm]),
            Outcome::AlarmCleared(false) => Ok(Vec::new()),
            Outcome::Refused(refusal) => Err(status::refused(&refusal)),
            _ => Err(status::mismatched_outcome()),
        }
    }

    async fn list_alarms(&self, kind: Option<AlarmKind>) -> Result<Vec<Alarm>, Status> {
        self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
        let alarms = self.raft.reader().alarms().into_iter().map(|(alarm, _)| alarm);
        Ok(alarms.filter(|alarm| kind.is_none_or(|kind| alarm.kind == kind)).collect())
    }

    async fn set_downgrade(&self, target: Option<String>) -> Result<(), Status> {
        match self.propose(Command::SetDowngrade(target)).await? {
            Outcome::DowngradeSet => Ok(()),
            Outcome::Refused(refusal) => Err(status::refused(&refusal)),
            _ => Err(status::mismatched_outcome()),
        }
    }
}

fn alarm_kind(wire: i32) -> Result<Option<AlarmKind>, Status> {
    match pb::AlarmType::try_from(wire) {
        Ok(pb::AlarmType::None) => Ok(None),
        Ok(pb::AlarmType::Nospace) => Ok(Some(AlarmKind::NoSpace)),
        Ok(pb::AlarmType::Corrupt) => Ok(Some(AlarmKind::Corrupt)),
        Err(_) => Err(status::unknown_action("alarm type")),
    }
}

fn alarm_to_wire(alarm: Alarm) -> pb::AlarmMember {
    let kind = match alarm.kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    };
    pb::AlarmMember { member_id: alarm.member.0, alarm: kind.into() }
}

/// As etcd prints its messages: what is zero is left out, and a space ends each field.
fn alarm_text(alarm: Alarm) -> String {
    match alarm.member.0 {
        0 => format!("alarm:{} ", alarm.kind),
        member => format!("memberID:{member} alarm:{} ", alarm.kind),
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
        let in_use = self.raft.bytes_in_use().map_err(|error| status::read(&error))?;
        let mut errors = Vec::new();
        if raft.leader.is_none() {
            errors.push(EtcdError::NoLeader.message().to_owned());
        }
        let alarms = self.raft.reader().alarms().into_iter();
        errors.extend(alarms.map(|(alarm, _)| alarm_text(alarm)));
        let downgrade = self.raft.reader().downgrade();
        Ok(Response::new(pb::StatusResponse {
            header: Some(self.headers.now()),
            version: SERVER_VERSION.to_owned(),
            db_size: wire_size(size.total_bytes.max(in_use)),
            leader: raft.leader.map_or(0, |leader| leader.0),
            raft_index: raft.committed_index.0,
            raft_term: raft.term.0,
            raft_applied_index: raft.applied_index.0,
            errors,
            db_size_in_use: wire_size(in_use),
            is_learner: raft.learner,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: self.quota_backend_bytes.map_or(-1, wire_size),
            downgrade_info: Some(pb::DowngradeInfo {
                enabled: downgrade.is_some(),
                target_version: downgrade.map_or_else(String::new, |target| target.to_string()),
            }),
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
            compact_revision: Revision::compacted_to_wire(hashed.compacted),
            hash_revision: hashed.hash_revision.get(),
        }))
    }

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        use pb::alarm_request::AlarmAction;
        let not_admin = request.extensions().get::<NotAdmin>().copied();
        let request = request.into_inner();
        // Before what is asked makes sense: anything but to look is for administrators.
        if let Some(NotAdmin(refusal)) = not_admin.filter(|_| request.action != AlarmAction::Get as i32) {
            return Err(status::refused(&Refusal::Auth(refusal)));
        }
        let kind = alarm_kind(request.alarm)?;
        let named = kind.map(|kind| Alarm { kind, member: MemberId(request.member_id) });
        let action =
            AlarmAction::try_from(request.action).map_err(|_| status::unknown_action("alarm action"))?;
        let alarms = match action {
            AlarmAction::Get => self.list_alarms(kind).await?,
            AlarmAction::Activate => self.change_alarm(named, true).await?,
            AlarmAction::Deactivate => self.change_alarm(named, false).await?,
        };
        let alarms = alarms.into_iter().map(alarm_to_wire).collect();
        Ok(Response::new(pb::AlarmResponse { header: Some(self.headers.now()), alarms }))
    }

    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let began = std::time::Instant::now();
        self.raft.defragment().await.map_err(|error| status::unreadable(&error))?;
        tracing::info!(took = ?began.elapsed(), "the state was defragmented, while it was served");
        Ok(Response::new(pb::DefragmentResponse::default()))
    }

    type SnapshotStream = snapshot::Pieces;

    async fn snapshot(
        &self,
        _request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Ok(Response::new(snapshot::stream(self.raft.clone(), self.disk_free_min_bytes)))
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
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        use pb::downgrade_request::DowngradeAction;
        let request = request.into_inner();
        let action =
            DowngradeAction::try_from(request.action).map_err(|_| status::etcd(EtcdError::UnknownMethod))?;
        let cluster = Minor::parse(CLUSTER_VERSION)
            .ok_or_else(|| status::etcd(EtcdError::ClusterVersionUnavailable))?;
        if action == DowngradeAction::Cancel {
            self.set_downgrade(None).await?;
        } else {
            self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
            let active = self.raft.reader().downgrade().is_some();
            let target = downgrade::validate(&request.version, cluster, active).map_err(status::etcd)?;
            if action == DowngradeAction::Enable {
                self.set_downgrade(Some(target.whole())).await?;
            }
        }
        let header = Some(self.headers.now());
        Ok(Response::new(pb::DowngradeResponse { header, version: cluster.text() }))
    }
}
