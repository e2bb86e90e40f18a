//! The way to a cluster: which endpoint answers, within which time, and what a refusal is called.
//!
//! A connection that cannot be made is tried at the next endpoint until the command's time is up,
//! since nothing was sent. A request that was sent is never repeated: its outcome is unknown.

use std::future::Future;
use std::time::Duration;

use meerkat_proto::pb::admin::admin_client::AdminClient;
use meerkat_proto::pb::etcdserver as pb;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint as Dialer};
use tonic::{Code, Status};

use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// Between two rounds over endpoints that cannot be reached.
const PAUSE_BETWEEN_ROUNDS: Duration = Duration::from_millis(100);

/// etcd hangs up on clients that ask more often than every five seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(6);

pub struct Cluster {
    endpoints: Vec<Endpoint>,
    dial_timeout: Duration,
    command_timeout: Duration,
    /// Whether the user wants to know why no endpoint could be reached.
    tells_why: bool,
}

impl Cluster {
    pub fn new(endpoints: Vec<Endpoint>, dial_timeout: Duration, command_timeout: Duration) -> Cluster {
        Cluster { endpoints, dial_timeout, command_timeout, tells_why: true }
    }

    /// For callers that expect members not to be there yet.
    pub fn quiet(self) -> Cluster {
        Cluster { tells_why: false, ..self }
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The same settings for other endpoints.
    pub fn at(&self, endpoints: Vec<Endpoint>) -> Cluster {
        Cluster::new(endpoints, self.dial_timeout, self.command_timeout)
    }

    /// Makes one KV request, at the first endpoint that can be reached.
    pub async fn kv<T, F>(&self, request: impl FnOnce(KvClient<Channel>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(KvClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    /// Makes one request about leases.
    pub async fn lease<T, F>(&self, request: impl FnOnce(LeaseClient<Channel>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(LeaseClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    pub async fn maintenance<T, F>(
        &self,
        request: impl FnOnce(MaintenanceClient<Channel>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(MaintenanceClient::new(channel))).await
    }

    /// Asks what only Meerkat's members know.
    pub async fn admin<T, F>(&self, request: impl FnOnce(AdminClient<Channel>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(AdminClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    /// Makes one request about members.
    pub async fn members_service<T, F>(
        &self,
        request: impl FnOnce(ClusterClient<Channel>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(ClusterClient::new(channel))).await
    }

    pub fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    pub async fn members(&self) -> Result<pb::MemberListResponse, String> {
        let list = |channel| async move {
            ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable: true }).await
        };
        self.request(list).await
    }

    async fn request<T, F>(&self, request: impl FnOnce(Channel) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.command_timeout;
        let channel = self.connect(deadline).await?;
        match tokio::time::timeout_at(deadline, request(channel)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(describe(&status)),
            Err(_) => Err(DEADLINE.to_owned()),
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<Channel, String> {
        loop {
            let mut reasons = Vec::new();
            for endpoint in &self.endpoints {
                match self.dial(endpoint, deadline).await {
                    Ok(channel) => return Ok(channel),
                    Err(reason) => reasons.push(format!("{endpoint}: {reason}")),
                }
            }
            if Instant::now() + PAUSE_BETWEEN_ROUNDS >= deadline {
                if self.tells_why {
                    eprintln!("cannot connect to {}", reasons.join("; "));
                }
                return Err(DEADLINE.to_owned());
            }
            tokio::time::sleep(PAUSE_BETWEEN_ROUNDS).await;
        }
    }

    async fn dial(&self, endpoint: &Endpoint, deadline: Instant) -> Result<Channel, String> {
        let dialer = Dialer::from_shared(endpoint.uri()).map_err(|error| error.to_string())?;
        self.dial_as(dialer, deadline).await
    }

    /// A connection that is kept: one whose other end has gone silent is found out and ends.
    pub async fn dial_to_stay(&self, endpoint: &Endpoint) -> Result<Channel, String> {
        let dialer = Dialer::from_shared(endpoint.uri()).map_err(|error| error.to_string())?;
        let dialer = dialer
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        self.dial_as(dialer, Instant::now() + self.dial_timeout).await
    }

    async fn dial_as(&self, dialer: Dialer, deadline: Instant) -> Result<Channel, String> {
        let until = deadline.min(Instant::now() + self.dial_timeout);
        match tokio::time::timeout_at(until, dialer.connect()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(innermost(&error)),
            Err(_) => Err("timed out".to_owned()),
        }
    }
}

pub const DEADLINE: &str = "context deadline exceeded";

/// The reason under all the layers that passed it on.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string()
}

/// A refusal in etcd's own words if it has some, else with its code in front.
pub fn describe(status: &Status) -> String {
    let message = status.message();
    if message.starts_with("etcdserver: ") || message.starts_with("auth: ") {
        return message.to_owned();
    }
    let code = match status.code() {
        Code::DeadlineExceeded => return DEADLINE.to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {message}")
}

/// Whether a refusal means that the server has no such request at all.
pub fn is_unknown_request(reason: &str) -> bool {
    reason.starts_with("rpc error: code = Unimplemented")
}

/// The failure of a command whose one request failed.
pub fn refused(reason: String) -> Failure {
    Failure::error(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_from_etcdctl() {
        let rows = [
            (
                Status::not_found("etcdserver: requested lease not found"),
                "etcdserver: requested lease not found",
            ),
            (Status::deadline_exceeded("x"), "context deadline exceeded"),
            (Status::unavailable("gone"), "rpc error: code = Unavailable desc = gone"),
            (Status::cancelled("stop"), "rpc error: code = Canceled desc = stop"),
        ];
        for (status, text) in rows {
            assert_eq!(describe(&status), text);
        }
    }
}
