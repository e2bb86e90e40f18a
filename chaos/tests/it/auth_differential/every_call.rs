//! Every call of the client port, made by nobody, with a token that was never given out, by a user
//! without a role, and by root: what late etcd 3.6 answers, in one table.
//!
//! The release of etcd at hand is an older one. It runs through the same table; rows in which it judges
//! otherwise say so, and all others are compared with it live.

use super::client::{Client, bytes, furnish, put, range, start};
use bytes::{Buf, Bytes};
use futures::StreamExt;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::{admin, election, health, lock, reflection};
use prost::Message;
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

const BUDGET: Duration = Duration::from_secs(120);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

const OK: &str = "answered";
const EMPTY: &str = "InvalidArgument etcdserver: user name is empty";
const BAD_TOKEN: &str = "Unauthenticated etcdserver: invalid auth token";
const DENIED: &str = "PermissionDenied etcdserver: permission denied";

/// Of the services that call others in their caller's name: these lose the code.
const OF_OTHERS: Answers = [
    "Unknown etcdserver: user name is empty",
    "Unknown etcdserver: invalid auth token",
    "Unknown etcdserver: permission denied",
    OK,
];

/// Of a watch: the code is part of the reason why it is cancelled.
const OF_A_WATCH: Answers = [
    "cancelled: rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
    "cancelled: rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
    "cancelled: rpc error: code = PermissionDenied desc = etcdserver: permission denied",
    OK,
];

/// What nobody hears, a stranger, a user without a role, and root.
type Answers = [&'static str; 4];
const CALLERS: [&str; 4] = ["nobody", "a stranger", "a user without a role", "root"];

/// For those with access to the keys, which only root has here.
const KEYS: Answers = ADMIN;
const ADMIN: Answers = admin(OK);
/// For whoever says who they are.
const LOGIN: Answers = login(OK);
const EVERYBODY: Answers = [OK; 4];

const fn admin(root: &'static str) -> Answers {
    [EMPTY, BAD_TOKEN, DENIED, root]
}

const fn login(user: &'static str) -> Answers {
    [EMPTY, BAD_TOKEN, user, user]
}

/// How the older release judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Alike,
    /// It lets in who is refused today, knows no such call, or words the refusal otherwise.
    Otherwise,
    /// Nobody asks it: one change of the members that fails keeps the next from being answered.
    Unasked,
}
use Before::{Alike, Otherwise, Unasked};

struct Row {
    call: &'static str,
    request: Bytes,
    answers: Answers,
    before: Before,
}

fn row(call: &'static str, request: &impl Message, answers: Answers, before: Before) -> Row {
    Row { call, request: request.encode_to_vec().into(), answers, before }
}

/// In the order in which they are made: the last one ends authentication.
fn rows() -> Vec<Row> {
    let mut rows = keys();
    rows.extend(leases());
    rows.extend(coordination());
    rows.extend(maintenance());
    rows.extend(users());
    rows.extend(ours());
    rows.extend(members());
    rows.push(row("etcdserverpb.Auth/AuthDisable", &pb::AuthDisableRequest {}, ADMIN, Alike));
    rows
}

fn keys() -> Vec<Row> {
    let txn = |request| {
        let op = pb::RequestOp { request: Some(request) };
        pb::TxnRequest { success: vec![op], ..Default::default() }
    };
    let delete = pb::DeleteRangeRequest { key: bytes("x"), ..Default::default() };
    let writes = txn(pb::request_op::Request::RequestPut(put("x", 0, false)));
    let reads = txn(pb::request_op::Request::RequestRange(range("x", "", true)));
    let create = pb::WatchCreateRequest { key: bytes("x"), ..Default::default() };
    let create = pb::watch_request::RequestUnion::CreateRequest(create);
    let watch = pb::WatchRequest { request_union: Some(create) };
    let compact = pb::CompactionRequest { revision: 2, physical: false };
    vec![
        row("etcdserverpb.KV/Put", &put("x", 0, false), KEYS, Alike),
        row("etcdserverpb.KV/Put", &put("", 0, false), [NO_KEY; 4], Alike),
        row("etcdserverpb.KV/Range", &range("x", "", false), KEYS, Alike),
        row("etcdserverpb.KV/Range", &range("x", "", true), KEYS, Alike),
        // Of 3.7.
        row("etcdserverpb.KV/RangeStream", &range("x", "", false), KEYS, Otherwise),
        row("etcdserverpb.KV/DeleteRange", &delete, KEYS, Alike),
        row("etcdserverpb.KV/Txn", &writes, KEYS, Alike),
        row("etcdserverpb.KV/Txn", &reads, KEYS, Alike),
        // It needs nothing, so only the token counts.
        row("etcdserverpb.KV/Txn", &pb::TxnRequest::default(), [OK, BAD_TOKEN, OK, OK], Alike),
        row("etcdserverpb.KV/Compact", &compact, ADMIN, Otherwise),
        row("etcdserverpb.Watch/Watch", &watch, OF_A_WATCH, Otherwise),
    ]
}

const NO_KEY: &str = "InvalidArgument etcdserver: key is not provided";
const NO_LEASE: &str = "NotFound etcdserver: requested lease not found";
const LONG_LEASE: &str = "OutOfRange etcdserver: too large lease TTL";

fn leases() -> Vec<Row> {
    let grant = |ttl| pb::LeaseGrantRequest { ttl, id: 0 };
    let revoke = |id| pb::LeaseRevokeRequest { id };
    let ttl = |keys| pb::LeaseTimeToLiveRequest { id: 99, keys };
    let renew = pb::LeaseKeepAliveRequest { id: 99 };
    vec![
        row("etcdserverpb.Lease/LeaseGrant", &grant(600), LOGIN, Otherwise),
        row("etcdserverpb.Lease/LeaseGrant", &grant(i64::MAX), login(LONG_LEASE), Otherwise),
        row("etcdserverpb.Lease/LeaseRevoke", &revoke(99), login(NO_LEASE), Otherwise),
        row("etcdserverpb.Lease/LeaseRevoke", &revoke(0), login(NO_LEASE), Otherwise),
        row("etcdserverpb.Lease/LeaseKeepAlive", &renew, LOGIN, Otherwise),
        row("etcdserverpb.Lease/LeaseTimeToLive", &ttl(false), LOGIN, Otherwise),
        row("etcdserverpb.Lease/LeaseTimeToLive", &ttl(true), LOGIN, Otherwise),
        row("etcdserverpb.Lease/LeaseLeases", &pb::LeaseLeasesRequest {}, LOGIN, Otherwise),
    ]
}

fn coordination() -> Vec<Row> {
    let name = bytes("e");
    let campaign = election::CampaignRequest { name: name.clone(), ..Default::default() };
    let leader = election::LeaderKey { name: name.clone(), key: bytes("e/0"), rev: 1, lease: 0 };
    let proclaim = election::ProclaimRequest { leader: Some(leader.clone()), ..Default::default() };
    let resign = election::ResignRequest { leader: Some(leader) };
    let of = election::LeaderRequest { name };
    let [nobody, stranger, bare, _] = OF_OTHERS;
    let not_leader = [nobody, stranger, bare, "Unknown election: not leader"];
    vec![
        row("v3lockpb.Lock/Lock", &lock::LockRequest { name: bytes("l"), lease: 0 }, OF_OTHERS, Alike),
        row("v3lockpb.Lock/Unlock", &lock::UnlockRequest { key: bytes("l/0") }, OF_OTHERS, Alike),
        row("v3electionpb.Election/Campaign", &campaign, OF_OTHERS, Alike),
        row("v3electionpb.Election/Leader", &of, OF_OTHERS, Alike),
        // Where etcd ends the stream without a word, an observer is told why.
        row("v3electionpb.Election/Observe", &of, OF_OTHERS, Otherwise),
        row("v3electionpb.Election/Proclaim", &proclaim, not_leader, Alike),
        row("v3electionpb.Election/Resign", &resign, OF_OTHERS, Alike),
    ]
}

fn maintenance() -> Vec<Row> {
    let get = pb::AlarmRequest::default();
    let disarm = pb::AlarmRequest { action: 2, member_id: 1, alarm: 1 };
    let downgrade = pb::DowngradeRequest { action: 0, version: "x".to_owned() };
    let no_version = "InvalidArgument etcdserver: wrong downgrade target version format";
    let no_member = "FailedPrecondition etcdserver: bad leader transferee";
    vec![
        row("etcdserverpb.Maintenance/Alarm", &get, LOGIN, Otherwise),
        row("etcdserverpb.Maintenance/Alarm", &disarm, ADMIN, Otherwise),
        row("etcdserverpb.Maintenance/Status", &pb::StatusRequest {}, LOGIN, Otherwise),
        row("etcdserverpb.Maintenance/Defragment", &pb::DefragmentRequest {}, ADMIN, Otherwise),
        row("etcdserverpb.Maintenance/Hash", &pb::HashRequest {}, ADMIN, Otherwise),
        row("etcdserverpb.Maintenance/HashKV", &pb::HashKvRequest { revision: 0 }, ADMIN, Otherwise),
        row("etcdserverpb.Maintenance/Snapshot", &pb::SnapshotRequest {}, ADMIN, Otherwise),
        row(
            "etcdserverpb.Maintenance/MoveLeader",
            &pb::MoveLeaderRequest { target_id: 1 },
            admin(no_member),
            Otherwise,
        ),
        row("etcdserverpb.Maintenance/Downgrade", &downgrade, admin(no_version), Otherwise),
        row("grpc.health.v1.Health/Check", &health::HealthCheckRequest::default(), EVERYBODY, Alike),
        row("grpc.health.v1.Health/Watch", &health::HealthCheckRequest::default(), EVERYBODY, Alike),
    ]
}

const NO_USER: &str = "FailedPrecondition etcdserver: user name not found";
const NO_ROLE: &str = "FailedPrecondition etcdserver: role name not found";

fn users() -> Vec<Row> {
    let text = |text: &str| text.to_owned();
    let (ghost, bare) = (|| text("ghost"), || text("bare"));
    let login = pb::AuthenticateRequest { name: bare(), password: bare() };
    let add = pb::AuthUserAddRequest { name: text("new"), password: text("new"), ..Default::default() };
    let get = |name| pb::AuthUserGetRequest { name };
    let role = |role: &str| pb::AuthRoleGetRequest { role: text(role) };
    let change = pb::AuthUserChangePasswordRequest { name: ghost(), password: ghost(), ..Default::default() };
    let grant = pb::AuthUserGrantRoleRequest { user: ghost(), role: ghost() };
    let revoke = pb::AuthUserRevokeRoleRequest { name: ghost(), role: ghost() };
    let perm = Some(Permission { perm_type: 0, key: bytes("k"), range_end: Bytes::new() });
    let permit = pb::AuthRoleGrantPermissionRequest { name: ghost(), perm };
    let deny =
        pb::AuthRoleRevokePermissionRequest { role: ghost(), key: bytes("k"), range_end: Bytes::new() };
    vec![
        row("etcdserverpb.Auth/AuthEnable", &pb::AuthEnableRequest {}, ADMIN, Alike),
        row("etcdserverpb.Auth/AuthStatus", &pb::AuthStatusRequest {}, ADMIN, Alike),
        row("etcdserverpb.Auth/Authenticate", &login, EVERYBODY, Alike),
        row("etcdserverpb.Auth/UserAdd", &add, ADMIN, Alike),
        row("etcdserverpb.Auth/UserGet", &get(bare()), LOGIN, Alike),
        row("etcdserverpb.Auth/UserGet", &get(text("reader")), ADMIN, Alike),
        row("etcdserverpb.Auth/UserList", &pb::AuthUserListRequest {}, ADMIN, Alike),
        row(
            "etcdserverpb.Auth/UserDelete",
            &pb::AuthUserDeleteRequest { name: ghost() },
            admin(NO_USER),
            Alike,
        ),
        row("etcdserverpb.Auth/UserChangePassword", &change, admin(NO_USER), Alike),
        row("etcdserverpb.Auth/UserGrantRole", &grant, admin(NO_USER), Alike),
        row("etcdserverpb.Auth/UserRevokeRole", &revoke, admin(NO_USER), Alike),
        row("etcdserverpb.Auth/RoleAdd", &pb::AuthRoleAddRequest { name: text("new") }, ADMIN, Alike),
        row("etcdserverpb.Auth/RoleGet", &role("reader"), ADMIN, Alike),
        row("etcdserverpb.Auth/RoleList", &pb::AuthRoleListRequest {}, ADMIN, Alike),
        row(
            "etcdserverpb.Auth/RoleDelete",
            &pb::AuthRoleDeleteRequest { role: ghost() },
            admin(NO_ROLE),
            Alike,
        ),
        row("etcdserverpb.Auth/RoleGrantPermission", &permit, admin(NO_ROLE), Alike),
        row("etcdserverpb.Auth/RoleRevokePermission", &deny, admin(NO_ROLE), Alike),
    ]
}

/// What etcd does not have.
fn ours() -> Vec<Row> {
    let times = admin::KeyTimesRequest { key: bytes("x"), ..Default::default() };
    let services = reflection::server_reflection_request::MessageRequest::ListServices(String::new());
    let services =
        reflection::ServerReflectionRequest { message_request: Some(services), ..Default::default() };
    vec![
        row("meerkat.admin.v1.Admin/StateDigest", &admin::StateDigestRequest::default(), ADMIN, Otherwise),
        row("meerkat.admin.v1.Admin/ListWatchers", &admin::ListWatchersRequest::default(), ADMIN, Otherwise),
        row(
            "meerkat.admin.v1.Admin/RevisionAtTime",
            &admin::RevisionAtTimeRequest::default(),
            ADMIN,
            Otherwise,
        ),
        row("meerkat.admin.v1.Admin/KeyTimes", &times, ADMIN, Otherwise),
        row("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &services, EVERYBODY, Otherwise),
    ]
}

fn members() -> Vec<Row> {
    let urls = vec!["http://127.0.0.1:1".to_owned()];
    let list = |linearizable| pb::MemberListRequest { linearizable };
    let update = pb::MemberUpdateRequest { id: 1, peer_ur_ls: urls.clone() };
    let add = pb::MemberAddRequest { peer_ur_ls: urls, is_learner: true };
    let unknown = "NotFound etcdserver: member not found";
    vec![
        row("etcdserverpb.Cluster/MemberList", &list(true), LOGIN, Otherwise),
        row("etcdserverpb.Cluster/MemberList", &list(false), LOGIN, Otherwise),
        row("etcdserverpb.Cluster/MemberUpdate", &update, admin(unknown), Unasked),
        row("etcdserverpb.Cluster/MemberRemove", &pb::MemberRemoveRequest { id: 1 }, admin(unknown), Unasked),
        row(
            "etcdserverpb.Cluster/MemberPromote",
            &pb::MemberPromoteRequest { id: 1 },
            admin(unknown),
            Unasked,
        ),
        row("etcdserverpb.Cluster/MemberAdd", &add, ADMIN, Alike),
    ]
}

/// Whether the caller goes on speaking: the others are answered when their request has ended.
fn stays_open(call: &str) -> bool {
    call.ends_with("Watch/Watch") || call.ends_with("/LeaseKeepAlive") || call.ends_with("Info")
}

/// The first that comes back, as the table writes it.
async fn ask(client: &Client, row: &Row) -> String {
    match tokio::time::timeout(ANSWER_WITHIN, first_answer(client, row)).await {
        Err(_) => "nothing within the time".to_owned(),
        Ok(Err(status)) if status.code() == Code::Ok => "the end".to_owned(),
        Ok(Err(status)) => format!("{:?} {}", status.code(), status.message()),
        Ok(Ok(answer)) if row.call == "etcdserverpb.Watch/Watch" => match pb::WatchResponse::decode(answer) {
            Ok(answer) if answer.canceled => format!("cancelled: {}", answer.cancel_reason),
            Ok(_) => OK.to_owned(),
            Err(error) => error.to_string(),
        },
        Ok(Ok(_)) => OK.to_owned(),
    }
}

async fn first_answer(client: &Client, row: &Row) -> Result<Bytes, Status> {
    let mut grpc = tonic::client::Grpc::new(client.channel.clone()).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = format!("/{}", row.call).parse().map_err(|_| Status::internal("not a path"))?;
    let one = futures::stream::iter([row.request.clone()]);
    let requests = match stays_open(row.call) {
        true => one.chain(futures::stream::pending()).boxed(),
        false => one.boxed(),
    };
    let mut answers = grpc.streaming(client.request(requests), path, Undecoded).await?.into_inner();
    answers.message().await?.ok_or_else(|| Status::ok(""))
}

/// Bytes out, bytes in.
#[derive(Clone, Copy)]
struct Undecoded;

impl Codec for Undecoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Undecoded;
    type Decoder = Undecoded;

    fn encoder(&mut self) -> Undecoded {
        Undecoded
    }

    fn decoder(&mut self) -> Undecoded {
        Undecoded
    }
}

impl Encoder for Undecoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, frame: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(frame, message);
        Ok(())
    }
}

impl Decoder for Undecoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(frame.copy_to_bytes(frame.remaining())))
    }
}

/// Row by row, what each caller heard.
async fn judged(cluster: &Cluster, is_asked: fn(&Row) -> bool) -> Result<Vec<(Row, [String; 4])>, Failure> {
    let endpoint = &cluster.endpoints()[0];
    let nobody = Client::nobody(endpoint);
    furnish(&nobody).await?;
    let stranger = nobody.with("abcdefghijklmnop.3");
    let callers =
        [nobody, stranger, Client::login(endpoint, "bare").await?, Client::login(endpoint, "root").await?];
    let mut judged = Vec::new();
    for row in rows().into_iter().filter(is_asked) {
        let mut heard = <[String; 4]>::default();
        for (caller, heard) in callers.iter().zip(&mut heard) {
            *heard = ask(caller, &row).await;
        }
        judged.push((row, heard));
    }
    Ok(judged)
}

fn differences(row: &Row, heard: &[String; 4]) -> Vec<String> {
    let each = CALLERS.iter().zip(row.answers).zip(heard);
    let wrong = each.filter(|((_, expected), heard)| expected != heard);
    wrong
        .map(|((who, expected), heard)| {
            format!("{} by {who}: expected {expected:?}, heard {heard:?}", row.call)
        })
        .collect()
}

#[test]
fn every_call_hears_what_late_etcd_tells_each_kind_of_caller() {
    run_test("every call by every caller", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let judged = judged(&cluster, |_| true).await?;
        let wrong = judged.iter().flat_map(|(row, heard)| differences(row, heard)).collect();
        Failure::from_findings("every call judges its callers as late etcd does", wrong)?;
        cluster.finish()
    });
}

#[test]
fn an_older_etcd_judges_alike_but_for_the_rows_that_say_so() {
    run_test("every call on etcd", BUDGET, async {
        let spec = ClusterSpec::new(Product::Etcd, 1).with_flags(&["--bcrypt-cost=4"]);
        let cluster = Cluster::start(&spec).await?;
        let mut wrong = Vec::new();
        for (row, heard) in judged(&cluster, |row| row.before != Unasked).await? {
            let differences = differences(&row, &heard);
            match row.before {
                Alike => wrong.extend(differences),
                Otherwise if differences.is_empty() => wrong.push(format!("{} is judged alike", row.call)),
                Otherwise | Unasked => {}
            }
        }
        Failure::from_findings("the table is etcd's", wrong)?;
        cluster.finish()
    });
}

/// As much of a set of descriptors as tells the calls there are.
mod descriptors {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Set {
        #[prost(message, repeated, tag = "1")]
        pub file: Vec<File>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct File {
        #[prost(string, tag = "2")]
        pub package: String,
        #[prost(message, repeated, tag = "6")]
        pub service: Vec<Service>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Service {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub method: Vec<Method>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Method {
        #[prost(string, tag = "1")]
        pub name: String,
    }
}

#[test]
fn the_table_has_every_call_of_the_client_port() {
    /// What members say to each other, and what collectors of spans serve.
    const ELSEWHERE: [&str; 2] = ["meerkat.peer.v1", "opentelemetry.proto.collector.trace.v1"];
    let set = descriptors::Set::decode(meerkat_proto::DESCRIPTORS).expect("our own build made them");
    let mut calls = BTreeSet::new();
    for file in set.file.iter().filter(|file| !ELSEWHERE.contains(&file.package.as_str())) {
        for service in &file.service {
            let call =
                |method: &descriptors::Method| format!("{}.{}/{}", file.package, service.name, method.name);
            calls.extend(service.method.iter().map(call));
        }
    }
    let listed: BTreeSet<String> = rows().iter().map(|row| row.call.to_owned()).collect();
    assert_eq!(listed, calls);
}
