//! One member's Raft: assembled in dependency order, taken apart in the reverse.

use crate::agreement::NoAnswer;
use crate::bootstrap::{
    bootstrap_members, first_membership, initialize, is_initialized, older_answers, raft_config,
    same_cluster, take_directory,
};
use crate::check_quorum;
use crate::compaction::{CompactionPace, CompactionRunner};
use crate::confirm::Confirmer;
use crate::defragment::Defragmenting;
use crate::forced;
use crate::identity::{Identity, IdentityError};
use crate::joining::Place;
use crate::leadership::{Leadership, Peer, peers_of};
use crate::lessor::{LeaderLeases, Lessor};
use crate::log_keeper::{self, LogPolicy};
use crate::log_store::disk::LogDisk;
use crate::log_store::{LogStats, LogStore};
use crate::membership::{ChangeError, MemberChanges, Rules};
use crate::network::client::PeerNetworkFactory;
use crate::network::link::{Dialer, Gate, KnownMembers, Link, Links, Purpose};
use crate::network::service::PeerService;
use crate::propose::Proposer;
use crate::read_index::ReadIndexer;
use crate::snapshot::state_dir::StateDir;
use crate::state_machine::{
    AppliedIndex, ApplyParts, ApplyThread, EventSink, MeerkatRaft, StateHandle, StateMachine,
};
use crate::tasks::Tasks;
use crate::type_config::index_of;
use crate::waiters::Waiters;
use meerkat_engine::DbOptions;
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer::peer_server::PeerServer;
use meerkat_state::{ReadError, StateReader};
use meerkat_types::{ClusterId, LogIndex, MemberId, Term};
use openraft::async_runtime::watch::WatchReceiver;
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
    /// Where a member with an empty directory belongs, if it joins a running cluster.
    pub place: Option<Place>,
    /// What changes of the membership are allowed.
    pub rules: Rules,
    /// Name and peer URLs of every first member; used by a directory that is still empty.
    pub initial_cluster: BTreeMap<String, Vec<String>>,
    pub initial_names: InitialNames,
    pub cluster_token: String,
    pub heartbeat_interval: Duration,
    pub election_timeout: Duration,
    pub pre_vote: bool,
    /// How long a proposal or a read may take before its caller is told that time ran out.
    pub request_timeout: Duration,
    /// Applying a batch of entries that takes longer is told of.
    pub warning_apply_duration: Duration,
    pub compaction: CompactionPace,
    pub policy: LogPolicy,
    pub log_segment_bytes: u64,
    pub log_cache_bytes: usize,
    pub no_fsync: bool,
    /// Go on alone with what the directory holds, without the others.
    pub force_new_cluster: bool,
    pub db: DbOptions,
    pub ground: Ground,
}

/// Whether all first members are told the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialNames {
    Agreed,
    /// Each knows the addresses of all, and makes up the names of the others.
    OwnOnly,
}

/// What a member stands on: by default a directory and TCP.
#[derive(Clone, Default)]
pub struct Ground {
    /// Where the log is kept, instead of a directory.
    pub log_disk: Option<Arc<dyn LogDisk>>,
    /// How peers are reached, instead of by TCP.
    pub dialer: Option<Dialer>,
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
    #[error(
        "member {member} was removed from the cluster and cannot come back; to use this machine again, add a new member and start it with an empty data directory"
    )]
    Removed { member: MemberId },
    #[error("{name:?} is not in --initial-cluster")]
    NotInCluster { name: String },
    #[error("--force-new-cluster: {0}; `snapshot restore` of a backup makes a new cluster instead")]
    Forced(String),
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
    links: Arc<Links>,
    changes: MemberChanges,
    applied: AppliedIndex,
    reader: StateReader,
    shared: Arc<StateHandle>,
    log: LogStore,
    gate: Gate,
    defragmenting: Defragmenting,
    /// Joined once, by `stop`.
    apply_thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Why the lead was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    #[error("this member does not lead")]
    NotLeader,
    #[error("the member to lead is none, or has no vote")]
    NoVoter,
    #[error("the member to lead did not take the lead in time")]
    Timeout,
    #[error("this member is stopping")]
    Stopped,
}

/// What `Status` and the metrics tell of Raft.
#[derive(Clone, Debug)]
pub struct RaftStatus {
    pub leader: Option<MemberId>,
    pub term: Term,
    pub committed_index: LogIndex,
    pub applied_index: LogIndex,
    pub learner: bool,
    /// Why Raft stopped, if it did.
    pub failed: Option<String>,
}

struct AppliedMembers(StateReader);

impl KnownMembers for AppliedMembers {
    fn is_removed(&self, member: MemberId) -> bool {
        self.0.is_removed(member)
    }

    fn incarnation_of(&self, member: MemberId) -> Option<u64> {
        self.0.members().into_iter().find(|known| known.member == member).map(|known| known.incarnation)
    }
}

/// Whether this member still is one; made the only one, if it is to go on alone with this log.
async fn take_place(
    me: MemberId,
    reader: &StateReader,
    shared: &StateHandle,
    alone: Option<&mut LogStore>,
) -> Result<(), StartError> {
    if reader.is_removed(me) {
        return Err(StartError::Removed { member: me });
    }
    match alone {
        Some(log) => forced::go_alone(log, me, shared.applied_state()).await,
        None => Ok(()),
    }
}

async fn start_raft(
    options: &NodeOptions,
    links: &Arc<Links>,
    log: LogStore,
    machine: StateMachine,
) -> Result<MeerkatRaft, StartError> {
    let me = links.identity().member;
    let config = raft_config(options)?;
    let network = PeerNetworkFactory { links: links.clone(), older_answers: older_answers(&config) };
    let raft = MeerkatRaft::new(me, config, network, log, machine).await;
    raft.map_err(|error| StartError::Raft(error.to_string()))
}

impl RaftNode {
    /// Opens the directory (or makes it), replays what the log has beyond the state, and joins the
    /// cluster. Returns before a leader is known. What goes on from then on is among `tasks`.
    pub async fn start(
        options: NodeOptions,
        events: Box<dyn EventSink>,
        tasks: &Tasks,
    ) -> Result<RaftNode, StartError> {
        let members = bootstrap_members(&options);
        let (identity, mut log) = take_directory(&options, &members).await?;
        let (reader, waiters) = (StateReader::new(), Arc::new(Waiters::default()));
        let (jobs, job_queue) = tokio::sync::mpsc::unbounded_channel();
        let state_error = |source| StartError::State { dir: options.member_dir.join("state"), source };
        let state_dir = StateDir::open(&options.member_dir).map_err(state_error)?;
        let parts = ApplyParts {
            durable: log.durable_log(),
            waiters: waiters.clone(),
            events,
            db_options: options.db.clone(),
            expected: options.warning_apply_duration,
            compaction: options.compaction,
        };
        let (shared, applied, apply_thread) =
            ApplyThread::start(state_dir, reader.clone(), parts, job_queue).map_err(state_error)?;
        take_place(identity.member, &reader, &shared, options.force_new_cluster.then_some(&mut log)).await?;
        let known: Arc<dyn KnownMembers> = Arc::new(AppliedMembers(reader.clone()));
        let links = Links::new(identity.clone(), known.clone(), options.ground.dialer.clone());
        let machine = StateMachine::new(jobs, shared.clone(), log.clone());
        let raft = start_raft(&options, &links, log.clone(), machine).await?;
        shared.started.store(true, Ordering::SeqCst);
        let leadership = Leadership::start(&raft, identity.member, options.election_timeout, tasks);
        tasks.spawn_until_stop("check quorum", check_quorum::run(raft.clone(), leadership.clone()));
        // One that joined waits until the leader reaches it.
        if !identity.joined && !is_initialized(&raft).await? {
            same_cluster(&options, &identity, &members)?;
            initialize(&raft, first_membership(members, options.initial_names)).await?;
        }
        let timeout = options.request_timeout;
        let applying = (waiters, applied.clone());
        let proposer =
            Proposer::start(raft.clone(), links.clone(), leadership.clone(), applying, timeout, tasks);
        let leases = LeaderLeases::new(links.clone(), leadership.clone(), timeout);
        let confirmer = Confirmer::new(log.clone(), links.clone(), leadership.clone());
        let reads = ReadIndexer::start(raft.clone(), confirmer, applied.clone(), timeout, tasks);
        let changes = MemberChanges::start(
            raft.clone(),
            links.clone(),
            leadership.clone(),
            (reader.clone(), applied.clone()),
            options.rules,
            timeout,
            tasks,
        );
        let keeping = log_keeper::run(options.policy, raft.clone(), log.clone(), shared.clone());
        tasks.spawn_until_stop("log keeper", keeping);
        Ok(RaftNode {
            gate: Gate::new(identity.clone(), known),
            identity,
            raft,
            leadership,
            proposer,
            reads,
            leases,
            links,
            changes,
            applied,
            reader,
            shared,
            log,
            defragmenting: Defragmenting::default(),
            apply_thread: Mutex::new(apply_thread),
        })
    }

    /// The service for this member's peer port. `desk` answers for leases while this member leads.
    pub fn peer_service(
        &self,
        desk: Arc<dyn Lessor>,
    ) -> PeerServer<impl meerkat_proto::pb::peer::peer_server::Peer + use<>> {
        PeerService {
            raft: self.raft.clone(),
            gate: self.gate.clone(),
            proposer: self.proposer.clone(),
            reads: self.reads.clone(),
            desk,
            leadership: self.leadership.clone(),
            state_dir: self.shared.state_dir.clone(),
            changer: self.changes.changer.clone(),
            links: self.links.clone(),
            shared: self.shared.clone(),
            log: self.log.clone(),
            cluster: self.identity.cluster,
            joined: self.identity.joined,
            hashing: Arc::default(),
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

    /// Changes of the membership, wherever the leader is.
    pub fn changes(&self) -> &MemberChanges {
        &self.changes
    }

    /// Every member, as far as this one has applied the log, in ascending order of id.
    pub fn members(&self) -> Vec<Peer> {
        peers_of(self.shared.applied_state().1.membership())
    }

    /// Hands the lead to another voter and waits until it has it.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), MoveError> {
        if self.leadership.own_term().is_none() {
            return Err(MoveError::NotLeader);
        }
        if to == self.identity.member {
            return Ok(());
        }
        if !self.leadership.is_voter(to) {
            return Err(MoveError::NoVoter);
        }
        self.changes.changer.move_leader(to).await.map_err(|error| match error {
            ChangeError::Stopped => MoveError::Stopped,
            _ => MoveError::Timeout,
        })
    }

    /// Hands the lead to another voter, if this member has it. The first step of a stop: this member
    /// still serves its clients and its peers.
    pub async fn hand_over(&self) {
        self.changes.changer.hand_over_to_stop().await;
    }

    pub fn reads(&self) -> &ReadIndexer {
        &self.reads
    }

    pub fn reader(&self) -> &StateReader {
        &self.reader
    }

    pub fn applied(&self) -> &AppliedIndex {
        &self.applied
    }

    pub fn compaction(&self) -> &CompactionRunner {
        &self.shared.compaction
    }

    /// The database of the current state, to measure it.
    pub fn database(&self) -> meerkat_engine::Db {
        self.shared.db()
    }

    /// What the state holds now, as its quota counts it.
    pub fn live_bytes(&self) -> u64 {
        self.reader.written_bytes().saturating_sub(self.shared.compaction.removed_bytes())
    }

    /// What the state holds now, with what it keeps about itself: above 0 even where no key ever was.
    pub fn bytes_in_use(&self) -> Result<u64, ReadError> {
        Ok(self.live_bytes() + self.reader.own_bytes()?)
    }

    pub(crate) fn defragmenting(&self) -> &Defragmenting {
        &self.defragmenting
    }

    /// To ask another member what can wait.
    pub(crate) fn background_link(&self, member: MemberId) -> Result<Link, NoAnswer> {
        let node = self.leadership.node(member).ok_or_else(|| NoAnswer::new("it is not a member"))?;
        self.links.to(member, &node, Purpose::Forward).map_err(|error| NoAnswer::new(error.to_string()))
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

    /// Turns into a reason when the cluster has removed this member.
    pub fn removed(&self) -> watch::Receiver<Option<String>> {
        self.links.removed()
    }

    /// What was measured of the state.
    pub fn state_times(&self) -> &crate::measured::StateTimes {
        &self.shared.times
    }

    /// Every other member that was called or has called.
    pub fn peers(&self) -> Vec<crate::measured::PeerView> {
        self.links.peers()
    }

    /// Nanoseconds spent applying, and in how many batches.
    pub fn apply_time(&self) -> (u64, u64) {
        (self.shared.apply_nanos.load(Ordering::Relaxed), self.shared.apply_batches.load(Ordering::Relaxed))
    }

    pub fn status(&self) -> RaftStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        RaftStatus {
            leader: self.leadership.known(),
            term: Term(metrics.current_term),
            committed_index: index_of(metrics.cluster_committed.as_ref()),
            applied_index: self.applied.index(),
            learner: self.leadership.is_learner(),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Turns into a reason when the state can not be compacted any more, since it is damaged.
    pub async fn state_failed(&self) -> String {
        self.shared.compaction.failed().await
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
        let defragmenting = self.defragmenting.stop();
        let stopped = crate::threads::spawn_blocking_part("member", move || {
            shared.compaction.stop();
            if let Err(error) = shared.db().flush() {
                tracing::warn!(%error, "the state was not flushed; the next start replays the log");
            }
            if defragmenting {
                shared.db().abandon_compaction();
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
