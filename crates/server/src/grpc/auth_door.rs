//! The door of authentication: finds out who asks, and turns away who may not make the call at all.
//!
//! While authentication is off it is one atomic load and a look for a token, and nothing is made or
//! copied. What depends on
//! the keys that are asked for, the service itself asks of the [`Caller`] that is left in the request.

use super::status;
use crate::auth::rules::{Rule, rule};
use crate::auth::{Caller, Credentials, Guard, NotAdmin};
use futures::future::{BoxFuture, Either};
use http::{Request, Response};
use meerkat_state::Need;
use meerkat_types::{AuthRefusal, Refusal};
use std::task::{Context, Poll};
use tower::Service;

#[derive(Clone)]
pub(crate) struct AuthDoor<S> {
    inner: S,
    guard: Guard,
}

impl<S> AuthDoor<S> {
    pub(crate) fn new(inner: S, guard: Guard) -> AuthDoor<S> {
        AuthDoor { inner, guard }
    }
}

impl<S, B> Service<Request<B>> for AuthDoor<S>
where
    S: Service<Request<B>, Response = Response<axum::body::Body>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Whoever has a token got it from a cluster that asks: then this member may only be behind.
        if !self.guard.is_on() && !Credentials::has_token(request.headers()) {
            return Either::Left(self.inner.call(request));
        }
        let guard = self.guard.clone();
        // The one that is ready goes with the request; its copy stays.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        Either::Right(Box::pin(async move {
            if !guard.is_on() {
                guard.catch_up().await;
            }
            let credentials = Credentials::of(request.headers(), request.extensions());
            let caller = guard.caller(&credentials).await;
            match judge(&guard, &caller, rule(request.uri().path())).await {
                Err(refusal) => return Ok(status::refused(&Refusal::Auth(refusal)).into_http()),
                Ok(Some(not_admin)) => drop(request.extensions_mut().insert(not_admin)),
                Ok(None) => {}
            }
            request.extensions_mut().insert(caller);
            inner.call(request).await
        }))
    }
}

/// Says, of somebody who is let in, whether they are no administrator; only where that may matter.
async fn judge(guard: &Guard, caller: &Caller, rule: Rule) -> Result<Option<NotAdmin>, AuthRefusal> {
    match rule {
        Rule::Everybody | Rule::ByService => Ok(None),
        Rule::Admin => guard.permit(caller, &[Need::Admin]).await.map(|_| None),
        // Of a member that may have no leader to ask.
        Rule::User => guard.permit_now(caller, &[Need::Login]).map(|_| None),
        Rule::UserOrAdmin => {
            guard.permit(caller, &[Need::Login]).await?;
            Ok(guard.permit(caller, &[Need::Admin]).await.err().map(NotAdmin))
        }
    }
}
