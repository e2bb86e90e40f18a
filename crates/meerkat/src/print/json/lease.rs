//! Answers about leases, as JSON: the shapes of etcd's Go client, whose header lies flat among the
//! other fields, but for a revoke.

use meerkat_proto::pb::etcdserver as pb;
use serde::Serialize;

use super::super::LeaseAnswer;
use super::{Header, base64, header, text};

pub(super) fn text_of(answer: &LeaseAnswer) -> String {
    match answer {
        LeaseAnswer::Granted(response) => text(&Granted {
            header: flat(&response.header),
            id: response.id,
            ttl: response.ttl,
            error: &response.error,
        }),
        LeaseAnswer::Revoked { response, .. } => text(&Revoked { header: header(&response.header) }),
        LeaseAnswer::TimeToLive { response, .. } => text(&TimeToLive {
            header: flat(&response.header),
            id: response.id,
            ttl: response.ttl,
            granted_ttl: response.granted_ttl,
            keys: keys(response),
        }),
        LeaseAnswer::Leases(response) => text(&Leases {
            header: flat(&response.header),
            leases: response.leases.iter().map(|lease| Lease { id: lease.id }).collect(),
        }),
        LeaseAnswer::KeptAlive(response) => {
            text(&KeptAlive { header: flat(&response.header), id: response.id, ttl: response.ttl })
        }
    }
}

fn flat(of: &Option<pb::ResponseHeader>) -> Header {
    header(of).unwrap_or(Header::NONE)
}

/// No list at all if there is no key.
fn keys(response: &pb::LeaseTimeToLiveResponse) -> Option<Vec<Key<'_>>> {
    let keys = response.keys.iter().map(|key| Key(key));
    (!response.keys.is_empty()).then(|| keys.collect())
}

#[derive(Serialize)]
struct Key<'a>(#[serde(serialize_with = "base64")] &'a [u8]);

#[derive(Serialize)]
struct Granted<'a> {
    #[serde(flatten)]
    header: Header,
    #[serde(rename = "ID")]
    id: i64,
    #[serde(rename = "TTL")]
    ttl: i64,
    #[serde(rename = "Error")]
    error: &'a str,
}

#[derive(Serialize)]
struct Revoked {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
}

#[derive(Serialize)]
struct TimeToLive<'a> {
    #[serde(flatten)]
    header: Header,
    id: i64,
    ttl: i64,
    #[serde(rename = "granted-ttl")]
    granted_ttl: i64,
    keys: Option<Vec<Key<'a>>>,
}

#[derive(Serialize)]
struct Leases {
    #[serde(flatten)]
    header: Header,
    leases: Vec<Lease>,
}

#[derive(Serialize)]
struct Lease {
    id: i64,
}

#[derive(Serialize)]
struct KeptAlive {
    #[serde(flatten)]
    header: Header,
    #[serde(rename = "ID")]
    id: i64,
    #[serde(rename = "TTL")]
    ttl: i64,
}
