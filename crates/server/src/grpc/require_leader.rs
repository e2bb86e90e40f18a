//! `hasleader: true` in a request's metadata: refuse at once on a member that knows no leader.

use super::status;
use http::{Request, Response};
use meerkat_proto::error_text::EtcdError;
use meerkat_raft::Leadership;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::Service;

const HAS_LEADER: &str = "hasleader";

#[derive(Clone)]
pub(crate) struct RequireLeader<S> {
    inner: S,
    leadership: Leadership,
}

impl<S> RequireLeader<S> {
    pub(crate) fn new(inner: S, leadership: Leadership) -> RequireLeader<S> {
        RequireLeader { inner, leadership }
    }
}

impl<S, B> Service<Request<B>> for RequireLeader<S>
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
        let asked = request.headers().get(HAS_LEADER).is_some_and(|value| value == "true");
        if asked && self.leadership.known().is_none() {
            let refused = status::etcd(EtcdError::NoLeader).into_http();
            return Box::pin(std::future::ready(Ok(refused)));
        }
        Box::pin(self.inner.call(request))
    }
}
