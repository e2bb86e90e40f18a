//! `v3lockpb.Lock`: a lock taken on the caller's behalf. The answer's key holds it, and that key's create
//! revision is the fencing token; see `docs/coordination.md`.

use super::line::{Caller, Stand, stand};
use super::status;
use bytes::Bytes;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::lock as pb;
use meerkat_proto::pb::lock::lock_server::Lock;
use tonic::{Request, Response, Status};

pub(crate) struct LockService {
    /// The services that a client calls itself, as it reaches them.
    inner: axum::Router,
}

impl LockService {
    pub(crate) fn new(inner: axum::Router) -> LockService {
        LockService { inner }
    }
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let lost = || status::etcd(EtcdError::MutexSessionExpired);
        let ask = Stand { name: ask.name, lease: ask.lease, value: Bytes::new(), set_value: false, lost };
        let place = stand(caller, ask).await?;
        Ok(Response::new(pb::LockResponse { header: Some(place.reached), key: place.key }))
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let header = caller.delete(ask.key).await?;
        Ok(Response::new(pb::UnlockResponse { header: Some(header) }))
    }
}
