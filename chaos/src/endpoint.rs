//! One member as its clients see it: the raw generated stubs over one connection.
//!
//! No retries, no balancing, no de-duplication: what the server said is what the caller gets. Every
//! call has a deadline of its own, after which the outcome is unknown to this side. `watch` and `keep_alive` are its
//! two streams; `roster` lists the members that clients may talk to.

mod answers;
pub mod keep_alive;
pub mod roster;
pub mod watch;

pub use keep_alive::KeepAliveStream;
pub use roster::{Contact, Roster};
pub use watch::WatchStream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use meerkat_proto::pb::admin::admin_client::AdminClient;
use meerkat_proto::pb::admin::{
    ListWatchersRequest, ListWatchersResponse, StateDigestRequest, StateDigestResponse,
};
use meerkat_proto::pb::etcdserver::cluster_client::ClusterClient;
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::lease_client::LeaseClient;
use meerkat_proto::pb::etcdserver::maintenance_client::MaintenanceClient;
use meerkat_proto::pb::etcdserver::{
    AlarmRequest, AlarmResponse, CompactionRequest, CompactionResponse, DefragmentRequest,
    DefragmentResponse, DeleteRangeRequest, DeleteRangeResponse, DowngradeRequest, DowngradeResponse,
    HashKvRequest, HashKvResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseLeasesRequest,
    LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
    MemberUpdateRequest, MemberUpdateResponse, MoveLeaderRequest, MoveLeaderResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::Failure;
use crate::metrics::Metrics;

const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Makes a channel by another way than TCP.
#[derive(Clone)]
pub struct Dialer(pub Arc<dyn Fn(&tonic::transport::Endpoint) -> Channel + Send + Sync>);

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dialer")
    }
}

/// A handle to one member; clones share its connection.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: String,
    dialer: Option<Dialer>,
    channel: Channel,
}

impl Endpoint {
    /// The member whose client port is this one. Connects when first used, and again when broken.
    pub fn on_loopback(port: u16) -> Result<Self, Failure> {
        Self::of("127.0.0.1", port)
    }

    /// The member that listens for clients on this port of this host.
    pub fn of(host: &str, port: u16) -> Result<Self, Failure> {
        Self::at(format!("http://{host}:{port}"), None, None)
    }

    /// The member at this URL, reached by a way of the caller's.
    pub fn through(url: &str, dialer: Dialer) -> Result<Self, Failure> {
        Self::at(url.to_owned(), None, Some(dialer))
    }

    /// The same member over a connection of its own. With a `window`, no more than so many bytes can
    /// be on their way to a reader who does not read; without one, what the library thinks best.
    pub fn apart(&self, window: Option<u32>) -> Result<Self, Failure> {
        Self::at(self.url.clone(), window, self.dialer.clone())
    }

    fn at(url: String, window: Option<u32>, dialer: Option<Dialer>) -> Result<Self, Failure> {
        let endpoint = tonic::transport::Endpoint::from_shared(url.clone())
            .map_err(|error| Failure::harness(format!("bad endpoint {url}: {error}")))?
            .connect_timeout(CONNECT_WITHIN)
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .tcp_nodelay(true);
        let channel = match &dialer {
            Some(dialer) => (dialer.0)(&endpoint),
            None => endpoint.connect_lazy(),
        };
        Ok(Self { url, dialer, channel })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its connection, for calls that carry metadata of their own.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// Range.
    pub async fn range(&self, request: RangeRequest, within: Duration) -> Result<RangeResponse, Status> {
        bounded(within, self.kv().range(request)).await
    }

    /// Put.
    pub async fn put(&self, request: PutRequest, within: Duration) -> Result<PutResponse, Status> {
        bounded(within, self.kv().put(request)).await
    }

    /// DeleteRange.
    pub async fn delete(
        &self,
        request: DeleteRangeRequest,
        within: Duration,
    ) -> Result<DeleteRangeResponse, Status> {
        bounded(within, self.kv().delete_range(request)).await
    }

    /// Txn.
    pub async fn txn(&self, request: TxnRequest, within: Duration) -> Result<TxnResponse, Status> {
        bounded(within, self.kv().txn(request)).await
    }

    /// Compact.
    pub async fn compact(
        &self,
        request: CompactionRequest,
        within: Duration,
    ) -> Result<CompactionResponse, Status> {
        bounded(within, self.kv().compact(request)).await
    }

    fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// LeaseGrant.
    pub async fn lease_grant(
        &self,
        request: LeaseGrantRequest,
        within: Duration,
    ) -> Result<LeaseGrantResponse, Status> {
        bounded(within, self.lease().lease_grant(request)).await
    }

    /// LeaseRevoke.
    pub async fn lease_revoke(&self, id: i64, within: Duration) -> Result<LeaseRevokeResponse, Status> {
        bounded(within, self.lease().lease_revoke(LeaseRevokeRequest { id })).await
    }

    /// LeaseTimeToLive, with the keys of the lease if wanted.
    pub async fn lease_time_to_live(
        &self,
        id: i64,
        keys: bool,
        within: Duration,
    ) -> Result<LeaseTimeToLiveResponse, Status> {
        bounded(within, self.lease().lease_time_to_live(LeaseTimeToLiveRequest { id, keys })).await
    }

    /// LeaseLeases.
    pub async fn lease_leases(&self, within: Duration) -> Result<LeaseLeasesResponse, Status> {
        bounded(within, self.lease().lease_leases(LeaseLeasesRequest {})).await
    }

    /// LeaseKeepAlive. Must be called on a runtime.
    pub fn keep_alive(&self) -> KeepAliveStream {
        KeepAliveStream::open(self.channel.clone())
    }

    /// Status.
    pub async fn status(&self, within: Duration) -> Result<StatusResponse, Status> {
        bounded(within, self.maintenance().status(StatusRequest {})).await
    }

    fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// MemberList; if not linearizable, what this member knows.
    pub async fn member_list(
        &self,
        linearizable: bool,
        within: Duration,
    ) -> Result<MemberListResponse, Status> {
        bounded(within, self.cluster().member_list(MemberListRequest { linearizable })).await
    }

    /// MemberAdd.
    pub async fn member_add(
        &self,
        request: MemberAddRequest,
        within: Duration,
    ) -> Result<MemberAddResponse, Status> {
        bounded(within, self.cluster().member_add(request)).await
    }

    /// MemberRemove.
    pub async fn member_remove(&self, id: u64, within: Duration) -> Result<MemberRemoveResponse, Status> {
        bounded(within, self.cluster().member_remove(MemberRemoveRequest { id })).await
    }

    /// MemberUpdate.
    pub async fn member_update(
        &self,
        request: MemberUpdateRequest,
        within: Duration,
    ) -> Result<MemberUpdateResponse, Status> {
        bounded(within, self.cluster().member_update(request)).await
    }

    /// MemberPromote.
    pub async fn member_promote(&self, id: u64, within: Duration) -> Result<MemberPromoteResponse, Status> {
        bounded(within, self.cluster().member_promote(MemberPromoteRequest { id })).await
    }

    /// MoveLeader.
    pub async fn move_leader(&self, target_id: u64, within: Duration) -> Result<MoveLeaderResponse, Status> {
        bounded(within, self.maintenance().move_leader(MoveLeaderRequest { target_id })).await
    }

    /// Alarm.
    pub async fn alarm(&self, request: AlarmRequest, within: Duration) -> Result<AlarmResponse, Status> {
        bounded(within, self.maintenance().alarm(request)).await
    }

    /// Defragment.
    pub async fn defragment(&self, within: Duration) -> Result<DefragmentResponse, Status> {
        bounded(within, self.maintenance().defragment(DefragmentRequest {})).await
    }

    /// Downgrade.
    pub async fn downgrade(
        &self,
        request: DowngradeRequest,
        within: Duration,
    ) -> Result<DowngradeResponse, Status> {
        bounded(within, self.maintenance().downgrade(request)).await
    }

    /// HashKV at a revision.
    pub async fn hash_kv(&self, revision: i64, within: Duration) -> Result<HashKvResponse, Status> {
        bounded(within, self.maintenance().hash_kv(HashKvRequest { revision })).await
    }

    /// The rolling digest of everything applied. Meerkat only.
    pub async fn state_digest(&self, within: Duration) -> Result<StateDigestResponse, Status> {
        bounded(within, AdminClient::new(self.channel.clone()).state_digest(StateDigestRequest {})).await
    }

    /// All pages of the list of watchers. Meerkat only.
    pub async fn list_watchers(&self, within: Duration) -> Result<Vec<ListWatchersResponse>, Status> {
        let mut admin = AdminClient::new(self.channel.clone());
        let pages = async {
            let pages = admin.list_watchers(ListWatchersRequest {}).await?;
            pages.into_inner().try_collect().await.map(Response::new)
        };
        bounded(within, pages).await
    }

    /// The numbers it publishes, each time over a connection of its own.
    pub async fn metrics(&self, within: Duration) -> Result<Metrics, Failure> {
        let address = self.url.trim_start_matches("http://");
        match tokio::time::timeout(within, Metrics::read(address)).await {
            Ok(metrics) => metrics.map_err(|failure| failure.during(&self.url)),
            Err(_) => Err(Failure::slow(format!("{}: no metrics within {within:?}", self.url))),
        }
    }

    /// Watch, with request metadata of the caller's choice. Must be called on a runtime.
    pub fn watch(&self, metadata: &[(&'static str, &str)]) -> Result<WatchStream, Failure> {
        WatchStream::open(self.channel.clone(), metadata)
    }

    /// The cheapest linearizable read; returns the store's revision.
    pub async fn linearizable_probe(&self, within: Duration) -> Result<i64, Status> {
        let request = RangeRequest { key: Bytes::from_static(b"\0"), count_only: true, ..Default::default() };
        let answer = self.range(request, within).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }
}

/// The answer within a deadline; after it, a status as a client library would make one.
async fn bounded<T>(
    within: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(within, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("no answer within the client's own deadline")),
    }
}
