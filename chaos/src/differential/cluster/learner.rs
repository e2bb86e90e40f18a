//! What a client may ask a learner that is not about membership.
//!
//! Only whether it is answered, and how it is refused, is compared: what the answers hold is judged
//! by the other comparisons.

use std::time::Duration;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, WatchCreateRequest, WatchRequest, request_op,
};
use tonic::Status;

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::{lease, watch};

const KEY: Bytes = Bytes::from_static(b"at-learner");

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A serializable read.
    SerializableRange,
    /// A linearizable read.
    LinearizableRange,
    /// A write.
    Put,
    /// A deletion.
    Delete,
    /// A transaction that only reads, serializably.
    ReadOnlyTxn,
    /// A compaction.
    Compact,
    /// A lease.
    Grant,
    /// How long a lease lives.
    TimeToLive,
    /// Which leases there are.
    Leases,
    /// A renewal.
    KeepAlive,
    /// A watch.
    Watch,
    /// The hash of the store.
    HashKv,
}

impl Errand {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::SerializableRange,
        Self::LinearizableRange,
        Self::Put,
        Self::Delete,
        Self::ReadOnlyTxn,
        Self::Compact,
        Self::Grant,
        Self::TimeToLive,
        Self::Leases,
        Self::KeepAlive,
        Self::Watch,
        Self::HashKv,
    ];

    /// Sends it; whether it was answered, or why not.
    pub async fn send(self, to: &Endpoint, within: Duration) -> Result<(), Status> {
        let range = |serializable| RangeRequest { key: KEY, serializable, ..Default::default() };
        match self {
            Self::SerializableRange => to.range(range(true), within).await.map(drop),
            Self::LinearizableRange => to.range(range(false), within).await.map(drop),
            Self::Put => to.put(PutRequest { key: KEY, ..Default::default() }, within).await.map(drop),
            Self::Delete => {
                to.delete(DeleteRangeRequest { key: KEY, ..Default::default() }, within).await.map(drop)
            }
            Self::ReadOnlyTxn => {
                let read = RequestOp { request: Some(request_op::Request::RequestRange(range(true))) };
                to.txn(TxnRequest { success: vec![read], ..Default::default() }, within).await.map(drop)
            }
            Self::Compact => {
                to.compact(CompactionRequest { revision: 1, ..Default::default() }, within).await.map(drop)
            }
            Self::Grant => to.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 }, within).await.map(drop),
            Self::TimeToLive => to.lease_time_to_live(7, false, within).await.map(drop),
            Self::Leases => to.lease_leases(within).await.map(drop),
            Self::KeepAlive => renewed(to, within).await,
            Self::Watch => watched(to, within).await.unwrap_or_else(|failure| {
                Err(Status::internal(format!("the harness could not watch: {failure}")))
            }),
            Self::HashKv => to.hash_kv(0, within).await.map(drop),
        }
    }
}

async fn renewed(to: &Endpoint, within: Duration) -> Result<(), Status> {
    let mut stream = to.keep_alive();
    stream.send(7).await;
    match stream.next(within).await {
        lease::stream::Next::Ended(Some(status)) => Err(status),
        lease::stream::Next::Nothing => Err(Status::deadline_exceeded("nothing on the stream")),
        lease::stream::Next::Answer(_) | lease::stream::Next::Ended(None) => Ok(()),
    }
}

async fn watched(to: &Endpoint, within: Duration) -> Result<Result<(), Status>, Failure> {
    let mut stream = to.watch(&[])?;
    let create = WatchCreateRequest { key: KEY, ..Default::default() };
    stream.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await;
    Ok(match stream.next(within).await {
        watch::stream::Next::Ended(Some(status)) => Err(status),
        watch::stream::Next::Nothing => Err(Status::deadline_exceeded("nothing on the stream")),
        watch::stream::Next::Response(_) | watch::stream::Next::Ended(None) => Ok(()),
    })
}
