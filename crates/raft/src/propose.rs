//! From a command to its outcome.
//!
//! A proposal is named by a number, sent into the log by whichever member leads, and its outcome
//! is picked up where it was asked for: by this member's own apply thread, when the entry comes
//! back through the log. So a follower answers its clients only after it has applied the write
//! itself, and a change of leader does not lose an outcome that the log kept.
//!
//! Always true: a proposal is sent again only when it is certain to be in no log. When that is not
//! certain the caller waits, and hears `Timeout` (outcome unknown) if nothing comes.
//! Bounded: `PROPOSALS_PENDING_MAX` outcomes are awaited at once; above that, `Overloaded`.

use crate::entry;
use crate::leadership::Leadership;
use crate::network::link::{Links, Purpose};
use crate::state_machine::MeerkatRaft;
use crate::type_config::EncodedProposal;
use futures::StreamExt;
use meerkat_proto::pb::peer as pb;
use meerkat_types::{Command, MemberId, Outcome, Proposal, RequestId, limits};
use openraft::errors::ClientWriteError;
use parking_lot::Mutex;
use std::collections::HashMap;
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
    /// The deadline passed without a leader: the command is in no log.
    #[error("no leader took the proposal in time")]
    NoLeader,
    /// The command may or may not happen.
    #[error("the outcome did not arrive in time")]
    Timeout,
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

/// Outcomes that somebody on this member waits for.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Taken for a moment by proposers and by the apply thread; nothing else is held with it.
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Outcome>>>,
}

impl Waiters {
    fn add(&self, id: RequestId) -> Result<oneshot::Receiver<Outcome>, ProposeError> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if limits::PROPOSALS_PENDING_MAX <= waiting.len() {
            return Err(ProposeError::Overloaded);
        }
        waiting.insert(id, sender);
        Ok(receiver)
    }

    fn forget(&self, id: RequestId) {
        self.waiting.lock().remove(&id);
    }

    pub(crate) fn pending(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Called by the apply thread, after the outcome is visible to readers.
    pub(crate) fn deliver(&self, outcomes: impl Iterator<Item = (RequestId, Outcome)>) {
        let mut waiting = self.waiting.lock();
        for (id, outcome) in outcomes {
            if let Some(waiter) = waiting.remove(&id) {
                // The caller may have given up; then nobody is left to tell.
                let _ = waiter.send(outcome);
            }
        }
    }
}

/// Removes a waiter when its caller stops waiting, for whatever reason.
struct Waiting<'w> {
    waiters: &'w Waiters,
    id: RequestId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.forget(self.id);
    }
}

#[derive(Clone)]
pub struct Proposer {
    shared: Arc<Shared>,
    queue: mpsc::Sender<EncodedProposal>,
}

struct Shared {
    raft: MeerkatRaft,
    links: Arc<Links>,
    leadership: Leadership,
    waiters: Arc<Waiters>,
    next_id: AtomicU64,
    failed: AtomicU64,
    timeout: Duration,
}

impl Proposer {
    pub(crate) fn start(
        raft: MeerkatRaft,
        links: Arc<Links>,
        leadership: Leadership,
        waiters: Arc<Waiters>,
        timeout: Duration,
    ) -> Proposer {
        let next_id = AtomicU64::new(first_id(links.identity().member, since_epoch()));
        let (queue, proposals) = mpsc::channel(limits::PROPOSALS_PENDING_MAX);
        let shared = Arc::new(Shared {
            raft,
            links,
            leadership,
            waiters,
            next_id,
            failed: AtomicU64::new(0),
            timeout,
        });
        let retry = queue.clone().downgrade();
        tokio::spawn(dispatch(shared.clone(), proposals, retry));
        Proposer { shared, queue }
    }

    /// Proposes and waits until this member has applied the command.
    pub async fn propose(&self, command: Command, bytes_max: usize) -> Result<Outcome, ProposeError> {
        let id = RequestId(self.shared.next_id.fetch_add(1, Ordering::Relaxed));
        let stamp_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let encoded = entry::encode(&Proposal { id, stamp_ms, command });
        if bytes_max < encoded.len() {
            return Err(ProposeError::TooLarge { bytes: encoded.len(), max: bytes_max });
        }
        let outcome = self.shared.waiters.add(id)?;
        let waiting = Waiting { waiters: &self.shared.waiters, id };
        let result = self.wait_for(EncodedProposal(encoded), outcome).await;
        drop(waiting);
        if result.is_err() {
            self.shared.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn wait_for(
        &self,
        encoded: EncodedProposal,
        outcome: oneshot::Receiver<Outcome>,
    ) -> Result<Outcome, ProposeError> {
        self.queue.send(encoded).await.map_err(|_| ProposeError::Stopped)?;
        match tokio::time::timeout(self.shared.timeout, outcome).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => Err(ProposeError::Stopped),
            Err(_) if self.shared.leadership.leader().is_none() => Err(ProposeError::NoLeader),
            Err(_) => Err(ProposeError::Timeout),
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

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Ids of one member never meet those of another (the upper 16 bits) nor, short of 2^8 proposals
/// per millisecond sustained over a whole life, those of its own earlier lives (the clock at start).
fn first_id(member: MemberId, now: Duration) -> u64 {
    let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    (member.0 & 0xffff) << 48 | (millis & ((1 << 40) - 1)) << 8
}

/// The one task that takes proposals from the queue and sends them where the leader is.
async fn dispatch(
    shared: Arc<Shared>,
    mut proposals: mpsc::Receiver<EncodedProposal>,
    retry: mpsc::WeakSender<EncodedProposal>,
) {
    let mut batch = Vec::new();
    while proposals.recv_many(&mut batch, BATCH_PROPOSALS).await > 0 {
        let Some(leader) = shared.leader_within_timeout().await else {
            // Their callers time out with `NoLeader`; what is in no log may be dropped.
            batch.clear();
            continue;
        };
        for part in parts_by_bytes(std::mem::take(&mut batch)) {
            let (shared, retry) = (shared.clone(), retry.clone());
            if leader == shared.links.identity().member.0 {
                match shared.submit(&part).await {
                    Some(results) => drop(tokio::spawn(async move {
                        let fates = results.collect::<Vec<Fate>>().await;
                        propose_again(&part, &fates, &retry).await;
                    })),
                    None => return,
                }
            } else {
                tokio::spawn(async move {
                    let fates = shared.forward(leader, &part).await;
                    propose_again(&part, &fates, &retry).await;
                });
            }
        }
    }
}

/// Puts back what certainly is in no log.
async fn propose_again(part: &[EncodedProposal], fates: &[Fate], retry: &mpsc::WeakSender<EncodedProposal>) {
    let refused = part.iter().zip(fates).filter(|(_, fate)| **fate == Fate::NotLeader);
    let refused: Vec<EncodedProposal> = refused.map(|(proposal, _)| proposal.clone()).collect();
    if refused.is_empty() {
        return;
    }
    tokio::time::sleep(NO_LEADER_PAUSE).await;
    let Some(queue) = retry.upgrade() else { return };
    for proposal in refused {
        if queue.send(proposal).await.is_err() {
            return;
        }
    }
}

fn parts_by_bytes(batch: Vec<EncodedProposal>) -> Vec<Vec<EncodedProposal>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for proposal in batch {
        bytes += proposal.0.len();
        if BATCH_BYTES < bytes && parts.last().is_some_and(|part: &Vec<_>| !part.is_empty()) {
            bytes = proposal.0.len();
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push(proposal);
        }
    }
    parts
}

impl Shared {
    async fn leader_within_timeout(&self) -> Option<u64> {
        self.leadership.wait_for_leader(self.timeout).await
    }

    /// `None` when Raft has stopped.
    async fn submit(
        &self,
        part: &[EncodedProposal],
    ) -> Option<impl futures::Stream<Item = Fate> + Send + use<>> {
        let results = self.raft.client_write_many(part.to_vec()).await.ok()?;
        Some(results.map(|result| match result {
            Ok(Ok(_)) => Fate::Applied,
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Fate::NotLeader,
            Ok(Err(_)) | Err(_) => Fate::Unknown,
        }))
    }

    async fn propose_here(&self, proposals: Vec<EncodedProposal>) -> Vec<Fate> {
        match self.submit(&proposals).await {
            Some(results) => results.collect().await,
            None => vec![Fate::NotLeader; proposals.len()],
        }
    }

    async fn forward(&self, leader: u64, part: &[EncodedProposal]) -> Vec<Fate> {
        let Some(node) = self.leadership.node(leader) else {
            return vec![Fate::NotLeader; part.len()];
        };
        let Ok(mut link) = self.links.to(leader, &node, Purpose::Forward) else {
            return vec![Fate::NotLeader; part.len()];
        };
        let request =
            pb::ProposeRequest { proposals: part.iter().map(|proposal| proposal.0.clone()).collect() };
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
fn certainly_not_sent(status: &tonic::Status) -> bool {
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
    fn ids_of_members_and_of_lives_are_apart() {
        let first = first_id(MemberId(0x1_0001), Duration::from_millis(1_000));
        assert_eq!(first >> 48, 1);
        assert_ne!(first >> 48, first_id(MemberId(2), Duration::from_millis(1_000)) >> 48);
        let later = first_id(MemberId(0x1_0001), Duration::from_millis(1_001));
        assert_eq!(later - first, 256);
    }

    #[test]
    fn a_batch_is_cut_by_bytes_and_keeps_its_order() {
        let proposal = |bytes: usize| EncodedProposal(Bytes::from(vec![0; bytes]));
        let parts =
            parts_by_bytes(vec![proposal(10), proposal(BATCH_BYTES), proposal(3), proposal(BATCH_BYTES * 2)]);
        let sizes: Vec<Vec<usize>> =
            parts.iter().map(|part| part.iter().map(|proposal| proposal.0.len()).collect()).collect();
        assert_eq!(sizes, vec![vec![10], vec![BATCH_BYTES], vec![3], vec![BATCH_BYTES * 2]]);
    }

    #[test]
    fn waiters_are_bounded_and_forgotten() {
        let waiters = Waiters::default();
        let mut kept = Vec::new();
        for id in 0..limits::PROPOSALS_PENDING_MAX as u64 {
            kept.push(waiters.add(RequestId(id)).expect("room"));
        }
        assert!(matches!(waiters.add(RequestId(u64::MAX)), Err(ProposeError::Overloaded)));
        drop(Waiting { waiters: &waiters, id: RequestId(7) });
        assert!(waiters.add(RequestId(u64::MAX)).is_ok());
    }
}
