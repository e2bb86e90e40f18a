//! `v3electionpb.Election`: a lock with a value, and those who want to know who holds it.
//!
//! A leader key is proof only together with its create revision: what is written or removed by one is
//! guarded by it, so a leader that was deposed changes nothing.

use super::line::{Caller, End, Stand, WatchEnd, Watching, prefix, stand};
use super::status;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::election as pb;
use meerkat_proto::pb::election::election_server::Election;
use meerkat_proto::pb::etcdserver::{ResponseHeader, WatchCreateRequest};
use meerkat_proto::pb::mvcc::{KeyValue, event::EventType};
use meerkat_raft::tasks::spawn_brief;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Leaders that an observer has not read yet. The next one waits; none is left out.
const OBSERVED_MAX: usize = 16;

pub(crate) struct ElectionService {
    /// The services that a client calls itself, as it reaches them.
    inner: axum::Router,
}

impl ElectionService {
    pub(crate) fn new(inner: axum::Router) -> ElectionService {
        ElectionService { inner }
    }
}

fn leader_key(leader: Option<pb::LeaderKey>) -> Result<pb::LeaderKey, Status> {
    leader.ok_or_else(|| status::etcd(EtcdError::ElectionLeaderMissing))
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let name = ask.name;
        let lost = || status::etcd(EtcdError::ElectionSessionExpired);
        let ask = Stand { name: name.clone(), lease: ask.lease, value: ask.value, set_value: true, lost };
        let place = stand(caller, ask).await?;
        let leader = pb::LeaderKey { name, key: place.key, rev: place.created, lease: place.lease };
        Ok(Response::new(pb::CampaignResponse { header: Some(place.entered), leader: Some(leader) }))
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let leader = leader_key(ask.leader)?;
        let lease = caller.lease(leader.lease).await?;
        match caller.proclaim(&leader.key, leader.rev, ask.value, lease).await? {
            (header, true) => Ok(Response::new(pb::ProclaimResponse { header: Some(header) })),
            (_, false) => Err(status::etcd(EtcdError::ElectionNotLeader)),
        }
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        match caller.at_end(&prefix(&ask.name), &End::First).await? {
            (header, Some(kv)) => {
                Ok(Response::new(pb::LeaderResponse { header: Some(header), kv: Some(kv) }))
            }
            (_, None) => Err(status::etcd(EtcdError::ElectionNoLeader)),
        }
    }

    type ObserveStream = BoxStream<'static, Result<pb::LeaderResponse, Status>>;

    async fn observe(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let (leaders, observed) = mpsc::channel(OBSERVED_MAX);
        let observing = spawn_brief(async move {
            let (gone, line) = (leaders.clone(), prefix(&ask.name));
            tokio::select! {
                () = gone.closed() => {}
                Err(error) = observe(&caller, &line, &leaders) => {
                    // Nobody is left to hear it if this fails.
                    let _ = leaders.send(Err(error)).await;
                }
            }
        });
        let observed = ReceiverStream::new(observed).chain(end_of(observing));
        Ok(Response::new(observed.boxed()))
    }

    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        let (caller, ask) = Caller::of(&self.inner, request);
        let leader = leader_key(ask.leader)?;
        let header = caller.resign(&leader.key, leader.rev).await?;
        Ok(Response::new(pb::ResignResponse { header: Some(header) }))
    }
}

/// What is told last: an error, unless the work has come to its own end.
fn end_of<T: Send + 'static>(work: JoinHandle<()>) -> BoxStream<'static, Result<T, Status>> {
    let end = async { work.await.err().map(|error| Err(status::worker_lost(&error))) };
    stream::once(end).filter_map(std::future::ready).boxed()
}

type Leaders = mpsc::Sender<Result<pb::LeaderResponse, Status>>;

/// Tells every leader and every value of it, until there is nobody to tell.
async fn observe(caller: &Caller, prefix: &Bytes, leaders: &Leaders) -> Result<(), Status> {
    loop {
        let (header, leader) = match caller.at_end(prefix, &End::First).await? {
            (header, Some(leader)) => (header, leader),
            (header, None) => match first_put(caller, prefix, header).await? {
                Some(found) => found,
                None => continue,
            },
        };
        let (key, from) = (leader.key.clone(), header.revision + 1);
        tell(leaders, header, leader).await?;
        follow(caller, key, from, leaders).await?;
    }
}

async fn tell(leaders: &Leaders, header: ResponseHeader, kv: KeyValue) -> Result<(), Status> {
    let leader = pb::LeaderResponse { header: Some(header), kv: Some(kv) };
    leaders.send(Ok(leader)).await.map_err(|_| status::caller_gone())
}

/// The first key that somebody puts in the empty line, as of the revision that it came with. `None`: history
/// was compacted meanwhile, look again.
async fn first_put(
    caller: &Caller,
    prefix: &Bytes,
    header: ResponseHeader,
) -> Result<Option<(ResponseHeader, KeyValue)>, Status> {
    let mut range_end = prefix.to_vec();
    if let Some(last) = range_end.last_mut() {
        *last += 1;
    }
    let create = WatchCreateRequest {
        key: prefix.clone(),
        range_end: range_end.into(),
        start_revision: header.revision + 1,
        ..Default::default()
    };
    let mut watching = caller.watch(create).await?;
    loop {
        let Some(answer) = next(&mut watching).await? else { return Ok(None) };
        let header = answer.header.unwrap_or_default();
        let put = answer.events.into_iter().find(|event| event.r#type() == EventType::Put);
        if let Some(kv) = put.and_then(|event| event.kv) {
            return Ok(Some((ResponseHeader { revision: kv.mod_revision, ..header }, kv)));
        }
    }
}

/// Tells each value that the leader's key is given, until the key is gone.
async fn follow(caller: &Caller, key: Bytes, start_revision: i64, leaders: &Leaders) -> Result<(), Status> {
    let create = WatchCreateRequest { key, start_revision, ..Default::default() };
    let mut watching = caller.watch(create).await?;
    while let Some(answer) = next(&mut watching).await? {
        let header = answer.header.unwrap_or_default();
        for event in answer.events {
            if event.r#type() == EventType::Delete {
                return Ok(());
            }
            tell(leaders, header, event.kv.unwrap_or_default()).await?;
        }
    }
    Ok(())
}

/// `None` if history was compacted under the watch.
async fn next(
    watching: &mut Watching,
) -> Result<Option<meerkat_proto::pb::etcdserver::WatchResponse>, Status> {
    match watching.next().await {
        Ok(answer) => Ok(Some(answer)),
        Err(WatchEnd::Compacted) => Ok(None),
        Err(WatchEnd::Refused(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[tokio::test]
    async fn an_observer_whose_work_panics_hears_an_error_and_no_plain_end() {
        let mut end = end_of::<()>(spawn_brief(async { panic!("a mistake") }));
        let told = end.next().await.expect("something");
        assert_eq!(told.expect_err("an error").code(), Code::Internal);
        assert!(end_of::<()>(spawn_brief(async {})).next().await.is_none());
    }
}
