//! Leases: keys that go away unless someone keeps saying "still here".

mod keeper;
mod renew;
mod schedule;

pub(crate) use keeper::Keeper;
pub use keeper::{KeepAlive, KeepAliveStatus, LeaseLost, LeaseToKeep, LossReason};

use crate::Client;
use crate::call::Attempt;
use crate::error::{Error, Fate};
use crate::kv::Sending;
use crate::retry::CallKind;
use bytes::Bytes;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_types::LeaseId;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

/// The longest TTL that a cluster grants.
const TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

impl Client {
    /// The leases of the cluster.
    pub fn leases(&self) -> Leases {
        Leases { client: self.clone() }
    }
}

/// The leases of a cluster.
#[derive(Clone, Debug)]
pub struct Leases {
    client: Client,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Its name.
    pub id: LeaseId,
    /// How long it lives without being renewed. May be more than was asked for.
    pub ttl: Duration,
    /// The cluster cannot have begun to count before this moment.
    pub(crate) asked_at: Instant,
}

/// What is left of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// Its name.
    pub id: LeaseId,
    /// How long it still lives if it is not renewed, in whole seconds. `None` if there is no such
    /// lease.
    pub left: Option<Duration>,
    /// How long it lives after each renewal.
    pub granted: Duration,
    /// The keys that go away with it, if that was asked for.
    pub keys: Vec<Bytes>,
}

impl Leases {
    /// Grants a lease that lives this long without being renewed. Whole seconds; rounded up.
    pub fn grant(&self, ttl: Duration) -> Grant {
        Grant { client: self.client.clone(), ttl, id: None, timeout: None }
    }

    /// Ends a lease: its keys are deleted, all in one revision.
    pub fn revoke(&self, id: LeaseId) -> Revoke {
        Revoke { client: self.client.clone(), id, timeout: None }
    }

    /// What is left of a lease.
    pub fn time_to_live(&self, id: LeaseId) -> AskTimeToLive {
        AskTimeToLive { client: self.client.clone(), id, keys: false, timeout: None }
    }

    /// Keeps a lease alive until the answer is dropped. Needs no await, and works with a
    /// [`Granted`] or with a name; with the former, its time is counted from the grant on.
    ///
    /// All leases of a client share one stream, which moves to another member when its own is lost.
    pub fn keep_alive(&self, lease: impl Into<LeaseToKeep>) -> KeepAlive {
        self.client.keeper().keep(&self.client, lease.into())
    }

    /// All leases, as the asked member knows them.
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn list(&self) -> Result<Vec<LeaseId>, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::LeaseLeasesRequest {});
            async move { LeaseClient::new(attempt.wire.clone()).lease_leases(request).await }
        };
        let done = self.client.call(CallKind::Read, None, send).await?;
        Ok(done.answer.leases.into_iter().filter_map(|lease| LeaseId::from_wire(lease.id)).collect())
    }
}

/// A request for a lease. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Grant {
    client: Client,
    ttl: Duration,
    id: Option<LeaseId>,
    timeout: Option<Duration>,
}

impl Grant {
    /// Under this name. Refused if a lease of this name exists.
    pub fn id(mut self, id: LeaseId) -> Grant {
        self.id = Some(id);
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Grant {
        self.timeout = Some(timeout);
        self
    }

    /// The name is drawn here unless it was given, so that a grant whose answer was lost can be
    /// asked for again: if the second is told "exists", the first was ours, because nobody else
    /// draws the same of 2^63 names.
    async fn send(self) -> Result<Granted, Error> {
        let drawn = LeaseId::from_wire(rand::random_range(1..=i64::MAX));
        let id = self.id.or(drawn).map_or(1, LeaseId::get);
        let wire = pb::LeaseGrantRequest { ttl: whole_seconds(self.ttl), id };
        let asked_at = Instant::now();
        let send = |attempt: Attempt| {
            let request = attempt.request(wire);
            async move { LeaseClient::new(attempt.wire.clone()).lease_grant(request).await }
        };
        match self.client.call(CallKind::Once, self.timeout, send).await {
            // An attempt that is told "granted" made the lease itself: had an earlier one made it, this
            // one would have been told "exists". So attempts that failed take nothing off its time.
            Ok(done) => granted(&done.answer, done.sent_at.into_std()),
            Err(failed) => {
                let ours = self.id.is_none() && failed.doubt;
                match LeaseId::from_wire(id) {
                    Some(id) if ours && failed.error.etcd() == Some(EtcdError::LeaseExist) => {
                        self.found(id, asked_at, failed.error).await
                    }
                    Some(_) | None => Err(failed.error),
                }
            }
        }
    }

    /// The lease exists and is ours; only how long it lives is not known yet.
    async fn found(self, id: LeaseId, asked_at: Instant, error: Error) -> Result<Granted, Error> {
        let mut ask = self.client.leases().time_to_live(id);
        ask.timeout = self.timeout;
        match ask.await {
            Ok(TimeToLive { left: Some(_), granted, .. }) => Ok(Granted { id, ttl: granted, asked_at }),
            Ok(_) | Err(_) => Err(error),
        }
    }
}

impl IntoFuture for Grant {
    type Output = Result<Granted, Error>;
    type IntoFuture = Sending<Granted>;

    fn into_future(self) -> Sending<Granted> {
        Box::pin(self.send())
    }
}

/// A request to end a lease. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct Revoke {
    client: Client,
    id: LeaseId,
    timeout: Option<Duration>,
}

impl Revoke {
    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> Revoke {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<(), Error> {
        let wire = pb::LeaseRevokeRequest { id: self.id.get() };
        let send = |attempt: Attempt| {
            let request = attempt.request(wire);
            async move { LeaseClient::new(attempt.wire.clone()).lease_revoke(request).await }
        };
        self.client.call(CallKind::Write, self.timeout, send).await?;
        Ok(())
    }
}

impl IntoFuture for Revoke {
    type Output = Result<(), Error>;
    type IntoFuture = Sending<()>;

    fn into_future(self) -> Sending<()> {
        Box::pin(self.send())
    }
}

/// A question about a lease. Await it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is awaited"]
pub struct AskTimeToLive {
    client: Client,
    id: LeaseId,
    keys: bool,
    timeout: Option<Duration>,
}

impl AskTimeToLive {
    /// The answer names the keys that go away with the lease.
    pub fn with_keys(mut self) -> AskTimeToLive {
        self.keys = true;
        self
    }

    /// How long this request may take.
    pub fn timeout(mut self, timeout: Duration) -> AskTimeToLive {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<TimeToLive, Error> {
        let wire = pb::LeaseTimeToLiveRequest { id: self.id.get(), keys: self.keys };
        let send = |attempt: Attempt| {
            let request = attempt.request(wire);
            async move { LeaseClient::new(attempt.wire.clone()).lease_time_to_live(request).await }
        };
        let done = self.client.call(CallKind::Read, self.timeout, send).await?;
        let namespace = self.client.prefix();
        Ok(TimeToLive {
            id: self.id,
            left: (0 <= done.answer.ttl).then(|| seconds(done.answer.ttl)),
            granted: seconds(done.answer.granted_ttl),
            // A lease may hold keys of other namespaces; those are not this client's to see.
            keys: done.answer.keys.iter().filter_map(|key| namespace.strip_key(key)).collect(),
        })
    }
}

impl IntoFuture for AskTimeToLive {
    type Output = Result<TimeToLive, Error>;
    type IntoFuture = Sending<TimeToLive>;

    fn into_future(self) -> Sending<TimeToLive> {
        Box::pin(self.send())
    }
}

fn granted(wire: &pb::LeaseGrantResponse, asked_at: Instant) -> Result<Granted, Error> {
    match LeaseId::from_wire(wire.id) {
        Some(id) if wire.error.is_empty() => Ok(Granted { id, ttl: seconds(wire.ttl), asked_at }),
        Some(_) => Err(Error::garbled(Fate::Unknown, wire.error.clone())),
        None => Err(Error::garbled(Fate::Unknown, "a lease was granted without a name")),
    }
}

/// Seconds as a member gives them; nothing below none, and nothing a clock cannot hold.
fn seconds(wire: i64) -> Duration {
    Duration::from_secs(u64::try_from(wire).unwrap_or(0)).min(TTL_MAX)
}

/// Rounded up: a lease must not live shorter than was asked for.
fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(0 < ttl.subsec_nanos()));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
