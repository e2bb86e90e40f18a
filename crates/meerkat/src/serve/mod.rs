//! `meerkat serve`: from flags to a running member, until told to stop.
//!
//! Everything that can be wrong with the flags is said before the first file is touched. A member
//! that cannot start or has to stop leaves one line on stderr with the reason, beside the log, and
//! exit status 1; one that met a mistake of its own ends at once, with a status of its own
//! (`meerkat_fault::STATUS`).

mod config_file;
mod deprecated;
mod discovery;
mod feature_gates;
mod flags;
mod given;
pub mod logging;
mod security;
mod starting;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::error::{ContextKind, ErrorKind};
use given::Given;
pub use given::command;
use logging::Logging;
use meerkat::listwatch::{addresses, member_door};
use meerkat_proto::{go_duration, reason};
use meerkat_server::config::{
    CompactionPace, Config, HttpOptions, Keepalive, MemberUrl, RawDiscovery, RawFlags, RawNetwork,
    RawTracing, Secret, Tuning,
};
use meerkat_server::tls::Keys;
use meerkat_server::{CorruptionChecks, ListenError};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// A member, by its command line without the program's name.
pub fn run(args: Vec<OsString>) -> Result<(), Failure> {
    match args.first().and_then(|arg| arg.to_str()) {
        Some("gateway") => return crate::gateway::run(args[1..].to_vec()),
        Some("grpc-proxy") => {
            let text =
                "grpc-proxy is not supported: clients reach every member by themselves, or by `gateway`";
            return Err(Failure::error(text));
        }
        _ => {}
    }
    let args = std::iter::once(OsString::from("meerkat serve")).chain(given::with_two_dashes(args));
    let matches = command().try_get_matches_from(args).map_err(refused_by_parser)?;
    if matches.get_one::<String>("version").is_some_and(|text| given::is_true(text) == Some(true)) {
        print!("{}", crate::version::of_server());
        return Ok(());
    }
    run_with(&matches)
}

/// As in etcd: 2 after a flag that it does not know, 1 after a word that is no flag, 0 after help.
fn refused_by_parser(error: clap::Error) -> Failure {
    let word = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-') {
        return Failure::error(format!("'{word}' is not a valid flag"));
    }
    error.exit()
}

fn read_settings(matches: &ArgMatches) -> Result<Given, Failure> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment: Vec<(String, String)> = environment.collect();
    let Some(path) = given::config_file(matches, &environment) else {
        return given::read(matches, environment);
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::error(format!("open {path}: {}", reason::of_system(&error))))?;
    given::read_file(&text, &path)
}

fn run_with(matches: &ArgMatches) -> Result<(), Failure> {
    let given = read_settings(matches)?;
    let gates = feature_gates::read(given.text("feature-gates")).map_err(Failure::error)?;
    feature_gates::check(&given).map_err(Failure::error)?;
    let logging = logging_flags(&given).map_err(Failure::error)?;
    let workers = worker_threads(given.number("meerkat-worker-threads").map_err(Failure::error)?);
    logging.install().map_err(Failure::error)?;
    meerkat_fault::end_process_on_panic();
    refuse_huge_pages();
    meerkat_server::raise_limit();
    if let Some(path) = &given.file {
        tracing::info!(
            path,
            "loaded server configuration, other configuration command line flags and environment variables will be \
             ignored if provided"
        );
    }
    for notice in given.notices.iter().chain(&gates.notices) {
        tracing::warn!("{notice}");
    }
    let config = raw_flags(&given)
        .and_then(|raw| Config::from_flags(raw).map_err(|error| error.to_string()))
        .map_err(|reason| failed("bad configuration", reason))?;
    for notice in config.tls.notices(&config.listen_client_urls, &config.listen_peer_urls) {
        tracing::warn!("{notice}");
    }
    tell_of_local_address(&config);
    starting::tell(&given, &config);
    let door = door_urls(&given, &config).map_err(|reason| failed("bad configuration", reason))?;
    meerkat_server::arm_fault_points().map_err(|reason| failed("bad fault points", reason))?;
    let runtime = request_runtime(workers).map_err(|error| failed("no threads for requests", error))?;
    let outcome = runtime.block_on(meerkat_fault::supervised("member", async {
        let shutdown = stop_signal().map_err(|error| failed("no signal handler", error))?;
        let keys = Keys::open(&config).map_err(|error| failed("the member cannot start", error))?;
        let door = open_door(door, &keys, &config).await;
        let door = door.map_err(|error| failed("the member cannot start", error))?;
        let finder = discovery::finder(&config);
        meerkat_server::run_with_keys(config, keys, Box::pin(shutdown), (door, finder))
            .await
            .map_err(|error| failed("the member stopped", error))
    }));
    // What is still running has been told to stop; a stuck reader must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

fn door_urls(given: &Given, config: &Config) -> Result<Vec<MemberUrl>, String> {
    const FLAG: &str = "listen-listwatch-urls";
    let client = &config.tls.client;
    let leave = addresses::Leave {
        insecure: given.switch("listwatch-allow-insecure"),
        tls: client.own.is_some() || client.auto_tls,
        callers_prove: client.callers_prove,
    };
    addresses::parse(FLAG, given.text(FLAG), leave)
}

/// Before the member starts: a port in use is found before the disk is touched.
async fn open_door(
    urls: Vec<MemberUrl>,
    keys: &Keys,
    config: &Config,
) -> Result<Option<meerkat_server::Door>, ListenError> {
    if urls.is_empty() {
        return Ok(None);
    }
    if addresses::are_open_to_others(&urls, config.tls.client.callers_prove) {
        tracing::warn!(at = %addresses::text(&urls), "{}", addresses::WARNING);
    }
    let ports = meerkat_server::bind_client(&urls, keys, config.network).await?;
    Ok(Some(member_door(ports, &urls)))
}

pub fn failed(what: &str, reason: impl std::fmt::Display) -> Failure {
    let reason = reason.to_string();
    tracing::error!(error = %reason, "{what}");
    Failure::error(format!("meerkat: {what}: {reason}"))
}

/// With one thread, the scheduler that takes tasks strictly in turn: answers that become ready
/// together then leave in one write to the socket, where the other scheduler runs a connection at
/// once for each of them (docs/adr/0003).
fn request_runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    if workers == 1 {
        return tokio::runtime::Builder::new_current_thread().enable_all().build();
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("meerkat-request")
        .enable_all()
        .build()
}

/// Without huge pages: an allocator's half-used regions would each weigh 2 MiB.
fn refuse_huge_pages() {
    // SAFETY: prctl with these arguments changes a flag of this process and touches no memory.
    let refused = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    if refused != 0 {
        tracing::debug!("this kernel does not let a process refuse huge pages");
    }
}

/// Half the processors, unless told otherwise: the log, the state and its upkeep have threads of
/// their own, and two request threads on two processors only take turns with those (docs/adr/0003).
fn worker_threads(asked: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if asked == 0 { (cores / 2).max(1) } else { asked }
}

/// Resolves at the first SIGTERM or SIGINT.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "received signal; shutting down");
    })
}

fn logging_flags(given: &Given) -> Result<Logging, String> {
    match given.text("logger") {
        "zap" => {}
        "capnslog" => return Err("--logger=capnslog is removed in v3.5".to_owned()),
        other => return Err(format!("unknown logger option {other:?}")),
    }
    let rotation = given.switch("enable-log-rotation").then(|| given.text("log-rotation-config-json"));
    Logging::from_flags(
        given.text("log-level"),
        given.text("log-format"),
        given.text("log-outputs"),
        rotation,
    )
}

fn raw_flags(given: &Given) -> Result<RawFlags, String> {
    // As etcd, which looks at this on its command line only: its sample configuration file says `proxy`.
    if given.file.is_none() && given.text("discovery-fallback") == "proxy" {
        let reason = "v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"";
        return Err(reason.to_owned());
    }
    let text = |name| given.explicit(name).map(str::to_owned);
    let path = |name| given.explicit(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(RawFlags {
        name: given.text("name").to_owned(),
        data_dir: path("data-dir"),
        wal_dir: path("wal-dir"),
        listen_client_urls: text("listen-client-urls"),
        advertise_client_urls: text("advertise-client-urls"),
        listen_peer_urls: text("listen-peer-urls"),
        initial_advertise_peer_urls: text("initial-advertise-peer-urls"),
        listen_metrics_urls: text("listen-metrics-urls"),
        listen_client_http_urls: text("listen-client-http-urls"),
        network: network_flags(given)?,
        tls: security::raw_tls(given)?,
        initial_cluster: text("initial-cluster"),
        initial_cluster_state: given.text("initial-cluster-state").to_owned(),
        initial_cluster_token: given.text("initial-cluster-token").to_owned(),
        discovery: raw_discovery(given)?,
        heartbeat_interval_ms: given.number("heartbeat-interval")?,
        election_timeout_ms: given.number("election-timeout")?,
        snapshot_count: given.number("snapshot-count")?,
        quota_backend_bytes: given.number("quota-backend-bytes")?,
        max_txn_ops: given.number("max-txn-ops")?,
        max_request_bytes: given.number("max-request-bytes")?,
        max_concurrent_streams: given.number("max-concurrent-streams")?,
        grpc_keepalive: Keepalive {
            interval: time(given, "grpc-keepalive-interval")?,
            timeout: time(given, "grpc-keepalive-timeout")?,
        },
        unsafe_no_fsync: given.switch("unsafe-no-fsync"),
        force_new_cluster: given.switch("force-new-cluster"),
        pre_vote: given.switch("pre-vote"),
        strict_reconfig_check: given.switch("strict-reconfig-check"),
        max_learners: given.number("max-learners")?,
        watch_progress_notify_interval: time(given, "watch-progress-notify-interval")?,
        auto_compaction_mode: given.text("auto-compaction-mode").to_owned(),
        auto_compaction_retention: given.text("auto-compaction-retention").to_owned(),
        compaction: compaction_pace(given)?,
        corruption_checks: corruption_checks(given)?,
        warning_apply_duration: time(given, "warning-apply-duration")?,
        warning_unary_request_duration: time(given, "warning-unary-request-duration")?,
        bootstrap_defrag_threshold_megabytes: given.number("bootstrap-defrag-threshold-megabytes")?,
        auth_token: given.text("auth-token").to_owned(),
        auth_token_ttl_seconds: given.number("auth-token-ttl")?,
        bcrypt_cost: given.number("bcrypt-cost")?,
        http: HttpOptions::new(
            given.switch("enable-grpc-gateway"),
            given.text("cors"),
            given.text("host-whitelist"),
            given.text("metrics"),
        )?,
        tracing: tracing_flags(given)?,
        tuning: tuning(given)?,
    })
}

fn raw_discovery(given: &Given) -> Result<RawDiscovery, String> {
    let text = |name| given.text(name).to_owned();
    Ok(RawDiscovery {
        srv: text("discovery-srv"),
        srv_name: text("discovery-srv-name"),
        token: text("discovery-token"),
        endpoints: text("discovery-endpoints"),
        dial_timeout: time(given, "discovery-dial-timeout")?,
        request_timeout: time(given, "discovery-request-timeout")?,
        keepalive: Keepalive {
            interval: time(given, "discovery-keepalive-time")?,
            timeout: time(given, "discovery-keepalive-timeout")?,
        },
        insecure_transport: given.switch("discovery-insecure-transport"),
        insecure_skip_tls_verify: given.switch("discovery-insecure-skip-tls-verify"),
        cert: text("discovery-cert"),
        key: text("discovery-key"),
        cacert: text("discovery-cacert"),
        user: text("discovery-user"),
        password: Secret(text("discovery-password")),
    })
}

fn time(given: &Given, name: &str) -> Result<Duration, String> {
    go_duration::parse(given.text(name)).map_err(|error| format!("invalid value for --{name}: {error}"))
}

fn network_flags(given: &Given) -> Result<RawNetwork, String> {
    let gates = feature_gates::read(given.text("feature-gates"))?;
    Ok(RawNetwork {
        set_member_localaddr: gates.set_member_local_addr || given.switch("set-member-localaddr"),
        socket_reuse_port: given.switch("socket-reuse-port"),
    })
}

/// In etcd's words.
fn tell_of_local_address(config: &Config) {
    if let Some(address) = config.network.dial_from {
        tracing::info!("LocalAddr" = %address, "setting member local address");
    } else if config.network.lacks_address {
        let advertised: Vec<String> =
            config.initial_advertise_peer_urls.iter().map(ToString::to_string).collect();
        tracing::warn!(
            advertise_peer_urls = advertised.join(","),
            "unable to set a member local address due to lack of suitable local addresses"
        );
    }
}

fn compaction_pace(given: &Given) -> Result<CompactionPace, String> {
    let batch = given.number("compaction-batch-limit")?;
    Ok(CompactionPace { batch, pause: time(given, "compaction-sleep-interval")? })
}

fn corruption_checks(given: &Given) -> Result<CorruptionChecks, String> {
    let every = |name: &str| Ok::<_, String>(Some(time(given, name)?).filter(|time| !time.is_zero()));
    let gates = feature_gates::read(given.text("feature-gates"))?;
    let after_compaction = every("compact-hash-check-time")?;
    if after_compaction.is_none() {
        return Err("--compact-hash-check-time must be >0 (set to 0s)".to_owned());
    }
    let compared = gates.compact_hash_check || given.switch("compact-hash-check-enabled");
    Ok(CorruptionChecks {
        every: every("corrupt-check-time")?,
        initially: gates.initial_corrupt_check || given.switch("initial-corrupt-check"),
        after_compaction: after_compaction.filter(|_| compared),
    })
}

fn tracing_flags(given: &Given) -> Result<RawTracing, String> {
    Ok(RawTracing {
        enabled: given.switch("enable-distributed-tracing"),
        address: given.text("distributed-tracing-address").to_owned(),
        service_name: given.text("distributed-tracing-service-name").to_owned(),
        instance_id: given.text("distributed-tracing-instance-id").to_owned(),
        sampling_rate: given.number("distributed-tracing-sampling-rate")?,
    })
}

fn tuning(given: &Given) -> Result<Tuning, String> {
    Ok(Tuning {
        log_segment_bytes: given.number("meerkat-log-segment-bytes")?,
        log_cache_bytes: given.number("meerkat-log-cache-bytes")?,
        flush_log_bytes: given.number("meerkat-flush-log-bytes")?,
        flush_interval_ms: given.number("meerkat-flush-interval-ms")?,
        block_cache_bytes: given.number("meerkat-block-cache-bytes")?,
        write_buffer_bytes: given.number("meerkat-write-buffer-bytes")?,
        snapshot_keep_entries: given.number("snapshot-catchup-entries")?,
        watch_ring_bytes: given.number("meerkat-watch-ring-bytes")?,
        watch_memory_bytes: given.number("meerkat-watch-memory-bytes")?,
        watch_queue_items: given.number("meerkat-watch-queue-items")?,
        lease_checkpoint_interval_ms: given.number("meerkat-lease-checkpoint-interval-ms")?,
        memory_limit_bytes: given.number("meerkat-memory-limit-bytes")?,
        disk_free_min_bytes: given.number("meerkat-disk-free-min-bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_configuration_agree_on_every_default() {
        let from_table = raw_flags(&Given::default()).expect("defaults are well-formed");
        assert_eq!(format!("{from_table:?}"), format!("{:?}", RawFlags::default()));
    }

    #[test]
    fn a_member_has_a_request_thread_unless_told_otherwise() {
        assert!(worker_threads(0) >= 1);
        assert_eq!(worker_threads(3), 3);
    }
}
