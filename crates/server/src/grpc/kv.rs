//! The KV service: convert, have the member propose or read, answer.

use super::header::Headers;
use super::range_stream;
use super::status;
use crate::auth::Caller;
use crate::config::Config;
use crate::member::{By, LONG_READS_MAX, Member};
use crate::slow::Slow;
use crate::spans::stage;
use futures::stream::BoxStream;
use meerkat_proto::convert;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::kv_server::Kv;
use meerkat_raft::RaftNode;
use meerkat_state::{Need, ReadError, StateReader, needs_of_txn};
use meerkat_types::{Access, Consistency, DeleteRange, KeyRange, Put, RangeAnswer, RangeQuery, TxnOp};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

/// A page this short is read where the request is served; a longer one goes to a thread that may
/// block.
const INLINE_KEYS_MAX: usize = 64;

#[derive(Clone)]
pub(crate) struct KvService {
    member: Member,
    raft: Arc<RaftNode>,
    headers: Headers,
    long_reads: Arc<Semaphore>,
    slow_reads: Arc<Slow>,
    max_txn_ops: usize,
    max_request_bytes: usize,
}

impl KvService {
    pub(crate) fn new(member: Member, headers: Headers, config: &Config) -> KvService {
        KvService {
            raft: member.raft.clone(),
            member,
            headers,
            long_reads: Arc::new(Semaphore::new(LONG_READS_MAX)),
            slow_reads: Arc::new(Slow::new(config.warning_apply_duration)),
            max_txn_ops: config.max_txn_ops,
            max_request_bytes: config.max_request_bytes,
        }
    }

    async fn become_fresh(&self, consistency: Consistency) -> Result<(), Status> {
        match consistency {
            // Lets the requests that arrived with this one be read before any is answered, so that
            // their answers leave in one write to the socket instead of one each.
            Consistency::Serializable => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Consistency::Linearizable if self.raft.leadership().is_learner() => {
                Err(status::etcd(meerkat_proto::error_text::EtcdError::NotSupportedForLearner))
            }
            Consistency::Linearizable => {
                let ready = stage("raft.read_index", self.raft.reads().ready_to_read());
                ready.await.map_err(status::read_index)
            }
        }
    }

    async fn read(&self, caller: Caller, query: RangeQuery) -> Result<RangeAnswer, Status> {
        let short = is_short(&query);
        // Judged by the point that is read.
        let read = move |reader: &StateReader| {
            let pinned = reader.pin();
            caller.may(&pinned, [Need::Keys(Access::Read, &query.keys)])?;
            pinned.range(&query)
        };
        if short {
            return read(self.raft.reader()).map_err(|error| status::read(&error));
        }
        self.read_long(read).await
    }

    async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StateReader) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Status> {
        // Never closed, so waiting cannot fail.
        let _turn = self.long_reads.acquire().await;
        let reader = self.raft.reader().clone();
        let read = meerkat_raft::threads::spawn_blocking(move || read(&reader));
        read.await.map_err(|error| status::worker_lost(&error))?.map_err(|error| status::read(&error))
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
            self.raft.state_times().count_slow();
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

fn is_short(query: &RangeQuery) -> bool {
    let few =
        matches!(query.keys, KeyRange::One(_)) || query.limit.is_some_and(|limit| limit <= INLINE_KEYS_MAX);
    few && query.at.is_none() && query.bounds.is_unbounded() && query.sort == meerkat_types::Sort::BY_KEY
}

/// A read-only transaction is as fresh as its freshest part; an empty one reads nothing.
fn txn_consistency(txn: &meerkat_types::Txn) -> Consistency {
    let linearizable = txn
        .operations()
        .any(|op| matches!(op, TxnOp::Range(query) if query.consistency == Consistency::Linearizable));
    if linearizable { Consistency::Linearizable } else { Consistency::Serializable }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        meerkat_fault::poisoned("poisoned_request", &request.get_ref().key);
        let caller = Caller::of(&request);
        let began = Instant::now();
        let query = RangeQuery::try_from(request.into_inner()).map_err(status::bad_request)?;
        let keys = query.keys.clone();
        let read = async {
            self.become_fresh(query.consistency).await?;
            self.read(caller, query).await
        };
        let answer = read.await;
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
            let read = async {
                self.become_fresh(txn_consistency(&txn)).await?;
                let read = self.read_long(move |reader| {
                    let pinned = reader.pin();
                    caller.may(&pinned, needs_of_txn(&txn))?;
                    pinned.read_txn(&txn)
                });
                read.await
            };
            let done = read.await;
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
        if physical && !self.raft.compaction().finished(compact.revision).await {
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
        self.become_fresh(query.consistency).await?;
        let pinned = self.raft.reader().pin();
        caller
            .may(&pinned, [Need::Keys(Access::Read, &query.keys)])
            .map_err(|refusal| status::refused(&refusal))?;
        let header = self.headers.at(pinned.current_revision());
        range_stream::chunks(&pinned, &query, header, self.max_request_bytes).map(Response::new)
    }
}
