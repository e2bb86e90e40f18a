//! What a learner answers: its status, and reads that need no majority. All else it refuses, since a
//! client should go to a member that counts.
//!
//! A linearizable Range is refused by the KV service, which alone knows what was asked.

use super::status;
use http::{Request, Response};
use meerkat_proto::error_text::EtcdError;
use meerkat_raft::Leadership;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::Service;

const ANSWERED: &[&str] = &[
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/Snapshot",
];
/// Every service of etcd's API.
const SERVICES: &[&str] = &["/etcdserverpb.", "/v3lockpb.", "/v3electionpb."];

#[derive(Clone)]
pub(crate) struct LearnerDoor<S> {
    inner: S,
    leadership: Leadership,
}

impl<S> LearnerDoor<S> {
    pub(crate) fn new(inner: S, leadership: Leadership) -> LearnerDoor<S> {
        LearnerDoor { inner, leadership }
    }
}

fn is_refused(path: &str) -> bool {
    SERVICES.iter().any(|service| path.starts_with(service)) && !ANSWERED.contains(&path)
}

impl<S, B> Service<Request<B>> for LearnerDoor<S>
where
    S: Service<Request<B>, Response = Response<axum::body::Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.leadership.is_learner() && is_refused(request.uri().path()) {
            let refused = status::etcd(EtcdError::NotSupportedForLearner).into_http();
            return Box::pin(std::future::ready(Ok(refused)));
        }
        Box::pin(self.inner.call(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_reads_and_tells_of_itself_and_refuses_the_rest() {
        for path in ANSWERED {
            assert!(!is_refused(path), "{path}");
        }
        for path in ["/grpc.health.v1.Health/Check", "/meerkat.admin.v1.Admin/StateDigest", "/health"] {
            assert!(!is_refused(path), "{path}");
        }
        for path in ["KV/Put", "KV/Txn", "Watch/Watch", "Lease/LeaseGrant", "Cluster/MemberList"] {
            assert!(is_refused(&format!("/etcdserverpb.{path}")), "{path}");
        }
    }
}
