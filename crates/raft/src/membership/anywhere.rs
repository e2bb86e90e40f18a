//! Changes of the membership, asked for at any member.
//!
//! Asked again until the time is over, of whoever leads by then: since a change that was already made
//! is recognised, a leader that dies half-way costs the client a wait and not a doubt.

use super::rules::{MemberChange, Rules};
use super::{ChangeError, Changed, Changer, wire};
use crate::identity;
use crate::leadership::{Leadership, Peer};
use crate::network::link::{Links, Purpose};
use crate::presence;
use crate::propose::certainly_not_sent;
use crate::state_machine::{AppliedIndex, MeerkatRaft};
use crate::tasks::Tasks;
use meerkat_state::StateReader;
use meerkat_types::MemberId;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Before asking again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long this member's own log is waited for before it answers. One that was removed may never see
/// the end of it.
const APPLIED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct MemberChanges {
    pub(crate) changer: Arc<Changer>,
    links: Arc<Links>,
    leadership: Leadership,
    reader: StateReader,
    applied: AppliedIndex,
    timeout: Duration,
}

/// How the last leader left the question.
enum Asked {
    Answered(Result<Changed, ChangeError>),
    /// It certainly did nothing.
    NotTaken,
    /// It may have done it.
    Unanswered,
}

impl MemberChanges {
    /// Begins to greet the other members and to keep what was promised to those that were added.
    pub(crate) fn start(
        raft: MeerkatRaft,
        links: Arc<Links>,
        leadership: Leadership,
        (reader, applied): (StateReader, AppliedIndex),
        rules: Rules,
        timeout: Duration,
        tasks: &Tasks,
    ) -> MemberChanges {
        let greeting = presence::run(links.clone(), leadership.clone(), reader.clone());
        tasks.spawn_until_stop("presence", greeting);
        let changer = Arc::new(Changer {
            raft,
            leadership: leadership.clone(),
            presence: links.presence().clone(),
            reader: reader.clone(),
            rules,
            me: links.identity().member,
            timeout,
            turn: tokio::sync::Mutex::default(),
        });
        tasks.spawn_until_stop("membership", super::keeper::run(changer.clone()));
        MemberChanges { changer, links, leadership, reader, applied, timeout }
    }

    /// Adds a member and says which id it has.
    pub async fn add(
        &self,
        peer_urls: Vec<String>,
        learner: bool,
    ) -> Result<(MemberId, Vec<Peer>), ChangeError> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let present = self.leadership.peers();
        let taken = |id: MemberId| present.iter().any(|peer| peer.id == id) || self.reader.is_removed(id);
        let id = identity::added_member_id(&peer_urls, seconds, taken);
        let members = self.make(MemberChange::Add { id, peer_urls, learner }).await?;
        Ok((id, members))
    }

    /// Makes a change; returns all members after it.
    pub async fn make(&self, change: MemberChange) -> Result<Vec<Peer>, ChangeError> {
        let deadline = Instant::now() + self.timeout;
        let mut again = false;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let Some(leader) = self.leadership.wait_for_leader(left).await else { break };
            // A leader that falls silent is not waited for once another is known.
            let asked = tokio::select! {
                asked = self.ask(leader, &change, again, left) => asked,
                () = self.leadership.changed_from(Some(leader)) => Asked::Unanswered,
            };
            match asked {
                Asked::Answered(Ok(changed)) => {
                    let within = left.min(APPLIED_WITHIN);
                    let _ = tokio::time::timeout(within, self.applied.reached(changed.index)).await;
                    return Ok(changed.members);
                }
                Asked::Answered(Err(error)) => return Err(error),
                Asked::NotTaken => {}
                Asked::Unanswered => again = true,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(ChangeError::Timeout)
    }

    async fn ask(&self, leader: MemberId, change: &MemberChange, again: bool, within: Duration) -> Asked {
        let result = if leader == self.links.identity().member {
            self.changer.change(change, again).await
        } else {
            match self.ask_peer(leader, change, again, within).await {
                Ok(result) => result,
                Err(asked) => return asked,
            }
        };
        match result {
            Err(ChangeError::NotLeader) => Asked::NotTaken,
            Err(ChangeError::Timeout) => Asked::Unanswered,
            answered => Asked::Answered(answered),
        }
    }

    async fn ask_peer(
        &self,
        leader: MemberId,
        change: &MemberChange,
        again: bool,
        within: Duration,
    ) -> Result<Result<Changed, ChangeError>, Asked> {
        let node = self.leadership.node(leader).ok_or(Asked::NotTaken)?;
        let mut link = self.links.to(leader, &node, Purpose::Forward).map_err(|_| Asked::NotTaken)?;
        let mut request = tonic::Request::new(wire::change_to_wire(change, again));
        request.set_timeout(within);
        match link.change_members(request).await {
            Ok(answer) => Ok(wire::changed_from_wire(answer.into_inner())),
            Err(status) if certainly_not_sent(&status) => Err(Asked::NotTaken),
            Err(_) => Err(Asked::Unanswered),
        }
    }
}
