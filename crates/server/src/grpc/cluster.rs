//! The Cluster service: who is in the cluster, and changes of that.
//!
//! Changes are for administrators, whom the door of authentication lets in; to look is for whoever says
//! who they are.

use super::header::Headers;
use super::status;
use crate::auth::{Caller, Guard};
use crate::config::MemberUrl;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::cluster_server::Cluster;
use meerkat_raft::{MemberChange, Peer, RaftNode};
use meerkat_state::Need;
use meerkat_types::{MemberId, Refusal};
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub(crate) struct ClusterService {
    raft: Arc<RaftNode>,
    headers: Headers,
    guard: Guard,
}

impl ClusterService {
    pub(crate) fn new(raft: Arc<RaftNode>, headers: Headers, guard: Guard) -> ClusterService {
        ClusterService { raft, headers, guard }
    }

    /// A member that has not started yet has no name and no client URLs.
    fn describe(&self, peers: Vec<Peer>) -> Vec<pb::Member> {
        let published = self.raft.reader().members();
        let member = |peer: Peer| {
            let attributes = published.iter().find(|known| known.member == peer.id);
            pb::Member {
                id: peer.id.0,
                name: attributes.map(|known| known.name.clone()).unwrap_or_default(),
                peer_ur_ls: peer.peer_urls,
                client_ur_ls: attributes.map(|known| known.client_urls.clone()).unwrap_or_default(),
                is_learner: peer.learner,
            }
        };
        peers.into_iter().map(member).collect()
    }

    async fn change(
        &self,
        change: MemberChange,
    ) -> Result<(Option<pb::ResponseHeader>, Vec<pb::Member>), Status> {
        let peers = self.raft.changes().make(change).await.map_err(status::member_change)?;
        Ok((Some(self.headers.without_revision()), self.describe(peers)))
    }
}

/// Sorted, since ids are made of them.
fn peer_urls(given: &[String]) -> Result<Vec<String>, Status> {
    let urls = given.iter().map(|url| MemberUrl::parse(url).map(|url| url.to_string()));
    let mut urls = urls.collect::<Result<Vec<_>, _>>().map_err(|_| status::etcd(EtcdError::MemberBadUrls))?;
    urls.sort_unstable();
    if urls.is_empty() { Err(status::etcd(EtcdError::MemberBadUrls)) } else { Ok(urls) }
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let caller = Caller::of(&request);
        if request.into_inner().linearizable {
            self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
        }
        // Only now: a member that was behind may have learned that callers must say who they are.
        let permitted = self.guard.permit_now(&caller, &[Need::Login]);
        permitted.map_err(|refusal| status::refused(&Refusal::Auth(refusal)))?;
        let header = Some(self.headers.without_revision());
        Ok(Response::new(pb::MemberListResponse { header, members: self.describe(self.raft.members()) }))
    }

    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let request = request.into_inner();
        let urls = peer_urls(&request.peer_ur_ls)?;
        let added = self.raft.changes().add(urls, request.is_learner).await;
        let (id, peers) = added.map_err(status::member_change)?;
        let members = self.describe(peers);
        let member = members.iter().find(|member| member.id == id.0).cloned();
        let header = Some(self.headers.without_revision());
        Ok(Response::new(pb::MemberAddResponse { header, member, members }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        let (header, members) =
            self.change(MemberChange::Remove { id: MemberId(request.into_inner().id) }).await?;
        Ok(Response::new(pb::MemberRemoveResponse { header, members }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let request = request.into_inner();
        let peer_urls = peer_urls(&request.peer_ur_ls)?;
        let (header, members) =
            self.change(MemberChange::Update { id: MemberId(request.id), peer_urls }).await?;
        Ok(Response::new(pb::MemberUpdateResponse { header, members }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        let (header, members) =
            self.change(MemberChange::Promote { id: MemberId(request.into_inner().id) }).await?;
        Ok(Response::new(pb::MemberPromoteResponse { header, members }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_urls_are_sorted_and_every_one_must_be_usable() {
        let given = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let good = peer_urls(&given(&["http://b:2", " http://a:10"])).expect("usable");
        assert_eq!(good, given(&["http://a:10", "http://b:2"]));
        for bad in [&[][..], &["http://a:1", "nonsense"], &["http://a"], &["http://a:1/path"], &["ftp://a:1"]]
        {
            let refused = peer_urls(&given(bad)).expect_err("refused");
            assert_eq!(refused.message(), EtcdError::MemberBadUrls.message(), "{bad:?}");
        }
    }
}
