//! Who leads, as this member knows it, and where members are reached.
//!
//! A cheap, cloneable view of openraft's published metrics. Never holds a guard on them: a held
//! guard would block the Raft core.

use crate::state_machine::MeerkatRaft;
use crate::tasks::Tasks;
use crate::type_config::{Membership, PeerNode, StoredMembership, TypeConfig, Vote, index_of};
use meerkat_types::{LogIndex, MemberId, Term};
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::type_config::alias::WatchReceiverOf;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of a time, in milliseconds: it has not come.
const NEVER: u64 = u64::MAX;

#[derive(Clone)]
pub struct Leadership {
    metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    all: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    me: MemberId,
    /// A leader that is not heard of for this long is no longer known to lead.
    silence_max: Duration,
    began: Instant,
    /// When a leader was last heard of, in milliseconds after `began`.
    heard_ms: Arc<AtomicU64>,
    /// When this member last took the lead, in milliseconds after `began`.
    took_lead_ms: Arc<AtomicU64>,
    changes: Arc<AtomicU64>,
    /// This member follows without a vote, and is to stay so.
    learner: Arc<AtomicBool>,
}

/// One member of the cluster, from the replicated membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub id: MemberId,
    pub name: String,
    pub peer_urls: Vec<String>,
    /// One that waits for its vote is none: it was added as a voter.
    pub learner: bool,
}

/// Every member, in ascending order of id.
pub(crate) fn peers_of(membership: &Membership) -> Vec<Peer> {
    let learners: Vec<MemberId> = membership.learner_ids().collect();
    let mut peers: Vec<Peer> = membership
        .nodes()
        .map(|(id, node)| Peer {
            id: *id,
            name: node.name.clone(),
            peer_urls: node.peer_urls.clone(),
            learner: learners.contains(id) && !node.becomes_voter,
        })
        .collect();
    peers.sort_by_key(|peer| peer.id);
    peers
}

impl Leadership {
    pub(crate) fn start(
        raft: &MeerkatRaft,
        me: MemberId,
        election_timeout: Duration,
        tasks: &Tasks,
    ) -> Leadership {
        let leadership = Leadership {
            metrics: raft.server_metrics(),
            all: raft.metrics(),
            me,
            silence_max: 2 * election_timeout,
            began: Instant::now(),
            heard_ms: Arc::default(),
            took_lead_ms: Arc::new(AtomicU64::new(NEVER)),
            changes: Arc::default(),
            learner: Arc::default(),
        };
        tasks.spawn_until_stop("follow leader", leadership.clone().follow());
        leadership
    }

    /// Runs until Raft stops.
    async fn follow(mut self) {
        let (mut known, mut led) = (None, None);
        loop {
            let learner = self.peers().iter().any(|peer| peer.id == self.me && peer.learner);
            self.learner.store(learner, Ordering::Relaxed);
            let leader = self.leader();
            if leader.is_some() && leader != known {
                known = leader;
                self.changes.fetch_add(1, Ordering::Relaxed);
            }
            // Also a lead that was lost and has come back.
            let term = self.own_term();
            if term.is_some() && term != led {
                self.took_lead_ms.store(self.now_ms(), Ordering::Relaxed);
            }
            led = term;
            if !self.changed().await {
                return;
            }
        }
    }

    /// Resolves when who leads or who is a member is no longer what it was at the last call; with
    /// `false` when Raft has stopped.
    pub(crate) async fn changed(&mut self) -> bool {
        self.metrics.changed().await.is_ok()
    }

    /// Whether this member follows without a vote, as far as it knows.
    pub fn is_learner(&self) -> bool {
        self.learner.load(Ordering::Relaxed)
    }

    /// Whether Raft has stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.all.borrow_watched().running_state.is_err()
    }

    /// How often this member learnt of another leader than before, since start.
    pub fn changes_seen(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Where to send what only a leader can do: the last one known, even if it is silent by now.
    pub(crate) fn leader(&self) -> Option<MemberId> {
        self.metrics.borrow_watched().current_leader
    }

    /// Who leads, as far as anybody can tell: a leader that this member has not heard of for long,
    /// or that has no majority behind it, does not count. What clients and operators are told.
    pub fn known(&self) -> Option<MemberId> {
        let leader = self.leader()?;
        let silence = match leader == self.me {
            true => self.quorum_silence().unwrap_or_default(),
            false => self.leader_silence(),
        };
        (silence < self.silence_max).then_some(leader)
    }

    /// Something of a leader arrived.
    pub(crate) fn heard(&self) {
        self.heard_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NEVER)
    }

    /// How long ago this member last took the lead, if it ever did.
    pub(crate) fn took_lead(&self) -> Option<Duration> {
        let at = self.took_lead_ms.load(Ordering::Relaxed);
        (at != NEVER).then(|| self.began.elapsed().saturating_sub(Duration::from_millis(at)))
    }

    pub(crate) fn election_timeout(&self) -> Duration {
        self.silence_max / 2
    }

    fn leader_silence(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)))
    }

    /// How long ago a majority last confirmed this member as leader; `None` if it has not yet.
    pub(crate) fn quorum_silence(&self) -> Option<Duration> {
        let metrics = self.all.borrow_watched();
        // Alone it is the majority, and has nobody to hear from.
        if metrics.membership_config.membership().voter_ids().eq([self.me]) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.as_ref().map(|at| at.elapsed())
    }

    /// How far the log is agreed on, as this member knows it.
    pub(crate) fn committed(&self) -> LogIndex {
        index_of(self.all.borrow_watched().cluster_committed.as_ref())
    }

    pub fn term(&self) -> Term {
        Term(self.metrics.borrow_watched().vote.leader_id.term)
    }

    /// The term in which this member leads, as far as it knows; `None` if it does not.
    pub fn own_term(&self) -> Option<Term> {
        let metrics = self.metrics.borrow_watched();
        (metrics.current_leader == Some(self.me)).then_some(Term(metrics.vote.leader_id.term))
    }

    /// The ballot by which this member leads, as far as it knows; `None` if it does not.
    pub(crate) fn own_ballot(&self) -> Option<Vote> {
        let metrics = self.metrics.borrow_watched();
        (metrics.current_leader == Some(self.me)).then_some(metrics.vote)
    }

    /// Resolves when the term in which this member leads is no longer `than`; never again once Raft has
    /// stopped.
    pub async fn own_term_changed(&self, than: Option<Term>) {
        let mut metrics = self.metrics.clone();
        while self.own_term() == than {
            if metrics.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a leader is known, or the time is over.
    pub async fn wait_for_leader(&self, timeout: Duration) -> Option<MemberId> {
        if let Some(leader) = self.leader() {
            return Some(leader);
        }
        let mut metrics = self.metrics.clone();
        let known = async {
            loop {
                // Read before waiting: a change that came first is not waited for again.
                let leader = metrics.borrow_watched().current_leader;
                if leader.is_some() {
                    return leader;
                }
                if metrics.changed().await.is_err() {
                    return None;
                }
            }
        };
        tokio::time::timeout(timeout, known).await.ok().flatten()
    }

    /// Resolves when the leader is no longer `than`.
    pub(crate) async fn changed_from(&self, than: Option<MemberId>) {
        let mut metrics = self.metrics.clone();
        while metrics.borrow_watched().current_leader == than {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn node(&self, id: MemberId) -> Option<PeerNode> {
        self.membership().membership().get_node(&id).cloned()
    }

    /// Every member of the newest membership, agreed on or not, in ascending order of id.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        peers_of(self.membership().membership())
    }

    /// Where every member of the newest membership is.
    pub(crate) fn nodes(&self) -> HashMap<MemberId, PeerNode> {
        self.membership().membership().nodes().map(|(id, node)| (*id, node.clone())).collect()
    }

    /// Everybody with a vote in the newest membership.
    pub(crate) fn voters(&self) -> BTreeSet<MemberId> {
        self.membership().membership().voter_ids().collect()
    }

    /// Whether a member of the newest membership has a vote.
    pub(crate) fn is_voter(&self, id: MemberId) -> bool {
        self.membership().membership().voter_ids().any(|voter| voter == id)
    }

    fn membership(&self) -> Arc<StoredMembership> {
        self.metrics.borrow_watched().membership_config.clone()
    }
}
