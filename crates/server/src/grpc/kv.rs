//! The KV service: convert, have the member propose or read, answer.

use super::header::Headers;
use super::range_stream;
use super::status;
use crate::auth::Caller;
use crate::config::Config;
use crate::member::{By, Member};
use crate::slow::Slow;
use futures::stream::BoxStream;
use meerkat_proto::convert;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::kv_server::Kv;
use meerkat_state::Need;
use meerkat_types::{Access, DeleteRange, KeyRange, Put, RangeQuery};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct KvService {
    member: Member,
    headers: Headers,
    slow_reads: Arc<Slow>,
    max_txn_ops: usize,
}

impl KvService {
    pub(crate) fn new(member: Member, headers: Headers, config: &Config) -> KvService {
        KvService {
            member,
            headers,
            slow_reads: Arc::new(Slow::new(config.warning_apply_duration)),
            max_txn_ops: config.max_txn_ops,
        }
    }

    /// Logs and counts a read that took longer than it should, whatever became of it.
    fn judge_pace(
        &self,
        began: Instant,
        prefix: &'static str,
        request: impl FnOnce() -> String,
        error: Option<&Status>,
    ) {
        if self.slow_reads.read(began.elapsed(), prefix, request, error.map(|status| status.message())) {
            self.member.raft.state_times().count_slow();
        }
    }
}

/// A range as etcd's log has it.
fn in_etcds_words(keys: &KeyRange) -> String {
    let (first, end) = (keys.first().as_bytes().escape_ascii(), keys.range_end());
    match end.is_empty() {
        true => format!("key:\"{first}\" "),
        false => format!("key:\"{first}\" range_end:\"{}\" ", end.escape_ascii()),
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        meerkat_fault::poisoned("poisoned_request", &request.get_ref().key);
        let caller = Caller::of(&request);
        let began = Instant::now();
        let query = RangeQuery::try_from(request.into_inner()).map_err(status::bad_request)?;
        let keys = query.keys.clone();
        let answer: Result<_, Status> = self.member.range(caller, query).await.map_err(Into::into);
        self.judge_pace(began, "read-only range ", || in_etcds_words(&keys), answer.as_ref().err());
        let answer = answer?;
        Ok(Response::new(convert::answer::range(self.headers.at(answer.revision), answer)))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let caller = Caller::of(&request);
        let wire = request.into_inner();
        let bytes = wire.encoded_len();
        let put = Put::try_from(wire).map_err(status::bad_request)?;
        self.member.check_size(bytes)?;
        let done = self.member.put(By::Client(&caller), put).await?;
        Ok(Response::new(convert::answer::put(self.headers.at(done.revision), done)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let caller = Caller::of(&request);
        let wire = request.into_inner();
        let bytes = wire.encoded_len();
        let delete = DeleteRange::try_from(wire).map_err(status::bad_request)?;
        self.member.check_size(bytes)?;
        let done = self.member.delete_range(By::Client(&caller), delete).await?;
        Ok(Response::new(convert::answer::delete_range(self.headers.at(done.revision), done)))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let caller = Caller::of(&request);
        let wire = request.into_inner();
        let bytes = wire.encoded_len();
        let txn = convert::txn::txn(wire, self.max_txn_ops).map_err(status::bad_request)?;
        let done = if txn.is_read_only() {
            let (began, operations) = (Instant::now(), txn.operations().count());
            let done: Result<_, Status> = self.member.read_txn(caller, txn).await.map_err(Into::into);
            let request = || format!("{operations} operations");
            self.judge_pace(began, "read-only txn ", request, done.as_ref().err());
            done?
        } else {
            self.member.check_size(bytes)?;
            self.member.txn(By::Client(&caller), txn).await?
        };
        Ok(Response::new(convert::answer::txn(self.headers.at(done.revision), done)))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let caller = Caller::of(&request);
        let (compact, physical) = convert::kv::compaction(request.into_inner());
        let revision = self.member.compact(By::Client(&caller), compact).await?;
        if physical && !self.member.raft.compaction().finished(compact.revision).await {
            return Err(status::etcd(meerkat_proto::error_text::EtcdError::Stopped));
        }
        Ok(Response::new(pb::CompactionResponse { header: Some(self.headers.at(revision)) }))
    }

    type RangeStreamStream = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let caller = Caller::of(&request);
        let query = convert::kv::range_stream(request.into_inner()).map_err(status::bad_request)?;
        self.member.become_fresh(query.consistency).await?;
        let pinned = self.member.raft.reader().pin();
        caller
            .may(&pinned, [Need::Keys(Access::Read, &query.keys)])
            .map_err(|refusal| status::refused(&refusal))?;
        let header = self.headers.at(pinned.current_revision());
        range_stream::chunks(&pinned, &query, header, self.member.max_request_bytes).map(Response::new)
    }
}
