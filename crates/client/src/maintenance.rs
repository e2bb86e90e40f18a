//! Looking after single members: status, hashes, alarms, snapshots.
//!
//! Most of these are about one member, so they name an endpoint of this client; `None` asks
//! whichever member the client uses.

use crate::Client;
use crate::call::{Attempt, Target};
use crate::error::{Error, Fate};
use crate::retry::{self, CallKind};
use bytes::Bytes;
use futures::Stream;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::maintenance_client::MaintenanceClient;
use meerkat_types::{MemberId, Revision};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

impl Client {
    /// Looking after single members.
    pub fn maintenance(&self) -> Maintenance {
        Maintenance { client: self.clone(), target: Target::Any }
    }
}

/// Looking after the members of a cluster.
#[derive(Clone, Debug)]
pub struct Maintenance {
    client: Client,
    target: Target,
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The member that answered.
    pub member: MemberId,
    /// The version of its program.
    pub version: String,
    /// Who leads; `None` if it does not know.
    pub leader: Option<MemberId>,
    /// The store's revision, as far as this member has got.
    pub revision: Revision,
    /// The current term.
    pub raft_term: u64,
    /// The last entry that is agreed on.
    pub raft_index: u64,
    /// The last entry that is applied.
    pub raft_applied_index: u64,
    /// Bytes on disk.
    pub db_size: u64,
    /// Bytes on disk that hold something.
    pub db_size_in_use: u64,
    /// It has no vote.
    pub learner: bool,
    /// What is wrong, in words.
    pub errors: Vec<String>,
}

/// The hash of a member's key-values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashKv {
    /// Equal on members with equal content, at equal revisions and compactions.
    pub hash: u32,
    /// What was compacted.
    pub compact_revision: Revision,
    /// The revision up to which the hash goes; zero if the member does not tell.
    pub hash_revision: Revision,
    /// The store's revision.
    pub revision: Revision,
}

/// Something is wrong with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alarm {
    /// With which.
    pub member: MemberId,
    /// What.
    pub kind: AlarmKind,
}

impl Alarm {
    /// An alarm to raise or to clear.
    pub fn new(member: MemberId, kind: AlarmKind) -> Alarm {
        Alarm { member, kind }
    }
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlarmKind {
    /// Its disk quota is used up. Writes are refused everywhere.
    NoSpace,
    /// Its content differs from the others'.
    Corrupt,
}

impl Maintenance {
    /// The same, asking only this endpoint of the client.
    #[must_use]
    pub fn at(&self, endpoint: &str) -> Maintenance {
        Maintenance { client: self.client.clone(), target: Target::Endpoint(Arc::from(endpoint)) }
    }

    /// How the member is.
    ///
    /// # Errors
    /// If the member refuses, or does not answer in time.
    pub async fn status(&self) -> Result<Status, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::StatusRequest {});
            async move { client(&attempt).status(request).await }
        };
        let done = self.client.call_at(&self.target, CallKind::LocalRead, None, send).await?;
        Ok(status(done.answer))
    }

    /// The hash of the member's key-values up to a revision; `None` for now.
    ///
    /// # Errors
    /// If the member refuses, or does not answer in time.
    pub async fn hash_kv(&self, at: Option<Revision>) -> Result<HashKv, Error> {
        let message = pb::HashKvRequest { revision: at.map_or(0, Revision::get) };
        let send = |attempt: Attempt| {
            let request = attempt.request(message);
            async move { client(&attempt).hash_kv(request).await }
        };
        let done = self.client.call_at(&self.target, CallKind::LocalRead, None, send).await?;
        Ok(HashKv {
            hash: done.answer.hash,
            compact_revision: Revision::new(done.answer.compact_revision),
            hash_revision: Revision::new(done.answer.hash_revision),
            revision: crate::kv::revision(done.answer.header),
        })
    }

    /// All alarms.
    ///
    /// # Errors
    /// If the member refuses, or does not answer in time.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, Error> {
        self.alarm(pb::alarm_request::AlarmAction::Get, None, CallKind::Read).await
    }

    /// Raises an alarm.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn raise_alarm(&self, alarm: Alarm) -> Result<Vec<Alarm>, Error> {
        self.alarm(pb::alarm_request::AlarmAction::Activate, Some(alarm), CallKind::Idempotent).await
    }

    /// Takes an alarm back.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn clear_alarm(&self, alarm: Alarm) -> Result<Vec<Alarm>, Error> {
        self.alarm(pb::alarm_request::AlarmAction::Deactivate, Some(alarm), CallKind::Idempotent).await
    }

    async fn alarm(
        &self,
        action: pb::alarm_request::AlarmAction,
        alarm: Option<Alarm>,
        kind: CallKind,
    ) -> Result<Vec<Alarm>, Error> {
        let what = match alarm.map(|alarm| alarm.kind) {
            None => pb::AlarmType::None,
            Some(AlarmKind::NoSpace) => pb::AlarmType::Nospace,
            Some(AlarmKind::Corrupt) => pb::AlarmType::Corrupt,
        };
        let message = pb::AlarmRequest {
            action: action.into(),
            member_id: alarm.map_or(0, |alarm| alarm.member.0),
            alarm: what.into(),
        };
        let send = |attempt: Attempt| {
            let request = attempt.request(message);
            async move { client(&attempt).alarm(request).await }
        };
        let done = self.client.call_at(&self.target, kind, None, send).await?;
        Ok(done.answer.alarms.into_iter().filter_map(|alarm| alarm_of(&alarm)).collect())
    }

    /// Gives disk space back. The member does nothing else meanwhile.
    ///
    /// # Errors
    /// If the member refuses, or does not answer in time.
    pub async fn defragment(&self) -> Result<(), Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::DefragmentRequest {});
            async move { client(&attempt).defragment(request).await }
        };
        self.client.call_at(&self.target, CallKind::Write, None, send).await?;
        Ok(())
    }

    /// Hands leadership to a member. Only the leader can do this; unless an endpoint was chosen,
    /// members are asked in turn until it is found.
    ///
    /// # Errors
    /// If the leader refuses, or does not answer in time.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::MoveLeaderRequest { target_id: to.0 });
            async move { client(&attempt).move_leader(request).await }
        };
        self.client.call_at(&self.target, CallKind::Write, None, send).await?;
        Ok(())
    }

    /// The member's whole store, piece by piece, as a file that can be restored from.
    ///
    /// # Errors
    /// If the member refuses, or does not begin in time. Later failures are items of the stream.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let send = |attempt: Attempt| {
            // Without the call's deadline: a snapshot takes as long as it takes.
            let request = attempt.unbounded(pb::SnapshotRequest {});
            async move { client(&attempt).snapshot(request).await }
        };
        let done = self.client.call_at(&self.target, CallKind::LocalRead, None, send).await?;
        Ok(Snapshot { pieces: done.answer, endpoint: done.endpoint, remaining: None })
    }
}

/// A store on its way here. An item is a piece of the file; after an error there are no more.
pub struct Snapshot {
    pieces: tonic::Streaming<pb::SnapshotResponse>,
    endpoint: Arc<str>,
    remaining: Option<u64>,
}

impl Snapshot {
    /// How many bytes are still to come after the last piece, as the member says.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }
}

impl Stream for Snapshot {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match ready!(Pin::new(&mut self.pieces).poll_next(cx)) {
            Some(Ok(piece)) => {
                self.remaining = Some(piece.remaining_bytes);
                Some(Ok(piece.blob))
            }
            Some(Err(status)) => {
                let endpoint = Some(self.endpoint.clone());
                Some(Err(Error::from_status(Fate::NotDone, retry::look(&status), &status, endpoint)))
            }
            None => None,
        })
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

fn client(attempt: &Attempt) -> MaintenanceClient<crate::balancer::Wire> {
    MaintenanceClient::new(attempt.wire.clone()).max_decoding_message_size(usize::MAX)
}

fn status(wire: pb::StatusResponse) -> Status {
    let header = wire.header.unwrap_or_default();
    Status {
        member: MemberId(header.member_id),
        version: wire.version,
        leader: (wire.leader != 0).then_some(MemberId(wire.leader)),
        revision: Revision::new(header.revision),
        raft_term: wire.raft_term,
        raft_index: wire.raft_index,
        raft_applied_index: wire.raft_applied_index,
        db_size: u64::try_from(wire.db_size).unwrap_or(0),
        db_size_in_use: u64::try_from(wire.db_size_in_use).unwrap_or(0),
        learner: wire.is_learner,
        errors: wire.errors,
    }
}

/// `None` for an alarm of a later version.
fn alarm_of(wire: &pb::AlarmMember) -> Option<Alarm> {
    let kind = match pb::AlarmType::try_from(wire.alarm).ok()? {
        pb::AlarmType::None => return None,
        pb::AlarmType::Nospace => AlarmKind::NoSpace,
        pb::AlarmType::Corrupt => AlarmKind::Corrupt,
    };
    Some(Alarm { member: MemberId(wire.member_id), kind })
}
