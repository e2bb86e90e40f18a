//! Makes changes of the membership, on the leader, one at a time.
//!
//! A change is judged and written against one membership, whose log position is its precondition: if
//! another one got in between, it is judged anew. A change that is in the log and not agreed on yet
//! is waited for. A leader that is to be removed first hands over to the best of the others and then
//! says that it does not lead; whoever asked asks the next one.

use super::rules::{ChangeRefusal, MemberChange, Reach, Roster, Rules, Seat};
use super::step::{self, Step};
use super::{ChangeError, Changed};
use crate::leadership::{Leadership, peers_of};
use crate::presence::Presence;
use crate::state_machine::MeerkatRaft;
use crate::type_config::{LogId, Membership, StoredMembership, TypeConfig, index_of};
use meerkat_state::StateReader;
use meerkat_types::{LogIndex, MemberId};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::{ClientWriteResponse, Precondition};
use openraft::{ChangeMembers, EntryPayload};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Before a change that is in another's way is looked at again.
const PAUSE: Duration = Duration::from_millis(20);
/// How far behind the leader's log a member may be to get a vote, or the lead. What is missing arrives
/// in less than an election takes.
const LAG_MAX: u64 = 1_000;

pub(crate) struct Changer {
    pub(super) raft: MeerkatRaft,
    pub(super) leadership: Leadership,
    pub(super) presence: Presence,
    pub(super) reader: StateReader,
    pub(super) rules: Rules,
    pub(super) me: MemberId,
    pub(super) timeout: Duration,
    /// Whose turn it is to change something.
    pub(super) turn: Mutex<()>,
}

/// What the leader's Raft says of itself at one moment.
struct View {
    membership: Arc<StoredMembership>,
    /// The newest membership is agreed on.
    settled: bool,
    last: LogIndex,
    matched: BTreeMap<MemberId, LogIndex>,
}

impl View {
    fn members(&self) -> &Membership {
        self.membership.membership()
    }

    /// Not so one that has nothing yet, however short the log.
    fn has_caught_up(&self, id: MemberId) -> bool {
        self.matched.get(&id).is_some_and(|matched| LogIndex(0) < *matched && self.last <= *matched + LAG_MAX)
    }
}

/// What became of one attempt.
enum Attempt {
    Made(Changed),
    /// Nothing was written: look again.
    Again,
}

impl Changer {
    /// `again`: asked before, with no answer. A change that is there then counts as made.
    pub(crate) async fn change(&self, change: &MemberChange, again: bool) -> Result<Changed, ChangeError> {
        let made = async {
            let _turn = self.turn.lock().await;
            loop {
                match self.attempt(change, again).await? {
                    Attempt::Made(changed) => return Ok(changed),
                    Attempt::Again => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        tokio::time::timeout(self.timeout, made).await.unwrap_or(Err(ChangeError::Timeout))
    }

    async fn attempt(&self, change: &MemberChange, again: bool) -> Result<Attempt, ChangeError> {
        if self.leadership.own_term().is_none() {
            return Err(ChangeError::NotLeader);
        }
        let view = self.view();
        if !view.settled {
            return Ok(Attempt::Again);
        }
        if again && step::is_made(view.members(), change) {
            let index = index_of(view.membership.log_id().as_ref());
            return Ok(Attempt::Made(Changed { index, members: peers_of(view.members()) }));
        }
        if matches!(change, MemberChange::Add { id, .. } if self.reader.is_removed(*id)) {
            return Err(ChangeError::Refused(ChangeRefusal::NotFound));
        }
        self.rules.check(change, &self.roster(&view)).map_err(ChangeError::Refused)?;
        if *change == (MemberChange::Remove { id: self.me }) {
            return self.hand_over(&view).await;
        }
        self.write(&view, change).await
    }

    /// One step of the membership, agreed on and applied here.
    async fn write(&self, view: &View, change: &MemberChange) -> Result<Attempt, ChangeError> {
        let precondition = [Precondition::LastMembershipLogId {
            last_membership_log_id: view.membership.log_id().as_ref().map(|id: &LogId| *id),
        }];
        let written = match step::step(view.members(), change) {
            Some(Step::Append(next)) => {
                self.raft.append_membership(next, EntryPayload::Blank, precondition).await
            }
            Some(Step::SetNodes(nodes)) => {
                let nodes = ChangeMembers::SetNodes(nodes);
                self.raft.change_membership_if(nodes, true, precondition).await
            }
            // A membership of two configurations, which no version writes, or nobody left.
            None => return Err(ChangeError::Refused(ChangeRefusal::NotEnoughStarted)),
        };
        outcome(written)
    }

    /// Gives the lead away, so that the next leader can remove this member.
    async fn hand_over(&self, view: &View) -> Result<Attempt, ChangeError> {
        let Some(to) = self.successor(view) else { return Ok(Attempt::Again) };
        tracing::info!(to = %to, "handing over the lead before this member is removed");
        self.transfer(to).await?;
        self.leadership.changed_from(Some(self.me)).await;
        Err(ChangeError::NotLeader)
    }

    /// Gives the lead away, if this member has it, before it stops. Returns once another member leads,
    /// or when no other can take the lead in time.
    pub(crate) async fn hand_over_to_stop(&self) {
        let began = Instant::now();
        if self.leadership.own_term().is_none() || self.connected_voters(&self.view()).is_empty() {
            return;
        }
        let handed = async {
            let to = loop {
                match self.successor(&self.view()) {
                    Some(to) => break to,
                    None => tokio::time::sleep(PAUSE).await,
                }
            };
            tracing::info!(to = %to, "leadership transfer starting");
            self.transfer(to).await?;
            // The others may be stopping too.
            while self.connected_voters(&self.view()).contains(&to) {
                match self.leadership.leader() {
                    Some(next) if next != self.me => return Ok(next),
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
            Err(ChangeError::Stopped)
        };
        let took = || began.elapsed();
        match tokio::time::timeout(self.leadership.election_timeout(), handed).await {
            Ok(Ok(to)) => {
                tracing::info!(to = %to, took = ?took(), "leadership transfer finished");
            }
            Ok(Err(_)) | Err(_) => {
                tracing::info!(took = ?took(), "leadership transfer failed; the others will elect a leader");
            }
        }
    }

    /// The best of the others to lead next, if one is connected and has most of the log.
    fn successor(&self, view: &View) -> Option<MemberId> {
        let ready = self.connected_voters(view).into_iter().filter(|id| view.has_caught_up(*id));
        ready.max_by_key(|id| view.matched.get(id).copied())
    }

    /// The other voters that are connected.
    fn connected_voters(&self, view: &View) -> Vec<MemberId> {
        let others = view.members().voter_ids().filter(|id| *id != self.me);
        others.filter(|id| self.presence.connected_for(*id).is_some()).collect()
    }

    /// Moves the lead to another voter and waits until that one leads. Whether it is one, and whether
    /// this member leads, is the caller's to check.
    pub(crate) async fn move_leader(&self, to: MemberId) -> Result<(), ChangeError> {
        let moved = async {
            // A transfer stops writes until it is over, so the target has most of the log before.
            while !self.view().has_caught_up(to) || self.presence.connected_for(to).is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            self.transfer(to).await?;
            while self.leadership.leader() != Some(to) {
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        tokio::time::timeout(self.timeout, moved).await.unwrap_or(Err(ChangeError::Timeout))
    }

    async fn transfer(&self, to: MemberId) -> Result<(), ChangeError> {
        self.raft.trigger().transfer_leader(to).await.map_err(|_| ChangeError::Stopped)
    }

    /// Gives a vote to one of those who wait for theirs and have caught up. `false` when Raft has
    /// stopped.
    pub(super) async fn keep_a_promise(&self) -> bool {
        if self.leadership.is_over() {
            return false;
        }
        if self.leadership.own_term().is_none() {
            return true;
        }
        // Somebody else's turn: there will be another tick.
        let Ok(_turn) = self.turn.try_lock() else { return true };
        let view = self.view();
        // With a name it has told whose disk it runs on, so that a wiped one is known for what it is.
        let started: Vec<MemberId> = self.reader.members().into_iter().map(|known| known.member).collect();
        let ready = |id: &MemberId| {
            started.contains(id) && view.has_caught_up(*id) && self.presence.connected_for(*id).is_some()
        };
        let waiting = step::waiting(view.members()).into_iter().find(ready);
        if let Some(id) = waiting.filter(|_| view.settled) {
            let promote = MemberChange::Promote { id };
            match tokio::time::timeout(self.timeout, self.write(&view, &promote)).await {
                Ok(Ok(Attempt::Made(_))) => tracing::info!(member = %id, "a member has its vote"),
                Ok(Ok(Attempt::Again) | Err(_)) | Err(_) => {}
            }
        }
        true
    }

    fn view(&self) -> View {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let matched = metrics.replication.iter().flatten();
        let matched = matched.map(|(id, matched)| (*id, index_of(matched.as_ref())));
        View {
            membership: metrics.membership_config.clone(),
            settled: metrics.membership_config.log_id() == metrics.committed_membership_config.log_id(),
            last: LogIndex(metrics.last_log_index.unwrap_or(0)),
            matched: matched.collect(),
        }
    }

    fn roster(&self, view: &View) -> Roster {
        let started: Vec<MemberId> = self.reader.members().into_iter().map(|known| known.member).collect();
        let votes: Vec<MemberId> = view.members().voter_ids().collect();
        let seats = peers_of(view.members()).into_iter().map(|peer| Seat {
            votes: votes.contains(&peer.id),
            reach: match self.presence.connected_for(peer.id) {
                _ if peer.id == self.me => Reach::Myself,
                Some(time) => Reach::For(time),
                None => Reach::Silent,
            },
            started: started.contains(&peer.id),
            matched: view.matched.get(&peer.id).copied().unwrap_or_default(),
            id: peer.id,
            peer_urls: peer.peer_urls,
            learner: peer.learner,
        });
        Roster { seats: seats.collect(), last: view.last }
    }
}

type Written = Result<ClientWriteResponse<TypeConfig>, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>;

fn outcome(written: Written) -> Result<Attempt, ChangeError> {
    match written {
        Ok(response) => Ok(Attempt::Made(Changed {
            index: LogIndex(response.log_id.index),
            members: response.membership.as_ref().map(peers_of).unwrap_or_default(),
        })),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(ChangeError::NotLeader),
        Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => Err(ChangeError::Timeout),
        // Another change came between, or this leader is too new to know what is agreed on.
        Err(RaftError::APIError(
            ClientWriteError::PreconditionFailed(_)
            | ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
            ),
        )) => Ok(Attempt::Again),
        Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error))) => {
            tracing::error!(%error, "a change of the membership was not accepted");
            Err(ChangeError::Refused(ChangeRefusal::NotEnoughStarted))
        }
        Err(RaftError::Fatal(_)) => Err(ChangeError::Stopped),
    }
}
