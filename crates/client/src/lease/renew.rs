//! One renewal of a lease, for those who keep the time themselves.

use super::{Leases, seconds};
use crate::call::Attempt;
use crate::error::{Error, Fate};
use crate::retry::CallKind;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_types::LeaseId;
use std::time::Duration;
use tonic::Response;

impl Leases {
    /// Renews a lease once. How long it lives from then on, counted from after the call; `None` if there is
    /// no such lease. Whoever wants it kept alive is better served by [`keep_alive`](Leases::keep_alive).
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn renew(&self, id: LeaseId) -> Result<Option<Duration>, Error> {
        let send = |attempt: Attempt| {
            let asked = tokio_stream::once(pb::LeaseKeepAliveRequest { id: id.get() });
            let request = attempt.request(asked);
            async move {
                let answers = LeaseClient::new(attempt.wire.clone()).lease_keep_alive(request).await?;
                let (metadata, mut answers, extensions) = answers.into_parts();
                let answer = answers.message().await?;
                Ok(Response::from_parts(metadata, answer, extensions))
            }
        };
        let done = self.client.call(CallKind::Read, None, send).await?;
        let Some(answer) = done.answer else {
            return Err(Error::garbled(Fate::Unknown, "the member ended the stream without an answer"));
        };
        Ok((0 < answer.ttl).then(|| seconds(answer.ttl)))
    }
}
