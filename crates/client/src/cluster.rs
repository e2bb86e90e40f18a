//! The members of the cluster.

use crate::Client;
use crate::call::Attempt;
use crate::error::{Error, Fate};
use crate::retry::CallKind;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::cluster_client::ClusterClient;
use meerkat_types::MemberId;
use std::time::Duration;

impl Client {
    /// The members of the cluster.
    pub fn cluster(&self) -> Cluster {
        Cluster { client: self.clone() }
    }
}

/// The members of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    client: Client,
}

/// A member, as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its number, for ever its own.
    pub id: MemberId,
    /// Its name; empty until it has first started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has first started.
    pub client_urls: Vec<String>,
    /// It has no vote yet.
    pub learner: bool,
}

impl From<pb::Member> for Member {
    fn from(wire: pb::Member) -> Member {
        Member {
            id: MemberId(wire.id),
            name: wire.name,
            peer_urls: wire.peer_ur_ls,
            client_urls: wire.client_ur_ls,
            learner: wire.is_learner,
        }
    }
}

fn members(wire: Vec<pb::Member>) -> Vec<Member> {
    wire.into_iter().map(Member::from).collect()
}

fn client(attempt: &Attempt) -> ClusterClient<crate::balancer::Wire> {
    ClusterClient::new(attempt.wire.clone())
}

impl Cluster {
    /// All members, confirmed by a majority.
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        self.list(true).await
    }

    /// All members, as the asked one knows them: possible without a majority.
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn members_serializable(&self) -> Result<Vec<Member>, Error> {
        self.list(false).await
    }

    async fn list(&self, linearizable: bool) -> Result<Vec<Member>, Error> {
        let kind = if linearizable { CallKind::Read } else { CallKind::LocalRead };
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::MemberListRequest { linearizable });
            async move { client(&attempt).member_list(request).await }
        };
        Ok(members(self.client.call(kind, None, send).await?.answer.members))
    }

    /// Asks for the members and uses their client URLs as this client's endpoints from now on.
    /// Without a single usable URL among them the endpoints stay as they were. Do this only where the
    /// URLs that members advertise can be reached from here, which behind a proxy they may not.
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn sync(&self) -> Result<Vec<Member>, Error> {
        let members = self.members_serializable().await?;
        let urls: Vec<String> = members.iter().flat_map(|member| member.client_urls.clone()).collect();
        // One bad URL in the cluster's list must not cost the others.
        let usable: Vec<String> = urls.into_iter().filter(|url| self.client.pool().accepts(url)).collect();
        if !usable.is_empty() {
            self.client.pool().set_endpoints(&usable)?;
        }
        Ok(members)
    }

    /// Adds a member that votes.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn add<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Member, Error> {
        self.add_as(peer_urls.into_iter().map(Into::into).collect(), false).await
    }

    /// Adds a member that follows without a vote until it is promoted.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn add_learner<U: Into<String>>(
        &self,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Member, Error> {
        self.add_as(peer_urls.into_iter().map(Into::into).collect(), true).await
    }

    async fn add_as(&self, peer_urls: Vec<String>, learner: bool) -> Result<Member, Error> {
        let message = pb::MemberAddRequest { peer_ur_ls: peer_urls, is_learner: learner };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).member_add(request).await }
        };
        let done = self.client.call(CallKind::Write, None, send).await?;
        let missing = || Error::garbled(Fate::Unknown, "the cluster did not say which member it added");
        Ok(done.answer.member.ok_or_else(missing)?.into())
    }

    /// Removes a member. Its process ends by itself.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn remove(&self, member: MemberId) -> Result<Vec<Member>, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::MemberRemoveRequest { id: member.0 });
            async move { client(&attempt).member_remove(request).await }
        };
        Ok(members(self.client.call(CallKind::Write, None, send).await?.answer.members))
    }

    /// Changes where other members reach a member.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn update<U: Into<String>>(
        &self,
        member: MemberId,
        peer_urls: impl IntoIterator<Item = U>,
    ) -> Result<Vec<Member>, Error> {
        let peer_ur_ls = peer_urls.into_iter().map(Into::into).collect();
        let message = pb::MemberUpdateRequest { id: member.0, peer_ur_ls };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).member_update(request).await }
        };
        Ok(members(self.client.call(CallKind::Idempotent, None, send).await?.answer.members))
    }

    /// Gives a learner its vote.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn promote(&self, member: MemberId) -> Result<Vec<Member>, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::MemberPromoteRequest { id: member.0 });
            async move { client(&attempt).member_promote(request).await }
        };
        Ok(members(self.client.call(CallKind::Write, None, send).await?.answer.members))
    }
}

/// Asks for the members now and then, for as long as the client lives.
pub(crate) async fn keep_synced(client: std::sync::Weak<crate::client::Shared>, interval: Duration) {
    loop {
        // Drawn anew each time, so that the clients of one cluster do not fall into step.
        let pause = interval.mul_f64(0.75 + 0.5 * rand::random::<f64>());
        tokio::time::sleep(pause).await;
        let Some(shared) = client.upgrade() else { return };
        if let Err(error) = Client::whole(shared).cluster().sync().await {
            tracing::debug!(%error, "the members could not be asked for");
        }
    }
}
