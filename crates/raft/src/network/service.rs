//! The peer port: what other members may ask of this one.
//!
//! Every call passes the gate before its message is read, but for the question that a newcomer asks
//! before it is anybody: who is in the cluster. Statuses made here are read by peers only; clients
//! never see them.

use super::heartbeats;
use super::link::{Gate, Links, MESSAGE_BYTES_MAX, caller};
use super::wire;
use crate::agreement;
use crate::entry;
use crate::leadership::{Leadership, peers_of};
use crate::lessor::{self, Lessor};
use crate::log_store::{LogStore, codec};
use crate::membership::{self, Changer};
use crate::propose::{Fate, Proposer};
use crate::read_index::{ReadIndexError, ReadIndexer};
use crate::snapshot::state_dir::StateDir;
use crate::snapshot::transfer::Receiving;
use crate::state_machine::{MeerkatRaft, StateHandle, describe};
use crate::threads::spawn_blocking_part;
use crate::type_config::{EncodedProposal, LogId, SnapshotMeta, Vote};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use meerkat_fault as fault;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::peer_server::{Peer, PeerServer};
use meerkat_proto::pb::peer::snapshot_chunk::Part;
use meerkat_types::{ClusterId, MemberId, Revision};
use openraft::Snapshot;
use openraft::raft::TransferLeaderError;
use prost::Message;
use std::io;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct PeerService {
    pub(crate) raft: MeerkatRaft,
    pub(crate) gate: Gate,
    pub(crate) proposer: Proposer,
    pub(crate) reads: ReadIndexer,
    pub(crate) desk: Arc<dyn Lessor>,
    pub(crate) leadership: Leadership,
    pub(crate) state_dir: StateDir,
    pub(crate) changer: Arc<Changer>,
    pub(crate) links: Arc<Links>,
    pub(crate) shared: Arc<StateHandle>,
    pub(crate) log: LogStore,
    pub(crate) cluster: ClusterId,
    /// It was not among the first members.
    pub(crate) joined: bool,
    /// One hash of the whole store at a time.
    pub(crate) hashing: Arc<tokio::sync::Mutex<()>>,
}

/// Why a snapshot was not received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("the snapshot is refused: {0}")]
    Refused(String),
    #[error("the snapshot could not be stored: {0}")]
    Io(#[from] io::Error),
}

impl PeerService {
    pub(crate) fn into_server(self) -> PeerServer<PeerService> {
        PeerServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// A member that joined votes for nobody before a leader has told it of a cluster: on a wiped disk
    /// it would stand for what it has forgotten, and a leader would not have let it in.
    fn has_a_vote_to_give(&self) -> Result<(), Status> {
        if self.joined && self.leadership.nodes().is_empty() {
            return Err(Status::unavailable("this member has joined and heard of no leader yet"));
        }
        Ok(())
    }

    async fn receive(
        &self,
        header: pb::SnapshotHeader,
        mut chunks: Streaming<pb::SnapshotChunk>,
    ) -> Result<
        (
            Vote,
            Snapshot<
                openraft::type_config::alias::CommittedLeaderIdOf<crate::type_config::TypeConfig>,
                MemberId,
                crate::type_config::PeerNode,
                crate::snapshot::StateSnapshot,
            >,
        ),
        ReceiveError,
    > {
        let refused = |reason: String| ReceiveError::Refused(reason);
        let vote = wire::vote_from_wire(header.ballot).map_err(|missing| refused(missing.to_string()))?;
        let last = wire::optional_log_id_from_wire(header.last);
        let last: Option<LogId> = last.map_err(|missing| refused(missing.to_string()))?;
        let last_membership = codec::decode_membership(&header.membership)?;
        let dir = self.state_dir.scratch("incoming");
        tracing::info!(files = header.files.len(), dir = %dir.display(), "receiving a snapshot");
        // Makes the files that are announced empty, however many: off the threads that serve everybody.
        let syncs = self.shared.times.received.clone();
        let begun = spawn_blocking_part("peer port", move || Receiving::begin(dir, header.files, syncs));
        let mut receiving = begun.await.map_err(|error| refused(error.to_string()))??;
        loop {
            let part = match chunks.message().await {
                Ok(Some(chunk)) => chunk.part,
                Ok(None) => break,
                Err(status) => return Err(refused(format!("the sender stopped: {status}"))),
            };
            let Some(Part::File(chunk)) = part else {
                return Err(refused("expected a piece of a file".into()));
            };
            // A few milliseconds of disk per chunk: off the threads that serve everybody.
            let taken = spawn_blocking_part("peer port", move || {
                let result = receiving.take(chunk);
                (receiving, result)
            });
            let (back, result) = taken.await.map_err(|error| refused(error.to_string()))?;
            receiving = back;
            result?;
        }
        let snapshot = spawn_blocking_part("peer port", move || receiving.finish());
        let snapshot = snapshot.await.map_err(|error| refused(error.to_string()))??;
        let meta = SnapshotMeta { last_log_id: last, last_membership };
        Ok((vote, Snapshot { meta, snapshot }))
    }

    async fn install(
        &self,
        mut chunks: Streaming<pb::SnapshotChunk>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        let first = chunks.message().await?.and_then(|chunk| chunk.part);
        let Some(Part::Header(header)) = first else {
            return Err(Status::invalid_argument("a snapshot begins with its header"));
        };
        let announced = wire::optional_log_id_from_wire(header.last).map_err(malformed)?;
        let (vote, snapshot) = self.receive(header, chunks).await.map_err(|error| {
            tracing::warn!(%error, "a snapshot was not received");
            Status::aborted(error.to_string())
        })?;
        // Opens the database that arrived: off the threads that serve everybody.
        let verified = spawn_blocking_part("peer port", move || {
            let result = describe::verify(&snapshot, announced);
            (snapshot, result)
        });
        let (snapshot, result) = verified.await.map_err(stopped)?;
        result.map_err(|error| {
            tracing::error!(%error, "a received snapshot is not what was announced");
            Status::data_loss(error.to_string())
        })?;
        let answer = self.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
        Ok(Response::new(pb::SnapshotResponse { ballot: Some(wire::vote_to_wire(&answer.vote)) }))
    }
}

fn malformed(missing: wire::Missing) -> Status {
    Status::invalid_argument(missing.to_string())
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this member has stopped: {error}"))
}

#[tonic::async_trait]
impl Peer for PeerService {
    type AppendStream = BoxStream<'static, Result<pb::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        self.gate.check(request.metadata())?;
        let traffic = caller(request.metadata()).map(|from| self.links.traffic(from));
        // A broken or malformed input ends the stream; the leader opens another.
        let requests = request.into_inner().filter_map(move |item| {
            if let (Ok(message), Some(traffic)) = (&item, &traffic) {
                traffic.received(message.encoded_len());
            }
            let request = item
                .map_err(|status| status.to_string())
                .and_then(|wire| wire::append_from_wire(wire).map_err(|missing| missing.to_string()));
            std::future::ready(Some(request))
        });
        let leadership = self.leadership.clone();
        let requests = requests.scan((), move |(), item| {
            std::future::ready(match item {
                Ok(request) => {
                    leadership.heard();
                    Some(request)
                }
                Err(reason) => {
                    tracing::debug!(%reason, "an append stream ended");
                    None
                }
            })
        });
        let mut answers = self
            .raft
            .stream_append(requests)
            .map(|result| result.map(wire::append_result_to_wire).map_err(stopped))
            .boxed();
        // The leader would send the same again, for ever, to a member that panics at it.
        let supervised =
            stream::poll_fn(move |context| fault::part("peer port", || answers.poll_next_unpin(context)));
        Ok(Response::new(supervised.boxed()))
    }

    type HeartbeatsStream = BoxStream<'static, Result<pb::AppendResponse, Status>>;

    async fn heartbeats(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::HeartbeatsStream>, Status> {
        self.gate.check(request.metadata())?;
        let traffic = caller(request.metadata()).map(|from| self.links.traffic(from));
        let (raft, leadership) = (self.raft.clone(), self.leadership.clone());
        let answers = request.into_inner().then(move |message| {
            let (raft, leadership, traffic) = (raft.clone(), leadership.clone(), traffic.clone());
            async move {
                let message = message?;
                if let Some(traffic) = traffic {
                    traffic.received(message.encoded_len());
                }
                let heartbeat = wire::append_from_wire(message).map_err(malformed)?;
                leadership.heard();
                fault::supervised("peer port", heartbeats::answer(&raft, heartbeat)).await
            }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        self.gate.check(request.metadata())?;
        self.has_a_vote_to_give()?;
        let request = wire::vote_request_from_wire(request.into_inner()).map_err(malformed)?;
        let answer = self.raft.vote(request).await.map_err(stopped)?;
        Ok(Response::new(wire::vote_response_to_wire(&answer)))
    }

    async fn pre_vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        self.gate.check(request.metadata())?;
        self.has_a_vote_to_give()?;
        let request = wire::vote_request_from_wire(request.into_inner()).map_err(malformed)?;
        let answer = self.raft.pre_vote(request).await.map_err(stopped)?;
        Ok(Response::new(wire::vote_response_to_wire(&answer)))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        use pb::transfer_leader_response::Refusal;
        self.gate.check(request.metadata())?;
        let request = wire::transfer_from_wire(request.into_inner()).map_err(malformed)?;
        let refusal = match self.raft.handle_transfer_leader(request).await.map_err(stopped)? {
            Ok(()) => None,
            Err(TransferLeaderError::VoteChanged { expected, actual }) => {
                Some(Refusal::VoteChanged(pb::VoteChanged {
                    expected: Some(wire::vote_to_wire(&expected)),
                    actual: Some(wire::vote_to_wire(&actual)),
                }))
            }
            Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
                Some(Refusal::LogNotFlushed(pb::LogNotFlushed {
                    expected: expected.as_ref().map(wire::log_id_to_wire),
                    actual: actual.as_ref().map(wire::log_id_to_wire),
                }))
            }
        };
        Ok(Response::new(pb::TransferLeaderResponse { refusal }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotChunk>>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        self.gate.check(request.metadata())?;
        fault::supervised("peer port", self.install(request.into_inner())).await
    }

    async fn propose(
        &self,
        request: Request<pb::ProposeRequest>,
    ) -> Result<Response<pb::ProposeResponse>, Status> {
        self.gate.check(request.metadata())?;
        // Copied: a proposal stays in the log's cache for long, and a slice of the message would
        // keep the message's whole buffer there with it.
        let proposals = request.into_inner().proposals.into_iter().map(|proposal| {
            let proposal = Bytes::copy_from_slice(&proposal);
            // Never into the log what this version cannot read back from it.
            entry::decode(proposal.clone()).map_err(|error| Status::invalid_argument(error.to_string()))?;
            Ok(EncodedProposal(proposal))
        });
        let proposals = proposals.collect::<Result<Vec<_>, Status>>()?;
        let fates = self.proposer.propose_here(proposals).await;
        let fates = fates.into_iter().map(|fate| match fate {
            Fate::Applied => pb::ProposalFate::Applied.into(),
            Fate::NotLeader => pb::ProposalFate::NotLeader.into(),
            Fate::Unknown => pb::ProposalFate::Unknown.into(),
        });
        Ok(Response::new(pb::ProposeResponse { fates: fates.collect() }))
    }

    async fn renew_leases(
        &self,
        request: Request<pb::RenewLeasesRequest>,
    ) -> Result<Response<pb::RenewLeasesResponse>, Status> {
        self.gate.check(request.metadata())?;
        let leases = request.into_inner().leases;
        let leases = lessor::leases_from_wire(&leases).map_err(malformed)?;
        let answer = lessor::renewals_to_wire(self.desk.renew(leases).await).map_err(stopped)?;
        Ok(Response::new(answer))
    }

    async fn rest_of_lease(
        &self,
        request: Request<pb::RestOfLeaseRequest>,
    ) -> Result<Response<pb::RestOfLeaseResponse>, Status> {
        self.gate.check(request.metadata())?;
        let lease = request.into_inner().lease;
        let lease = lessor::lease_from_wire(lease).map_err(malformed)?;
        let answer = lessor::rest_to_wire(self.desk.rest(lease).await).map_err(stopped)?;
        Ok(Response::new(answer))
    }

    type GreetStream = BoxStream<'static, Result<pb::GreetResponse, Status>>;

    async fn greet(
        &self,
        request: Request<Streaming<pb::GreetRequest>>,
    ) -> Result<Response<Self::GreetStream>, Status> {
        let (metadata, _, greetings) = request.into_parts();
        self.gate.check(&metadata)?;
        let gate = self.gate.clone();
        let answers = greetings.map(move |greeting| {
            greeting?;
            // The caller may have been removed since.
            gate.check(&metadata)?;
            Ok(pb::GreetResponse {})
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn describe(
        &self,
        _request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        let published = self.shared.reader.members();
        let name = |id| published.iter().find(|known| known.member == id).map(|known| known.name.clone());
        let (_, stored) = self.shared.applied_state();
        let members = peers_of(stored.membership()).into_iter().map(|peer| {
            // The first members have their names from the beginning, before they have told theirs.
            let name = name(peer.id).unwrap_or_else(|| peer.name.clone());
            membership::description(peer, name)
        });
        Ok(Response::new(pb::DescribeResponse { cluster: self.cluster.0, members: members.collect() }))
    }

    async fn digests(
        &self,
        request: Request<pb::DigestsRequest>,
    ) -> Result<Response<pb::DigestsResponse>, Status> {
        self.gate.check(request.metadata())?;
        let marks = agreement::own_digests(&self.shared.reader);
        Ok(Response::new(agreement::digests_to_wire(&marks)))
    }

    async fn stored_hash(
        &self,
        request: Request<pb::StoredHashRequest>,
    ) -> Result<Response<pb::StoredHashResponse>, Status> {
        self.gate.check(request.metadata())?;
        let at = Revision::new(request.into_inner().revision);
        let _turn = self.hashing.lock().await;
        let answer = agreement::answer_hash(self.shared.reader.clone(), at).await;
        Ok(Response::new(agreement::hash_to_wire(answer)))
    }

    async fn change_members(
        &self,
        request: Request<pb::ChangeMembersRequest>,
    ) -> Result<Response<pb::ChangeMembersResponse>, Status> {
        self.gate.check(request.metadata())?;
        let (change, again) = membership::change_from_wire(request.into_inner()).map_err(malformed)?;
        let result = self.changer.change(&change, again).await;
        Ok(Response::new(membership::changed_to_wire(result).map_err(stopped)?))
    }

    type BallotsStream = BoxStream<'static, Result<pb::BallotResponse, Status>>;

    async fn ballots(
        &self,
        request: Request<Streaming<pb::BallotRequest>>,
    ) -> Result<Response<Self::BallotsStream>, Status> {
        self.gate.check(request.metadata())?;
        let log = self.log.clone();
        let answers = request.into_inner().map(move |question| {
            question?;
            let promised = log.promised().map_err(stopped)?;
            Ok(pb::BallotResponse { ballot: promised.as_ref().map(wire::vote_to_wire) })
        });
        Ok(Response::new(answers.boxed()))
    }

    type ReadIndexStream = BoxStream<'static, Result<pb::ReadIndexResponse, Status>>;

    async fn read_index(
        &self,
        request: Request<Streaming<pb::ReadIndexRequest>>,
    ) -> Result<Response<Self::ReadIndexStream>, Status> {
        use pb::read_index_response::Result as Wire;
        self.gate.check(request.metadata())?;
        let reads = self.reads.clone();
        let answers = request.into_inner().then(move |question| {
            let reads = reads.clone();
            async move {
                question?;
                let result = match reads.index_as_leader().await {
                    Ok(confirmed) => Wire::Index(confirmed.index.0),
                    Err(ReadIndexError::NoLeader | ReadIndexError::LeaderChanged) => Wire::NotLeader(true),
                    Err(error @ (ReadIndexError::Timeout | ReadIndexError::Stopped)) => {
                        return Err(stopped(error));
                    }
                };
                Ok(pb::ReadIndexResponse { result: Some(result) })
            }
        });
        Ok(Response::new(answers.boxed()))
    }
}
