//! One of the two clusters compared, and the tokens it gave out.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use meerkat_proto::pb::auth::{Permission, UserAddOptions};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::auth_client::AuthClient;
use meerkat_proto::pb::etcdserver::cluster_client::ClusterClient;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::watch_client::WatchClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::step::{Ask, Keys, Who};
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;

const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// What came back, without what differs by nature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer, written out.
    Told(String),
    /// A refusal.
    Refused(Code, String),
}

/// One cluster.
#[derive(Debug)]
pub struct Side {
    /// Its processes.
    pub cluster: Cluster,
    endpoints: Vec<Endpoint>,
    tokens: BTreeMap<&'static str, String>,
    enabled: bool,
}

impl Side {
    /// Starts a cluster whose passwords cost little.
    pub async fn start(product: Product, members: usize) -> Result<Self, Failure> {
        let spec = ClusterSpec::new(product, members).with_flags(&["--bcrypt-cost=4"]);
        let cluster = Cluster::start(&spec).await?;
        let endpoints = cluster.endpoints();
        Ok(Self { cluster, endpoints, tokens: BTreeMap::new(), enabled: false })
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.endpoints.len()
    }

    /// Brings a member level with the cluster; what it then answers by itself is determined.
    pub async fn level(&self, member: usize) {
        // Refused or not: it is judged after it has waited.
        let _ = self.endpoints[member].linearizable_probe(ANSWER_WITHIN).await;
    }

    /// Asks one member.
    pub async fn ask(&mut self, member: usize, who: &Who, ask: &Ask) -> Reply {
        let token = match who {
            // The release compared with looks at tokens even while it asks nobody who they are.
            _ if !self.enabled => None,
            Who::Nobody => None,
            Who::Stranger => Some("abcdefghijklmnop.1".to_owned()),
            Who::User(name) => self.tokens.get(name).cloned(),
        };
        let client = Client { channel: self.endpoints[member].channel(), token };
        match tokio::time::timeout(ANSWER_WITHIN, client.ask(ask)).await {
            Err(_) => Reply::Refused(Code::DeadlineExceeded, "no answer".to_owned()),
            Ok(Err(status)) => Reply::Refused(status.code(), status.message().to_owned()),
            Ok(Ok(Answer { text, token })) => {
                if let (Ask::Login(user, _), Some(token)) = (ask, token) {
                    self.tokens.insert(user, token);
                }
                match ask {
                    Ask::Enable => self.enabled = true,
                    Ask::Disable => self.enabled = false,
                    _ => {}
                }
                Reply::Told(text)
            }
        }
    }
}

struct Answer {
    text: String,
    token: Option<String>,
}

/// A connection with a token.
#[derive(Clone, Debug)]
pub struct Client {
    /// To one member.
    pub channel: Channel,
    /// Sent along, if there is one.
    pub token: Option<String>,
}

/// An answer without who gave it.
fn told<T: Debug>(answer: Response<T>, header: impl Fn(&mut T) -> &mut Option<pb::ResponseHeader>) -> Answer {
    let mut answer = answer.into_inner();
    if let Some(header) = header(&mut answer) {
        (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    }
    Answer { text: format!("{answer:?}"), token: None }
}

/// Calls a method and writes its answer out.
macro_rules! call {
    ($self:ident, $client:ident . $method:ident ( $message:expr )) => {
        $client::new($self.channel.clone())
            .$method($self.request($message))
            .await
            .map(|answer| told(answer, |answer| &mut answer.header))
    };
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

impl Client {
    /// A message with the token.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.parse().expect("a token is plain text"));
        }
        request
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, Status> {
        match ask {
            Ask::Range(..) | Ask::Put { .. } | Ask::Delete { .. } | Ask::Txn { .. } => self.ask_kv(ask).await,
            Ask::LeaseGrant(lease) => {
                call!(self, LeaseClient.lease_grant(pb::LeaseGrantRequest { ttl: 3_600, id: *lease }))
            }
            Ask::LeaseRevoke(lease) => {
                call!(self, LeaseClient.lease_revoke(pb::LeaseRevokeRequest { id: *lease }))
            }
            Ask::LeaseTimeToLive { lease, keys } => self.time_to_live(*lease, *keys).await,
            Ask::Watch(keys) => self.watch(keys).await,
            Ask::MemberList => self.member_list().await,
            Ask::Login(name, password) => self.login(name, password).await,
            _ => self.ask_auth(ask).await,
        }
    }

    async fn ask_kv(&self, ask: &Ask) -> Result<Answer, Status> {
        match ask {
            Ask::Range((key, end)) => {
                let (key, range_end) = (bytes(key), bytes(end));
                let message = pb::RangeRequest { key, range_end, ..Default::default() };
                call!(self, KvClient.range(message))
            }
            Ask::Put { key, previous, lease } => {
                let (key, value, lease) = (bytes(key), bytes("value"), *lease);
                let message = pb::PutRequest { key, value, lease, prev_kv: *previous, ..Default::default() };
                call!(self, KvClient.put(message))
            }
            Ask::Delete { keys: (key, end), previous } => {
                let (key, range_end) = (bytes(key), bytes(end));
                call!(
                    self,
                    KvClient.delete_range(pb::DeleteRangeRequest { key, range_end, prev_kv: *previous })
                )
            }
            Ask::Txn { compare, put, range, delete } => {
                call!(self, KvClient.txn(txn(compare, put, range, delete)))
            }
            other => Err(Status::internal(format!("{other:?} is not of the KV service"))),
        }
    }

    /// The remaining time depends on the moment.
    async fn time_to_live(&self, id: i64, keys: bool) -> Result<Answer, Status> {
        let request = self.request(pb::LeaseTimeToLiveRequest { id, keys });
        let answer = LeaseClient::new(self.channel.clone()).lease_time_to_live(request).await?.into_inner();
        let mut keys = answer.keys;
        keys.sort();
        let there = 0 <= answer.ttl;
        Ok(Answer { text: format!("{there} {} {keys:?}", answer.granted_ttl), token: None })
    }

    async fn member_list(&self) -> Result<Answer, Status> {
        let request = self.request(pb::MemberListRequest { linearizable: true });
        ClusterClient::new(self.channel.clone()).member_list(request).await?;
        Ok(Answer { text: "members".to_owned(), token: None })
    }

    async fn login(&self, name: &str, password: &str) -> Result<Answer, Status> {
        let message = pb::AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let request = Request::new(message);
        let token = AuthClient::new(self.channel.clone()).authenticate(request).await?.into_inner().token;
        Ok(Answer { text: "a token".to_owned(), token: Some(token) })
    }

    /// The first answer of a new stream. The ids of those that are refused differ between releases.
    async fn watch(&self, (key, end): &Keys) -> Result<Answer, Status> {
        let (key, range_end) = (bytes(key), bytes(end));
        let create = pb::WatchCreateRequest { key, range_end, ..Default::default() };
        let create = pb::watch_request::RequestUnion::CreateRequest(create);
        let message = pb::WatchRequest { request_union: Some(create) };
        let requests = futures::stream::iter([message]).chain(futures::stream::pending());
        let mut answers =
            WatchClient::new(self.channel.clone()).watch(self.request(requests)).await?.into_inner();
        let first = answers.message().await?.unwrap_or_default();
        let text = format!("{} {} {:?}", first.created, first.canceled, first.cancel_reason);
        Ok(Answer { text, token: None })
    }

    async fn ask_auth(&self, ask: &Ask) -> Result<Answer, Status> {
        let text = |text: &&'static str| (*text).to_owned();
        match ask {
            Ask::Enable => call!(self, AuthClient.auth_enable(pb::AuthEnableRequest {})),
            Ask::Disable => call!(self, AuthClient.auth_disable(pb::AuthDisableRequest {})),
            Ask::Status => call!(self, AuthClient.auth_status(pb::AuthStatusRequest {})),
            Ask::UserAdd(name, password) => {
                let (name, password) = (text(name), text(password));
                call!(
                    self,
                    AuthClient.user_add(pb::AuthUserAddRequest { name, password, ..Default::default() })
                )
            }
            Ask::UserAddWithoutPassword(name) => {
                let (name, options) = (text(name), Some(UserAddOptions { no_password: true }));
                call!(
                    self,
                    AuthClient.user_add(pb::AuthUserAddRequest { name, options, ..Default::default() })
                )
            }
            Ask::UserGet(name) => {
                call!(self, AuthClient.user_get(pb::AuthUserGetRequest { name: text(name) }))
            }
            Ask::UserList => call!(self, AuthClient.user_list(pb::AuthUserListRequest {})),
            Ask::UserDelete(name) => {
                call!(self, AuthClient.user_delete(pb::AuthUserDeleteRequest { name: text(name) }))
            }
            Ask::ChangePassword(name, password) => {
                let (name, password) = (text(name), text(password));
                let message = pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
                call!(self, AuthClient.user_change_password(message))
            }
            Ask::GrantRole(user, role) => {
                let (user, role) = (text(user), text(role));
                call!(self, AuthClient.user_grant_role(pb::AuthUserGrantRoleRequest { user, role }))
            }
            Ask::RevokeRole(name, role) => {
                let (name, role) = (text(name), text(role));
                call!(self, AuthClient.user_revoke_role(pb::AuthUserRevokeRoleRequest { name, role }))
            }
            _ => self.ask_roles(ask).await,
        }
    }

    async fn ask_roles(&self, ask: &Ask) -> Result<Answer, Status> {
        let text = |text: &&'static str| (*text).to_owned();
        match ask {
            Ask::RoleAdd(name) => {
                call!(self, AuthClient.role_add(pb::AuthRoleAddRequest { name: text(name) }))
            }
            Ask::RoleGet(role) => self.role_get(text(role)).await,
            Ask::RoleList => call!(self, AuthClient.role_list(pb::AuthRoleListRequest {})),
            Ask::RoleDelete(role) => {
                call!(self, AuthClient.role_delete(pb::AuthRoleDeleteRequest { role: text(role) }))
            }
            Ask::GrantPermission(name, kind, (key, end)) => {
                let perm = Permission { perm_type: *kind, key: bytes(key), range_end: bytes(end) };
                let message = pb::AuthRoleGrantPermissionRequest { name: text(name), perm: Some(perm) };
                call!(self, AuthClient.role_grant_permission(message))
            }
            Ask::GrantNothing(name) => {
                let message = pb::AuthRoleGrantPermissionRequest { name: text(name), perm: None };
                call!(self, AuthClient.role_grant_permission(message))
            }
            Ask::RevokePermission(role, (key, end)) => {
                let (role, key, range_end) = (text(role), bytes(key), bytes(end));
                let message = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
                call!(self, AuthClient.role_revoke_permission(message))
            }
            other => Err(Status::internal(format!("{other:?} is not of the Auth service"))),
        }
    }

    /// Permissions of one key come in an order that etcd leaves open.
    async fn role_get(&self, role: String) -> Result<Answer, Status> {
        let request = self.request(pb::AuthRoleGetRequest { role });
        let answer = AuthClient::new(self.channel.clone()).role_get(request).await?.into_inner();
        let mut permissions: Vec<_> =
            answer.perm.into_iter().map(|perm| (perm.key, perm.range_end, perm.perm_type)).collect();
        permissions.sort();
        Ok(Answer { text: format!("{permissions:?}"), token: None })
    }
}

fn txn(compare: &'static str, put: &'static str, range: &Keys, delete: &Keys) -> pb::TxnRequest {
    let compare = pb::Compare {
        result: pb::compare::CompareResult::Greater.into(),
        target: pb::compare::CompareTarget::Version.into(),
        key: bytes(compare),
        target_union: Some(pb::compare::TargetUnion::Version(0)),
        ..Default::default()
    };
    let op = |request| pb::RequestOp { request: Some(request) };
    let put = pb::PutRequest { key: bytes(put), value: bytes("txn"), ..Default::default() };
    let read = pb::RangeRequest { key: bytes(range.0), range_end: bytes(range.1), ..Default::default() };
    let delete =
        pb::DeleteRangeRequest { key: bytes(delete.0), range_end: bytes(delete.1), ..Default::default() };
    pb::TxnRequest {
        compare: vec![compare],
        success: vec![
            op(pb::request_op::Request::RequestPut(put)),
            op(pb::request_op::Request::RequestRange(read)),
        ],
        failure: vec![op(pb::request_op::Request::RequestDeleteRange(delete))],
    }
}
