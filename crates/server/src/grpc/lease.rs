//! The Lease service: grants and revokes through the log, renewals and questions through the leader.

use super::header::Headers;
use super::status;
use crate::auth::{Caller, Credentials, Guard};
use crate::config::Config;
use crate::lease::{Book, Renewals};
use crate::space::Quota;
use crate::spans::stage;
use futures::StreamExt;
use futures::stream::BoxStream;
use meerkat_fault::Mutex;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::lease_server::Lease;
use meerkat_raft::RaftNode;
use meerkat_state::{Need, StateReader};
use meerkat_types::{Access, Command, GrantLease, LeaseId, LeaseTtl, Outcome, Refusal};
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// Renewals of one stream that are under way; answers keep the order of the requests.
const RENEWALS_PER_STREAM: usize = 1_024;
/// A grant's or a revoke's entry is a few numbers.
const ENTRY_BYTES_MAX: usize = 1_024;
/// How often a free name is looked for; among 2^63 the first one is.
const NAMES_MAX: usize = 3;

#[derive(Clone)]
pub(crate) struct LeaseService {
    raft: Arc<RaftNode>,
    headers: Headers,
    quota: Quota,
    book: Arc<Mutex<Book>>,
    renewals: Renewals,
    guard: Guard,
    ttl_seconds_min: i64,
}

impl LeaseService {
    pub(crate) fn new(
        raft: Arc<RaftNode>,
        headers: Headers,
        (book, renewals): (Arc<Mutex<Book>>, Renewals),
        guard: Guard,
        config: &Config,
    ) -> LeaseService {
        let quota = Quota::new(raft.clone(), config);
        LeaseService { raft, headers, quota, book, renewals, guard, ttl_seconds_min: ttl_seconds_min(config) }
    }

    async fn propose(&self, caller: &Caller, command: Command) -> Result<Outcome, Status> {
        self.quota.admit(&command).await.map_err(status::no_room)?;
        let outcome = stage("raft.propose", self.guard.propose(caller, command, ENTRY_BYTES_MAX)).await;
        outcome.map_err(|error| status::propose(&error))
    }

    async fn grant(
        &self,
        caller: &Caller,
        id: LeaseId,
        ttl: LeaseTtl,
    ) -> Result<pb::LeaseGrantResponse, Refused> {
        match self.propose(caller, Command::GrantLease(GrantLease { id, ttl })).await? {
            Outcome::LeaseGranted(granted) => Ok(pb::LeaseGrantResponse {
                header: Some(self.headers.at(granted.revision)),
                id: id.get(),
                ttl: granted.ttl.seconds(),
                error: String::new(),
            }),
            Outcome::Refused(refusal) => Err(Refused::By(refusal)),
            _ => Err(Refused::With(status::mismatched_outcome())),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StateReader) -> Result<T, meerkat_state::ReadError> + Send + 'static,
    ) -> Result<T, Status> {
        let reader = self.raft.reader().clone();
        let read = meerkat_raft::threads::spawn_blocking(move || read(&reader));
        read.await.map_err(|error| status::worker_lost(&error))?.map_err(|error| status::read(&error))
    }

    async fn renew(
        self,
        credentials: Arc<Credentials>,
        request: Result<pb::LeaseKeepAliveRequest, Status>,
    ) -> Answer {
        let id = request?.id;
        if self.guard.is_on() {
            let caller = self.guard.caller_now(&credentials);
            self.permit(caller, LeaseId::from_wire(id), Access::Write).await?;
        }
        // As of before the renewal.
        let header = Some(self.headers.now());
        let ttl = match LeaseId::from_wire(id) {
            None => None,
            Some(lease) => self.renewals.renew(lease).await.map_err(status::lessor)?,
        };
        Ok(pb::LeaseKeepAliveResponse { header, id, ttl: ttl.unwrap_or(0) })
    }
}

/// Who may have to do with leases.
impl LeaseService {
    /// Whether the caller is somebody, where that is asked.
    async fn know(&self, caller: Caller) -> Result<(), Status> {
        if self.guard.is_on() { self.permit(caller, None, Access::Read).await } else { Ok(()) }
    }

    /// What is told of a request that makes no sense: who asks is judged before that.
    async fn refused(&self, caller: Caller, why: EtcdError) -> Status {
        self.know(caller).await.err().unwrap_or_else(|| status::etcd(why))
    }

    /// Whether the caller is somebody, with access to every key of the lease.
    async fn permit(&self, caller: Caller, lease: Option<LeaseId>, access: Access) -> Result<(), Status> {
        self.read(move |reader| {
            let pinned = reader.pin();
            caller.may(&pinned, [Need::Login])?;
            let keys = lease.map_or(Ok(Vec::new()), |lease| pinned.lease_keys(lease))?;
            Ok(caller.may(&pinned, keys.iter().map(|key| Need::Key(access, key)))?)
        })
        .await
    }

    /// Whether the caller may read every key of every lease.
    async fn permit_all(&self, caller: Caller) -> Result<(), Status> {
        self.read(move |reader| {
            let pinned = reader.pin();
            caller.may(&pinned, [Need::Login])?;
            for lease in pinned.leases()? {
                let keys = pinned.lease_keys(lease.id)?;
                caller.may(&pinned, keys.iter().map(|key| Need::Key(Access::Read, key)))?;
            }
            Ok(())
        })
        .await
    }
}

type Answer = Result<pb::LeaseKeepAliveResponse, Status>;

enum Refused {
    By(Refusal),
    With(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused::With(status)
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        match refused {
            Refused::By(refusal) => status::refused(&refusal),
            Refused::With(status) => status,
        }
    }
}

/// A lease must outlive an election, or a change of leader would end it: as etcd, one and a half
/// election timeouts in whole heartbeats, rounded up to a second.
pub(crate) fn ttl_seconds_min(config: &Config) -> i64 {
    let ticks = config.election_timeout_ms / config.heartbeat_interval_ms.max(1);
    let millis = 3 * ticks / 2 * config.heartbeat_interval_ms;
    i64::try_from(millis.div_ceil(1_000)).unwrap_or(i64::MAX).max(1)
}

/// The time that a lease gets when `asked` seconds are asked for.
pub(crate) fn ttl(asked: i64, min: i64) -> Option<LeaseTtl> {
    LeaseTtl::from_seconds(asked.max(min))
}

pub(crate) fn random_name() -> Option<LeaseId> {
    LeaseId::from_wire(rand::random::<i64>() & i64::MAX)
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let Some(ttl) = ttl(request.ttl, self.ttl_seconds_min) else {
            return Err(self.refused(caller, EtcdError::LeaseTtlTooLarge).await);
        };
        if let Some(id) = LeaseId::from_wire(request.id) {
            return Ok(Response::new(self.grant(&caller, id, ttl).await?));
        }
        for _ in 0..NAMES_MAX {
            let Some(id) = random_name() else { continue };
            match self.grant(&caller, id, ttl).await {
                Err(Refused::By(Refusal::LeaseExists)) => {}
                answer => return Ok(Response::new(answer?)),
            }
        }
        Err(status::etcd(EtcdError::LeaseExist))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let caller = Caller::of(&request);
        let Some(lease) = LeaseId::from_wire(request.into_inner().id) else {
            return Err(self.refused(caller, EtcdError::LeaseNotFound).await);
        };
        match self.propose(&caller, Command::RevokeLease(lease)).await? {
            Outcome::LeaseRevoked(revision) => {
                Ok(Response::new(pb::LeaseRevokeResponse { header: Some(self.headers.at(revision)) }))
            }
            Outcome::Refused(refusal) => Err(status::refused(&refusal)),
            _ => Err(status::mismatched_outcome()),
        }
    }

    type LeaseKeepAliveStream = BoxStream<'static, Answer>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let service = self.clone();
        // A stream may outlive its token, so each renewal looks again.
        let credentials = Arc::new(Credentials::of_metadata(request.metadata(), request.extensions()));
        let answers = request
            .into_inner()
            .map(move |request| service.clone().renew(credentials.clone(), request))
            .buffered(RENEWALS_PER_STREAM);
        Ok(Response::new(until_error(answers).boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let caller = Caller::of(&request);
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        self.know(caller.clone()).await?;
        let missing = |header| pb::LeaseTimeToLiveResponse {
            header: Some(header),
            id,
            ttl: -1,
            granted_ttl: 0,
            keys: Vec::new(),
        };
        let Some(lease) = LeaseId::from_wire(id) else {
            return Ok(Response::new(missing(self.headers.now())));
        };
        let answer = self.raft.leases().rest(lease).await.map_err(status::lessor)?;
        let Some((ttl, remaining_ms)) = answer.rest else {
            return Ok(Response::new(missing(self.headers.now())));
        };
        let keys = if keys {
            let applied = self.raft.applied().reached(answer.index).await;
            applied.map_err(|_| status::etcd(EtcdError::Stopped))?;
            self.read(move |reader| {
                let pinned = reader.pin();
                let keys = pinned.lease_keys(lease)?;
                caller.may(&pinned, keys.iter().map(|key| Need::Key(Access::Read, key)))?;
                Ok(keys)
            })
            .await?
        } else {
            Vec::new()
        };
        Ok(Response::new(pb::LeaseTimeToLiveResponse {
            header: Some(self.headers.now()),
            id,
            ttl: remaining_ms / 1_000,
            granted_ttl: ttl.seconds(),
            keys,
        }))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        if self.guard.is_on() {
            self.permit_all(Caller::of(&request)).await?;
        }
        let led = {
            let book = self.book.lock();
            book.term().map(|_| book.deadlines())
        };
        let leases = match led {
            // The first to expire first, as etcd's leader lists them.
            Some(mut deadlines) => {
                deadlines.sort_unstable();
                deadlines.into_iter().map(|(_, lease)| lease).collect::<Vec<_>>()
            }
            None => {
                let leases = self.read(|reader| reader.pin().leases()).await?;
                leases.into_iter().map(|lease| lease.id).collect()
            }
        };
        let leases = leases.into_iter().map(|lease| pb::LeaseStatus { id: lease.get() }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header: Some(self.headers.now()), leases }))
    }
}

/// An error is the last word of a stream.
fn until_error(answers: impl futures::Stream<Item = Answer>) -> impl futures::Stream<Item = Answer> {
    answers.scan(false, |ended, answer| {
        let item = (!*ended).then_some(answer);
        *ended |= matches!(item, Some(Err(_)));
        std::future::ready(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::limits;

    #[test]
    fn a_time_to_live_is_raised_to_the_least_and_refused_above_the_most() {
        let seconds = |asked| ttl(asked, 2).map(LeaseTtl::seconds);
        for (asked, given) in [(i64::MIN, 2), (-1, 2), (0, 2), (1, 2), (2, 2), (3, 3)] {
            assert_eq!(seconds(asked), Some(given));
        }
        let max = limits::LEASE_TTL_SECONDS_MAX;
        assert_eq!(seconds(max), Some(max));
        assert_eq!(seconds(max + 1), None);
        assert_eq!(seconds(i64::MAX), None);
    }
}
