//! What Prometheus is told, under the names that dashboards made for etcd use.
//!
//! Values are read when asked for, from counters that their owners keep anyway; on the path of a request
//! there are only the counters of [`calls`]. What does not exist here has no metric: no value is made up.

mod calls;
mod changes;
mod health;
mod page;
pub(crate) mod process;
mod sections;

use crate::config::Config;
use crate::grpc::watch::WatchCounters;
use crate::lease::LeaseCounters;
use crate::spans::Tracer;
use crate::upkeep::Upkeep;
use crate::version::{API_VERSION, SERVER_VERSION};
use health::HealthChecks;
use meerkat_raft::RaftNode;
use meerkat_types::Revision;
use meerkat_watch::Hub;
use page::Page;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use calls::Calls;
pub(crate) use changes::Changes;

pub(crate) struct Metrics {
    /// Below zero: there is none.
    quota_backend_bytes: f64,
    extensive: bool,
    calls: Arc<Calls>,
    changes: Arc<Changes>,
    hub: Hub,
    watch: Arc<WatchCounters>,
    leases: Arc<LeaseCounters>,
    upkeep: Upkeep,
    tracer: Option<Tracer>,
    health_success: AtomicU64,
    health_failures: AtomicU64,
    checks: HealthChecks,
}

impl Metrics {
    pub(crate) fn new(
        config: &Config,
        hub: Hub,
        (watch, leases): (Arc<WatchCounters>, Arc<LeaseCounters>),
        (calls, changes): (Arc<Calls>, Arc<Changes>),
        (upkeep, tracer): (Upkeep, Option<Tracer>),
    ) -> Metrics {
        Metrics {
            extensive: config.http.extensive_metrics,
            calls,
            changes,
            hub,
            watch,
            leases,
            upkeep,
            tracer,
            quota_backend_bytes: config.quota_backend_bytes.map_or(-1.0, |bytes| bytes as f64),
            health_success: AtomicU64::new(0),
            health_failures: AtomicU64::new(0),
            checks: HealthChecks::default(),
        }
    }

    pub(crate) fn count_health(&self, healthy: bool) {
        let counter = if healthy { &self.health_success } else { &self.health_failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// One of the checks of `/livez` or `/readyz` was made.
    pub(crate) fn count_check(&self, path: &'static str, check: &'static str, passed: bool) {
        self.checks.count(path, check, passed);
    }

    pub(crate) fn render(&self, raft: &RaftNode) -> String {
        let mut page = Page::default();
        self.server(&mut page, raft);
        self.checks.render(&mut page);
        disk(&mut page, raft);
        store(&mut page, raft);
        self.watchers(&mut page);
        self.leases(&mut page);
        alarms(&mut page, raft);
        self.corruption_checks(&mut page);
        sections::changes(&mut page, &self.changes, raft);
        sections::peers(&mut page, raft);
        sections::calls(&mut page, &self.calls, self.extensive);
        if let Some(tracer) = &self.tracer {
            sections::spans(&mut page, tracer.counters());
        }
        process::render(&mut page);
        page.0
    }

    fn server(&self, page: &mut Page, raft: &RaftNode) {
        let status = raft.status();
        let me = raft.member_id();
        let flag = |on: bool| if on { 1.0 } else { 0.0 };
        page.gauge("etcd_server_has_leader", "Whether a leader is known.", flag(status.leader.is_some()));
        page.gauge("etcd_server_is_leader", "Whether this member leads.", flag(status.leader == Some(me)));
        page.gauge("etcd_server_is_learner", "Whether this member is a learner.", flag(status.learner));
        page.metric("etcd_server_id", "gauge", "This member.", &[(&format!("{{server_id=\"{me}\"}}"), 1.0)]);
        let version = format!("{{server_version=\"{SERVER_VERSION}\"}}");
        page.metric("etcd_server_version", "gauge", "The etcd release that is matched.", &[(&version, 1.0)]);
        let cluster = format!("{{cluster_version=\"{API_VERSION}\"}}");
        page.metric("etcd_cluster_version", "gauge", "The cluster's version.", &[(&cluster, 1.0)]);
        let changes = raft.leadership().changes_seen();
        page.counter("etcd_server_leader_changes_seen_total", "Leader changes seen.", changes);
        page.counter(
            "etcd_server_proposals_failed_total",
            "Proposals without outcome.",
            raft.proposer().failed(),
        );
        let pending = raft.proposer().pending() as f64;
        page.gauge("etcd_server_proposals_pending", "Proposals awaiting their outcome.", pending);
        let committed = status.committed_index.0 as f64;
        page.gauge("etcd_server_proposals_committed_total", "Committed log index.", committed);
        page.gauge(
            "etcd_server_proposals_applied_total",
            "Applied log index.",
            status.applied_index.0 as f64,
        );
        page.counter("etcd_server_read_indexes_failed_total", "Reads without index.", raft.reads().failed());
        let quota = self.quota_backend_bytes;
        page.gauge("etcd_server_quota_backend_bytes", "The quota that is configured.", quota);
        let health = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("etcd_server_health_success", "Health checks passed.", health(&self.health_success));
        page.counter("etcd_server_health_failures", "Health checks failed.", health(&self.health_failures));
    }
}

impl Metrics {
    fn leases(&self, page: &mut Page) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("etcd_debugging_lease_granted_total", "Leases granted.", read(&self.leases.granted));
        page.counter("etcd_debugging_lease_revoked_total", "Leases ended.", read(&self.leases.ended));
        page.counter("etcd_debugging_lease_renewed_total", "Renewals as leader.", read(&self.leases.renewed));
        let expired = read(&self.leases.expired);
        page.counter("etcd_server_lease_expired_total", "Leases let expire as leader.", expired);
        page.counter("etcd_debugging_server_lease_expired_total", "The same, as etcd names it.", expired);
    }

    fn watchers(&self, page: &mut Page) {
        let (totals, counts) = (self.hub.totals(), self.hub.counts());
        let watchers = (totals.synced + totals.late) as f64;
        page.gauge("etcd_debugging_mvcc_watch_stream_total", "Watch streams.", totals.streams as f64);
        page.gauge("etcd_debugging_mvcc_watcher_total", "Watchers.", watchers);
        page.gauge("etcd_debugging_mvcc_slow_watcher_total", "Watchers catching up.", totals.late as f64);
        let queued = totals.queued_items as f64;
        page.gauge("etcd_debugging_mvcc_pending_events_total", "Answers waiting to be sent.", queued);
        let sent = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter(
            "etcd_debugging_mvcc_events_total",
            "Events sent to watchers.",
            sent(&self.watch.events),
        );
        let lag = totals.lag_revisions_max as f64;
        page.gauge("meerkat_watch_lag_revisions_max", "Revisions the slowest watcher is behind.", lag);
        let lag = totals.lag_ms_max as f64 / 1e3;
        page.gauge("meerkat_watch_lag_seconds_max", "How long the slowest watcher is behind.", lag);
        let queued = totals.queued_bytes as f64;
        page.gauge("meerkat_watch_queued_bytes", "History and large revisions waiting.", queued);
        page.counter("meerkat_watch_responses_total", "Watch responses sent.", sent(&self.watch.responses));
        page.counter("meerkat_watch_sent_bytes_total", "Bytes of them.", sent(&self.watch.bytes));
        page.counter("meerkat_watch_events_encoded_total", "Events turned into bytes.", self.hub.encoded());
        page.counter("meerkat_watch_fell_behind_total", "Watchers that fell behind.", counts.fell_behind);
        page.counter("meerkat_watch_caught_up_total", "Watchers that caught up.", counts.caught_up);
        page.counter("meerkat_watch_compacted_total", "Watchers overtaken by compaction.", counts.compacted);
        page.counter("meerkat_watch_history_reads_total", "Reads of history.", counts.history_reads);
        page.counter("meerkat_watch_set_back_total", "Queues given back for memory.", counts.set_back);
        page.counter("meerkat_watch_streams_cut_total", "Streams ended for memory.", counts.cut);
        page.gauge("meerkat_watch_ring_bytes", "Recent revisions in memory.", totals.ring_bytes as f64);
        let memory = totals.memory_bytes as f64;
        page.gauge("meerkat_watch_memory_bytes", "All revisions held for watchers.", memory);
    }
}

impl Metrics {
    fn corruption_checks(&self, page: &mut Page) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let samples = [
            ("{result=\"passed\"}", read(&self.upkeep.checks.passed)),
            ("{result=\"failed\"}", read(&self.upkeep.checks.failed)),
            ("{result=\"found\"}", read(&self.upkeep.checks.found)),
        ];
        let help = "Comparisons of members made as leader; failed: not all answered.";
        page.metric("meerkat_corruption_checks_total", "counter", help, &samples);
        let refused = self.upkeep.pressure.refused.load(Ordering::Relaxed);
        page.counter("meerkat_requests_shed_total", "Requests refused because memory was short.", refused);
    }
}

fn alarms(page: &mut Page, raft: &RaftNode) {
    let labels = raft
        .reader()
        .alarms()
        .into_iter()
        .map(|(alarm, _)| format!("{{server_id=\"{}\",alarm_type=\"{}\"}}", alarm.member, alarm.kind));
    let labels: Vec<String> = labels.collect();
    let samples: Vec<(&str, f64)> = labels.iter().map(|labels| (labels.as_str(), 1.0)).collect();
    page.metric("etcd_debugging_server_alarms", "gauge", "Alarms that are on.", &samples);
    let defragmenting = if raft.is_defragmenting() { 1.0 } else { 0.0 };
    page.gauge("etcd_disk_defrag_inflight", "Whether the state is being defragmented.", defragmenting);
}

fn disk(page: &mut Page, raft: &RaftNode) {
    let log = raft.log_stats();
    page.seconds("etcd_disk_wal_fsync_duration_seconds", "Syncs of the write-ahead log.", &log.sync);
    page.seconds("etcd_disk_wal_write_duration_seconds", "Writes to the log's files.", &log.write);
    page.counter("etcd_disk_wal_write_bytes_total", "Bytes written to the log.", log.bytes());
    page.counter("meerkat_log_appends_total", "Entries appended to the log.", log.appends());
    page.counter("meerkat_log_syncs_total", "Syncs of the log; appends share them.", log.syncs());
    let (nanos, batches) = raft.apply_time();
    page.counter("meerkat_apply_batches_total", "Batches applied.", batches);
    page.gauge("meerkat_apply_seconds_total", "Time spent applying.", nanos as f64 / 1e9);
}

fn store(page: &mut Page, raft: &RaftNode) {
    let db = raft.database();
    if let (Ok(size), Ok(in_use)) = (db.approximate_size(), raft.bytes_in_use()) {
        page.gauge(
            "etcd_mvcc_db_total_size_in_bytes",
            "Bytes of the state: what is in use, or the files if they are more.",
            size.total_bytes.max(in_use) as f64,
        );
        page.gauge(
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "Bytes that the quota counts, and the state's own rows.",
            in_use as f64,
        );
        page.gauge("meerkat_db_file_bytes", "Bytes of the state's files.", size.total_bytes as f64);
    }
    if let Ok(memory) = db.memory_usage() {
        page.gauge("meerkat_write_buffer_bytes", "Unflushed state.", memory.write_buffer_bytes as f64);
        page.gauge("meerkat_block_cache_bytes", "Cached state.", memory.block_cache_bytes as f64);
    }
    if let Ok(stats) = db.stats() {
        let open = stats.snapshots as f64;
        page.gauge("etcd_mvcc_db_open_read_transactions", "Views of the state that are held.", open);
        let stopped = if stats.write_stopped { 1.0 } else { 0.0 };
        page.gauge(
            "meerkat_write_stopped",
            "Whether the engine refuses writes until it has compacted.",
            stopped,
        );
        page.counter(
            "meerkat_engine_background_errors_total",
            "Failed background work.",
            stats.background_errors,
        );
    }
    let reader = raft.reader();
    let revision = reader.current_revision().get() as f64;
    page.gauge("etcd_debugging_mvcc_current_revision", "The store's revision.", revision);
    let compacted = Revision::compacted_to_wire(reader.compacted_revision()) as f64;
    page.gauge("etcd_debugging_mvcc_compact_revision", "The compacted revision.", compacted);
    let rules = reader.auth().revision().0 as f64;
    page.gauge("etcd_debugging_auth_revision", "How often users, roles and rights were changed.", rules);
}
