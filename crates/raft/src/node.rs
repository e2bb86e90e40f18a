//! One member's Raft: assembled in dependency order, taken apart in the reverse.

use crate::compaction::CompactionRunner;
use crate::identity::{self, Identity, IdentityError};
use crate::leadership::Leadership;
use crate::lease_desk::{LeaderLeases, LeaseDesk};
use crate::log_keeper::{self, LogPolicy};
use crate::log_store::{LogOptions, LogStats, LogStore};
use crate::network::client::PeerNetworkFactory;
use crate::network::link::{Gate, KnownIncarnations, Links};
use crate::network::service::PeerService;
use crate::propose::Proposer;
use crate::read_index::ReadIndexer;
use crate::snapshot::state_dir::StateDir;
use crate::state_machine::{Applied, ApplyParts, ApplyThread, EventSink, MeerkatRaft, Shared, StateMachine};
use crate::type_config::PeerNode;
use crate::waiters::Waiters;
use meerkat_engine::DbOptions;
use meerkat_proto::pb::peer::peer_server::PeerServer;
use meerkat_state::StateReader;
use meerkat_types::{ClusterId, MemberId};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Everything a member's Raft is told at start.
pub struct NodeOptions {
    pub name: String,
    /// Holds `identity`, `wal` and `state`.
    pub member_dir: PathBuf,
    /// Where the log is kept, if not in `member_dir`.
    pub wal_dir: Option<PathBuf>,
    /// Name and peer URLs of every first member; used by a directory that is still empty.
    pub initial_cluster: BTreeMap<String, Vec<String>>,
    pub cluster_token: String,
    pub heartbeat_interval: Duration,
    pub election_timeout: Duration,
    pub pre_vote: bool,
    /// How long a proposal or a read may take before its caller is told that time ran out.
    pub request_timeout: Duration,
    pub policy: LogPolicy,
    pub log_segment_bytes: u64,
    pub log_cache_bytes: usize,
    pub no_fsync: bool,
    pub db: DbOptions,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the log in {dir} cannot be opened: {source}")]
    Log { dir: PathBuf, source: io::Error },
    #[error(
        "member {member} has run before, but there is no log in {dir}: is a volume not mounted, or --wal-dir another? Starting without it could lose acknowledged writes"
    )]
    NoLog { dir: PathBuf, member: MemberId },
    #[error("the state in {dir} cannot be opened: {source}")]
    State { dir: PathBuf, source: io::Error },
    #[error("{name:?} is not in --initial-cluster")]
    NotInCluster { name: String },
    #[error("raft cannot start: {0}")]
    Raft(String),
}

/// A running member, as the server sees it.
pub struct RaftNode {
    identity: Identity,
    raft: MeerkatRaft,
    leadership: Leadership,
    proposer: Proposer,
    reads: ReadIndexer,
    leases: LeaderLeases,
    applied: Applied,
    reader: StateReader,
    shared: Arc<Shared>,
    log: LogStore,
    gate: Gate,
    /// Joined once, by `stop`.
    apply_thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// What `Status` and the metrics tell of Raft.
#[derive(Clone, Debug)]
pub struct RaftStatus {
    pub leader: Option<MemberId>,
    pub term: u64,
    pub committed_index: u64,
    pub applied_index: u64,
    pub learner: bool,
    /// Why Raft stopped, if it did.
    pub failed: Option<String>,
}

struct PublishedIncarnations(StateReader);

impl KnownIncarnations for PublishedIncarnations {
    fn incarnation_of(&self, member: MemberId) -> Option<u64> {
        self.0.members().into_iter().find(|known| known.member == member).map(|known| known.incarnation)
    }
}

impl RaftNode {
    /// Opens the directory (or makes it), replays what the log has beyond the state, and joins the
    /// cluster. Returns before a leader is known.
    pub async fn start(options: NodeOptions, events: Box<dyn EventSink>) -> Result<RaftNode, StartError> {
        let members = bootstrap_members(&options);
        let (identity, fresh) = take_identity(&options, &members)?;
        tracing::info!(member = %identity.member, cluster = %identity.cluster, fresh, "starting member");
        let log = open_log(&options, &identity, fresh)?;
        if fresh {
            // After the log: from here on, a directory with an identity and without a log is damaged.
            identity.create(&options.member_dir)?;
        }
        let reader = StateReader::new();
        let waiters = Arc::new(Waiters::default());
        let (jobs, job_queue) = std::sync::mpsc::channel();
        let state_error = |source| StartError::State { dir: options.member_dir.join("state"), source };
        let state_dir = StateDir::open(&options.member_dir).map_err(state_error)?;
        let parts = ApplyParts {
            durable: log.durable_log(),
            waiters: waiters.clone(),
            events,
            db_options: options.db.clone(),
        };
        let (shared, applied, apply_thread) =
            ApplyThread::start(state_dir, reader.clone(), parts, job_queue).map_err(state_error)?;
        let incarnations: Arc<dyn KnownIncarnations> = Arc::new(PublishedIncarnations(reader.clone()));
        let links = Links::new(identity.clone(), incarnations.clone());
        let raft = MeerkatRaft::new(
            identity.member.0,
            raft_config(&options)?,
            PeerNetworkFactory { links: links.clone() },
            log.clone(),
            StateMachine::new(jobs, shared.clone(), log.clone()),
        )
        .await
        .map_err(|error| StartError::Raft(error.to_string()))?;
        shared.started.store(true, Ordering::SeqCst);
        let leadership = Leadership::new(&raft, identity.member.0, options.election_timeout);
        if !is_initialized(&raft).await? {
            same_cluster(&options, &identity, &members)?;
            initialize(&raft, members).await?;
        }
        let timeout = options.request_timeout;
        let proposer = Proposer::start(raft.clone(), links.clone(), leadership.clone(), waiters, timeout);
        let leases = LeaderLeases::new(links.clone(), leadership.clone(), timeout);
        let reads = ReadIndexer::start(raft.clone(), links, leadership.clone(), applied.clone(), timeout);
        tokio::spawn(log_keeper::run(options.policy, raft.clone(), log.clone(), shared.clone()));
        let gate = Gate::new(identity.clone(), incarnations);
        let apply_thread = Mutex::new(Some(apply_thread));
        Ok(RaftNode {
            identity,
            raft,
            leadership,
            proposer,
            reads,
            leases,
            applied,
            reader,
            shared,
            log,
            gate,
            apply_thread,
        })
    }

    /// The service for this member's peer port. `desk` answers for leases while this member leads.
    pub fn peer_service(
        &self,
        desk: Arc<dyn LeaseDesk>,
    ) -> PeerServer<impl meerkat_proto::pb::peer::peer_server::Peer + use<>> {
        PeerService {
            raft: self.raft.clone(),
            gate: self.gate.clone(),
            proposer: self.proposer.clone(),
            reads: self.reads.clone(),
            desk,
            leadership: self.leadership.clone(),
            state_dir: self.shared.state_dir.clone(),
        }
        .into_server()
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn cluster_id(&self) -> ClusterId {
        self.identity.cluster
    }

    pub fn member_id(&self) -> MemberId {
        self.identity.member
    }

    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    pub fn proposer(&self) -> &Proposer {
        &self.proposer
    }

    /// The leader's knowledge of leases, wherever the leader is.
    pub fn leases(&self) -> &LeaderLeases {
        &self.leases
    }

    pub fn reads(&self) -> &ReadIndexer {
        &self.reads
    }

    pub fn reader(&self) -> &StateReader {
        &self.reader
    }

    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    pub fn compaction(&self) -> &CompactionRunner {
        &self.shared.compaction
    }

    /// The database of the current state, to measure it.
    pub fn database(&self) -> meerkat_engine::Db {
        self.shared.db()
    }

    pub fn log_stats(&self) -> Arc<LogStats> {
        self.log.stats()
    }

    /// Turns into a reason when the log can no longer be written.
    pub fn log_failed(&self) -> watch::Receiver<Option<String>> {
        self.log.failed()
    }

    /// Turns into a reason when the cluster knows this member by another data directory.
    pub fn disowned(&self) -> watch::Receiver<Option<String>> {
        self.gate.disowned()
    }

    /// Nanoseconds spent applying, and in how many batches.
    pub fn apply_time(&self) -> (u64, u64) {
        (self.shared.apply_nanos.load(Ordering::Relaxed), self.shared.apply_batches.load(Ordering::Relaxed))
    }

    pub fn status(&self) -> RaftStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let me = self.identity.member.0;
        RaftStatus {
            leader: self.leadership.known().map(MemberId),
            term: metrics.current_term,
            committed_index: metrics.cluster_committed.map_or(0, |id| id.index),
            applied_index: self.applied.index(),
            learner: metrics.membership_config.membership().learner_ids().any(|id| id == me),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Resolves with the reason when Raft stops by itself.
    pub async fn failed(&self) -> String {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return fatal.to_string();
            }
            if metrics.changed().await.is_err() {
                return "raft has stopped".to_owned();
            }
        }
    }

    /// Stops in the reverse order of start; the state is flushed so that the next start replays
    /// little. Calls still running afterwards are refused.
    pub async fn stop(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop cleanly");
        }
        let (shared, log) = (self.shared.clone(), self.log.clone());
        let apply_thread = self.apply_thread.lock().take();
        let stopped = tokio::task::spawn_blocking(move || {
            shared.compaction.stop();
            if let Err(error) = shared.db().flush() {
                tracing::warn!(%error, "the state was not flushed; the next start replays the log");
            }
            log.close();
            // It ends when openraft's last task has let go of its queue, which may be a moment
            // after the shutdown; nothing it could still do is lost by not waiting longer.
            let deadline = Instant::now() + APPLY_JOIN_TIMEOUT;
            while apply_thread.as_ref().is_some_and(|thread| !thread.is_finished())
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        if let Err(error) = stopped.await {
            tracing::error!(%error, "stopping failed");
        }
    }
}

/// How long `stop` waits for the apply thread.
const APPLY_JOIN_TIMEOUT: Duration = Duration::from_secs(1);

fn bootstrap_members(options: &NodeOptions) -> BTreeMap<u64, PeerNode> {
    let member = |(name, urls): (&String, &Vec<String>)| {
        let id = identity::bootstrap_member_id(urls, &options.cluster_token);
        (id.0, PeerNode { name: name.clone(), peer_urls: urls.clone() })
    };
    options.initial_cluster.iter().map(member).collect()
}

/// The directory's identity, or a new one for a directory that is new.
fn take_identity(
    options: &NodeOptions,
    members: &BTreeMap<u64, PeerNode>,
) -> Result<(Identity, bool), StartError> {
    let dir = &options.member_dir;
    let me = members.iter().find(|(_, node)| node.name == options.name).map(|(id, _)| MemberId(*id));
    if let Some(found) = Identity::read(dir)? {
        if found.name != options.name {
            return Err(IdentityError::OtherMember {
                path: dir.clone(),
                found: found.name,
                expected: options.name.clone(),
            }
            .into());
        }
        return Ok((found, false));
    }
    let member = me.ok_or_else(|| StartError::NotInCluster { name: options.name.clone() })?;
    let identity = Identity {
        name: options.name.clone(),
        cluster: described_cluster(members),
        member,
        incarnation: rand::random(),
    };
    Ok((identity, true))
}

/// The cluster that the flags describe.
fn described_cluster(members: &BTreeMap<u64, PeerNode>) -> ClusterId {
    let ids: Vec<MemberId> = members.keys().copied().map(MemberId).collect();
    identity::bootstrap_cluster_id(&ids)
}

/// A member that never got to join its cluster must not join another under its old identity.
fn same_cluster(
    options: &NodeOptions,
    identity: &Identity,
    members: &BTreeMap<u64, PeerNode>,
) -> Result<(), StartError> {
    let expected_cluster = described_cluster(members);
    if identity.cluster == expected_cluster && members.contains_key(&identity.member.0) {
        return Ok(());
    }
    Err(IdentityError::OtherCluster {
        path: options.member_dir.clone(),
        found: identity.member,
        found_cluster: identity.cluster,
        expected_cluster,
    }
    .into())
}

fn open_log(options: &NodeOptions, identity: &Identity, fresh: bool) -> Result<LogStore, StartError> {
    let dir = options.wal_dir.clone().unwrap_or_else(|| options.member_dir.join("wal"));
    match LogStore::exists(&dir) {
        Ok(true) => {}
        Ok(false) if fresh => {}
        Ok(false) => return Err(StartError::NoLog { dir, member: identity.member }),
        Err(source) => return Err(StartError::Log { dir, source }),
    }
    let log_options = LogOptions {
        dir: dir.clone(),
        cluster_id: identity.cluster.0,
        member_id: identity.member.0,
        segment_bytes: options.log_segment_bytes,
        cache_bytes: options.log_cache_bytes,
        no_fsync: options.no_fsync,
    };
    LogStore::open(log_options).map_err(|source| StartError::Log { dir, source })
}

/// etcd's two timings as openraft's: it elects after a silence of its maximum (the lease) plus a
/// random time between its minimum and maximum, so half of etcd's number each gives a new leader in
/// about one election timeout.
fn raft_config(options: &NodeOptions) -> Result<Arc<Config>, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let election_timeout_max = (millis(options.election_timeout) / 2).max(2);
    let config = Config {
        cluster_name: "meerkat".to_owned(),
        heartbeat_interval: millis(options.heartbeat_interval),
        election_timeout_min: (election_timeout_max * 3 / 5).max(1),
        election_timeout_max,
        install_snapshot_timeout: millis(Duration::from_secs(600)),
        max_payload_entries: 2048,
        replication_lag_threshold: u64::MAX,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_pre_vote: Some(options.pre_vote),
        enable_leader_restore: Some(false),
        quorum_loss_probe_interval: Some(election_timeout_max * 2),
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        ..Config::default()
    };
    config.validate().map(Arc::new).map_err(|error| StartError::Raft(error.to_string()))
}

async fn is_initialized(raft: &MeerkatRaft) -> Result<bool, StartError> {
    raft.is_initialized().await.map_err(|error| StartError::Raft(error.to_string()))
}

/// Every first member initializes with the same membership, so it does not matter who is first.
async fn initialize(raft: &MeerkatRaft, members: BTreeMap<u64, PeerNode>) -> Result<(), StartError> {
    use openraft::errors::{InitializeError, RaftError};
    match raft.initialize(members).await {
        // A peer was quicker and has already sent us its log.
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(error) => Err(StartError::Raft(error.to_string())),
    }
}
