//! What a member is told at start, checked once.
//!
//! A [`Config`] is only ever made from [`RawFlags`], and every value in one has passed etcd's
//! rules, with etcd's texts where operators know them. Making one is pure: no file, no resolver.
//! Whether the initial cluster makes sense matters only to a member without data (a restarted one
//! ignores the `initial-*` flags), so that check is apart: call [`Config::verify_bootstrap`] before
//! bootstrapping, and never on a member that already has data.

mod auth;
mod discovery;
mod distributed_tracing;
mod http_options;
mod member_url;
mod network;
mod security;

use crate::auto_compaction::AutoCompaction;
use crate::corruption::CorruptionChecks;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

pub use auth::{AuthOptions, JwtOptions, TokenKind};
pub use discovery::{Discovery, DnsDiscovery, RawDiscovery, RegistryDiscovery, Secret};
pub use distributed_tracing::{RawTracing, TracingOptions};
pub use http_options::HttpOptions;
pub use meerkat_raft::{CompactionPace, InitialNames};
use meerkat_types::MemberId;
pub use member_url::{MemberUrl, Transport};
pub use network::{NetworkOptions, RawNetwork};
pub use security::{KeyPair, Protocol, RawSecurity, RawTls, Security, SecurityError, TlsConfig, TlsVersion};
use thiserror::Error;

/// The longest election timeout: above it a cluster without a leader looks dead to its clients.
pub const ELECTION_TIMEOUT_MS_MAX: u64 = 50_000;

/// The shortest election timeout in heartbeats: fewer, and one lost packet deposes a leader.
pub const ELECTION_TIMEOUT_HEARTBEATS_MIN: u64 = 5;

/// The shortest time between progress marks that the flag can ask for, as in etcd.
pub const WATCH_PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What `--quota-backend-bytes=0` means, as in etcd.
pub const QUOTA_BACKEND_BYTES_DEFAULT: u64 = 2 * 1024 * 1024 * 1024;

/// Half of what a message between members may weigh: an entry that cannot be sent would stop
/// replication for good.
pub const REQUEST_BYTES_ALLOWED_MAX: usize = 32 * 1024 * 1024;

const CLIENT_URL_DEFAULT: &str = "http://localhost:2379";
const PEER_URL_DEFAULT: &str = "http://localhost:2380";

/// Flags as text and numbers, before any rule is applied. `None` means: not given, by flag or
/// environment; the difference from an empty text matters for some.
#[derive(Clone, Debug)]
pub struct RawFlags {
    pub name: String,
    pub data_dir: Option<PathBuf>,
    pub wal_dir: Option<PathBuf>,
    pub listen_client_urls: Option<String>,
    pub advertise_client_urls: Option<String>,
    pub listen_peer_urls: Option<String>,
    pub initial_advertise_peer_urls: Option<String>,
    pub listen_metrics_urls: Option<String>,
    pub listen_client_http_urls: Option<String>,
    pub network: RawNetwork,
    pub tls: RawTls,
    pub initial_cluster: Option<String>,
    pub initial_cluster_state: String,
    pub initial_cluster_token: String,
    pub discovery: RawDiscovery,
    pub heartbeat_interval_ms: u64,
    pub election_timeout_ms: u64,
    pub snapshot_count: u64,
    /// Zero: etcd's default. Negative: no quota.
    pub quota_backend_bytes: i64,
    pub max_txn_ops: usize,
    pub max_request_bytes: usize,
    /// `u32::MAX` (etcd's default) means unbounded.
    pub max_concurrent_streams: u32,
    pub grpc_keepalive: Keepalive,
    pub unsafe_no_fsync: bool,
    /// Go on alone with what the directory holds, without the others.
    pub force_new_cluster: bool,
    pub pre_vote: bool,
    pub strict_reconfig_check: bool,
    pub max_learners: usize,
    /// Between progress marks of idle watchers.
    pub watch_progress_notify_interval: Duration,
    pub auto_compaction_mode: String,
    pub auto_compaction_retention: String,
    /// Zero in either: the default.
    pub compaction: CompactionPace,
    pub corruption_checks: CorruptionChecks,
    pub warning_apply_duration: Duration,
    pub warning_unary_request_duration: Duration,
    /// Zero: never.
    pub bootstrap_defrag_threshold_megabytes: u64,
    /// `simple`, or `jwt` with its options.
    pub auth_token: String,
    pub auth_token_ttl_seconds: u64,
    pub bcrypt_cost: u32,
    pub http: HttpOptions,
    pub tracing: RawTracing,
    pub tuning: Tuning,
}

impl Default for RawFlags {
    fn default() -> RawFlags {
        RawFlags {
            name: "default".to_owned(),
            data_dir: None,
            wal_dir: None,
            listen_client_urls: None,
            advertise_client_urls: None,
            listen_peer_urls: None,
            initial_advertise_peer_urls: None,
            listen_metrics_urls: None,
            listen_client_http_urls: None,
            network: RawNetwork::default(),
            tls: RawTls::default(),
            initial_cluster: None,
            initial_cluster_state: "new".to_owned(),
            initial_cluster_token: "etcd-cluster".to_owned(),
            discovery: RawDiscovery::default(),
            heartbeat_interval_ms: 100,
            election_timeout_ms: 1_000,
            snapshot_count: 10_000,
            quota_backend_bytes: 0,
            max_txn_ops: meerkat_types::limits::TXN_OPERATIONS_MAX,
            max_request_bytes: meerkat_types::limits::REQUEST_BYTES_MAX,
            max_concurrent_streams: u32::MAX,
            grpc_keepalive: Keepalive::default(),
            unsafe_no_fsync: false,
            force_new_cluster: false,
            pre_vote: true,
            strict_reconfig_check: true,
            max_learners: 1,
            watch_progress_notify_interval: Duration::from_secs(600),
            auto_compaction_mode: "periodic".to_owned(),
            auto_compaction_retention: "0".to_owned(),
            compaction: CompactionPace::default(),
            corruption_checks: CorruptionChecks::default(),
            warning_apply_duration: Duration::from_millis(100),
            warning_unary_request_duration: Duration::from_millis(300),
            bootstrap_defrag_threshold_megabytes: 0,
            auth_token: "simple".to_owned(),
            auth_token_ttl_seconds: 300,
            bcrypt_cost: 10,
            http: HttpOptions::default(),
            tracing: RawTracing::default(),
            tuning: Tuning::default(),
        }
    }
}

/// How it is found out that a client over HTTP/2 is gone without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Without a word for so long it is pinged.
    pub interval: Duration,
    /// Without an answer for so long it is gone.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Keepalive {
        Keepalive { interval: Duration::from_secs(2 * 60 * 60), timeout: Duration::from_secs(20) }
    }
}

impl Keepalive {
    /// As in etcd, where a zero means that neither was given.
    fn or_default(self) -> Keepalive {
        let is_given = !self.interval.is_zero() && !self.timeout.is_zero();
        if is_given { self } else { Keepalive::default() }
    }
}

/// Sizes that no operator needs and that tests shrink to reach a boundary quickly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of one log segment file.
    pub log_segment_bytes: u64,
    /// Bytes of recent log entries kept in memory for replication and apply.
    pub log_cache_bytes: u64,
    /// Bytes of log written since the last state flush that force the next one.
    pub flush_log_bytes: u64,
    /// Milliseconds since the last state flush that force the next one.
    pub flush_interval_ms: u64,
    /// Bytes of decoded state blocks kept in memory.
    pub block_cache_bytes: u64,
    /// Bytes of unflushed state kept in memory.
    pub write_buffer_bytes: u64,
    /// Log entries kept behind the state for followers that lag.
    pub snapshot_keep_entries: u64,
    /// Bytes of recent revisions kept in memory for watchers that are a little late.
    pub watch_ring_bytes: u64,
    /// Bytes that all watch streams together may hold beyond that.
    pub watch_memory_bytes: u64,
    /// Deliveries that may wait in a watch stream, beside some for each of its watchers.
    pub watch_queue_items: u64,
    /// Milliseconds after which what is left of a lease that is not renewed is noted in the log.
    pub lease_checkpoint_interval_ms: u64,
    /// Bytes that must be free on the disk of the data directory; below, the cluster takes no more data.
    pub disk_free_min_bytes: u64,
    /// Bytes of memory near which requests are refused. Zero: what the container may have, if bounded.
    pub memory_limit_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        const MIB: u64 = 1024 * 1024;
        Tuning {
            log_segment_bytes: 64 * MIB,
            log_cache_bytes: 16 * MIB,
            flush_log_bytes: 64 * MIB,
            flush_interval_ms: 30_000,
            block_cache_bytes: 64 * MIB,
            write_buffer_bytes: 24 * MIB,
            snapshot_keep_entries: 5_000,
            watch_ring_bytes: 64 * MIB,
            watch_memory_bytes: 128 * MIB,
            watch_queue_items: 256,
            lease_checkpoint_interval_ms: 60_000,
            disk_free_min_bytes: 256 * MIB,
            memory_limit_bytes: 0,
        }
    }
}

/// How a member without data comes to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialClusterState {
    /// All members of the initial cluster start together.
    New,
    /// The cluster runs already, and this member was added to it.
    Existing,
}

/// Everything a member needs to know before it touches the disk or the network.
#[derive(Clone, Debug)]
pub struct Config {
    pub name: String,
    pub data_dir: PathBuf,
    /// Where the log goes if not under `data_dir`.
    pub wal_dir: Option<PathBuf>,
    pub listen_client_urls: Vec<MemberUrl>,
    pub advertise_client_urls: Vec<MemberUrl>,
    pub listen_peer_urls: Vec<MemberUrl>,
    pub initial_advertise_peer_urls: Vec<MemberUrl>,
    pub listen_metrics_urls: Vec<MemberUrl>,
    /// Plain HTTP only; `listen_client_urls` are for gRPC only if there are any.
    pub listen_client_http_urls: Vec<MemberUrl>,
    pub network: NetworkOptions,
    pub tls: TlsConfig,
    /// Sorted by name, then address. A member with several peer addresses has several rows.
    pub initial_cluster: Vec<(String, MemberUrl)>,
    pub initial_cluster_state: InitialClusterState,
    pub initial_cluster_token: String,
    /// What the others are called at the first start.
    pub initial_names: InitialNames,
    /// `None`: `initial_cluster` is the cluster.
    pub discovery: Option<Discovery>,
    pub heartbeat_interval_ms: u64,
    pub election_timeout_ms: u64,
    pub snapshot_count: u64,
    /// `None`: the operator switched the quota off.
    pub quota_backend_bytes: Option<u64>,
    pub max_txn_ops: usize,
    pub max_request_bytes: usize,
    /// `None`: unbounded.
    pub max_concurrent_streams: Option<u32>,
    pub grpc_keepalive: Keepalive,
    pub unsafe_no_fsync: bool,
    /// Go on alone with what the directory holds, without the others.
    pub force_new_cluster: bool,
    pub pre_vote: bool,
    pub strict_reconfig_check: bool,
    pub max_learners: usize,
    pub watch_progress_notify_interval: Duration,
    /// `None`: history is kept until a client compacts it.
    pub auto_compaction: Option<AutoCompaction>,
    pub compaction: CompactionPace,
    pub corruption_checks: CorruptionChecks,
    /// A read, or a batch of entries to apply, that takes longer is told of in the log.
    pub warning_apply_duration: Duration,
    /// The same of a whole call with one answer.
    pub warning_unary_request_duration: Duration,
    /// Bytes that must be to be gained for the state to be defragmented at the start.
    pub bootstrap_defrag_bytes: Option<NonZeroU64>,
    pub auth: AuthOptions,
    pub http: HttpOptions,
    /// `None`: no spans are made.
    pub tracing: Option<TracingOptions>,
    pub tuning: Tuning,
}

/// Why the flags do not make a member. The texts are etcd's where etcd has one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("URL scheme must be http, https, unix, or unixs: {0}")]
    UrlScheme(String),
    #[error("URL address does not have the form \"host:port\": {0}")]
    UrlAddress(String),
    #[error("URL must not contain a path: {0}")]
    UrlPath(String),
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error("invalid value for --{flag}: {reason}")]
    Urls { flag: &'static str, reason: Box<ConfigError> },
    #[error("expected IP in URL for binding ({0})")]
    BindName(MemberUrl),
    #[error("--{0} must name at least one URL")]
    NoUrl(&'static str),
    #[error("cannot bind both --listen-client-urls and --listen-client-http-urls on the same url {0}")]
    SharedListener(MemberUrl),
    #[error("--advertise-client-urls is required when --listen-client-urls is set explicitly")]
    AdvertiseUnset,
    #[error(
        "--max-request-bytes is {bytes}; {REQUEST_BYTES_ALLOWED_MAX} is the most that members can send to each other"
    )]
    RequestTooLarge { bytes: usize },
    #[error("--{flag} must be >0 (set to {value}{unit})")]
    NotPositive { flag: &'static str, value: u64, unit: &'static str },
    #[error(
        "--election-timeout[{election_ms}ms] should be at least as 5 times as --heartbeat-interval[{heartbeat_ms}ms]"
    )]
    ElectionTooShort { election_ms: u64, heartbeat_ms: u64 },
    #[error("--election-timeout[{0}ms] is too long, and should be set less than 50000ms")]
    ElectionTooLong(u64),
    #[error("invalid value {0:?} for --initial-cluster-state: expected 'new' or 'existing'")]
    ClusterState(String),
    #[error("error setting up initial cluster: {0}")]
    InitialCluster(Box<ConfigError>),
    #[error(
        "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \"discovery\", \"discovery-endpoints\" or \"discovery-srv\""
    )]
    ConflictingBootstrap,
    #[error("both --discovery-token and --discovery-endpoints must be set")]
    HalfARegistry,
    #[error("--discovery-endpoints must not contain empty endpoints")]
    EmptyEndpoint,
    #[error("--discovery-user and a password go together: NAME:PASSWORD, or --discovery-password")]
    HalfALogin,
    #[error("{0}")]
    AutoCompaction(String),
    #[error("invalid value for --auth-token: {0}")]
    AuthToken(String),
    #[error("--bcrypt-cost is {0}; it must be at least 4 and at most 31")]
    BcryptCost(u32),
    #[error("distributed tracing configurition is not valid: (tracing sampling rate {0})")]
    TracingRate(String),
    #[error("--distributed-tracing-address is {0:?}: it must be host:port")]
    TracingAddress(String),
    #[error("--name must not be empty")]
    EmptyName,
    #[error("couldn't find local name {0:?} in the initial cluster configuration")]
    NameNotInCluster(String),
    #[error("initial cluster {0} has duplicate url")]
    DuplicateClusterUrl(String),
    #[error("--initial-cluster has {name}={url} but missing from --initial-advertise-peer-urls={advertised}")]
    NotAdvertised { name: String, url: MemberUrl, advertised: String },
    #[error("--initial-advertise-peer-urls has {url} but missing from --initial-cluster={cluster}")]
    NotInCluster { url: MemberUrl, cluster: String },
}

impl Config {
    pub fn from_flags(raw: RawFlags) -> Result<Config, ConfigError> {
        if raw.name.is_empty() {
            return Err(ConfigError::EmptyName);
        }
        check_numbers(&raw)?;
        if given(&raw.listen_client_urls) && raw.advertise_client_urls.is_none() {
            return Err(ConfigError::AdvertiseUnset);
        }
        let advertise_peer =
            urls("initial-advertise-peer-urls", &raw.initial_advertise_peer_urls, PEER_URL_DEFAULT)?;
        let initial_cluster = initial_cluster(&raw, &advertise_peer)?;
        let discovery = discovery::read(&raw)?;
        let mut tls = TlsConfig::from_flags(&raw.tls)?;
        discovery::expect_domain(&mut tls, discovery.as_ref());
        let auth = auth::read(&raw)?;
        let config = Config {
            data_dir: raw.data_dir.unwrap_or_else(|| PathBuf::from(format!("{}.etcd", raw.name))),
            wal_dir: raw.wal_dir,
            listen_client_urls: listeners("listen-client-urls", &raw.listen_client_urls, CLIENT_URL_DEFAULT)?,
            advertise_client_urls: urls(
                "advertise-client-urls",
                &raw.advertise_client_urls,
                CLIENT_URL_DEFAULT,
            )?,
            listen_peer_urls: listeners("listen-peer-urls", &raw.listen_peer_urls, PEER_URL_DEFAULT)?,
            network: NetworkOptions::new(raw.network, &advertise_peer),
            initial_advertise_peer_urls: advertise_peer,
            listen_metrics_urls: optional_listeners("listen-metrics-urls", &raw.listen_metrics_urls)?,
            listen_client_http_urls: optional_listeners(
                "listen-client-http-urls",
                &raw.listen_client_http_urls,
            )?,
            tls,
            initial_cluster,
            initial_cluster_state: cluster_state(&raw.initial_cluster_state)?,
            initial_cluster_token: discovery::token(discovery.as_ref()).unwrap_or(raw.initial_cluster_token),
            initial_names: InitialNames::Agreed,
            discovery,
            heartbeat_interval_ms: raw.heartbeat_interval_ms,
            election_timeout_ms: raw.election_timeout_ms,
            snapshot_count: raw.snapshot_count,
            quota_backend_bytes: quota(raw.quota_backend_bytes),
            max_txn_ops: raw.max_txn_ops,
            max_request_bytes: raw.max_request_bytes,
            max_concurrent_streams: Some(raw.max_concurrent_streams).filter(|&max| max != u32::MAX),
            grpc_keepalive: raw.grpc_keepalive.or_default(),
            unsafe_no_fsync: raw.unsafe_no_fsync,
            force_new_cluster: raw.force_new_cluster,
            pre_vote: raw.pre_vote,
            strict_reconfig_check: raw.strict_reconfig_check,
            max_learners: raw.max_learners,
            watch_progress_notify_interval: progress_interval(raw.watch_progress_notify_interval),
            auto_compaction: AutoCompaction::parse(&raw.auto_compaction_mode, &raw.auto_compaction_retention)
                .map_err(ConfigError::AutoCompaction)?,
            compaction: compaction_pace(raw.compaction),
            corruption_checks: raw.corruption_checks,
            warning_apply_duration: raw.warning_apply_duration,
            warning_unary_request_duration: warning_of_calls(raw.warning_unary_request_duration),
            bootstrap_defrag_bytes: NonZeroU64::new(
                raw.bootstrap_defrag_threshold_megabytes.saturating_mul(1 << 20),
            ),
            auth,
            http: raw.http,
            tracing: distributed_tracing::read(&raw.tracing)?,
            tuning: raw.tuning,
            name: raw.name,
        };
        config.check_transport()?;
        Ok(config)
    }

    /// The rules about how addresses are reached.
    fn check_transport(&self) -> Result<(), ConfigError> {
        let client = [&self.listen_client_urls[..], &self.listen_client_http_urls];
        self.tls.check_listeners(&client, &self.listen_peer_urls, &self.listen_metrics_urls)?;
        let of_grpc =
            |url: &&MemberUrl| self.listen_client_urls.iter().any(|other| other.address() == url.address());
        if let Some(url) = self.listen_client_http_urls.iter().find(of_grpc) {
            return Err(ConfigError::SharedListener(url.clone()));
        }
        Ok(())
    }

    /// The rules for a member that has no data yet: it is in its initial cluster, under the
    /// addresses it advertises, and no address belongs to two.
    pub fn verify_bootstrap(&self) -> Result<(), ConfigError> {
        let own: Vec<&MemberUrl> = self.peer_urls_of(&self.name).collect();
        if own.is_empty() {
            return Err(ConfigError::NameNotInCluster(self.name.clone()));
        }
        let mut places: Vec<&MemberUrl> = self.initial_cluster.iter().map(|(_, url)| url).collect();
        places.sort();
        if places.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ConfigError::DuplicateClusterUrl(self.initial_cluster_text()));
        }
        let advertised = &self.initial_advertise_peer_urls;
        if let Some(url) = own.iter().find(|url| !advertised.iter().any(|a| a.is_same_place(url))) {
            return Err(ConfigError::NotAdvertised {
                name: self.name.clone(),
                url: (*url).clone(),
                advertised: join(advertised),
            });
        }
        if let Some(url) = advertised.iter().find(|a| !own.iter().any(|url| url.is_same_place(a))) {
            return Err(ConfigError::NotInCluster { url: url.clone(), cluster: self.initial_cluster_text() });
        }
        Ok(())
    }

    /// Whether this member comes to a cluster that runs already.
    pub fn joins_existing(&self) -> bool {
        self.initial_cluster_state == InitialClusterState::Existing
    }

    /// Who this member is in a cluster that begins with it.
    pub fn bootstrap_member_id(&self) -> MemberId {
        self.bootstrap_member_id_of(&self.name)
    }

    /// Who the member of that name is in such a cluster.
    pub fn bootstrap_member_id_of(&self, name: &str) -> MemberId {
        let urls: Vec<String> = self.peer_urls_of(name).map(MemberUrl::to_string).collect();
        meerkat_raft::identity::bootstrap_member_id(&urls, &self.initial_cluster_token)
    }

    /// The peer addresses the initial cluster lists under one name.
    pub fn peer_urls_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a MemberUrl> {
        self.initial_cluster.iter().filter(move |(member, _)| member == name).map(|(_, url)| url)
    }

    /// The initial cluster as a flag value.
    pub fn initial_cluster_text(&self) -> String {
        let rows = self.initial_cluster.iter().map(|(name, url)| format!("{name}={url}"));
        rows.collect::<Vec<_>>().join(",")
    }
}

fn check_timing(heartbeat_ms: u64, election_ms: u64) -> Result<(), ConfigError> {
    for (flag, value) in [("heartbeat-interval", heartbeat_ms), ("election-timeout", election_ms)] {
        if value == 0 {
            return Err(ConfigError::NotPositive { flag, value, unit: "ms" });
        }
    }
    if heartbeat_ms.saturating_mul(ELECTION_TIMEOUT_HEARTBEATS_MIN) > election_ms {
        return Err(ConfigError::ElectionTooShort { election_ms, heartbeat_ms });
    }
    if election_ms > ELECTION_TIMEOUT_MS_MAX {
        return Err(ConfigError::ElectionTooLong(election_ms));
    }
    Ok(())
}

fn check_numbers(raw: &RawFlags) -> Result<(), ConfigError> {
    check_timing(raw.heartbeat_interval_ms, raw.election_timeout_ms)?;
    check_sizes(raw)
}

/// A zero here would make a member that refuses every write or never lets go of its log.
fn check_sizes(raw: &RawFlags) -> Result<(), ConfigError> {
    if REQUEST_BYTES_ALLOWED_MAX < raw.max_request_bytes {
        return Err(ConfigError::RequestTooLarge { bytes: raw.max_request_bytes });
    }
    let sizes = [
        ("snapshot-count", raw.snapshot_count),
        ("max-txn-ops", raw.max_txn_ops as u64),
        ("max-request-bytes", raw.max_request_bytes as u64),
        ("max-concurrent-streams", u64::from(raw.max_concurrent_streams)),
        ("meerkat-log-segment-bytes", raw.tuning.log_segment_bytes),
        ("meerkat-log-cache-bytes", raw.tuning.log_cache_bytes),
        ("meerkat-flush-log-bytes", raw.tuning.flush_log_bytes),
        ("meerkat-flush-interval-ms", raw.tuning.flush_interval_ms),
        ("meerkat-block-cache-bytes", raw.tuning.block_cache_bytes),
        ("meerkat-write-buffer-bytes", raw.tuning.write_buffer_bytes),
        ("meerkat-watch-ring-bytes", raw.tuning.watch_ring_bytes),
        ("meerkat-watch-memory-bytes", raw.tuning.watch_memory_bytes),
        ("meerkat-watch-queue-items", raw.tuning.watch_queue_items),
    ];
    match sizes.into_iter().find(|(_, value)| *value == 0) {
        Some((flag, value)) => Err(ConfigError::NotPositive { flag, value, unit: "" }),
        None => Ok(()),
    }
}

/// As in etcd, which takes zero for its default and raises what is too short.
fn progress_interval(asked: Duration) -> Duration {
    match asked {
        Duration::ZERO => RawFlags::default().watch_progress_notify_interval,
        interval => interval.max(WATCH_PROGRESS_INTERVAL_MIN),
    }
}

/// As in etcd, which takes zero for its default.
fn compaction_pace(asked: CompactionPace) -> CompactionPace {
    let default = CompactionPace::default();
    CompactionPace {
        batch: if asked.batch == 0 { default.batch } else { asked.batch },
        pause: if asked.pause.is_zero() { default.pause } else { asked.pause },
    }
}

/// As in etcd, which takes zero for its default.
fn warning_of_calls(asked: Duration) -> Duration {
    match asked {
        Duration::ZERO => RawFlags::default().warning_unary_request_duration,
        duration => duration,
    }
}

fn given(flag: &Option<String>) -> bool {
    flag.as_deref().is_some_and(|text| !text.is_empty())
}

fn urls(flag: &'static str, text: &Option<String>, default: &str) -> Result<Vec<MemberUrl>, ConfigError> {
    let text = text.as_deref().filter(|text| !text.is_empty()).unwrap_or(default);
    let urls =
        MemberUrl::parse_list(text).map_err(|reason| ConfigError::Urls { flag, reason: Box::new(reason) })?;
    if urls.is_empty() {
        return Err(ConfigError::NoUrl(flag));
    }
    Ok(urls)
}

fn listeners(
    flag: &'static str,
    text: &Option<String>,
    default: &str,
) -> Result<Vec<MemberUrl>, ConfigError> {
    let mut urls = urls(flag, text, default)?;
    if let Some(url) = urls.iter().find(|url| !url.can_be_bound()) {
        return Err(ConfigError::BindName(url.clone()));
    }
    // As in etcd: one that is named twice is opened once. They are sorted.
    urls.dedup();
    Ok(urls)
}

fn optional_listeners(flag: &'static str, text: &Option<String>) -> Result<Vec<MemberUrl>, ConfigError> {
    if given(text) { listeners(flag, text, "") } else { Ok(Vec::new()) }
}

/// The listed cluster, or the cluster of this member alone if none is listed; nobody, while it is still to
/// be found.
fn initial_cluster(
    raw: &RawFlags,
    advertise_peer: &[MemberUrl],
) -> Result<Vec<(String, MemberUrl)>, ConfigError> {
    // Who comes to a registry is a cluster of its own until it has met the others, also if an empty text
    // lists nobody.
    let is_listed = |text: &&str| !text.is_empty() || !discovery::is_at_a_registry(&raw.discovery);
    let Some(text) = raw.initial_cluster.as_deref().filter(is_listed) else {
        if discovery::is_in_dns(&raw.discovery) {
            return Ok(Vec::new());
        }
        return Ok(advertise_peer.iter().map(|url| (raw.name.clone(), url.clone())).collect());
    };
    let mut cluster = Vec::new();
    for row in text.split(',').map(str::trim).filter(|row| !row.is_empty()) {
        let (name, url) = row.split_once('=').unwrap_or((row, ""));
        let url = MemberUrl::parse(url).map_err(|error| ConfigError::InitialCluster(Box::new(error)))?;
        cluster.push((name.to_owned(), url));
    }
    cluster.sort();
    Ok(cluster)
}

fn cluster_state(text: &str) -> Result<InitialClusterState, ConfigError> {
    match text {
        "new" => Ok(InitialClusterState::New),
        "existing" => Ok(InitialClusterState::Existing),
        other => Err(ConfigError::ClusterState(other.to_owned())),
    }
}

fn quota(bytes: i64) -> Option<u64> {
    match bytes {
        0 => Some(QUOTA_BACKEND_BYTES_DEFAULT),
        bytes => u64::try_from(bytes).ok(),
    }
}

fn join(urls: &[MemberUrl]) -> String {
    urls.iter().map(|url| url.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
