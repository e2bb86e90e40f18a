//! One request of the KV service and one answer to it, whatever their kind.

use std::time::Duration;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse, request_op,
};
use tonic::{Code, Status};

use crate::endpoint::Endpoint;

const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Range.
    Range(RangeRequest),
    /// Put.
    Put(PutRequest),
    /// DeleteRange.
    Delete(DeleteRangeRequest),
    /// Txn.
    Txn(TxnRequest),
    /// Compact.
    Compact(CompactionRequest),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a Range.
    Range(RangeResponse),
    /// To a Put.
    Put(PutResponse),
    /// To a DeleteRange.
    Delete(DeleteRangeResponse),
    /// To a Txn.
    Txn(TxnResponse),
    /// To a Compact.
    Compact(CompactionResponse),
    /// A refusal.
    Refused(Code, String),
}

impl Request {
    /// Sends it to one member.
    pub async fn send(&self, endpoint: &Endpoint) -> Answer {
        let answer = match self.clone() {
            Self::Range(request) => endpoint.range(request, ANSWER_WITHIN).await.map(Answer::Range),
            Self::Put(request) => endpoint.put(request, ANSWER_WITHIN).await.map(Answer::Put),
            Self::Delete(request) => endpoint.delete(request, ANSWER_WITHIN).await.map(Answer::Delete),
            Self::Txn(request) => endpoint.txn(request, ANSWER_WITHIN).await.map(Answer::Txn),
            Self::Compact(request) => endpoint.compact(request, ANSWER_WITHIN).await.map(Answer::Compact),
        };
        answer.unwrap_or_else(|status: Status| Answer::Refused(status.code(), status.message().to_owned()))
    }

    /// Whether a member may answer it from what it has, so that a follower may be behind. Such a
    /// request is preceded by a linearizable read of the same member, which brings it level.
    pub fn may_be_answered_locally(&self) -> bool {
        match self {
            Self::Range(range) => range.serializable,
            Self::Txn(txn) => txn.success.iter().chain(&txn.failure).all(is_serializable_range),
            Self::Put(_) | Self::Delete(_) | Self::Compact(_) => false,
        }
    }
}

fn is_serializable_range(op: &RequestOp) -> bool {
    matches!(&op.request, Some(request_op::Request::RequestRange(range)) if range.serializable)
}

impl Answer {
    /// The header, if it has one.
    pub fn header(&self) -> Option<&ResponseHeader> {
        match self {
            Self::Range(answer) => answer.header.as_ref(),
            Self::Put(answer) => answer.header.as_ref(),
            Self::Delete(answer) => answer.header.as_ref(),
            Self::Txn(answer) => answer.header.as_ref(),
            Self::Compact(answer) => answer.header.as_ref(),
            Self::Refused(..) => None,
        }
    }

    fn header_mut(&mut self) -> Option<&mut ResponseHeader> {
        match self {
            Self::Range(answer) => answer.header.as_mut(),
            Self::Put(answer) => answer.header.as_mut(),
            Self::Delete(answer) => answer.header.as_mut(),
            Self::Txn(answer) => answer.header.as_mut(),
            Self::Compact(answer) => answer.header.as_mut(),
            Self::Refused(..) => None,
        }
    }

    /// Without what differs between clusters by nature: ids and the term of its own header. The
    /// headers inside a transaction's answer carry none of them, and are left as they are.
    #[must_use]
    pub fn without_identity(mut self) -> Self {
        if let Some(header) = self.header_mut() {
            header.cluster_id = 0;
            header.member_id = 0;
            header.raft_term = 0;
        }
        self
    }
}

/// A put inside a transaction.
pub fn put_op(put: PutRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestPut(put)) }
}

/// A deletion inside a transaction.
pub fn delete_op(delete: DeleteRangeRequest) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestDeleteRange(delete)) }
}

/// A read of all there is.
pub fn everything() -> RangeRequest {
    RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..Default::default()
    }
}
