//! Linearizable reads on any member.
//!
//! A read asks for an index: the log position up to which this member must have applied before it
//! may answer. The leader gives it after a majority confirmed that it still leads, in a round that
//! began after the read arrived. One round is outstanding per member at a time; all readers that
//! arrive during it share the next one.
//!
//! Never answer a read from a round that began before the read did: that round proves nothing
//! about writes acknowledged in between.

use crate::confirm::Confirmer;
use crate::leadership::Leadership;
use crate::network::conversation::Conversation;
use crate::network::link::{Links, Purpose};
use crate::state_machine::{AppliedIndex, MeerkatRaft};
use crate::tasks::Tasks;
use crate::type_config::{LogId, TypeConfig, Vote, index_of};
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::read_index_response::Result as Wire;
use meerkat_types::{LogIndex, MemberId, Term};
use openraft::RaftState;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Readers waiting for a round. Above it they wait for room before they queue.
const READERS_MAX: usize = 16 * 1024;
/// A read that waits longer for its index is slow, as etcd says.
const SLOW: Duration = Duration::from_millis(500);
/// Pause before a failed round is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadIndexError {
    #[error("this member knows no leader")]
    NoLeader,
    #[error("the leader changed during the read")]
    LeaderChanged,
    #[error("no majority confirmed the leader in time")]
    Timeout,
    #[error("this member is stopping")]
    Stopped,
}

/// What a round of a leader gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// In which this member led, at some moment of the round; `None` if another member did.
    pub term: Option<Term>,
    /// Whoever has applied this far may answer a read that arrived before the round.
    pub index: LogIndex,
}

type Answer = Result<Confirmed, ReadIndexError>;

#[derive(Clone)]
pub struct ReadIndexer {
    /// Rounds wherever the leader is.
    anywhere: mpsc::Sender<oneshot::Sender<Answer>>,
    /// Rounds of this member as leader, for itself and for followers that ask.
    here: mpsc::Sender<oneshot::Sender<Answer>>,
    applied: AppliedIndex,
    timeout: Duration,
    failed: Arc<AtomicU64>,
    slow: Arc<AtomicU64>,
}

type LeaderConversation = Conversation<pb::ReadIndexRequest, pb::ReadIndexResponse>;

struct Rounds {
    /// Held for a whole round of this member as leader.
    confirmer: tokio::sync::Mutex<Confirmer>,
    /// With which leader, and the stream to it. Held for a moment, never across an await.
    conversation: Mutex<Option<(MemberId, LeaderConversation)>>,
    raft: MeerkatRaft,
    links: Arc<Links>,
    leadership: Leadership,
    timeout: Duration,
}

impl ReadIndexer {
    pub(crate) fn start(
        raft: MeerkatRaft,
        confirmer: Confirmer,
        applied: AppliedIndex,
        timeout: Duration,
        tasks: &Tasks,
    ) -> ReadIndexer {
        let (links, leadership) = (confirmer.links.clone(), confirmer.leadership.clone());
        let (confirmer, conversation) = (confirmer.into(), Mutex::new(None));
        let rounds = Arc::new(Rounds { confirmer, conversation, raft, links, leadership, timeout });
        let (here, readers_here) = mpsc::channel(READERS_MAX);
        let (anywhere, readers) = mpsc::channel(READERS_MAX);
        let lead = serve_rounds(readers_here, rounds.clone(), async |rounds: &Rounds| rounds.lead().await);
        tasks.spawn_until_stop("reads of others", lead);
        let own = here.clone();
        let find = serve_rounds(readers, rounds, async move |rounds: &Rounds| rounds.find(&own).await);
        tasks.spawn_until_stop("reads", find);
        ReadIndexer { anywhere, here, applied, timeout, failed: Arc::default(), slow: Arc::default() }
    }

    /// Returns once this member may answer a read that arrived before the call.
    pub async fn ready_to_read(&self) -> Result<(), ReadIndexError> {
        let began = Instant::now();
        let ready = async {
            let Confirmed { index, .. } = ask(&self.anywhere).await?;
            self.applied.reached(index).await.map_err(|_| ReadIndexError::Stopped)
        };
        let result = tokio::time::timeout(self.timeout, ready).await.unwrap_or(Err(ReadIndexError::Timeout));
        if SLOW <= began.elapsed() {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// An index from this member as leader.
    pub(crate) async fn index_as_leader(&self) -> Answer {
        ask(&self.here).await
    }

    /// Returns once a majority has confirmed, in a round begun after the call, that this member leads.
    pub async fn confirm_lead(&self) -> Result<Confirmed, ReadIndexError> {
        let confirmed = tokio::time::timeout(self.timeout, self.index_as_leader());
        confirmed.await.unwrap_or(Err(ReadIndexError::Timeout))
    }

    /// Reads that waited long for their index, since start.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Reads that got no index, since start.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

async fn ask(rounds: &mpsc::Sender<oneshot::Sender<Answer>>) -> Answer {
    let (sender, receiver) = oneshot::channel();
    rounds.send(sender).await.map_err(|_| ReadIndexError::Stopped)?;
    receiver.await.map_err(|_| ReadIndexError::Stopped)?
}

/// Takes all readers that wait, runs one round for them, and answers them all.
async fn serve_rounds<R>(mut readers: mpsc::Receiver<oneshot::Sender<Answer>>, rounds: Arc<Rounds>, round: R)
where
    R: AsyncFn(&Rounds) -> Answer,
{
    let mut sharing = Vec::new();
    while readers.recv_many(&mut sharing, READERS_MAX).await > 0 {
        let answer = round(&rounds).await;
        for reader in sharing.drain(..) {
            // A reader that gave up has nobody left to tell.
            let _ = reader.send(answer);
        }
    }
}

/// What a leader knows of itself at a moment of its round.
struct Lead {
    ballot: Vote,
    voters: Vec<BTreeSet<MemberId>>,
    /// Nothing that was acknowledged before is above it.
    index: LogIndex,
}

impl Lead {
    fn of(state: &RaftState<TypeConfig>) -> Lead {
        let ballot = *state.vote_ref();
        // Of the cluster, not what this member may apply: a majority can be without this member's own
        // disk, and others may have acknowledged what they applied.
        let index = read_position(&ballot, state.cluster_committed(), state.log_ids.last());
        let voters = state.membership_state.effective().membership().get_joint_config().clone();
        Lead { ballot, voters, index }
    }
}

/// Before the first entry of its own term is committed, a leader does not know what is; that entry is in
/// its log from the moment it leads. A leader never takes up its old term again after a restart
/// (`enable_leader_restore`): it would know less of that term than it has acknowledged.
fn read_position(ballot: &Vote, committed: Option<&LogId>, last: Option<&LogId>) -> LogIndex {
    let known = committed.filter(|id| id.leader_id == ballot.leader_id);
    index_of(known.or(last))
}

impl Rounds {
    /// One round as leader; a majority that does not answer in time ends it.
    async fn lead(&self) -> Answer {
        let mut confirmer = self.confirmer.lock().await;
        let round = tokio::time::timeout(self.timeout, self.confirm(&mut confirmer)).await;
        confirmer.end();
        round.unwrap_or(Err(ReadIndexError::Timeout))
    }

    async fn confirm(&self, confirmer: &mut Confirmer) -> Answer {
        let Some(mine) = self.leadership.own_ballot() else { return Err(ReadIndexError::LeaderChanged) };
        confirmer.begin();
        // While the questions travel.
        let lead = self.raft.with_raft_state(Lead::of).await.map_err(|_| ReadIndexError::Stopped)?;
        if lead.ballot != mine {
            return Err(ReadIndexError::LeaderChanged);
        }
        let term = Some(Term(mine.leader_id.term));
        tokio::select! {
            confirmed = confirmer.majority(mine, lead.voters) => {
                confirmed.map_err(|_| ReadIndexError::LeaderChanged)?;
                Ok(Confirmed { term, index: lead.index })
            }
            () = self.leadership.own_term_changed(term) => Err(ReadIndexError::LeaderChanged),
        }
    }

    /// Rounds wherever the leader is, until one succeeds or the time is over.
    async fn find(&self, here: &mpsc::Sender<oneshot::Sender<Answer>>) -> Answer {
        let deadline = Instant::now() + self.timeout;
        let mut last = ReadIndexError::Timeout;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let Some(leader) = self.leadership.wait_for_leader(left).await else {
                return Err(ReadIndexError::Timeout);
            };
            let round = async {
                if leader == self.links.identity().member {
                    ask(here).await
                } else {
                    self.ask_leader(leader, left).await
                }
            };
            // A leader that falls silent is not waited for once another is known.
            let answer = tokio::select! {
                answer = round => answer,
                () = self.leadership.changed_from(Some(leader)) => Err(ReadIndexError::LeaderChanged),
            };
            match answer {
                Ok(index) => return Ok(index),
                Err(ReadIndexError::Stopped) => return Err(ReadIndexError::Stopped),
                Err(error) => last = error,
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Err(last)
    }

    /// Asks on the stream kept open to the leader. One question is out at a time: only the task
    /// that serves `anywhere` asks.
    async fn ask_leader(&self, leader: MemberId, within: Duration) -> Answer {
        // Taken out while in use: a question that is given up takes its stream with it.
        let kept = self.conversation.lock().take().filter(|(with, _)| *with == leader);
        let exchange = async {
            let mut conversation = match kept {
                Some((_, conversation)) => conversation,
                None => self.open(leader).await?,
            };
            let answer = conversation.exchange(pb::ReadIndexRequest {}).await;
            Ok::<_, ReadIndexError>((answer.map_err(|_| ReadIndexError::Timeout)?, conversation))
        };
        let exchanged = tokio::time::timeout(within, exchange).await;
        let (answer, conversation) = exchanged.map_err(|_| ReadIndexError::Timeout)??;
        *self.conversation.lock() = Some((leader, conversation));
        match answer.result {
            Some(Wire::Index(index)) => Ok(Confirmed { term: None, index: LogIndex(index) }),
            Some(Wire::NotLeader(_)) | None => Err(ReadIndexError::LeaderChanged),
        }
    }

    async fn open(&self, leader: MemberId) -> Result<LeaderConversation, ReadIndexError> {
        let node = self.leadership.node(leader).ok_or(ReadIndexError::NoLeader)?;
        let mut link =
            self.links.to(leader, &node, Purpose::Forward).map_err(|_| ReadIndexError::NoLeader)?;
        Conversation::open(|questions| link.read_index(questions)).await.map_err(|_| ReadIndexError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leader_reads_at_the_end_of_its_log_until_it_knows_what_is_committed() {
        let ballot = Vote::new(3, MemberId(1));
        let id = |term, node, index| LogId { leader_id: Vote::new(term, MemberId(node)).leader_id, index };
        for (committed, last, expected) in [
            (None, None, 0),
            (None, Some(id(3, 1, 9)), 9),
            (Some(id(2, 1, 7)), Some(id(3, 1, 9)), 9),
            (Some(id(3, 2, 7)), Some(id(3, 1, 9)), 9),
            (Some(id(3, 1, 8)), Some(id(3, 1, 9)), 8),
        ] {
            assert_eq!(
                read_position(&ballot, committed.as_ref(), last.as_ref()),
                LogIndex(expected),
                "{committed:?}"
            );
        }
    }
}
