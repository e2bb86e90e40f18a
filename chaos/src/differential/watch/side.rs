//! One of the two clusters compared, and the streams open to it.

use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::etcdserver::{WatchCancelRequest, WatchCreateRequest};

use super::transcript::Transcript;
use super::wire::WatchStream;
use crate::Failure;
use crate::differential::members::Members;

/// One cluster.
#[derive(Debug)]
pub struct Side {
    /// Its members.
    pub members: Members,
    /// By number; none once closed.
    streams: Vec<Option<WatchStream>>,
    /// One for each member, for watchers that only find out whether others have caught up.
    probes: Vec<WatchStream>,
}

impl Side {
    /// No stream is open yet.
    pub fn new(members: Members) -> Self {
        let probes = (0..members.endpoints.len()).map(|member| members.watch(member, false)).collect();
        Self { members, streams: Vec::new(), probes }
    }

    /// One more stream, numbered after the last.
    pub fn open(&mut self, member: usize, requires_leader: bool) {
        self.streams.push(Some(self.members.watch(member, requires_leader)));
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

    /// Waits for the reply to the request just sent on a stream, the `count`th of all.
    pub async fn await_replies(&self, stream: usize, count: usize) -> Result<(), Failure> {
        self.stream(stream).await_heard("a reply", |heard| count <= heard.replies).await
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
        self.members.level(member).await?;
        let replies = probe.look(|heard| heard.replies);
        probe.send(RequestUnion::CreateRequest(request.clone())).await?;
        probe.await_heard("a reply to a probe", |heard| replies < heard.replies).await?;
        let id = probe.look(|heard| heard.last_created);
        let reached =
            |heard: &Transcript| heard.lives(id).last().is_some_and(|life| revision <= life.last_revision());
        probe.await_heard("an event to a probe", reached).await?;
        probe.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })).await?;
        probe.await_heard("a reply to a probe", |heard| replies + 1 < heard.replies).await
    }
}
