//! The line that says what a member starts with, under etcd's names: operators look for its fields.

use std::time::Duration;

use meerkat_proto::go_duration;
use meerkat_server::config::MemberUrl;
use meerkat_server::{Config, SERVER_VERSION};

use super::given::Given;

pub fn tell(given: &Given, config: &Config) {
    // The only one that is not the same whatever was asked for.
    let skips_check = given.text("v2-deprecation") == "write-only-skip-check";
    tracing::info!(
        etcd_version = SERVER_VERSION,
        name = config.name,
        data_dir = %config.data_dir.display(),
        wal_dir_dedicated = given.text("wal-dir"),
        force_new_cluster = config.force_new_cluster,
        heartbeat_interval = milliseconds(config.heartbeat_interval_ms),
        election_timeout = milliseconds(config.election_timeout_ms),
        snapshot_count = config.snapshot_count,
        snapshot_catchup_entries = config.tuning.snapshot_keep_entries,
        initial_advertise_peer_urls = texts(&config.initial_advertise_peer_urls),
        listen_peer_urls = texts(&config.listen_peer_urls),
        advertise_client_urls = texts(&config.advertise_client_urls),
        listen_client_urls = texts(&config.listen_client_urls),
        listen_metrics_urls = texts(&config.listen_metrics_urls),
        initial_cluster = config.initial_cluster_text(),
        initial_cluster_state = given.text("initial-cluster-state"),
        initial_cluster_token = config.initial_cluster_token,
        quota_backend_bytes = config.quota_backend_bytes,
        max_request_bytes = config.max_request_bytes,
        pre_vote = config.pre_vote,
        feature_gates = given.text("feature-gates"),
        auto_compaction_mode = given.text("auto-compaction-mode"),
        auto_compaction_retention = given.text("auto-compaction-retention"),
        max_learners = config.max_learners,
        v2_deprecation = if skips_check { "write-only-skip-check" } else { "write-only" },
        "starting an etcd server"
    );
}

fn milliseconds(milliseconds: u64) -> String {
    go_duration::format(Duration::from_millis(milliseconds))
}

fn texts(urls: &[MemberUrl]) -> String {
    urls.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
