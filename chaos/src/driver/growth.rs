//! A cluster that gains and loses members while it runs.
//!
//! The Cluster service is etcd's, so the same steps change either product. A change whose answer was
//! lost is asked for again: that the member is there already, or is gone, then counts as done. So each
//! function here ends with the change made or with a failure, whatever happens to members meanwhile.

use std::time::{Duration, Instant};

use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::{Member as Listed, MemberAddRequest};
use tonic::{Code, Status};

use super::black_hole::Door;
use super::cluster::{Cluster, State, member_args, peer_url};
use super::member::Member;
use crate::endpoint::Endpoint;
use crate::outcome::describe;
use crate::{Failure, Patience};

/// How long one member may take to answer before another is asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long those who are there may take to tell a newcomer who they are, and each of them to answer.
const LIST_WITHIN: Duration = Duration::from_secs(20);
const LIST_ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Between two rounds of asking.
const PAUSE: Duration = Duration::from_millis(200);

/// What a member is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One that votes.
    Voter,
    /// One that only follows.
    Learner,
}

/// A member that was added to a running cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its place in [`Cluster::members`].
    pub index: usize,
    /// Its id.
    pub id: u64,
}

/// How a member stands to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Laid out, and not yet told who the others are.
    New,
    /// One of them.
    Enlisted,
    /// No longer.
    Discharged,
}

impl Cluster {
    /// Adds a member, starts it on an empty directory and waits until it serves: a voter linearizable
    /// reads, a learner its status.
    pub async fn join(&mut self, role: Role, within: Duration) -> Result<Joined, Failure> {
        let joined = self.announce(role, within).await?;
        self.members[joined.index].start()?;
        self.wait_until_joined(joined, role, within).await?;
        Ok(joined)
    }

    /// Like [`Cluster::join`], with a door before the new member's peer port.
    pub async fn join_with_door(&mut self, role: Role, within: Duration) -> Result<(Joined, Door), Failure> {
        let member = self.lay_out()?;
        let door = Door::before(member.peer_port()).await?;
        let joined = self.add(member, door.url(), role, within).await?;
        self.members[joined.index].start()?;
        self.wait_until_joined(joined, role, within).await?;
        Ok((joined, door))
    }

    /// Adds a member to the cluster without starting it; `cluster.member(joined.index).start()` does.
    pub async fn announce(&mut self, role: Role, within: Duration) -> Result<Joined, Failure> {
        let member = self.lay_out()?;
        let url = peer_url(&member);
        self.add(member, url, role, within).await
    }

    async fn add(
        &mut self,
        mut member: Member,
        url: String,
        role: Role,
        within: Duration,
    ) -> Result<Joined, Failure> {
        let request = MemberAddRequest { peer_ur_ls: vec![url.clone()], is_learner: role == Role::Learner };
        let mut asked = Vec::new();
        self.until_done("adding a member", within, async |endpoint: &Endpoint| {
            match endpoint.member_add(request.clone(), ANSWER_WITHIN).await {
                Ok(answer) => asked = answer.members,
                // By ourselves, in a call whose answer was lost: nobody else knows the port.
                Err(status) if status.message() == EtcdError::PeerUrlExist.message() => {
                    asked = endpoint.member_list(true, ANSWER_WITHIN).await?.members;
                }
                Err(status) => return Err(status),
            }
            Ok(())
        })
        .await?;
        let id = asked.iter().find(|listed| listed.peer_ur_ls.contains(&url)).map(|listed| listed.id);
        let id =
            id.ok_or_else(|| Failure::broken(format!("{url} was added and is not listed: {asked:?}")))?;
        let initial = self.describe_existing(&asked, member.name(), &url);
        let args = member_args(&self.spec, &member, &url, &initial, State::Existing);
        member.set_args(url, args);
        self.members.push(member);
        Ok(Joined { index: self.members.len() - 1, id })
    }

    /// Lays out one more member of which the cluster is told nothing; its place. It can be started
    /// after [`Cluster::prepare_to_join`].
    pub fn lay_out_newcomer(&mut self) -> Result<usize, Failure> {
        let mut member = self.lay_out()?;
        member.set_args(peer_url(&member), Vec::new());
        self.members.push(member);
        Ok(self.members.len() - 1)
    }

    /// Makes a newcomer ready to be started into the cluster that lists these members.
    pub fn prepare_to_join(&mut self, index: usize, listed: &[Listed]) {
        let member = &self.members[index];
        let url = member.peer_url().to_owned();
        let initial = self.describe_existing(listed, member.name(), &url);
        let args = member_args(&self.spec, member, &url, &initial, State::Existing);
        self.members[index].set_args(url, args);
    }

    /// Tells a member that was laid out, and added to the cluster since, who belongs to it, by asking
    /// the others until one answers.
    pub(super) async fn introduce(
        &mut self,
        member: usize,
        url: String,
        others: &[usize],
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + LIST_WITHIN;
        let mut last = "nobody was asked".to_owned();
        while Instant::now() < deadline {
            for other in others.iter().filter(|other| **other != member) {
                match self.members[*other].endpoint().member_list(true, LIST_ANSWER_WITHIN).await {
                    Ok(answer) if answer.members.iter().any(|listed| listed.peer_ur_ls.contains(&url)) => {
                        let own = &self.members[member];
                        let initial = self.describe_existing(&answer.members, own.name(), &url);
                        let args = member_args(&self.spec, own, &url, &initial, State::Existing);
                        self.members[member].set_args(url, args);
                        return Ok(());
                    }
                    Ok(_) => last = format!("{url} is not listed"),
                    Err(status) => last = describe(&status),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Failure::broken(format!("nobody tells a newcomer of its cluster (last answer: {last})")))
    }

    /// `--initial-cluster` for one that joins. A member that was never started has no name yet.
    pub(super) fn describe_existing(&self, listed: &[Listed], own: &str, own_url: &str) -> String {
        let entry = |listed: &Listed, url: &String| {
            if url == own_url {
                return format!("{own}={url}");
            }
            let laid_out = self.members.iter().find(|member| member.peer_url() == url);
            match laid_out {
                Some(member) => format!("{}={url}", member.name()),
                None if listed.name.is_empty() => format!("unstarted-{:x}={url}", listed.id),
                None => format!("{}={url}", listed.name),
            }
        };
        let entries =
            listed.iter().flat_map(|listed| listed.peer_ur_ls.iter().map(move |url| entry(listed, url)));
        entries.collect::<Vec<_>>().join(",")
    }

    /// Waits until a member that joined serves in its role.
    pub async fn wait_until_joined(
        &mut self,
        joined: Joined,
        role: Role,
        within: Duration,
    ) -> Result<(), Failure> {
        let member = &mut self.members[joined.index];
        if role == Role::Voter {
            return member.wait_until_ready(within).await.map(drop);
        }
        let patience = Patience::of(format!("{} joins", member.name()), within);
        loop {
            if !member.is_running()? {
                return Err(Failure::broken(format!(
                    "{} ended while joining: {}",
                    member.name(),
                    member.tail()
                )));
            }
            if member.endpoint().status(ANSWER_WITHIN).await.is_ok_and(|status| status.leader != 0) {
                return patience.came().map(drop);
            }
            let waited = patience.pause(PAUSE, "it knows no leader").await;
            waited.map_err(|never| never.put(|why| format!("{why}: {}", member.tail())))?;
        }
    }

    /// Makes a learner a voter, as soon as the cluster finds it ready.
    pub async fn promote(&self, id: u64, within: Duration) -> Result<(), Failure> {
        self.until_done("promoting a member", within, async |endpoint: &Endpoint| {
            match endpoint.member_promote(id, ANSWER_WITHIN).await {
                Ok(_) => Ok(()),
                Err(status) if status.message() == EtcdError::MemberNotLearner.message() => Ok(()),
                Err(status) => Err(status),
            }
        })
        .await
    }

    /// Removes a member from the cluster and from [`Cluster::members`], so that later indexes move down
    /// by one. Its process, if it runs, is left to find out by itself.
    pub async fn forget(&mut self, index: usize, within: Duration) -> Result<Member, Failure> {
        let id = self.id_of(index, within).await?;
        let member = self.members.remove(index);
        self.until_done("removing a member", within, async |endpoint: &Endpoint| {
            match endpoint.member_remove(id, ANSWER_WITHIN).await {
                Ok(_) => Ok(()),
                Err(status) if status.message() == EtcdError::MemberNotFound.message() => Ok(()),
                Err(status) => Err(status),
            }
        })
        .await?;
        Ok(member)
    }

    /// The id by which the cluster knows a member, from whoever answers.
    pub async fn id_of(&self, index: usize, within: Duration) -> Result<u64, Failure> {
        let url = self.members[index].peer_url().to_owned();
        let mut found = None;
        self.until_done("listing members", within, async |endpoint: &Endpoint| {
            let listed = endpoint.member_list(true, ANSWER_WITHIN).await?.members;
            found = listed.iter().find(|listed| listed.peer_ur_ls.contains(&url)).map(|listed| listed.id);
            Ok(())
        })
        .await?;
        found.ok_or_else(|| Failure::broken(format!("no member is listed with {url}")))
    }

    /// Asks one member after the other until one has done it.
    async fn until_done(
        &self,
        what: &str,
        within: Duration,
        mut ask: impl AsyncFnMut(&Endpoint) -> Result<(), Status>,
    ) -> Result<(), Failure> {
        let patience = Patience::of(what, within);
        let mut last = "nobody was asked".to_owned();
        loop {
            for member in &self.members {
                match ask(member.endpoint()).await {
                    Ok(()) => return patience.came().map(drop),
                    Err(status) if is_final(&status) => {
                        return Err(Failure::broken(format!("{what}: {}", describe(&status))));
                    }
                    Err(status) => last = describe(&status),
                }
            }
            patience.pause(PAUSE, &last).await?;
        }
    }
}

/// Whether asking again could not help. A learner refuses, and a readiness not yet there, are for a
/// while; so is every loss of contact.
fn is_final(status: &Status) -> bool {
    let passing =
        [EtcdError::LearnerNotReady, EtcdError::NotSupportedForLearner, EtcdError::MemberNotEnoughStarted];
    matches!(
        status.code(),
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::Unimplemented
    ) && !passing.iter().any(|error| error.message() == status.message())
}
