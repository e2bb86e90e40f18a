//! The metrics that dashboards and alerts made for etcd use: all there, and true after known traffic.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::metrics::Metrics;
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, PutRequest, RangeRequest};

use super::{gateway, http, start};

const WITHIN: Duration = Duration::from_secs(10);

/// Pinned: a name that goes missing empties somebody's dashboard.
const NAMES: &[&str] = &[
    "etcd_server_has_leader",
    "etcd_server_is_leader",
    "etcd_server_is_learner",
    "etcd_server_id",
    "etcd_server_version",
    "etcd_cluster_version",
    "etcd_server_leader_changes_seen_total",
    "etcd_server_heartbeat_send_failures_total",
    "etcd_server_slow_apply_total",
    "etcd_server_slow_read_indexes_total",
    "etcd_server_read_indexes_failed_total",
    "etcd_server_proposals_failed_total",
    "etcd_server_health_success",
    "etcd_server_health_failures",
    "etcd_server_client_requests_total",
    "etcd_server_proposals_committed_total",
    "etcd_server_proposals_applied_total",
    "etcd_server_proposals_pending",
    "etcd_server_quota_backend_bytes",
    "etcd_server_snapshot_apply_in_progress_total",
    "etcd_server_apply_duration_seconds_bucket",
    "etcd_server_range_duration_seconds_bucket",
    "etcd_disk_wal_fsync_duration_seconds_bucket",
    "etcd_disk_wal_fsync_duration_seconds_sum",
    "etcd_disk_wal_fsync_duration_seconds_count",
    "etcd_disk_wal_write_duration_seconds_bucket",
    "etcd_disk_backend_commit_duration_seconds_bucket",
    "etcd_disk_backend_snapshot_duration_seconds_bucket",
    "etcd_disk_wal_write_bytes_total",
    "etcd_mvcc_db_total_size_in_bytes",
    "etcd_mvcc_db_total_size_in_use_in_bytes",
    "etcd_mvcc_db_open_read_transactions",
    "etcd_mvcc_put_total",
    "etcd_mvcc_delete_total",
    "etcd_mvcc_txn_total",
    "etcd_mvcc_range_total",
    "etcd_mvcc_hash_duration_seconds_bucket",
    "etcd_debugging_mvcc_keys_total",
    "etcd_debugging_mvcc_watcher_total",
    "etcd_debugging_mvcc_watch_stream_total",
    "etcd_debugging_mvcc_slow_watcher_total",
    "etcd_debugging_mvcc_pending_events_total",
    "etcd_debugging_mvcc_events_total",
    "etcd_debugging_mvcc_db_compaction_keys_total",
    "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds_bucket",
    "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_bucket",
    "etcd_debugging_mvcc_total_put_size_in_bytes",
    "etcd_debugging_mvcc_current_revision",
    "etcd_debugging_mvcc_compact_revision",
    "etcd_debugging_lease_granted_total",
    "etcd_debugging_lease_revoked_total",
    "etcd_debugging_lease_renewed_total",
    "etcd_debugging_server_lease_expired_total",
    "etcd_network_peer_round_trip_time_seconds_bucket",
    "etcd_network_peer_sent_bytes_total",
    "etcd_network_peer_received_bytes_total",
    "etcd_network_peer_sent_failures_total",
    "etcd_network_active_peers",
    "etcd_network_known_peers",
    "etcd_network_client_grpc_received_bytes_total",
    "etcd_network_client_grpc_sent_bytes_total",
    "etcd_snap_db_save_total_duration_seconds_bucket",
    "etcd_snap_db_fsync_duration_seconds_bucket",
    "etcd_snap_fsync_duration_seconds_bucket",
    "etcd_server_learner_promote_successes",
    "grpc_server_started_total",
    "grpc_server_handled_total",
    "grpc_server_msg_received_total",
    "grpc_server_msg_sent_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_virtual_memory_max_bytes",
    "os_fd_used",
    "os_fd_limit",
];

async fn scrape(cluster: &Cluster, member: usize) -> Result<Metrics, Failure> {
    Metrics::read(&format!("127.0.0.1:{}", cluster.members()[member].client_port())).await
}

pub async fn count_what_happened() -> Result<(), Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 3)).await?;
    let leader = cluster.leader(WITHIN).await?;
    let before = scrape(&cluster, leader).await?;
    traffic(&cluster, leader).await?;
    let after = scrape(&cluster, leader).await?;
    let names: BTreeSet<&str> = after.names().collect();
    let mut findings: Vec<String> = NAMES
        .iter()
        .filter(|name| !names.contains(**name))
        .map(|name| format!("{name} is missing"))
        .collect();
    if names.contains("grpc_server_handling_seconds_bucket") {
        findings.push("times of calls are told without --metrics=extensive".to_owned());
    }
    // An empty store, of which etcd says that some of it is in use.
    let in_use = before.get("etcd_mvcc_db_total_size_in_use_in_bytes")?;
    if in_use < 1.0 || before.get("etcd_mvcc_db_total_size_in_bytes")? < in_use {
        findings.push(format!("{in_use} bytes of an empty store are in use"));
    }
    for (name, more) in counted() {
        let grown = after.get(&name)? - before.get(&name).unwrap_or(0.0);
        if grown != more {
            findings.push(format!("{name} has grown by {grown} and not by {more}"));
        }
    }
    for (name, least) in [
        ("etcd_debugging_mvcc_keys_total", 3.0),
        ("etcd_network_client_grpc_received_bytes_total", 100.0),
        ("etcd_disk_backend_commit_duration_seconds_count", 1.0),
        ("etcd_disk_wal_write_duration_seconds_count", 1.0),
        ("etcd_cluster_version{cluster_version=\"3.6\"}", 1.0),
        ("os_fd_used", 3.0),
    ] {
        if after.get(name)? < least {
            findings.push(format!("{name} is {}", after.get(name)?));
        }
    }
    let known = after.names().filter(|name| *name == "etcd_network_known_peers").count();
    if known != 3 {
        findings.push(format!("{known} of 3 members are known"));
    }
    Failure::from_findings("metrics say what happened", findings)?;
    cluster.finish()?;
    extensive().await
}

/// Four puts, of which one through the gateway; three ranges, of which one is refused; a deletion.
async fn traffic(cluster: &Cluster, member: usize) -> Result<(), Failure> {
    let endpoint = cluster.members()[member].endpoint();
    let refused = |status: tonic::Status| Failure::broken(format!("refused: {status}"));
    for key in ["a", "b", "c"] {
        let put = PutRequest { key: key.into(), value: Bytes::from_static(b"12345"), ..Default::default() };
        endpoint.put(put, WITHIN).await.map_err(refused)?;
    }
    let port = cluster.members()[member].client_port();
    let put = http::send(port, "POST", "/v3/kv/put", &[], br#"{"key":"ZA==","value":"MTIzNDU="}"#).await?;
    if put.status != 200 {
        return Err(Failure::broken(format!("{put:?}")));
    }
    for key in ["a", "b"] {
        let range = RangeRequest { key: key.into(), ..Default::default() };
        endpoint.range(range, WITHIN).await.map_err(refused)?;
    }
    if endpoint.range(RangeRequest::default(), WITHIN).await.is_ok() {
        return Err(Failure::broken("a range of no key is answered"));
    }
    let delete = DeleteRangeRequest { key: Bytes::from_static(b"a"), ..Default::default() };
    endpoint.delete(delete, WITHIN).await.map_err(refused)?;
    Ok(())
}

fn counted() -> Vec<(String, f64)> {
    let method = |name: &str, method: &str, code: &str| {
        let code = if code.is_empty() { String::new() } else { format!("grpc_code=\"{code}\",") };
        format!(
            "{name}{{{code}grpc_method=\"{method}\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}}"
        )
    };
    vec![
        (method("grpc_server_started_total", "Put", ""), 4.0),
        (method("grpc_server_msg_received_total", "Put", ""), 4.0),
        (method("grpc_server_msg_sent_total", "Put", ""), 4.0),
        (method("grpc_server_handled_total", "Put", "OK"), 4.0),
        (method("grpc_server_started_total", "Range", ""), 3.0),
        (method("grpc_server_msg_sent_total", "Range", ""), 2.0),
        (method("grpc_server_handled_total", "Range", "OK"), 2.0),
        (method("grpc_server_handled_total", "Range", "InvalidArgument"), 1.0),
        (method("grpc_server_handled_total", "DeleteRange", "OK"), 1.0),
        ("etcd_mvcc_put_total".to_owned(), 4.0),
        ("etcd_mvcc_delete_total".to_owned(), 1.0),
        ("etcd_mvcc_range_total".to_owned(), 3.0),
        ("etcd_debugging_mvcc_total_put_size_in_bytes".to_owned(), 24.0),
        ("etcd_debugging_mvcc_current_revision".to_owned(), 5.0),
    ]
}

async fn extensive() -> Result<(), Failure> {
    let cluster = start(Product::Meerkat, &["--metrics=extensive"]).await?;
    traffic(&cluster, 0).await?;
    let metrics = scrape(&cluster, 0).await?;
    let name = "grpc_server_handling_seconds_count{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";
    if metrics.get(name)? != 4.0 {
        return Err(Failure::broken(format!("{name} is {}", metrics.get(name)?)));
    }
    let vars = http::send(gateway::port(&cluster), "GET", "/debug/vars", &[], b"").await?;
    let vars: serde_json::Value =
        serde_json::from_str(&vars.body).map_err(|error| Failure::broken(format!("/debug/vars: {error}")))?;
    if vars["raft.status"]["raftState"] != "StateLeader" || vars["file_descriptor_limit"].as_u64() == Some(0)
    {
        return Err(Failure::broken(format!("/debug/vars says {vars}")));
    }
    cluster.finish()
}
