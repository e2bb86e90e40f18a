//! The sections of the page that others measure: calls, what was applied, compaction, peers.

use super::calls::{CODES, Calls, Counters};
use super::changes::Changes;
use super::page::{Page, escaped};
use crate::spans::SpanCounters;
use meerkat_raft::RaftNode;
use meerkat_types::{Consistency, Key, KeyRange, RangeQuery, RevisionBounds, Sort};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

type Counter = fn(&Counters) -> &AtomicU64;

fn read(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn labels(counters: &Counters) -> String {
    let method = counters.method;
    let (service, name, kind) = (method.service(), method.method(), method.kind.name());
    format!("grpc_method=\"{name}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"")
}

/// Calls of clients. `extensive`: with the time that each took.
pub(super) fn calls(page: &mut Page, calls: &Calls, extensive: bool) {
    let methods = &calls.methods;
    let counters: [(&str, &str, Counter); 3] = [
        ("grpc_server_started_total", "Calls begun.", |method| &method.started),
        ("grpc_server_msg_received_total", "Messages received.", |method| &method.received),
        ("grpc_server_msg_sent_total", "Messages sent.", |method| &method.sent),
    ];
    for (name, help, counter) in counters {
        page.head(name, "counter", help);
        for method in methods {
            page.sample(name, &format!("{{{}}}", labels(method)), read(counter(method)));
        }
    }
    page.head("grpc_server_handled_total", "counter", "Calls ended, by code.");
    for method in methods {
        for (code, count) in CODES.iter().zip(&method.handled) {
            let labels = format!("{{grpc_code=\"{code}\",{}}}", labels(method));
            page.sample("grpc_server_handled_total", &labels, read(count));
        }
    }
    if extensive {
        page.head("grpc_server_handling_seconds", "histogram", "Time that calls took.");
        for method in methods.iter().filter(|method| method.started.load(Ordering::Relaxed) != 0) {
            let sum = method.seconds.total().as_secs_f64();
            page.buckets("grpc_server_handling_seconds", &labels(method), method.seconds.buckets(), sum);
        }
    }
    clients(page, calls);
}

fn clients(page: &mut Page, calls: &Calls) {
    let name = "etcd_server_client_requests_total";
    page.head(name, "counter", "Calls by the version that clients name.");
    for version in calls.versions() {
        let of = escaped(&version.name);
        let sample = |kind| format!("{{client_api_version=\"{of}\",type=\"{kind}\"}}");
        page.sample(name, &sample("unary"), read(&version.unary));
        page.sample(name, &sample("stream"), read(&version.stream));
    }
    let received = calls.received_bytes.load(Ordering::Relaxed);
    page.counter("etcd_network_client_grpc_received_bytes_total", "Bytes of clients\' messages.", received);
    let sent = calls.sent_bytes.load(Ordering::Relaxed);
    page.counter("etcd_network_client_grpc_sent_bytes_total", "Bytes of answers to clients.", sent);
    let panics = meerkat_fault::request_panics();
    page.counter("meerkat_request_panics_total", "Panics that ended a request, and no member.", panics);
    for (name, help, path) in [
        ("etcd_server_range_duration_seconds", "Time that Range took.", "/etcdserverpb.KV/Range"),
        ("etcd_mvcc_hash_duration_seconds", "Time that Hash took.", "/etcdserverpb.Maintenance/Hash"),
        (
            "etcd_disk_backend_defrag_duration_seconds",
            "Time that Defragment took.",
            "/etcdserverpb.Maintenance/Defragment",
        ),
        ("etcd_mvcc_hash_rev_duration_seconds", "Time that HashKV took.", "/etcdserverpb.Maintenance/HashKV"),
    ] {
        if let Some(method) = calls.method(path) {
            page.seconds(name, help, &method.seconds);
        }
    }
    let promotions = calls.method("/etcdserverpb.Cluster/MemberPromote");
    page.counter(
        "etcd_server_learner_promote_successes",
        "Learners promoted by calls to this member.",
        promotions.map_or(0, |method| method.succeeded()),
    );
    let ranges = ["/etcdserverpb.KV/Range", "/etcdserverpb.KV/RangeStream"];
    let started = ranges.iter().filter_map(|path| calls.method(path));
    let ranges = started.map(|method| method.started.load(Ordering::Relaxed)).sum();
    page.counter("etcd_mvcc_range_total", "Ranges asked for by clients.", ranges);
}

/// Spans, if they are made at all.
pub(super) fn spans(page: &mut Page, counters: &SpanCounters) {
    let samples = [
        ("{result=\"exported\"}", read(&counters.exported)),
        ("{result=\"dropped\"}", read(&counters.dropped)),
        ("{result=\"failed\"}", read(&counters.failed)),
    ];
    let help = "Spans made; dropped: too many waited; failed: the collector did not take them.";
    page.metric("meerkat_spans_total", "counter", help, &samples);
}

/// What this member has applied.
pub(super) fn changes(page: &mut Page, changes: &Changes, raft: &RaftNode) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    page.counter("etcd_mvcc_put_total", "Puts applied.", count(&changes.puts));
    page.counter("etcd_mvcc_delete_total", "Deletions applied.", count(&changes.deletes));
    page.counter("etcd_mvcc_txn_total", "Revisions applied with several changes.", count(&changes.txns));
    let bytes = count(&changes.put_bytes) as f64;
    page.gauge("etcd_debugging_mvcc_total_put_size_in_bytes", "Bytes of keys and values put.", bytes);
    if let Some(keys) = live_keys(raft) {
        page.gauge("etcd_debugging_mvcc_keys_total", "Keys that exist.", keys as f64);
    }
    let times = raft.state_times();
    page.head("etcd_server_apply_duration_seconds", "histogram", "Batches of entries applied.");
    let labels = "version=\"v3\",op=\"Batch\",success=\"true\"";
    let sum = times.apply.total().as_secs_f64();
    page.buckets("etcd_server_apply_duration_seconds", labels, times.apply.buckets(), sum);
    page.counter(
        "etcd_server_slow_apply_total",
        "Batches and reads above --warning-apply-duration.",
        times.slow_applies(),
    );
    page.counter("etcd_server_slow_read_indexes_total", "Reads that waited long.", raft.reads().slow());
    page.gauge(
        "etcd_server_snapshot_apply_in_progress_total",
        "Snapshots being installed.",
        times.installing() as f64,
    );
    page.seconds(
        "etcd_disk_backend_commit_duration_seconds",
        "Batches changed and committed to the engine.",
        &times.commit,
    );
    page.seconds(
        "etcd_disk_backend_snapshot_duration_seconds",
        "Checkpoints made for followers.",
        &times.checkpoint,
    );
    page.seconds("etcd_snap_db_save_total_duration_seconds", "Snapshots installed.", &times.install);
    page.seconds(
        "etcd_snap_db_fsync_duration_seconds",
        "Syncs of files of snapshots received.",
        &times.received.files,
    );
    page.seconds(
        "etcd_snap_fsync_duration_seconds",
        "Syncs of directories of snapshots received.",
        &times.received.directories,
    );
    compaction(page, raft);
}

fn live_keys(raft: &RaftNode) -> Option<u64> {
    let query = RangeQuery {
        keys: KeyRange::From(Key::new(bytes::Bytes::from_static(b"\0"))?),
        at: None,
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: true,
        bounds: RevisionBounds::default(),
    };
    raft.reader().range(&query).ok().map(|answer| answer.count)
}

fn compaction(page: &mut Page, raft: &RaftNode) {
    let runner = raft.compaction();
    page.counter("etcd_debugging_mvcc_db_compaction_keys_total", "Versions removed.", runner.removed());
    page.milliseconds(
        "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
        "Steps of compaction.",
        &runner.times().step,
    );
    page.milliseconds(
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
        "Whole compactions.",
        &runner.times().whole,
    );
    if let (Some(ago), Ok(now)) = (runner.ended_ago(), UNIX_EPOCH.elapsed()) {
        let ended = now.saturating_sub(ago).as_secs() as f64;
        page.gauge("etcd_debugging_mvcc_db_compaction_last", "When one last ended, since 1970.", ended);
    }
}

/// The other members.
pub(super) fn peers(page: &mut Page, raft: &RaftNode) {
    let (peers, me) = (raft.peers(), raft.member_id());
    let name = "etcd_network_peer_round_trip_time_seconds";
    page.head(name, "histogram", "From a heartbeat to its answer.");
    for peer in &peers {
        let times = &peer.traffic.round_trip;
        let labels = format!("To=\"{}\"", peer.member);
        page.buckets(name, &labels, times.buckets(), times.total().as_secs_f64());
    }
    let mut rows =
        |name: &str, kind: &str, help: &str, row: &dyn Fn(&meerkat_raft::PeerView) -> (String, u64)| {
            page.head(name, kind, help);
            for peer in &peers {
                let (labels, value) = row(peer);
                page.sample(name, &format!("{{{labels}}}"), value as f64);
            }
        };
    rows("etcd_network_peer_sent_bytes_total", "counter", "Entries and heartbeats sent.", &|peer| {
        (format!("To=\"{}\"", peer.member), peer.traffic.sent_bytes())
    });
    rows("etcd_network_peer_received_bytes_total", "counter", "Entries and heartbeats received.", &|peer| {
        (format!("From=\"{}\"", peer.member), peer.traffic.received_bytes())
    });
    rows("etcd_network_peer_sent_failures_total", "counter", "Calls that failed.", &|peer| {
        (format!("To=\"{}\"", peer.member), peer.traffic.failures())
    });
    rows("etcd_network_active_peers", "gauge", "Whether it is connected.", &|peer| {
        (format!("Local=\"{me}\",Remote=\"{}\"", peer.member), u64::from(peer.active))
    });
    let known = raft.members();
    page.head("etcd_network_known_peers", "gauge", "Members of the cluster.");
    for peer in &known {
        let labels = format!("{{Local=\"{me}\",Remote=\"{}\"}}", peer.id);
        page.sample("etcd_network_known_peers", &labels, 1.0);
    }
    let failures = peers.iter().map(|peer| peer.traffic.failures()).sum();
    page.counter("etcd_server_heartbeat_send_failures_total", "Calls to peers that failed.", failures);
}
