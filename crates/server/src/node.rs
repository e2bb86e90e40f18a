//! A member from start to stop: assembly in dependency order, shutdown in the reverse.

use crate::announce::announce;
use crate::auth::guard::Tokens;
use crate::auth::jwt::Jwt;
use crate::auth::{Guard, SimpleTokens};
use crate::client_port;
use crate::config::{Config, ConfigError, InitialClusterState, MemberUrl, TokenKind};
use crate::contained::contained;
use crate::grpc;
use crate::grpc::watch::WatchCounters;
use crate::http::{self, HttpState};
use crate::lease::{self, Book, Desk, Expiry, LeaseCounters, Renewals};
use crate::listen::{self, ListenError, Listener, Ports};
use crate::local_store::LocalStore;
use crate::member::Member;
use crate::metrics::{Calls, Changes, Metrics};
use crate::open_files;
use crate::publish::publish;
use crate::punctual::FirstWords;
use crate::spans::Tracer;
use crate::tls::{Keys, TlsError};
use crate::upkeep::Upkeep;
use crate::watch_source::{Published, StoreHistory, watch_leader};
use futures::future::BoxFuture;
use meerkat_engine::DbOptions;
use meerkat_fault::Mutex;
use meerkat_raft::identity::{Identity, IdentityError};
use meerkat_raft::tasks::{Tasks, spawn_part, watched};
use meerkat_raft::{Dialer, Ground, JoinError, LogPolicy, NodeOptions, Place, RaftNode, Rules, StartError};
use meerkat_types::Refusal;
use meerkat_watch::{Hub, WatchConfig};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::service::Routes;

/// How long requests in flight may take to finish once the member is told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    NotFound(String),
    #[error("cannot join the cluster: {0}")]
    CannotJoin(#[from] JoinError),
    #[error(
        "{0}: it cannot come back; to use this machine again, add a new member and start it with an empty data directory"
    )]
    Removed(String),
    #[error("a listener failed: {0}")]
    Serve(String),
    #[error(
        "the write-ahead log failed: {0}; nothing that was acknowledged is lost: mend the disk and start again"
    )]
    LogFailed(String),
    #[error("the list-watch door failed: {0}")]
    Door(String),
    #[error("a task that this member depends on has failed: {0}; start the member again, and report this")]
    TaskFailed(String),
    #[error(
        "the state can no longer be compacted: {0}; if it is damaged, check the disk, remove this member and add it anew"
    )]
    StateFailed(String),
    #[error("raft stopped: {0}")]
    RaftFailed(String),
    #[error("the cluster refuses this member: {0}")]
    Refused(Refusal),
    #[error(
        "{0}: this disk was wiped or is not this member's; put the right data directory back. Voting with it could lose acknowledged writes"
    )]
    Disowned(String),
}

/// One more way into the member, run inside its life: begun once the member serves clients, told to stop
/// before the member stops. Its failure is the member's.
pub type Door = Box<dyn FnOnce(LocalStore, Stopping) -> BoxFuture<'static, Result<(), String>> + Send>;

/// Finds out which cluster a member without data begins in: the same configuration, with its initial cluster.
/// Called only if there is no data; may wait for others for as long as it takes.
pub type Finder = Box<dyn FnOnce(Config) -> BoxFuture<'static, Result<Config, String>> + Send>;

/// Tells a door when to stop.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Resolves when the member is told to stop or cannot go on.
    pub async fn stopped(mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// Runs a member until `shutdown` resolves or it cannot go on.
pub async fn run(
    config: Config,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    run_with(config, shutdown, None).await
}

/// As [`run`], with one more door.
pub async fn run_with(
    config: Config,
    shutdown: impl Future<Output = ()> + Send + 'static,
    door: Option<Door>,
) -> Result<(), RunError> {
    let keys = Keys::open(&config)?;
    run_with_keys(config, keys, Box::pin(shutdown), (door, None)).await
}

/// As [`run_with`], with keys that are read already, and with what finds the initial cluster if the
/// configuration wants it found.
///
/// Boxed, and without type parameters: the compiler then makes the code of a member once, in this crate, and
/// not again in every program that runs one.
pub fn run_with_keys(
    config: Config,
    keys: Keys,
    shutdown: BoxFuture<'static, ()>,
    doors: (Option<Door>, Option<Finder>),
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(run_member(config, keys, shutdown, doors))
}

async fn run_member(
    config: Config,
    keys: Keys,
    mut shutdown: BoxFuture<'static, ()>,
    (door, finder): (Option<Door>, Option<Finder>),
) -> Result<(), RunError> {
    let ground = Ground { dialer: Some(keys.dialer()), ..Ground::default() };
    let dialer = ground.dialer.as_ref();
    let (config, place, ports) = match finder.filter(|_| config.discovery.is_some()) {
        Some(finder) if !has_begun(&config)? => {
            // Others are to hear only of a member that has its ports.
            let ports = bind(&config, &keys).await?;
            let config = tokio::select! {
                found = finder(config) => found.map_err(RunError::NotFound)?,
                () = &mut shutdown => {
                    tracing::info!("told to stop");
                    return Ok(());
                }
            };
            let place = place(&config, dialer).await?;
            (config, place, ports)
        }
        finder => {
            if finder.is_some() {
                tracing::warn!("discovery is ignored since this member is already initialized");
            }
            let place = place(&config, dialer).await?;
            // Ports first: a port in use is found before the disk is touched.
            let ports = bind(&config, &keys).await?;
            (config, place, ports)
        }
    };
    Box::pin(watched("member", serve_until(config, place, ports, ground, (shutdown, door)))).await
}

async fn bind(config: &Config, keys: &Keys) -> Result<Ports<listen::Port>, RunError> {
    Ok(Ports {
        client: listen::bind_client(&config.listen_client_urls, keys, config.network).await?,
        client_http: listen::bind_client(&config.listen_client_http_urls, keys, config.network).await?,
        peer: listen::bind_peer(&config.listen_peer_urls, keys, config.network).await?,
        metrics: listen::bind_client(&config.listen_metrics_urls, keys, config.network).await?,
    })
}

/// Whether this member knows its cluster. One that ended before that has to find it again.
fn has_begun(config: &Config) -> Result<bool, StartError> {
    meerkat_raft::has_begun(&config.data_dir.join("member"), config.wal_dir.as_deref())
}

/// Whether this member has an identity in its directory.
fn has_data(config: &Config) -> Result<bool, IdentityError> {
    Ok(Identity::read(&config.data_dir.join("member"))?.is_some())
}

/// As [`run`], on ports that are open and on ground that is given.
pub async fn run_on<L: Listener>(
    config: Config,
    ports: Ports<L>,
    ground: Ground,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let place = place(&config, ground.dialer.as_ref()).await?;
    watched("member", serve_until(config, place, ports, ground, (shutdown, None))).await
}

/// Where a member without data belongs, if it comes to a cluster that runs already.
async fn place(config: &Config, dialer: Option<&Dialer>) -> Result<Option<Place>, RunError> {
    if has_data(config)? {
        return Ok(None);
    }
    config.verify_bootstrap()?;
    match config.initial_cluster_state {
        InitialClusterState::New => Ok(None),
        InitialClusterState::Existing => Ok(Some(find_place(config, dialer).await?)),
    }
}

async fn serve_until<L: Listener>(
    config: Config,
    place: Option<Place>,
    ports: Ports<L>,
    ground: Ground,
    (shutdown, door): (impl Future<Output = ()>, Option<Door>),
) -> Result<(), RunError> {
    let hub = Hub::new(watch_config(&config));
    let note_interval = Duration::from_millis(config.tuning.lease_checkpoint_interval_ms);
    let book = Arc::new(Mutex::new(Book::new(note_interval)));
    let lease_counters = Arc::new(LeaseCounters::default());
    let (simple, tokens) = tokens(&config)?;
    let changes = Arc::new(Changes::default());
    let published = Box::new(Published::new(&hub, &book, (&lease_counters, &changes), simple));
    let tasks = Tasks::default();
    let options = node_options(&config, ground, place);
    let raft = Arc::new(RaftNode::start(options, published, &tasks).await?);
    hub.set_history(Arc::new(StoreHistory(raft.reader().clone())));
    let desk = Desk::new(raft.clone(), book.clone(), lease_counters.clone(), &tasks);
    raft.leases().set_own(Arc::new(desk.clone()));
    run_hub(&tasks, &hub, &raft, &config);
    let expiry = Expiry { desk: desk.clone(), grace: election_timeout(&config) };
    tasks.spawn("lease expiry", lease::run_expiry(expiry));
    let renewals = Renewals::start(raft.leases().clone(), request_timeout(&config), &tasks);
    let watch_counters = Arc::new(WatchCounters::default());
    let config = Arc::new(config);
    let upkeep = Upkeep::start(&tasks, &raft, &config);
    let calls = Arc::new(Calls::new(config.warning_unary_request_duration));
    let tracer = config.tracing.as_ref().map(Tracer::start);
    let counters = (watch_counters.clone(), lease_counters);
    let of_upkeep = (upkeep.clone(), tracer.clone());
    let metrics = Arc::new(Metrics::new(&config, hub.clone(), counters, (calls.clone(), changes), of_upkeep));
    let (stop, stopping) = watch::channel(false);
    let mut servers = JoinSet::new();
    let mut peer_servers = JoinSet::new();
    let peer_routes = Routes::new(raft.peer_service(Arc::new(desk)));
    for listener in ports.peer {
        let serving = serve(listener, peer_server(), peer_routes.clone(), stopping.clone());
        peer_servers.spawn(watched("peer port", serving));
    }
    let guard = Guard::new(raft.clone(), tokens, request_timeout(&config));
    let member = Member::new(raft.clone(), guard, &config);
    let http_state = HttpState { raft: raft.clone(), metrics, pressure: upkeep.pressure.clone() };
    let (leases, observers) = ((book, renewals), (calls, tracer.clone()));
    let pressure = &upkeep.pressure;
    let services = grpc::router(&member, &hub, &watch_counters, leases, pressure, observers, &config);
    let ports = (ports.client, ports.client_http, ports.metrics);
    open_to_clients(&mut servers, ports, (services, http_state), (&config, &stopping));
    let (ready, is_ready) = watch::channel(false);
    if let Some(door) = door {
        let store = LocalStore::new(member, hub.clone(), &config);
        servers.spawn(watched("list-watch door", run_door(door, store, is_ready, stopping)));
    }
    tracing::info!(member = %raft.member_id(), cluster = %raft.cluster_id(), "serving client traffic");
    let result = tokio::select! {
        result = live(&raft, &config, &mut servers, (shutdown, ready)) => result,
        ended = server_ended(&mut peer_servers) => Err(ended),
        reason = tasks.first_failure() => Err(RunError::TaskFailed(reason)),
    };
    if let Err(error @ RunError::TaskFailed(_)) = &result {
        tracing::error!(%error, "this member cannot go on");
    }
    let _ = stop.send(true);
    // Or their connections would never drain.
    hub.stop();
    drain(&mut servers).await;
    take_apart(&raft, (&tasks, result.is_ok()), peer_servers, tracer).await;
    result
}

/// What is left to end once no client is served any more.
async fn take_apart(
    raft: &RaftNode,
    (tasks, is_well): (&Tasks, bool),
    mut peer_servers: JoinSet<Result<(), RunError>>,
    tracer: Option<Tracer>,
) {
    if is_well {
        // Another leader that stops may have handed over to this member meanwhile.
        raft.hand_over().await;
    }
    tasks.shutdown().await;
    raft.stop().await;
    // Peers keep their streams open for ever, so there is nothing to wait for.
    peer_servers.shutdown().await;
    if let Some(tracer) = tracer {
        tracer.stop().await;
    }
    tracing::info!("stopped");
}

/// Serves the ports that clients come in at: for gRPC, for HTTP apart from it, and for metrics.
fn open_to_clients<L: Listener>(
    servers: &mut JoinSet<Result<(), RunError>>,
    (client, client_http, metrics): (Vec<L>, Vec<L>, Vec<L>),
    (services, http_state): (axum::Router, HttpState),
    (config, stopping): (&Arc<Config>, &watch::Receiver<bool>),
) {
    let plain = contained(http::beside(&services, http_state.clone(), config));
    // One port for gRPC and for plain HTTP, told apart by path, unless HTTP has one of its own.
    let routes = match client_http.is_empty() {
        true => services.fallback_service(plain.clone()),
        false => services.fallback(grpc::unknown_service),
    };
    for listener in client {
        serve_clients(servers, listener, routes.clone(), config, stopping);
    }
    for listener in client_http {
        serve_clients(servers, listener, plain.clone(), config, stopping);
    }
    for listener in metrics {
        let routes = contained(http::router(http_state.clone()));
        serve_clients(servers, listener, routes, config, stopping);
    }
}

/// Waits for the end: asked for, or forced.
async fn live(
    raft: &Arc<RaftNode>,
    config: &Config,
    servers: &mut JoinSet<Result<(), RunError>>,
    (shutdown, ready): (impl Future<Output = ()>, watch::Sender<bool>),
) -> Result<(), RunError> {
    let mut log_failed = raft.log_failed();
    let mut disowned = raft.disowned();
    let mut removed = raft.removed();
    let urls = config.advertise_client_urls.iter().map(MemberUrl::to_string).collect();
    let mut publishing = spawn_part("publish", watched("publish", publish(raft.clone(), urls)));
    let mut published = false;
    let ready = || {
        announce(config);
        ready.send_replace(true);
    };
    let result = tokio::select! {
        () = hand_over_after(shutdown, raft) => Ok(()),
        reason = log_failed.wait_for(Option::is_some) => {
            Err(RunError::LogFailed(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()))
        }
        reason = raft.failed() => Err(RunError::RaftFailed(reason)),
        reason = raft.state_failed() => Err(RunError::StateFailed(reason)),
        reason = disowned.wait_for(Option::is_some) => {
            Err(RunError::Disowned(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()))
        }
        reason = removed.wait_for(Option::is_some) => {
            Err(RunError::Removed(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()))
        }
        ended = server_ended(servers) => Err(ended),
        refusal = until_refused(&mut publishing, &mut published, ready) => Err(match refusal {
            Refusal::MemberRemoved { .. } => RunError::Removed(refusal.to_string()),
            refusal => RunError::Refused(refusal),
        }),
    };
    if !published {
        publishing.abort();
        let _ = publishing.await;
    }
    if let Err(error) = &result {
        tracing::error!(%error, "this member cannot go on");
    }
    result
}

/// Resolves when this member was told to stop, and has handed over if it led. First of all, while everybody
/// is still served: writes then go on at the other members at once.
async fn hand_over_after(shutdown: impl Future<Output = ()>, raft: &RaftNode) {
    shutdown.await;
    tracing::info!("told to stop");
    raft.hand_over().await;
}

/// Resolves only when the cluster refuses this member.
async fn until_refused(
    publishing: &mut tokio::task::JoinHandle<Result<(), Refusal>>,
    published: &mut bool,
    ready: impl Fn(),
) -> Refusal {
    let outcome = publishing.await;
    *published = true;
    match outcome {
        Ok(Err(refusal)) => refusal,
        Ok(Ok(())) => {
            ready();
            std::future::pending().await
        }
        Err(error) => {
            tracing::error!(%error, "publishing this member failed");
            std::future::pending().await
        }
    }
}

/// Resolves with the reason when a listener ends, which none does by itself.
async fn server_ended(servers: &mut JoinSet<Result<(), RunError>>) -> RunError {
    match servers.join_next().await {
        Some(Ok(Err(error))) => error,
        Some(Ok(Ok(()))) => RunError::Serve("it ended by itself".to_owned()),
        Some(Err(error)) => RunError::Serve(error.to_string()),
        None => std::future::pending().await,
    }
}

async fn drain(servers: &mut JoinSet<Result<(), RunError>>) {
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, async { while servers.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!("requests still ran after {DRAIN_TIMEOUT:?}; they are cut off");
        servers.shutdown().await;
    }
}

/// A door from the moment the member serves until it is told to stop.
async fn run_door(
    door: Door,
    store: LocalStore,
    mut ready: watch::Receiver<bool>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let told = Stopping(stopping.clone());
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => return Ok(()),
        // Without the other end the member is at its end too.
        began = ready.wait_for(|ready| *ready) => if began.is_err() { return Ok(()) },
    }
    door(store, told).await.map_err(RunError::Door)?;
    match *stopping.borrow() {
        true => Ok(()),
        false => Err(RunError::Door("it ended by itself".to_owned())),
    }
}

fn serve_clients<L: Listener>(
    servers: &mut JoinSet<Result<(), RunError>>,
    listener: L,
    routes: axum::Router,
    config: &Arc<Config>,
    stopping: &watch::Receiver<bool>,
) {
    let (config, stopping) = (config.clone(), stopping.clone());
    servers.spawn(watched("client port", async move {
        client_port::serve(listener, routes, &config, stopping).await;
        Ok(())
    }));
}

async fn serve<L: Listener>(
    listener: L,
    mut server: tonic::transport::Server,
    routes: Routes,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), RunError> {
    let incoming = futures::stream::unfold(listener, |mut listener| async move {
        let (io, _) = client_port::accepted(&mut listener).await;
        drop(L::hurry(&io));
        let io = FirstWords::of(io, Arc::default());
        Some((Ok::<_, std::io::Error>(io), listener))
    });
    let incoming = std::pin::pin!(incoming);
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    server
        .add_routes(Routes::from(contained(routes.into_axum_router())))
        .serve_with_incoming_shutdown(incoming, stopped)
        .await
        .map_err(|error| RunError::Serve(error.to_string()))
}

/// What members know of simple tokens, and what gives a request's token its meaning.
fn tokens(config: &Config) -> Result<(Arc<SimpleTokens>, Arc<Tokens>), RunError> {
    let simple = Arc::new(SimpleTokens::new(config.auth.token_ttl));
    let tokens = match &config.auth.token {
        TokenKind::Simple => Tokens::Simple(simple.clone()),
        TokenKind::Jwt(options) => Tokens::Jwt(Box::new(Jwt::open(options)?)),
    };
    Ok((simple, Arc::new(tokens)))
}

fn peer_server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .initial_stream_window_size(Some(4 << 20))
        .initial_connection_window_size(Some(8 << 20))
}

fn election_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.election_timeout_ms)
}

/// etcd's budget: 5 s for disk and queues, and time for two elections.
fn request_timeout(config: &Config) -> Duration {
    Duration::from_secs(5) + 2 * election_timeout(config)
}

/// Where a member with an empty directory belongs in the cluster that it was added to.
async fn find_place(config: &Config, dialer: Option<&Dialer>) -> Result<Place, JoinError> {
    let own: Vec<String> = config.peer_urls_of(&config.name).map(MemberUrl::to_string).collect();
    let others = config.initial_cluster.iter().map(|(_, url)| url.to_string());
    let others: Vec<String> = others.filter(|url| !own.contains(url)).collect();
    meerkat_raft::find_place(&own, &others, dialer).await
}

fn node_options(config: &Config, ground: Ground, place: Option<Place>) -> NodeOptions {
    let election_timeout = election_timeout(config);
    let mut initial_cluster: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, url) in &config.initial_cluster {
        initial_cluster.entry(name.clone()).or_default().push(url.to_string());
    }
    let tuning = &config.tuning;
    NodeOptions {
        name: config.name.clone(),
        member_dir: config.data_dir.join("member"),
        wal_dir: config.wal_dir.clone(),
        place,
        rules: Rules { strict: config.strict_reconfig_check, learners_max: config.max_learners },
        initial_cluster,
        initial_names: config.initial_names,
        cluster_token: config.initial_cluster_token.clone(),
        heartbeat_interval: Duration::from_millis(config.heartbeat_interval_ms),
        election_timeout,
        pre_vote: config.pre_vote,
        request_timeout: request_timeout(config),
        warning_apply_duration: config.warning_apply_duration,
        compaction: config.compaction,
        policy: LogPolicy {
            flush_log_bytes: tuning.flush_log_bytes,
            flush_entries: config.snapshot_count.max(1),
            flush_interval: Duration::from_millis(tuning.flush_interval_ms),
            keep_entries: tuning.snapshot_keep_entries,
        },
        log_segment_bytes: tuning.log_segment_bytes,
        log_cache_bytes: bytes(tuning.log_cache_bytes),
        no_fsync: config.unsafe_no_fsync,
        force_new_cluster: config.force_new_cluster,
        db: DbOptions {
            block_cache_bytes: bytes(tuning.block_cache_bytes),
            write_buffer_bytes: bytes(tuning.write_buffer_bytes),
            open_files_max: open_files::database_max(),
            ..DbOptions::default()
        },
        ground,
    }
}

fn watch_config(config: &Config) -> WatchConfig {
    WatchConfig {
        ring_bytes: bytes(config.tuning.watch_ring_bytes),
        memory_bytes: bytes(config.tuning.watch_memory_bytes),
        keys_bytes: bytes(config.tuning.watch_memory_bytes),
        outbox_items: bytes(config.tuning.watch_queue_items),
        reads_inline: meerkat_raft::threads::are_tasks(),
        ..WatchConfig::default()
    }
}

/// What keeps watchers told.
fn run_hub(tasks: &Tasks, hub: &Hub, raft: &Arc<RaftNode>, config: &Config) {
    let (dispatch, catch_up) = (hub.clone(), hub.clone());
    tasks.spawn("watch dispatch", async move { dispatch.run_dispatch().await });
    tasks.spawn("watch catch-up", async move { catch_up.run_catch_up().await });
    let leader = watch_leader(hub.clone(), raft.leadership().clone(), election_timeout(config));
    tasks.spawn("watch leader", leader);
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_port::tests::Once;
    use tokio::io::AsyncReadExt;

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_at_the_port_of_members_is_cut_off() {
        let (mut stranger, port) = tokio::io::duplex(4_096);
        let (_stop, stopping) = watch::channel(false);
        let serving = tokio::spawn(serve(Once(Some(port)), peer_server(), Routes::default(), stopping));
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), stranger.read_to_end(&mut heard)).await;
        assert!(ended.is_ok(), "it has its place for ever");
        serving.abort();
    }
}
