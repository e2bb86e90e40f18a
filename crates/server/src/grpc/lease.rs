//! The Lease service: grants and revokes through the log, renewals and questions through the leader.

use super::header::Headers;
use super::status;
use crate::auth::{Caller, Credentials};
use crate::lease::{Book, Renewals};
use crate::member::{By, Member};
use futures::StreamExt;
use futures::stream::BoxStream;
use meerkat_fault::Mutex;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::lease_server::Lease;
use meerkat_state::Need;
use meerkat_types::{Access, LeaseId};
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// Renewals of one stream that are under way; answers keep the order of the requests.
const RENEWALS_PER_STREAM: usize = 1_024;

#[derive(Clone)]
pub(crate) struct LeaseService {
    member: Member,
    headers: Headers,
    book: Arc<Mutex<Book>>,
    renewals: Renewals,
}

impl LeaseService {
    pub(crate) fn new(
        member: Member,
        headers: Headers,
        (book, renewals): (Arc<Mutex<Book>>, Renewals),
    ) -> LeaseService {
        LeaseService { member, headers, book, renewals }
    }

    async fn renew(
        self,
        credentials: Arc<Credentials>,
        request: Result<pb::LeaseKeepAliveRequest, Status>,
    ) -> Answer {
        let id = request?.id;
        if self.member.guard.is_on() {
            let caller = self.member.guard.caller_now(&credentials);
            let permitted = self.member.read_aside(move |pinned| {
                caller.may(pinned, [Need::Login])?;
                let keys = LeaseId::from_wire(id).map_or(Ok(Vec::new()), |lease| pinned.lease_keys(lease))?;
                Ok(caller.may(pinned, keys.iter().map(|key| Need::Key(Access::Write, key)))?)
            });
            permitted.await?;
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
    fn know(&self, caller: &Caller) -> Result<(), Status> {
        caller.may(&self.member.guard.pin(), [Need::Login]).map_err(|refusal| status::refused(&refusal))
    }

    /// What is told of a request that makes no sense: who asks is judged before that.
    fn refused(&self, caller: &Caller, why: EtcdError) -> Status {
        self.know(caller).err().unwrap_or_else(|| status::etcd(why))
    }

    /// Whether the caller may read every key of every lease.
    async fn permit_all(&self, caller: Caller) -> Result<(), Status> {
        let read = self.member.read_long(move |pinned| {
            caller.may(pinned, [Need::Login])?;
            for lease in pinned.leases()? {
                let keys = pinned.lease_keys(lease.id)?;
                caller.may(pinned, keys.iter().map(|key| Need::Key(Access::Read, key)))?;
            }
            Ok(())
        });
        Ok(read.await?)
    }
}

type Answer = Result<pb::LeaseKeepAliveResponse, Status>;

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let Some(ttl) = self.member.lease_ttl(request.ttl) else {
            return Err(self.refused(&caller, EtcdError::LeaseTtlTooLarge));
        };
        let name = LeaseId::from_wire(request.id);
        let (id, granted) = self.member.grant(By::Client(&caller), name, ttl).await?;
        Ok(Response::new(pb::LeaseGrantResponse {
            header: Some(self.headers.at(granted.revision)),
            id: id.get(),
            ttl: granted.ttl.seconds(),
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let caller = Caller::of(&request);
        let Some(lease) = LeaseId::from_wire(request.into_inner().id) else {
            return Err(self.refused(&caller, EtcdError::LeaseNotFound));
        };
        let revision = self.member.revoke(By::Client(&caller), lease).await?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: Some(self.headers.at(revision)) }))
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
        self.know(&caller)?;
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
        let answer = self.member.raft.leases().rest(lease).await.map_err(status::lessor)?;
        let Some((ttl, remaining_ms)) = answer.rest else {
            return Ok(Response::new(missing(self.headers.now())));
        };
        let keys = if keys {
            let applied = self.member.raft.applied().reached(answer.index).await;
            applied.map_err(|_| status::etcd(EtcdError::Stopped))?;
            let read = self.member.read_long(move |pinned| {
                let keys = pinned.lease_keys(lease)?;
                caller.may(pinned, keys.iter().map(|key| Need::Key(Access::Read, key)))?;
                Ok(keys)
            });
            read.await?
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
        if self.member.guard.is_on() {
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
                let leases = self.member.read_long(|pinned| pinned.leases()).await?;
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
