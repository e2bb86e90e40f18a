//! Calls to peers, for openraft.
//!
//! Always true: every call ends. Unary calls and heartbeats have openraft's deadline; an append stream
//! whose oldest unanswered request is older than `ANSWER_TIMEOUT` is broken off as unreachable, since
//! such a stream has no deadline of its own and a black hole would wedge replication.

use super::heartbeats::Heartbeats;
use super::link::{Link, Links, Purpose};
use super::wire;
use crate::snapshot::StateSnapshot;
use crate::snapshot::transfer;
use crate::type_config::{PeerNode, TypeConfig, Vote};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer as pb;
use meerkat_types::MemberId;
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use prost::Message;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::{Code, Request, Response, Status};

/// Longest wait for the answer to an append: a follower syncs its disk before it answers, and a
/// disk that takes longer than this is as good as gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often that wait is looked at.
const ANSWER_CHECK: Duration = Duration::from_secs(1);
/// A peer that has not answered for so many intervals is late, which is logged.
const LATE_HEARTBEATS: u32 = 5;
/// Sending and installing a whole state.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(600);
const SNAPSHOT_PAUSES_MS: [u64; 3] = [250, 500, 1_000];
const SNAPSHOT_PAUSE_MAX_MS: u64 = 2_000;

type RpcError = RPCError<TypeConfig>;
type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>;

pub(crate) struct PeerNetworkFactory {
    pub(crate) links: Arc<Links>,
    /// An answer counts for a heartbeat that was sent at most so long after its own.
    pub(crate) older_answers: Duration,
}

impl RaftNetworkFactory<TypeConfig> for PeerNetworkFactory {
    type Network = PeerNetwork;

    async fn new_client(&mut self, target: MemberId, node: &PeerNode) -> PeerNetwork {
        self.network(target, node, Purpose::Append)
    }

    async fn new_heartbeat_client(&mut self, target: MemberId, node: &PeerNode) -> PeerNetwork {
        self.network(target, node, Purpose::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: MemberId, node: &PeerNode) -> PeerNetwork {
        self.network(target, node, Purpose::Snapshot)
    }
}

impl PeerNetworkFactory {
    fn network(&self, target: MemberId, node: &PeerNode, purpose: Purpose) -> PeerNetwork {
        PeerNetwork {
            links: self.links.clone(),
            older_answers: self.older_answers,
            target,
            node: node.clone(),
            purpose,
            heartbeats: None,
        }
    }
}

/// One way of reaching one peer.
pub(crate) struct PeerNetwork {
    links: Arc<Links>,
    older_answers: Duration,
    target: MemberId,
    node: PeerNode,
    purpose: Purpose,
    /// Kept open between heartbeats, which are too many and too small for a call each.
    heartbeats: Option<Heartbeats>,
}

impl PeerNetwork {
    fn link(&self, purpose: Purpose) -> Result<Link, RpcError> {
        self.links.to(self.target, &self.node, purpose).map_err(|error| Unreachable::new(&error).into())
    }

    fn failed(&self, status: &Status) -> RpcError {
        // Late is not unreachable.
        if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) {
            return Unreachable::new(status).into();
        }
        let refused = matches!(status.code(), Code::FailedPrecondition | Code::PermissionDenied);
        self.links.heed(status);
        self.links.missed(self.target, &self.node, refused, status.message());
        Unreachable::new(status).into()
    }

    fn late(&self, what: &str) -> RpcError {
        self.links.missed(self.target, &self.node, false, what);
        Unreachable::from_string(what).into()
    }

    /// One heartbeat on the stream kept for them. If this future is dropped half-way, the stream stays.
    async fn heartbeat(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        interval: Duration,
    ) -> Result<StreamAppendResult<TypeConfig>, RpcError> {
        let kept = match self.heartbeats.take() {
            Some(kept) => kept,
            None => self.open_heartbeats()?,
        };
        let heartbeats = self.heartbeats.insert(kept);
        if interval * LATE_HEARTBEATS <= heartbeats.overdue() {
            self.links.late(self.target, &self.node, heartbeats.overdue());
            self.links.traffic(self.target).failed();
        }
        let message = wire::append_to_wire(request);
        let traffic = self.links.traffic(self.target);
        traffic.sent(message.encoded_len());
        let (answer, took) = match heartbeats.exchange(message, self.older_answers).await {
            Ok(answered) => answered,
            Err(status) => {
                self.heartbeats = None;
                return Err(self.failed(&status));
            }
        };
        traffic.round_trip.observe(took);
        self.links.reached(self.target);
        wire::append_result_from_wire(answer).map_err(|missing| Unreachable::new(&missing).into())
    }

    fn open_heartbeats(&self) -> Result<Heartbeats, RpcError> {
        let mut link = self.link(Purpose::Heartbeat)?;
        Ok(Heartbeats::open(|requests| {
            let call = async move { link.heartbeats(Request::new(requests)).await.map(Response::into_inner) };
            futures::stream::once(call).try_flatten().boxed()
        }))
    }

    async fn ask_for_vote<A>(
        &self,
        rpc: &VoteRequest<TypeConfig>,
        option: &RPCOption,
        ask: A,
    ) -> Result<VoteResponse<TypeConfig>, RpcError>
    where
        A: AsyncFnOnce(Link, Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status>,
    {
        let call = with_deadline(wire::vote_request_to_wire(rpc), option.soft_ttl());
        let answer =
            ask(self.link(Purpose::Heartbeat)?, call).await.map_err(|status| self.failed(&status))?;
        wire::vote_response_from_wire(answer.into_inner())
            .map_err(|missing| Unreachable::new(&missing).into())
    }

    async fn open_append_stream<S>(&self, input: S) -> Result<AppendResults<'static>, RpcError>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let unanswered = Unanswered::default();
        let (sent, traffic) = (unanswered.clone(), self.links.traffic(self.target));
        let outgoing = input.map(move |request| {
            sent.lock().push_back(Instant::now());
            let message = wire::append_to_wire(request);
            traffic.sent(message.encoded_len());
            message
        });
        let mut link = self.link(Purpose::Append)?;
        let answers = link.append(Request::new(outgoing));
        let answers = tokio::time::timeout(ANSWER_TIMEOUT, answers)
            .await
            .map_err(|_| self.late("the append stream did not open in time"))?
            .map_err(|status| self.failed(&status))?;
        self.links.reached(self.target);
        Ok(watched(answers.into_inner(), unanswered))
    }
}

/// When each request that has no answer yet was sent, oldest first.
type Unanswered = Arc<Mutex<VecDeque<Instant>>>;

/// The answers of an append stream, with the deadline that the stream itself lacks.
fn watched(answers: tonic::Streaming<pb::AppendResponse>, unanswered: Unanswered) -> AppendResults<'static> {
    futures::stream::unfold(Some((answers, unanswered)), |state| async move {
        let (mut answers, unanswered) = state?;
        loop {
            let stop = |error: RpcError| Some((Err(error), None));
            match tokio::time::timeout(ANSWER_CHECK, answers.message()).await {
                Err(_) => {
                    let oldest = unanswered.lock().front().copied();
                    if oldest.is_some_and(|sent| ANSWER_TIMEOUT <= sent.elapsed()) {
                        return stop(Unreachable::from_string("no answer to an append in time").into());
                    }
                }
                Ok(Err(status)) => return stop(Unreachable::new(&status).into()),
                Ok(Ok(None)) => return None,
                Ok(Ok(Some(answer))) => {
                    unanswered.lock().pop_front();
                    return match wire::append_result_from_wire(answer) {
                        Ok(result) => Some((Ok(result), Some((answers, unanswered)))),
                        Err(missing) => stop(Unreachable::new(&missing).into()),
                    };
                }
            }
        }
    })
    .boxed()
}

fn with_deadline<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

impl RaftNetworkV2<TypeConfig> for PeerNetwork {
    type SnapshotData = StateSnapshot;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let interval = option.hard_ttl();
        let result = tokio::time::timeout(interval, self.heartbeat(rpc, interval)).await;
        let result = result.map_err(|_| RpcError::from(Unreachable::from_string("no answer in time")))?;
        Ok(AppendEntriesResponse::from(result?))
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> futures::future::BoxFuture<'s, Result<AppendResults<'s>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            match self.purpose {
                Purpose::Heartbeat => {
                    // openraft gives a heartbeat up after one interval.
                    let interval = option.hard_ttl();
                    let beats =
                        futures::stream::unfold((self, input), move |(network, mut input)| async move {
                            let request = input.next().await?;
                            let result = network.heartbeat(request, interval).await;
                            Some((result, (network, input)))
                        });
                    Ok(beats.boxed())
                }
                Purpose::Append | Purpose::Snapshot | Purpose::Forward => {
                    let mut input = input.peekable();
                    // openraft backs off from a dead peer while it makes a request, so connecting
                    // before there is one would be a loop without a pause.
                    if Pin::new(&mut input).peek().await.is_none() {
                        return Ok(futures::stream::empty().boxed());
                    }
                    self.open_append_stream(input).await
                }
            }
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask_for_vote(&rpc, &option, async |mut link: Link, call| link.vote(call).await).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.ask_for_vote(&rpc, &option, async |mut link: Link, call| link.pre_vote(call).await).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, StateSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let mut link = self.link(Purpose::Snapshot)?;
        let sent = snapshot.snapshot.delivery();
        let chunks = transfer::chunks(&vote, snapshot)
            .map_err(|error| StreamingError::from(Unreachable::<TypeConfig>::new(&error)))?;
        let call = tokio::time::timeout(SNAPSHOT_TIMEOUT, link.install_snapshot(Request::new(chunks)));
        let answer = tokio::select! {
            closed = cancel => return Err(closed.into()),
            answer = call => answer,
        };
        let answer = answer
            .map_err(|_| StreamingError::from(Unreachable::from_string("the peer took too long to install")))?
            .map_err(|status| StreamingError::from(self.failed(&status)))?;
        let vote = wire::vote_from_wire(answer.into_inner().ballot)
            .map_err(|missing| StreamingError::from(Unreachable::new(&missing)))?;
        sent.succeeded();
        Ok(SnapshotResponse::new(vote))
    }

    /// Each try to send a snapshot begins with making one, so a dead peer is tried less often.
    fn backoff(&self) -> Option<Backoff> {
        match self.purpose {
            Purpose::Snapshot => {
                let pauses = SNAPSHOT_PAUSES_MS.iter().chain(std::iter::repeat(&SNAPSHOT_PAUSE_MAX_MS));
                Some(Backoff::new(pauses.map(|ms| Duration::from_millis(*ms))))
            }
            Purpose::Append | Purpose::Heartbeat | Purpose::Forward => None,
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        use pb::transfer_leader_response::Refusal;
        let call = with_deadline(wire::transfer_to_wire(&req), option.soft_ttl());
        let answer = self.link(Purpose::Heartbeat)?.transfer_leader(call).await;
        let answer = answer.map_err(|status| self.failed(&status))?.into_inner();
        let missing = |missing: wire::Missing| RpcError::from(Unreachable::new(&missing));
        Ok(match answer.refusal {
            None => Ok(()),
            Some(Refusal::VoteChanged(changed)) => Err(TransferLeaderError::VoteChanged {
                expected: wire::vote_from_wire(changed.expected).map_err(missing)?,
                actual: wire::vote_from_wire(changed.actual).map_err(missing)?,
            }),
            Some(Refusal::LogNotFlushed(behind)) => Err(TransferLeaderError::LogNotFlushed {
                expected: wire::optional_log_id_from_wire(behind.expected).map_err(missing)?,
                actual: wire::optional_log_id_from_wire(behind.actual).map_err(missing)?,
            }),
        })
    }
}
