//! From a command to its outcome.
//!
//! A proposal is named by a number, sent into the log by whichever member leads, and its outcome
//! is picked up where it was asked for: by this member's own apply thread, when the entry comes
//! back through the log. So a follower answers its clients only after it has applied the write
//! itself, and a change of leader does not lose an outcome that the log kept.
//!
//! Always true: a proposal is sent again only when it is certain to be in no log. When that is not
//! certain the caller waits, and hears `Timeout` (outcome unknown) if nothing comes, with a guess at why.
//! A proposal that nobody waits for any more is not sent at all. Bounded (see `waiters`): above the
//! bounds, `Overloaded`.

use crate::entry;
use crate::leadership::Leadership;
use crate::network::link::{Links, Purpose};
use crate::state_machine::{AppliedIndex, MeerkatRaft};
use crate::tasks::{Tasks, spawn_part};
use crate::timeout_cause::{self, TimeoutCause};
use crate::type_config::EncodedProposal;
use crate::waiters::{Waiters, Waiting};
use futures::StreamExt;
use meerkat_proto::pb::peer as pb;
use meerkat_types::{Asker, Command, LogIndex, MemberId, Outcome, Proposal, RequestId, limits};
use openraft::errors::ClientWriteError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// How many proposals travel together. No lingering: a batch is what had queued up meanwhile.
const BATCH_PROPOSALS: usize = 1024;
/// Bytes of one forwarded batch: far below what a peer accepts in a message.
const BATCH_BYTES: usize = 4 << 20;
/// Pause before asking again who leads.
const NO_LEADER_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("too many proposals are waiting")]
    Overloaded,
    #[error("the encoded proposal has {bytes} bytes; {max} are allowed")]
    TooLarge { bytes: usize, max: usize },
    /// The deadline passed before any leader took it: the command is in no log.
    #[error("no leader took the proposal in time")]
    NoLeader,
    /// The command may or may not happen.
    #[error("the outcome did not arrive in time")]
    Timeout(TimeoutCause),
    #[error("this member is stopping")]
    Stopped,
}

/// What became of one proposal that this member handed to its own Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Applied,
    NotLeader,
    Unknown,
}

/// A proposal on its way to a leader.
#[derive(Clone)]
struct Queued {
    id: RequestId,
    proposal: EncodedProposal,
}

#[derive(Clone)]
pub struct Proposer {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Queued>,
}

struct Shared {
    raft: MeerkatRaft,
    links: Arc<Links>,
    leadership: Leadership,
    waiters: Arc<Waiters>,
    applied: AppliedIndex,
    next_id: AtomicU64,
    failed: AtomicU64,
    timeout: Duration,
}

impl Proposer {
    pub(crate) fn start(
        raft: MeerkatRaft,
        links: Arc<Links>,
        leadership: Leadership,
        (waiters, applied): (Arc<Waiters>, AppliedIndex),
        timeout: Duration,
        tasks: &Tasks,
    ) -> Proposer {
        // At random: ids of two members, or of two lives of one, are then never near each other.
        let next_id = AtomicU64::new(rand::random());
        let (queue, proposals) = mpsc::channel(limits::PROPOSALS_PENDING_MAX);
        let shared = Arc::new(Shared {
            raft,
            links,
            leadership,
            waiters,
            applied,
            next_id,
            failed: AtomicU64::new(0),
            timeout,
        });
        let retry = queue.clone().downgrade();
        tasks.spawn_until_stop("proposals", dispatch(shared.clone(), proposals, retry));
        Proposer { shared, queue }
    }

    /// Proposes on the cluster's own behalf and waits until this member has applied the command.
    pub async fn propose(&self, command: Command, bytes_max: usize) -> Result<Outcome, ProposeError> {
        self.propose_for(None, command, bytes_max).await
    }

    /// As [`propose`](Self::propose), on behalf of a client.
    pub async fn propose_for(
        &self,
        asker: Option<Asker>,
        command: Command,
        bytes_max: usize,
    ) -> Result<Outcome, ProposeError> {
        if is_too_far_behind(self.shared.leadership.committed(), self.shared.applied.index()) {
            return self.count(Err(ProposeError::Overloaded));
        }
        let queued = self.encode(asker, command, bytes_max)?;
        let (waiting, outcome) = self.shared.waiters.add(queued.id, queued.proposal.0.len())?;
        self.count(self.wait_for(queued, outcome, &waiting).await)
    }

    /// As [`propose`](Self::propose), but through this member's own Raft or not at all: for what only a
    /// leader says, and only while it leads. Hears at once when it does not, instead of waiting for
    /// whoever does.
    pub async fn propose_as_leader(
        &self,
        command: Command,
        bytes_max: usize,
    ) -> Result<Outcome, ProposeError> {
        let queued = self.encode(None, command, bytes_max)?;
        let (_waiting, outcome) = self.shared.waiters.add(queued.id, queued.proposal.0.len())?;
        self.shared.waiters.submit(queued.id);
        let answered = async {
            match self.shared.propose_here(vec![queued.proposal]).await.first() {
                Some(Fate::Applied) => outcome.await.map_err(|_| ProposeError::Stopped),
                Some(Fate::Unknown) => Err(ProposeError::Timeout(TimeoutCause::Unknown)),
                Some(Fate::NotLeader) | None => Err(ProposeError::NoLeader),
            }
        };
        let result = tokio::time::timeout(self.shared.timeout, answered).await;
        self.count(result.unwrap_or(Err(ProposeError::Timeout(TimeoutCause::Unknown))))
    }

    fn encode(
        &self,
        asker: Option<Asker>,
        command: Command,
        bytes_max: usize,
    ) -> Result<Queued, ProposeError> {
        let id = RequestId(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        let stamp_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let encoded = entry::encode(&Proposal { id, stamp_ms, asker, command });
        if bytes_max < encoded.len() {
            return Err(ProposeError::TooLarge { bytes: encoded.len(), max: bytes_max });
        }
        Ok(Queued { id, proposal: EncodedProposal(encoded) })
    }

    fn count(&self, result: Result<Outcome, ProposeError>) -> Result<Outcome, ProposeError> {
        if result.is_err() {
            self.shared.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn wait_for(
        &self,
        queued: Queued,
        outcome: oneshot::Receiver<Outcome>,
        waiting: &Waiting<'_>,
    ) -> Result<Outcome, ProposeError> {
        let answered = async {
            self.queue.send(queued).await.map_err(|_| ProposeError::Stopped)?;
            outcome.await.map_err(|_| ProposeError::Stopped)
        };
        let began = tokio::time::Instant::now();
        match tokio::time::timeout(self.shared.timeout, answered).await {
            Ok(result) => result,
            Err(_) if waiting.may_have_happened() => {
                let Shared { leadership, links, .. } = self.shared.as_ref();
                Err(ProposeError::Timeout(timeout_cause::of_proposal(began.elapsed(), leadership, links)))
            }
            Err(_) => Err(ProposeError::NoLeader),
        }
    }

    /// Hands proposals to this member's own Raft and waits until each is applied or refused.
    pub(crate) async fn propose_here(&self, proposals: Vec<EncodedProposal>) -> Vec<Fate> {
        self.shared.propose_here(proposals).await
    }

    /// Proposals whose outcome is awaited now.
    pub fn pending(&self) -> usize {
        self.shared.waiters.pending()
    }

    /// Proposals that ended without an outcome, since start.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

/// Whether so much is agreed on and not applied here that taking more would only make it worse.
fn is_too_far_behind(committed: LogIndex, applied: LogIndex) -> bool {
    limits::APPLY_BACKLOG_MAX < committed.since(applied)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The one task that takes proposals from the queue and sends them where the leader is.
async fn dispatch(
    shared: Arc<Shared>,
    mut proposals: mpsc::Receiver<Queued>,
    retry: mpsc::WeakSender<Queued>,
) {
    let mut batch = Vec::new();
    while proposals.recv_many(&mut batch, BATCH_PROPOSALS).await > 0 {
        let Some(leader) = shared.leader_within_timeout().await else {
            // Their callers time out with `NoLeader`; what is in no log may be dropped.
            batch.clear();
            continue;
        };
        batch.retain(|queued| shared.waiters.submit(queued.id));
        for part in parts_by_bytes(std::mem::take(&mut batch)) {
            let (shared, retry) = (shared.clone(), retry.clone());
            if leader == shared.links.identity().member {
                let proposals = part.iter().map(|queued| queued.proposal.clone()).collect();
                match shared.submit(proposals).await {
                    Some(results) => drop(spawn_part("proposals", async move {
                        let fates = results.collect::<Vec<Fate>>().await;
                        propose_again(&shared, &part, &fates, &retry).await;
                    })),
                    None => return,
                }
            } else {
                spawn_part("proposals", async move {
                    let fates = shared.forward(leader, &part).await;
                    propose_again(&shared, &part, &fates, &retry).await;
                });
            }
        }
    }
}

/// Puts back what certainly is in no log.
async fn propose_again(shared: &Shared, part: &[Queued], fates: &[Fate], retry: &mpsc::WeakSender<Queued>) {
    let refused = part.iter().zip(fates).filter(|(_, fate)| **fate == Fate::NotLeader);
    let refused: Vec<Queued> = refused.map(|(queued, _)| queued.clone()).collect();
    if refused.is_empty() {
        return;
    }
    for queued in &refused {
        shared.waiters.came_back(queued.id);
    }
    tokio::time::sleep(NO_LEADER_PAUSE).await;
    let Some(queue) = retry.upgrade() else { return };
    for queued in refused {
        if queue.send(queued).await.is_err() {
            return;
        }
    }
}

fn parts_by_bytes(batch: Vec<Queued>) -> Vec<Vec<Queued>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for queued in batch {
        bytes += queued.proposal.0.len();
        if BATCH_BYTES < bytes && parts.last().is_some_and(|part: &Vec<_>| !part.is_empty()) {
            bytes = queued.proposal.0.len();
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push(queued);
        }
    }
    parts
}

impl Shared {
    async fn leader_within_timeout(&self) -> Option<MemberId> {
        self.leadership.wait_for_leader(self.timeout).await
    }

    /// `None` when Raft has stopped.
    async fn submit(
        &self,
        proposals: Vec<EncodedProposal>,
    ) -> Option<impl futures::Stream<Item = Fate> + Send + use<>> {
        let results = self.raft.client_write_many(proposals).await.ok()?;
        Some(results.map(|result| match result {
            Ok(Ok(_)) => Fate::Applied,
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Fate::NotLeader,
            Ok(Err(_)) | Err(_) => Fate::Unknown,
        }))
    }

    async fn propose_here(&self, proposals: Vec<EncodedProposal>) -> Vec<Fate> {
        let count = proposals.len();
        match self.submit(proposals).await {
            Some(results) => results.collect().await,
            None => vec![Fate::NotLeader; count],
        }
    }

    async fn forward(&self, leader: MemberId, part: &[Queued]) -> Vec<Fate> {
        let Some(node) = self.leadership.node(leader) else {
            return vec![Fate::NotLeader; part.len()];
        };
        let Ok(mut link) = self.links.to(leader, &node, Purpose::Forward) else {
            return vec![Fate::NotLeader; part.len()];
        };
        let request =
            pb::ProposeRequest { proposals: part.iter().map(|queued| queued.proposal.0.clone()).collect() };
        let mut request = tonic::Request::new(request);
        request.set_timeout(self.timeout);
        match link.propose(request).await {
            Ok(response) => response
                .into_inner()
                .fates
                .into_iter()
                .map(|fate| match pb::ProposalFate::try_from(fate) {
                    Ok(pb::ProposalFate::Applied) => Fate::Applied,
                    Ok(pb::ProposalFate::NotLeader) => Fate::NotLeader,
                    Ok(pb::ProposalFate::Unknown) | Err(_) => Fate::Unknown,
                })
                .collect(),
            Err(status) if certainly_not_sent(&status) => vec![Fate::NotLeader; part.len()],
            Err(status) => {
                tracing::debug!(%status, "a forwarded batch of proposals has an unknown fate");
                vec![Fate::Unknown; part.len()]
            }
        }
    }
}

/// Only a failure to connect proves that the leader never saw the call.
pub(crate) fn certainly_not_sent(status: &tonic::Status) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_member_five_thousand_entries_behind_takes_no_more() {
        let is_too_far_behind =
            |committed, applied| is_too_far_behind(LogIndex(committed), LogIndex(applied));
        assert!(!is_too_far_behind(6_000, 1_000));
        assert!(is_too_far_behind(6_001, 1_000));
        // After a snapshot the state may be ahead of what is known to be agreed.
        assert!(!is_too_far_behind(0, 9_000));
    }

    #[test]
    fn a_batch_is_cut_by_bytes_and_keeps_its_order() {
        let proposal = |bytes: usize| Queued {
            id: RequestId(bytes as u64),
            proposal: EncodedProposal(Bytes::from(vec![0; bytes])),
        };
        let parts =
            parts_by_bytes(vec![proposal(10), proposal(BATCH_BYTES), proposal(3), proposal(BATCH_BYTES * 2)]);
        let sizes: Vec<Vec<usize>> =
            parts.iter().map(|part| part.iter().map(|queued| queued.proposal.0.len()).collect()).collect();
        assert_eq!(sizes, vec![vec![10], vec![BATCH_BYTES], vec![3], vec![BATCH_BYTES * 2]]);
    }
}
