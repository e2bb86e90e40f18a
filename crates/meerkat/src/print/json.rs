//! The format for programs: the message as Go's JSON encoder writes it. Fields in their order in
//! the message, zero values left out, bytes in base64, 64-bit numbers as numbers.
//!
//! The views below name every field a reader of this output may rely on. Changing one breaks
//! scripts.

mod auth;
mod lease;
mod watch;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc;
use pb::response_op::Response;
use serde::{Serialize, Serializer};

use super::{Answer, EndpointHealth, KeyTime, MemberChange, TimedRange, time_text};
use crate::go_duration;

pub fn render(answer: &Answer, hex: bool, out: &mut Vec<u8>) {
    let json = match answer {
        Answer::Get { response, .. } => text(&Range::from(response)),
        Answer::Timed(timed) => text(&TimedKvs::from(timed)),
        Answer::Put(response) => text(&Put::from(response)),
        Answer::Del(response) => text(&Del::from(response)),
        Answer::Txn(response) => text(&Txn::from(response)),
        Answer::Members(response) if hex => members_in_hex(response),
        Answer::Members(response) => text(&Members::from(response)),
        Answer::MemberChange { change: MemberChange::Added(member), members } => text(&Added {
            header: header(&members.header),
            member: Member::from(member),
            members: members.members.iter().map(Member::from).collect(),
        }),
        Answer::MemberChange { members, .. } => text(&Members::from(members)),
        Answer::Statuses(list) => text(&list.iter().map(StatusRow::from).collect::<Vec<_>>()),
        Answer::Hashes(list) => text(&list.iter().map(HashRow::from).collect::<Vec<_>>()),
        Answer::Health(list) => text(&list.iter().map(Health::from).collect::<Vec<_>>()),
        Answer::Snapshot(status) => text(&SnapshotStatus {
            hash: status.hash,
            revision: status.revision,
            total_key: status.total_keys,
            total_size: status.total_bytes,
            version: &status.version,
        }),
        Answer::Watch(response) => text(&watch::Watch::from(response)),
        Answer::Lease(answer) => lease::text_of(answer),
        Answer::Auth(answer) => auth::text_of(answer),
        Answer::Alarms(response) => auth::alarms(response),
        Answer::Downgrade { response, .. } => auth::downgrade(response),
        Answer::LeaderMoved { response, .. } => auth::header_alone(&response.header),
        Answer::Watchers(list) => text(&list.iter().map(watch::Watchers::from).collect::<Vec<_>>()),
    };
    out.extend_from_slice(json.as_bytes());
    out.push(b'\n');
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotStatus<'a> {
    hash: u32,
    revision: i64,
    total_key: u64,
    total_size: u64,
    version: &'a str,
}

/// Go escapes what could end a script in a web page. These signs occur inside strings only.
fn text(view: &impl Serialize) -> String {
    let json = serde_json::to_string(view).expect("numbers, texts and lists of them");
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

#[derive(Serialize)]
struct Header {
    #[serde(skip_serializing_if = "is_zero")]
    cluster_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    member_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    raft_term: u64,
}

impl Header {
    const NONE: Header = Header { cluster_id: 0, member_id: 0, revision: 0, raft_term: 0 };
}

fn header(header: &Option<pb::ResponseHeader>) -> Option<Header> {
    header.as_ref().map(|header| Header {
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        revision: header.revision,
        raft_term: header.raft_term,
    })
}

#[derive(Serialize)]
struct Kv<'a> {
    #[serde(skip_serializing_if = "<[u8]>::is_empty", serialize_with = "base64")]
    key: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    create_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    mod_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    version: i64,
    #[serde(skip_serializing_if = "<[u8]>::is_empty", serialize_with = "base64")]
    value: &'a [u8],
    #[serde(skip_serializing_if = "is_zero")]
    lease: i64,
}

impl<'a> From<&'a mvcc::KeyValue> for Kv<'a> {
    fn from(kv: &'a mvcc::KeyValue) -> Kv<'a> {
        Kv {
            key: &kv.key,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            value: &kv.value,
            lease: kv.lease,
        }
    }
}

#[derive(Serialize)]
struct Range<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kvs: Vec<Kv<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    more: bool,
    #[serde(skip_serializing_if = "is_zero")]
    count: i64,
}

impl<'a> From<&'a pb::RangeResponse> for Range<'a> {
    fn from(response: &'a pb::RangeResponse) -> Range<'a> {
        Range {
            header: header(&response.header),
            kvs: response.kvs().iter().map(Kv::from).collect(),
            more: response.more,
            count: response.count,
        }
    }
}

/// As [`Range`], with two more fields in each key-value.
#[derive(Serialize)]
struct TimedKvs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kvs: Vec<TimedKv<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    more: bool,
    #[serde(skip_serializing_if = "is_zero")]
    count: i64,
}

#[derive(Serialize)]
struct TimedKv<'a> {
    #[serde(flatten)]
    kv: Kv<'a>,
    create_time: String,
    mod_time: String,
}

impl<'a> From<&'a TimedRange> for TimedKvs<'a> {
    fn from(timed: &'a TimedRange) -> TimedKvs<'a> {
        let timed_kv = |(kv, time): (&'a mvcc::KeyValue, &KeyTime)| TimedKv {
            kv: Kv::from(kv),
            create_time: time_text::rfc3339(time.created_ms),
            mod_time: time_text::rfc3339(time.modified_ms),
        };
        TimedKvs {
            header: header(&timed.response.header),
            kvs: timed.rows().map(timed_kv).collect(),
            more: timed.response.more,
            count: timed.response.count,
        }
    }
}

#[derive(Serialize)]
struct Put<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_kv: Option<Kv<'a>>,
}

impl<'a> From<&'a pb::PutResponse> for Put<'a> {
    fn from(response: &'a pb::PutResponse) -> Put<'a> {
        Put { header: header(&response.header), prev_kv: response.prev_kv.as_ref().map(Kv::from) }
    }
}

#[derive(Serialize)]
struct Del<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "is_zero")]
    deleted: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prev_kvs: Vec<Kv<'a>>,
}

impl<'a> From<&'a pb::DeleteRangeResponse> for Del<'a> {
    fn from(response: &'a pb::DeleteRangeResponse) -> Del<'a> {
        Del {
            header: header(&response.header),
            deleted: response.deleted,
            prev_kvs: response.prev_kvs.iter().map(Kv::from).collect(),
        }
    }
}

#[derive(Serialize)]
struct Txn<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "is_zero")]
    succeeded: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    responses: Vec<Operation<'a>>,
}

#[derive(Serialize)]
struct Operation<'a> {
    #[serde(rename = "Response")]
    response: Option<OneOf<'a>>,
}

#[derive(Serialize)]
enum OneOf<'a> {
    #[serde(rename = "response_range")]
    Range(Range<'a>),
    #[serde(rename = "response_put")]
    Put(Put<'a>),
    #[serde(rename = "response_delete_range")]
    Del(Del<'a>),
    #[serde(rename = "response_txn")]
    Txn(Txn<'a>),
}

impl<'a> From<&'a pb::TxnResponse> for Txn<'a> {
    fn from(response: &'a pb::TxnResponse) -> Txn<'a> {
        let operation = |operation: &'a pb::ResponseOp| Operation {
            response: operation.response.as_ref().map(|response| match response {
                Response::ResponseRange(response) => OneOf::Range(response.into()),
                Response::ResponsePut(response) => OneOf::Put(response.into()),
                Response::ResponseDeleteRange(response) => OneOf::Del(response.into()),
                Response::ResponseTxn(response) => OneOf::Txn(response.into()),
            }),
        };
        Txn {
            header: header(&response.header),
            succeeded: response.succeeded,
            responses: response.responses.iter().map(operation).collect(),
        }
    }
}

#[derive(Serialize)]
struct Members<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Member<'a>>,
}

#[derive(Serialize)]
struct Member<'a> {
    #[serde(rename = "ID", skip_serializing_if = "is_zero")]
    id: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(rename = "peerURLs", skip_serializing_if = "<[String]>::is_empty")]
    peer_urls: &'a [String],
    #[serde(rename = "clientURLs", skip_serializing_if = "<[String]>::is_empty")]
    client_urls: &'a [String],
    #[serde(rename = "isLearner", skip_serializing_if = "is_zero")]
    is_learner: bool,
}

#[derive(Serialize)]
struct Added<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    member: Member<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Member<'a>>,
}

impl<'a> From<&'a pb::Member> for Member<'a> {
    fn from(member: &'a pb::Member) -> Member<'a> {
        Member {
            id: member.id,
            name: &member.name,
            peer_urls: &member.peer_ur_ls,
            client_urls: &member.client_ur_ls,
            is_learner: member.is_learner,
        }
    }
}

impl<'a> From<&'a pb::MemberListResponse> for Members<'a> {
    fn from(response: &'a pb::MemberListResponse) -> Members<'a> {
        let members = response.members.iter().map(Member::from).collect();
        Members { header: header(&response.header), members }
    }
}

/// With `--hex`, `etcdctl` writes this one answer by hand, and its spelling differs: `clientURLS`,
/// ids as hexadecimal text, the term even if zero, and no revision.
fn members_in_hex(response: &pb::MemberListResponse) -> String {
    #[derive(Serialize)]
    struct Row<'a> {
        #[serde(rename = "ID")]
        id: String,
        name: &'a str,
        #[serde(rename = "peerURLs")]
        peer_urls: &'a [String],
        #[serde(rename = "clientURLS")]
        client_urls: &'a [String],
    }
    let none = pb::ResponseHeader::default();
    let header = response.header.as_ref().unwrap_or(&none);
    let rows: Vec<Row<'_>> = response
        .members
        .iter()
        .map(|member| Row {
            id: format!("{:x}", member.id),
            name: &member.name,
            peer_urls: &member.peer_ur_ls,
            client_urls: &member.client_ur_ls,
        })
        .collect();
    format!(
        "{{\"header\":{{\"cluster_id\":\"{:x}\",\"member_id\":\"{:x}\",\"raft_term\":{}}},\"members\":{}}}",
        header.cluster_id,
        header.member_id,
        header.raft_term,
        text(&rows)
    )
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct StatusRow<'a> {
    endpoint: &'a str,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    db_size: i64,
    #[serde(skip_serializing_if = "is_zero")]
    leader: u64,
    #[serde(skip_serializing_if = "is_zero")]
    raft_index: u64,
    #[serde(skip_serializing_if = "is_zero")]
    raft_term: u64,
    #[serde(skip_serializing_if = "is_zero")]
    raft_applied_index: u64,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    errors: &'a [String],
    #[serde(skip_serializing_if = "is_zero")]
    db_size_in_use: i64,
    #[serde(skip_serializing_if = "is_zero")]
    is_learner: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    storage_version: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    db_size_quota: i64,
}

impl<'a> From<&'a (String, pb::StatusResponse)> for StatusRow<'a> {
    fn from((endpoint, status): &'a (String, pb::StatusResponse)) -> StatusRow<'a> {
        let status = Status {
            header: header(&status.header),
            version: &status.version,
            db_size: status.db_size,
            leader: status.leader,
            raft_index: status.raft_index,
            raft_term: status.raft_term,
            raft_applied_index: status.raft_applied_index,
            errors: &status.errors,
            db_size_in_use: status.db_size_in_use,
            is_learner: status.is_learner,
            storage_version: &status.storage_version,
            db_size_quota: status.db_size_quota,
        };
        StatusRow { endpoint, status }
    }
}

#[derive(Serialize)]
struct HashRow<'a> {
    #[serde(rename = "Endpoint")]
    endpoint: &'a str,
    #[serde(rename = "HashKV")]
    hash_kv: HashKv,
}

#[derive(Serialize)]
struct HashKv {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "is_zero")]
    hash: u32,
    #[serde(skip_serializing_if = "is_zero")]
    compact_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    hash_revision: i64,
}

impl<'a> From<&'a (String, pb::HashKvResponse)> for HashRow<'a> {
    fn from((endpoint, hash): &'a (String, pb::HashKvResponse)) -> HashRow<'a> {
        let hash_kv = HashKv {
            header: header(&hash.header),
            hash: hash.hash,
            compact_revision: hash.compact_revision,
            hash_revision: hash.hash_revision,
        };
        HashRow { endpoint, hash_kv }
    }
}

#[derive(Serialize)]
struct Health<'a> {
    endpoint: &'a str,
    health: bool,
    took: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

impl<'a> From<&'a EndpointHealth> for Health<'a> {
    fn from(health: &'a EndpointHealth) -> Health<'a> {
        Health {
            endpoint: &health.endpoint,
            health: health.error.is_empty(),
            took: go_duration::format(health.took),
            error: &health.error,
        }
    }
}
