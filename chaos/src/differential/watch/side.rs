//! One of the two clusters compared, and the streams open to it.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{WatchCancelRequest, WatchCreateRequest};
use tonic::transport::Channel;

use super::transcript::{Identity, Transcript};
use super::wire::WatchStream;
use crate::Failure;
use crate::differential::request::{Answer, Request};
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::outcome::describe;

/// Within which time anything owed must have come.
pub const HEARD_WITHIN: Duration = Duration::from_secs(10);
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// One cluster.
#[derive(Debug)]
pub struct Side {
    /// Whose.
    pub product: Product,
    cluster: Cluster,
    channels: Vec<Channel>,
    identities: Vec<Identity>,
    /// By number; none once closed.
    streams: Vec<Option<WatchStream>>,
    /// One for each member, for watchers that only find out whether others have caught up.
    probes: Vec<WatchStream>,
}

impl Side {
    /// Starts a cluster.
    pub async fn start(product: Product, members: usize, flags: &[&str]) -> Result<Self, Failure> {
        let cluster = Cluster::start(&ClusterSpec::new(product, members).with_flags(flags)).await?;
        let mut side = Self {
            product,
            cluster,
            channels: Vec::new(),
            identities: Vec::new(),
            streams: Vec::new(),
            probes: Vec::new(),
        };
        for index in 0..members {
            let endpoint = side.cluster.members()[index].endpoint().clone();
            let channel = tonic::transport::Endpoint::from_shared(endpoint.url().to_owned())
                .map_err(|error| Failure::harness(format!("bad endpoint {}: {error}", endpoint.url())))?
                .connect_lazy();
            let status = endpoint.status(ASK_WITHIN).await;
            let status =
                status.map_err(|status| Failure::broken(format!("status: {}", describe(&status))))?;
            let header = status.header.unwrap_or_default();
            let identity = Identity { cluster: header.cluster_id, member: header.member_id };
            side.probes.push(WatchStream::open(&channel, identity, false));
            side.channels.push(channel);
            side.identities.push(identity);
        }
        Ok(side)
    }

    /// The cluster itself.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// Ends a run that succeeded.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.streams.clear();
        self.probes.clear();
        self.cluster.finish()
    }

    /// One more stream, numbered after the last.
    pub fn open(&mut self, member: usize, requires_leader: bool) {
        let stream = self.open_unnumbered(member, requires_leader);
        self.streams.push(Some(stream));
    }

    /// A stream that the caller keeps.
    pub fn open_unnumbered(&self, member: usize, requires_leader: bool) -> WatchStream {
        WatchStream::open(&self.channels[member], self.identities[member], requires_leader)
    }

    /// Closes a stream.
    pub fn close(&mut self, stream: usize) {
        self.streams[stream] = None;
    }

    /// Half-closes a stream.
    pub fn half_close(&mut self, stream: usize) {
        if let Some(stream) = &mut self.streams[stream] {
            stream.half_close();
        }
    }

    /// A stream that is not closed.
    pub fn stream(&self, stream: usize) -> &WatchStream {
        self.streams[stream].as_ref().expect("only streams that are not closed are asked for")
    }

    /// What a stream has said.
    pub fn heard(&self, stream: usize) -> Transcript {
        self.stream(stream).look(Clone::clone)
    }

    /// Brings a member level with its cluster; returns the revision.
    pub async fn level(&self, member: usize) -> Result<i64, Failure> {
        let probe = self.cluster.members()[member].endpoint().linearizable_probe(ASK_WITHIN).await;
        probe.map_err(|status| Failure::broken(format!("cannot read: {}", describe(&status))))
    }

    /// Sends a write or a compaction through one member.
    pub async fn change(&self, member: usize, request: &Request) -> Answer {
        request.send(self.cluster.members()[member].endpoint()).await.without_identity()
    }

    /// Waits for the reply to the request just sent on a stream, the `count`th of all.
    pub async fn await_replies(&self, stream: usize, count: usize) -> Result<(), Failure> {
        self.await_heard(self.stream(stream), "a reply", |heard| count <= heard.replies).await
    }

    /// Waits for something on a stream.
    pub async fn await_heard(
        &self,
        stream: &WatchStream,
        what: &str,
        enough: impl Fn(&Transcript) -> bool,
    ) -> Result<(), Failure> {
        if stream.wait_until(HEARD_WITHIN, enough).await {
            return Ok(());
        }
        let ended = stream.look(|heard| heard.ended().cloned());
        Err(Failure::broken(format!(
            "{:?} has not sent {what} within {HEARD_WITHIN:?}; the stream's end: {ended:?}",
            self.product
        )))
    }

    /// Waits until a watcher of a past revision, created now, has been given its event. A member
    /// that brings late watchers level in the order of their coming, or all together, has then
    /// brought level every one that was created before.
    pub async fn await_caught_up(
        &self,
        member: usize,
        request: &WatchCreateRequest,
        revision: i64,
    ) -> Result<(), Failure> {
        let probe = &self.probes[member];
        self.level(member).await?;
        let replies = probe.look(|heard| heard.replies);
        probe.send(RequestUnion::CreateRequest(request.clone())).await?;
        self.await_heard(probe, "a reply to a probe", |heard| replies < heard.replies).await?;
        let id = probe.look(|heard| heard.last_created);
        let reached =
            |heard: &Transcript| heard.lives(id).last().is_some_and(|life| revision <= life.last_revision());
        self.await_heard(probe, "an event to a probe", reached).await?;
        probe.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })).await?;
        self.await_heard(probe, "a reply to a probe", |heard| replies + 1 < heard.replies).await
    }
}
