//! A client with a token, and a store with users who differ in what they may.

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::auth_client::AuthClient;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::maintenance_client::MaintenanceClient;
use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Text of a refusal, or nothing.
pub type Heard = Result<(), String>;

pub const DENIED: &str = "etcdserver: permission denied";
pub const EMPTY: &str = "etcdserver: user name is empty";
pub const BAD_TOKEN: &str = "etcdserver: invalid auth token";
pub const OLD: &str = "etcdserver: revision of auth store is old";

/// What a call came to, by its text alone.
pub fn heard<T>(answer: Result<T, Status>) -> Heard {
    answer.map(drop).map_err(|status| status.message().to_owned())
}

pub fn refused(text: &str) -> Heard {
    Err(text.to_owned())
}

pub fn failed(what: &str) -> impl Fn(Status) -> Failure + '_ {
    move |status| Failure::broken(format!("{what}: {:?} {}", status.code(), status.message()))
}

/// One member, and who asks it.
#[derive(Clone)]
pub struct Client {
    pub channel: Channel,
    /// Under this name of metadata.
    pub token: Option<(&'static str, String)>,
}

impl Client {
    pub fn nobody(endpoint: &Endpoint) -> Client {
        Client { channel: endpoint.channel(), token: None }
    }

    /// With the token of a user whose password is the name.
    pub async fn login(endpoint: &Endpoint, user: &str) -> Result<Client, Failure> {
        let token = Client::nobody(endpoint).token_for(user, user).await.map_err(failed("login"))?;
        Ok(Client::nobody(endpoint).with(&token))
    }

    pub fn with(&self, token: &str) -> Client {
        Client { channel: self.channel.clone(), token: Some(("token", token.to_owned())) }
    }

    /// The same caller at another member.
    pub fn at(&self, endpoint: &Endpoint) -> Client {
        Client { channel: endpoint.channel(), token: self.token.clone() }
    }

    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some((name, token)) = &self.token {
            request.metadata_mut().insert(*name, token.parse().expect("plain text"));
        }
        request
    }

    pub async fn token_for(&self, name: &str, password: &str) -> Result<String, Status> {
        let message = pb::AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        Ok(self.auth().authenticate(Request::new(message)).await?.into_inner().token)
    }

    pub fn auth(&self) -> AuthClient<Channel> {
        AuthClient::new(self.channel.clone())
    }

    pub fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }

    pub fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    pub async fn put(&self, key: &str) -> Heard {
        self.put_with(key, 0, false).await
    }

    pub async fn put_with(&self, key: &str, lease: i64, prev_kv: bool) -> Heard {
        heard(self.kv().put(self.request(put(key, lease, prev_kv))).await)
    }

    pub async fn range(&self, key: &str, end: &str) -> Heard {
        heard(self.kv().range(self.request(range(key, end, false))).await)
    }

    /// By what the member knows itself.
    pub async fn local_range(&self, key: &str, end: &str) -> Heard {
        heard(self.kv().range(self.request(range(key, end, true))).await)
    }

    pub async fn txn(&self, txn: pb::TxnRequest) -> Heard {
        heard(self.kv().txn(self.request(txn)).await)
    }

    pub async fn delete(&self, key: &str, end: &str, prev_kv: bool) -> Heard {
        let message = pb::DeleteRangeRequest { key: bytes(key), range_end: bytes(end), prev_kv };
        heard(self.kv().delete_range(self.request(message)).await)
    }

    /// Watches and takes the first answer; the stream, if it was let in.
    pub async fn watch(
        &self,
        key: &str,
        end: &str,
    ) -> Result<(pb::WatchResponse, tonic::Streaming<pb::WatchResponse>), Status> {
        use futures::StreamExt;
        let (key, range_end) = (bytes(key), bytes(end));
        let create = pb::WatchCreateRequest { key, range_end, watch_id: 7, ..Default::default() };
        let create = pb::watch_request::RequestUnion::CreateRequest(create);
        let message = pb::WatchRequest { request_union: Some(create) };
        let requests = futures::stream::iter([message]).chain(futures::stream::pending());
        let mut client = WatchClient::new(self.channel.clone());
        let mut answers = client.watch(self.request(requests)).await?.into_inner();
        let first = answers.message().await?.unwrap_or_default();
        Ok((first, answers))
    }

    /// One renewal of a lease.
    pub async fn keep_alive(&self, id: i64) -> Heard {
        use futures::StreamExt;
        let message = pb::LeaseKeepAliveRequest { id };
        let requests = futures::stream::iter([message]).chain(futures::stream::pending());
        let mut answers = match self.lease().lease_keep_alive(self.request(requests)).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return heard::<()>(Err(status)),
        };
        heard(answers.message().await)
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn put(key: &str, lease: i64, prev_kv: bool) -> pb::PutRequest {
    pb::PutRequest { key: bytes(key), value: bytes("v"), lease, prev_kv, ..Default::default() }
}

pub fn range(key: &str, end: &str, serializable: bool) -> pb::RangeRequest {
    pb::RangeRequest { key: bytes(key), range_end: bytes(end), serializable, ..Default::default() }
}

/// Starts Meerkat with passwords that cost little.
pub async fn start(members: usize, flags: &[&str]) -> Result<Cluster, Failure> {
    let flags = [&["--bcrypt-cost=4"], flags].concat();
    Cluster::start(&ClusterSpec::new(Product::Meerkat, members).with_flags(&flags)).await
}

/// `root` is root, `reader` reads `r/`, `writer` writes `w/`, `bare` may nothing. Passwords are names.
pub async fn furnish(client: &Client) -> Result<(), Failure> {
    for name in ["root", "reader", "writer", "bare"] {
        add_user(client, name).await?;
    }
    grant_role(client, "root", "root").await?;
    for (role, kind, key, end) in [("reader", 0, "r/", "r0"), ("writer", 1, "w/", "w0")] {
        add_role(client, role, kind, key, end).await?;
        grant_role(client, role, role).await?;
    }
    enable(client).await
}

pub async fn enable(client: &Client) -> Result<(), Failure> {
    let request = client.request(pb::AuthEnableRequest {});
    client.auth().auth_enable(request).await.map(drop).map_err(failed("enable"))
}

pub async fn add_user(client: &Client, name: &str) -> Result<(), Failure> {
    let (name, password) = (name.to_owned(), name.to_owned());
    let message = pb::AuthUserAddRequest { name, password, ..Default::default() };
    client.auth().user_add(client.request(message)).await.map(drop).map_err(failed("add a user"))
}

pub async fn grant_role(client: &Client, user: &str, role: &str) -> Result<(), Failure> {
    let message = pb::AuthUserGrantRoleRequest { user: user.to_owned(), role: role.to_owned() };
    client.auth().user_grant_role(client.request(message)).await.map(drop).map_err(failed("grant a role"))
}

pub async fn revoke_role(client: &Client, user: &str, role: &str) -> Result<(), Failure> {
    let message = pb::AuthUserRevokeRoleRequest { name: user.to_owned(), role: role.to_owned() };
    client.auth().user_revoke_role(client.request(message)).await.map(drop).map_err(failed("revoke a role"))
}

pub async fn change_password(client: &Client, user: &str, password: &str) -> Result<(), Failure> {
    let (name, password) = (user.to_owned(), password.to_owned());
    let message = pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
    let changed = client.auth().user_change_password(client.request(message)).await;
    changed.map(drop).map_err(failed("change a password"))
}

pub async fn add_role(client: &Client, role: &str, kind: i32, key: &str, end: &str) -> Result<(), Failure> {
    let message = pb::AuthRoleAddRequest { name: role.to_owned() };
    client.auth().role_add(client.request(message)).await.map_err(failed("add a role"))?;
    let perm = Some(Permission { perm_type: kind, key: bytes(key), range_end: bytes(end) });
    let message = pb::AuthRoleGrantPermissionRequest { name: role.to_owned(), perm };
    let granted = client.auth().role_grant_permission(client.request(message)).await;
    granted.map(drop).map_err(failed("grant a permission"))
}

pub async fn auth_revision(client: &Client) -> Result<u64, Failure> {
    let answer = client.auth().auth_status(client.request(pb::AuthStatusRequest {})).await;
    Ok(answer.map_err(failed("status"))?.into_inner().auth_revision)
}
