//! The way to a cluster: which endpoint answers, within which time, and what a refusal is called.
//!
//! A connection that cannot be made is tried at the next endpoint until the command's time is up,
//! since nothing was sent. A request that was sent is never repeated: its outcome is unknown.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use meerkat_client::{Client, Config};
use meerkat_proto::pb::admin::admin_client::AdminClient;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::health::HealthCheckRequest;
use meerkat_proto::pb::health::health_client::HealthClient;
use meerkat_proto::reason;
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint as Dialer};
use tonic::{Code, Status};

use super::global::TlsChoice;
use crate::endpoint::{Endpoint, Scheme};
use crate::failure::Failure;

/// Between two rounds over endpoints that cannot be reached.
const PAUSE_BETWEEN_ROUNDS: Duration = Duration::from_millis(100);

/// How a cluster is to be talked to.
#[derive(Clone, Debug)]
pub struct Dialing {
    pub dial_timeout: Duration,
    pub command_timeout: Duration,
    pub keep_alive_interval: Duration,
    pub keep_alive_timeout: Duration,
    pub tls: TlsChoice,
    pub login: Option<Login>,
}

/// Who the operator is.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Dialing {
    /// In clear and as nobody.
    pub fn plain(dial_timeout: Duration, command_timeout: Duration) -> Dialing {
        Dialing {
            dial_timeout,
            command_timeout,
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(6),
            tls: TlsChoice { tls: meerkat_client::Tls::new(), by_default: false },
            login: None,
        }
    }

    /// Where an endpoint is dialled, and whether encrypted.
    pub fn uri(&self, endpoint: &Endpoint) -> String {
        let unsaid = if self.tls.by_default { Scheme::Https } else { Scheme::Http };
        endpoint.uri_with(endpoint.scheme().unwrap_or(unsaid))
    }
}

/// A connection that puts the token, if there is one, on every request.
pub type Wire = InterceptedService<Channel, Token>;

#[derive(Clone)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

pub struct Cluster {
    endpoints: Vec<Endpoint>,
    dialing: Dialing,
    /// Whether the user wants to know why no endpoint could be reached.
    tells_why: bool,
    /// Why the user was not let in. Shared with what [`Cluster::at`] gives.
    shut_out: Arc<OnceLock<String>>,
}

impl Cluster {
    pub fn new(endpoints: Vec<Endpoint>, dialing: Dialing) -> Cluster {
        Cluster { endpoints, dialing, tells_why: true, shut_out: Arc::default() }
    }

    /// For callers that expect members not to be there yet.
    pub fn quiet(self) -> Cluster {
        Cluster { tells_why: false, ..self }
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub fn dialing(&self) -> &Dialing {
        &self.dialing
    }

    /// The same settings for other endpoints.
    pub fn at(&self, endpoints: Vec<Endpoint>) -> Cluster {
        let shut_out = self.shut_out.clone();
        Cluster { endpoints, dialing: self.dialing.clone(), tells_why: true, shut_out }
    }

    /// The outcome of a command, with the status of its own that `etcdctl` gives a login that failed.
    pub fn judge(&self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        outcome.map_err(|failure| match self.shut_out.get() {
            Some(reason) => Failure::bad_connection(reason.clone()),
            None => failure,
        })
    }

    /// The library's client, which finds another member when one fails: for what takes long.
    pub async fn client(&self) -> Result<Client, Failure> {
        self.connect_client(self.config()).await
    }

    pub async fn connect_client(&self, config: Config) -> Result<Client, Failure> {
        Client::connect_with(config).await.map_err(|error| Failure::bad_connection(error.message()))
    }

    /// Waits until an endpoint answers and has let the user in, within the command's time.
    pub async fn reach(&self) -> Result<(), Failure> {
        let reached = self.connect(Instant::now() + self.dialing.command_timeout).await;
        reached.map(drop).map_err(Failure::error)
    }

    /// An endpoint of the client's as the operator wrote it.
    pub fn written(&self, name: &str) -> String {
        let endpoint = self.endpoints.iter().find(|endpoint| self.dialing.uri(endpoint) == name);
        endpoint.map_or(name.to_owned(), ToString::to_string)
    }

    /// What the library's client is told.
    pub fn config(&self) -> Config {
        let endpoints = self.endpoints.iter().map(|endpoint| self.dialing.uri(endpoint));
        let mut config = Config::new(endpoints)
            .connect_timeout(self.dialing.dial_timeout)
            .request_timeout(self.dialing.command_timeout)
            .tls(self.dialing.tls.tls.clone());
        if let Some(Login { user, password }) = &self.dialing.login {
            config = config.user(user, password);
        }
        config
    }

    /// Makes one KV request, at the first endpoint that can be reached.
    pub async fn kv<T, F>(&self, request: impl FnOnce(KvClient<Wire>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(KvClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    /// Makes one request about leases.
    pub async fn lease<T, F>(&self, request: impl FnOnce(LeaseClient<Wire>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(LeaseClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    pub async fn maintenance<T, F>(
        &self,
        request: impl FnOnce(MaintenanceClient<Wire>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(MaintenanceClient::new(channel))).await
    }

    /// Asks what only Meerkat's members know.
    pub async fn admin<T, F>(&self, request: impl FnOnce(AdminClient<Wire>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(AdminClient::new(channel).max_decoding_message_size(usize::MAX))).await
    }

    /// Makes one request about members.
    pub async fn members_service<T, F>(
        &self,
        request: impl FnOnce(ClusterClient<Wire>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(ClusterClient::new(channel))).await
    }

    /// Makes one request about users and roles.
    pub async fn auth<T, F>(&self, request: impl FnOnce(AuthClient<Wire>) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.request(|channel| request(AuthClient::new(channel))).await
    }

    pub fn command_timeout(&self) -> Duration {
        self.dialing.command_timeout
    }

    pub async fn members(&self, linearizable: bool) -> Result<pb::MemberListResponse, String> {
        let list = |channel| async move {
            ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable }).await
        };
        self.request(list).await
    }

    async fn request<T, F>(&self, request: impl FnOnce(Wire) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.dialing.command_timeout;
        let channel = self.connect(deadline).await?;
        match tokio::time::timeout_at(deadline, request(channel)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(describe(&status)),
            Err(_) => Err(DEADLINE.to_owned()),
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<Wire, String> {
        loop {
            let mut reasons = Vec::new();
            for endpoint in &self.endpoints {
                let entered = match self.dial(endpoint, deadline).await {
                    Ok(channel) => self.enter(channel, deadline).await,
                    Err(reason) => Err(NoEntry::Unreachable(reason)),
                };
                match entered {
                    Ok(wire) => return Ok(wire),
                    Err(NoEntry::Refused(reason)) => return Err(reason),
                    Err(NoEntry::Unreachable(reason)) => reasons.push(format!("{endpoint}: {reason}")),
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

    /// The connection as the user, who is anybody where nobody is asked. The server has answered on it: one
    /// that wants another certificate, or speaks no TLS, may hang up only after the handshake looked complete.
    async fn enter(&self, channel: Channel, deadline: Instant) -> Result<Wire, NoEntry> {
        let Some(Login { user, password }) = &self.dialing.login else {
            let until = deadline.min(Instant::now() + self.dialing.dial_timeout);
            return match tokio::time::timeout_at(until, answers(channel.clone())).await {
                Ok(Ok(())) => Ok(Wire::new(channel, Token(None))),
                Ok(Err(reason)) => Err(NoEntry::Unreachable(reason)),
                Err(_) => Err(NoEntry::Unreachable("timed out".to_owned())),
            };
        };
        let request = pb::AuthenticateRequest { name: user.clone(), password: password.clone() };
        let mut client = AuthClient::new(channel.clone());
        let token = match tokio::time::timeout_at(deadline, client.authenticate(request)).await {
            Ok(Ok(response)) => response.into_inner().token.parse().map_err(|_| {
                self.shut("the server gave a token that cannot be sent back; report this as a bug".to_owned())
            })?,
            Ok(Err(status)) if status.message() == AUTH_NOT_ENABLED => {
                return Ok(Wire::new(channel, Token(None)));
            }
            Ok(Err(status)) => {
                return Err(match hung_up(&status) {
                    Some(reason) => NoEntry::Unreachable(reason),
                    None => self.shut(describe(&status)),
                });
            }
            Err(_) => return Err(self.shut(DEADLINE.to_owned())),
        };
        Ok(Wire::new(channel, Token(Some(token))))
    }

    /// Notes why the user was not let in, and gives it back.
    fn shut(&self, reason: String) -> NoEntry {
        NoEntry::Refused(self.shut_out.get_or_init(|| reason).clone())
    }

    /// A bare connection, for what is no request of the API.
    pub async fn channel(&self, endpoint: &Endpoint) -> Result<Channel, String> {
        self.dial(endpoint, Instant::now() + self.dialing.dial_timeout).await
    }

    async fn dial(&self, endpoint: &Endpoint, deadline: Instant) -> Result<Channel, String> {
        let dialer = Dialer::from_shared(self.dialing.uri(endpoint)).map_err(|error| error.to_string())?;
        self.dial_as(dialer, deadline).await
    }

    /// A connection that is kept: one whose other end has gone silent is found out and ends.
    pub async fn dial_to_stay(&self, endpoint: &Endpoint) -> Result<Wire, String> {
        let dialer = Dialer::from_shared(self.dialing.uri(endpoint)).map_err(|error| error.to_string())?;
        let dialer = dialer
            .http2_keep_alive_interval(self.dialing.keep_alive_interval)
            .keep_alive_timeout(self.dialing.keep_alive_timeout)
            .keep_alive_while_idle(true);
        let channel = self.dial_as(dialer, Instant::now() + self.dialing.dial_timeout).await?;
        self.enter(channel, Instant::now() + self.dialing.command_timeout).await.map_err(NoEntry::reason)
    }

    async fn dial_as(&self, dialer: Dialer, deadline: Instant) -> Result<Channel, String> {
        let until = deadline.min(Instant::now() + self.dialing.dial_timeout);
        match tokio::time::timeout_at(until, self.dialing.tls.tls.connect(dialer)).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(error),
            Err(_) => Err("timed out".to_owned()),
        }
    }
}

/// Why a connection is of no use.
enum NoEntry {
    /// Another try, or another endpoint, may do better.
    Unreachable(String),
    Refused(String),
}

impl NoEntry {
    fn reason(self) -> String {
        match self {
            NoEntry::Unreachable(reason) | NoEntry::Refused(reason) => reason,
        }
    }
}

/// Whether anybody answers on a connection, by a question that changes nothing. Any answer will do.
async fn answers(channel: Channel) -> Result<(), String> {
    let asked = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    asked.err().and_then(|status| hung_up(&status)).map_or(Ok(()), Err)
}

/// The innermost reason, if a call failed for its connection and not by the server's word.
fn hung_up(status: &Status) -> Option<String> {
    std::error::Error::source(status).map(reason::innermost)
}

const AUTH_NOT_ENABLED: &str = "etcdserver: authentication is not enabled";
pub const DEADLINE: &str = "context deadline exceeded";

/// A refusal in etcd's own words if it has some, else with its code in front.
pub fn describe(status: &Status) -> String {
    in_words(status.code(), status.message())
}

/// As [`describe`], of what a status says.
pub fn in_words(code: Code, message: &str) -> String {
    if message.starts_with("etcdserver: ") || message.starts_with("auth: ") {
        return message.to_owned();
    }
    let code = match code {
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
