//! What is asked of every call before its service sees it, one thing after the other: whether this member knows
//! a leader, if the client wants one that does; whether it is a learner that does not answer this; who calls, and
//! whether that one may; whether memory is short. Its message must then come whole in time.
//!
//! While authentication is off it costs one atomic load and a look for a token, and nothing is made or copied.
//! What depends on the keys that are asked for, the service itself asks of the [`Caller`] that is left in the
//! request.

use super::{status, transport_errors};
use crate::around::{around, ask};
use crate::auth::{Caller, Credentials, Guard, NotAdmin};
use crate::contained::alone;
use crate::memory::Pressure;
use crate::methods::{self, Learner, Method, Rule};
use crate::metrics::Calls;
use crate::punctual::whole_in_time;
use crate::spans::Tracer;
use axum::Router;
use axum::body::Body;
use axum::routing::Route;
use http::{Request, Response};
use meerkat_proto::error_text::EtcdError;
use meerkat_raft::Leadership;
use meerkat_state::Need;
use meerkat_types::AuthRefusal;
use std::sync::Arc;

/// `true` in a request's metadata: refuse at once on a member that knows no leader.
const HAS_LEADER: &str = "hasleader";

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Inner>);

struct Inner {
    leadership: Leadership,
    pressure: Arc<Pressure>,
    guard: Guard,
    message_bytes_max: usize,
}

impl Admission {
    pub(super) fn new(
        leadership: Leadership,
        pressure: Arc<Pressure>,
        guard: Guard,
        message_bytes_max: usize,
    ) -> Admission {
        Admission(Arc::new(Inner { leadership, pressure, guard, message_bytes_max }))
    }

    /// The services, each of whose calls is admitted first.
    pub(super) fn before(&self, services: Router) -> Router {
        let admission = self.clone();
        around(services, move |route, request| admission.clone().answer(route, request))
    }

    /// As [`Admission::before`], with what looks on from outside: for panics, counters, and spans if they are
    /// asked for.
    pub(super) fn observed(self, services: Router, calls: Arc<Calls>, tracer: Option<Tracer>) -> Router {
        let all = (self, calls, tracer);
        around(services, move |route, request| {
            let (admission, calls, tracer) = all.clone();
            async move {
                let admitted = |request| admission.answer(route, request);
                let counted = |request| calls.count(request, |request| alone(request, admitted));
                match &tracer {
                    None => counted(request).await,
                    Some(tracer) => tracer.follow(request, counted).await,
                }
            }
        })
    }

    async fn answer(self, route: Route, mut request: Request<Body>) -> Response<Body> {
        let uri = request.uri().clone();
        let method = methods::treatment(uri.path());
        if let Err(refused) = self.0.admit(&method, &mut request).await {
            return status::etcd(refused).into_http();
        }
        let response = ask(route, whole_in_time(request, method.kind)).await;
        transport_errors::translated(response, uri.path(), self.0.message_bytes_max)
    }
}

impl Inner {
    async fn admit(&self, method: &Method, request: &mut Request<Body>) -> Result<(), EtcdError> {
        let wants_leader = request.headers().get(HAS_LEADER).is_some_and(|value| value == "true");
        if wants_leader && self.leadership.known().is_none() {
            return Err(EtcdError::NoLeader);
        }
        if method.learner == Learner::Refuses && self.leadership.is_learner() {
            return Err(EtcdError::NotSupportedForLearner);
        }
        // A token comes from a cluster that asks for one: then this member may only be behind.
        if self.guard.is_on() || Credentials::has_token(request.headers()) {
            // In a box: the frequent case does not carry its size.
            Box::pin(self.identify(method.rule, request)).await.map_err(status::auth_refusal)?;
        }
        if self.pressure.refuses(method) {
            return Err(EtcdError::TooManyRequests);
        }
        Ok(())
    }

    /// Finds out who calls, refuses a caller who may not call this at all, and leaves it in the request.
    async fn identify(&self, rule: Rule, request: &mut Request<Body>) -> Result<(), AuthRefusal> {
        if !self.guard.is_on() {
            self.guard.catch_up().await;
        }
        let credentials = Credentials::of(request.headers(), request.extensions());
        let caller = self.guard.caller(&credentials).await;
        if let Some(not_admin) = self.judge(&caller, rule).await? {
            request.extensions_mut().insert(not_admin);
        }
        request.extensions_mut().insert(caller);
        Ok(())
    }

    /// Says of a caller who is let in that it is no administrator; only where that may matter.
    async fn judge(&self, caller: &Caller, rule: Rule) -> Result<Option<NotAdmin>, AuthRefusal> {
        match rule {
            Rule::Anyone | Rule::ByService => Ok(None),
            Rule::Admin => self.guard.permit(caller, &[Need::Admin]).await.map(|_| None),
            // Of a member that may have no leader to ask.
            Rule::User => self.guard.permit_now(caller, &[Need::Login]).map(|_| None),
            Rule::UserOrAdmin => {
                self.guard.permit(caller, &[Need::Login]).await?;
                Ok(self.guard.permit(caller, &[Need::Admin]).await.err().map(NotAdmin))
            }
        }
    }
}
