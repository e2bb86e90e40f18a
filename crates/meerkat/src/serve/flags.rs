//! Every flag of etcd that `serve` knows, and what becomes of it here.
//!
//! One row a flag; the table is the whole truth, and its order is the order of the help. A row
//! without effect is accepted so that swapping the binary works, but a value that would change
//! behaviour we do not have is refused: a security or retention setting is never silently dropped.

/// What a flag's text must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    /// Go's boolean: `--flag`, `--flag=true`, `--flag=false`.
    Switch,
}

/// What `serve` does with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is part of the member's configuration, or of the process's own.
    Used,
    /// It has no meaning here: one line says so.
    Ignored,
    /// It would change behaviour this version does not have. Only the default is accepted.
    NotYet(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub effect: Effect,
    pub help: &'static str,
}

const fn used(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, effect: Effect::Used, help }
}

const fn ignored(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Ignored,
        help: "Accepted for etcd's sake; has no effect here",
    }
}

const fn not_yet(name: &'static str, kind: Kind, default: &'static str, what: &'static str) -> Flag {
    Flag { name, kind, default, effect: Effect::NotYet(what), help: "Not supported in this version" }
}

use Kind::{Number, Switch, Text};

pub const FLAGS: &[Flag] = &[
    used("name", Text, "default", "Name of this member, unique in the cluster"),
    used("data-dir", Text, "", "Where the data goes [default: <name>.etcd]"),
    used("wal-dir", Text, "", "Where the log goes, if not under the data directory"),
    used("listen-client-urls", Text, "http://localhost:2379", "Where to listen for clients"),
    used("advertise-client-urls", Text, "http://localhost:2379", "Where clients find this member"),
    used("listen-peer-urls", Text, "http://localhost:2380", "Where to listen for other members"),
    used(
        "initial-advertise-peer-urls",
        Text,
        "http://localhost:2380",
        "Where other members find this one, at its first start",
    ),
    used("listen-metrics-urls", Text, "", "More addresses for /metrics and /health"),
    used("initial-cluster", Text, "", "name=url,… of all members, at the first start"),
    used("initial-cluster-state", Text, "new", "new, or existing to join a running cluster"),
    used("initial-cluster-token", Text, "etcd-cluster", "Keeps clusters with equal addresses apart"),
    used("heartbeat-interval", Number, "100", "Milliseconds between a leader's heartbeats"),
    used("election-timeout", Number, "1000", "Milliseconds without a leader before an election"),
    used("snapshot-count", Number, "10000", "Log entries between snapshots"),
    used("snapshot-catchup-entries", Number, "5000", "Log entries kept for members that lag"),
    used(
        "quota-backend-bytes",
        Number,
        "0",
        "Size of the store that is reported as its quota (no alarm yet); 0: 2 GiB, below 0: none",
    ),
    used("max-txn-ops", Number, "128", "Operations in one transaction"),
    used("max-request-bytes", Number, "1572864", "Bytes of one request"),
    used("max-concurrent-streams", Number, "4294967295", "Streams of one client connection"),
    used("pre-vote", Switch, "true", "Ask before an election whether it could be won"),
    used("strict-reconfig-check", Switch, "true", "Refuse member changes that would lose the quorum"),
    used("max-learners", Number, "1", "Learners that the cluster may have at a time"),
    used("watch-progress-notify-interval", Text, "10m", "Time between progress marks of idle watchers"),
    used("unsafe-no-fsync", Switch, "false", "Lose data on power failure, for tests"),
    used("log-level", Text, "info", "debug, info, warn, error, panic or fatal; or a filter by module"),
    used("log-format", Text, "json", "json or console"),
    used("log-outputs", Text, "default", "stderr, stdout or default (stderr)"),
    used("meerkat-log-segment-bytes", Number, "67108864", "Bytes of one log file"),
    used("meerkat-log-cache-bytes", Number, "16777216", "Bytes of recent log kept in memory"),
    used("meerkat-flush-log-bytes", Number, "67108864", "Bytes of log that force a state flush"),
    used("meerkat-flush-interval-ms", Number, "30000", "Milliseconds that force a state flush"),
    used("meerkat-block-cache-bytes", Number, "67108864", "Bytes of state cached for reading"),
    used("meerkat-write-buffer-bytes", Number, "25165824", "Bytes of state held before a flush"),
    used("meerkat-watch-ring-bytes", Number, "67108864", "Bytes of recent revisions kept for watchers"),
    used("meerkat-watch-memory-bytes", Number, "134217728", "Bytes all watch streams may hold beyond that"),
    used(
        "meerkat-watch-queue-items",
        Number,
        "256",
        "Deliveries that may wait in one watch stream, beside four for each watcher",
    ),
    used(
        "meerkat-lease-checkpoint-interval-ms",
        Number,
        "60000",
        "How long a lease may go without being renewed before what is left of it is noted in the log",
    ),
    used(
        "meerkat-worker-threads",
        Number,
        "0",
        "Threads for requests; 0: one for each two cores, at least one",
    ),
    not_yet("cert-file", Text, "", TLS),
    not_yet("key-file", Text, "", TLS),
    not_yet("trusted-ca-file", Text, "", TLS),
    not_yet("client-cert-auth", Switch, "false", TLS),
    not_yet("client-crl-file", Text, "", TLS),
    not_yet("client-cert-allowed-hostname", Text, "", TLS),
    not_yet("auto-tls", Switch, "false", TLS),
    not_yet("peer-cert-file", Text, "", TLS),
    not_yet("peer-key-file", Text, "", TLS),
    not_yet("peer-trusted-ca-file", Text, "", TLS),
    not_yet("peer-client-cert-auth", Switch, "false", TLS),
    not_yet("peer-crl-file", Text, "", TLS),
    not_yet("peer-cert-allowed-cn", Text, "", TLS),
    not_yet("peer-cert-allowed-hostname", Text, "", TLS),
    not_yet("peer-auto-tls", Switch, "false", TLS),
    not_yet("cipher-suites", Text, "", TLS),
    not_yet("tls-min-version", Text, "TLS1.2", TLS),
    not_yet("tls-max-version", Text, "", TLS),
    not_yet("auto-compaction-retention", Text, "0", "automatic compaction"),
    not_yet("auth-token", Text, "simple", "authentication"),
    not_yet("config-file", Text, "", "a configuration file"),
    not_yet("discovery", Text, "", "discovery"),
    not_yet("discovery-srv", Text, "", "discovery"),
    not_yet("discovery-srv-name", Text, "", "discovery"),
    not_yet("discovery-proxy", Text, "", "discovery"),
    not_yet("discovery-token", Text, "", "discovery"),
    not_yet("discovery-endpoints", Text, "", "discovery"),
    not_yet("force-new-cluster", Switch, "false", "recovery with --force-new-cluster"),
    not_yet("listen-client-http-urls", Text, "", "a separate listener for HTTP"),
    not_yet("corrupt-check-time", Text, "0s", "the periodic corruption check"),
    not_yet("host-whitelist", Text, "*", "the host whitelist"),
    not_yet("cors", Text, "*", "restricting cross-origin requests"),
    not_yet("enable-pprof", Switch, "false", "runtime profiling over HTTP"),
    not_yet("enable-v2", Switch, "false", "the v2 API"),
    not_yet("enable-distributed-tracing", Switch, "false", "distributed tracing"),
    not_yet("enable-log-rotation", Switch, "false", "log rotation"),
    ignored("auto-compaction-mode", Text, "periodic"),
    ignored("auth-token-ttl", Number, "300"),
    ignored("bcrypt-cost", Number, "10"),
    ignored("metrics", Text, "basic"),
    ignored("enable-grpc-gateway", Switch, "true"),
    ignored("initial-election-tick-advance", Switch, "true"),
    ignored("max-snapshots", Number, "5"),
    ignored("max-wals", Number, "5"),
    ignored("backend-bbolt-freelist-type", Text, "map"),
    ignored("backend-batch-interval", Text, ""),
    ignored("backend-batch-limit", Number, "0"),
    ignored("grpc-keepalive-min-time", Text, "5s"),
    ignored("grpc-keepalive-interval", Text, "2h"),
    ignored("grpc-keepalive-timeout", Text, "20s"),
    ignored("socket-reuse-port", Switch, "false"),
    ignored("socket-reuse-address", Switch, "false"),
    ignored("discovery-fallback", Text, "proxy"),
    ignored("v2-deprecation", Text, "not-yet"),
    ignored("self-signed-cert-validity", Number, "1"),
    ignored("logger", Text, "zap"),
    ignored("log-rotation-config-json", Text, ""),
    ignored("distributed-tracing-address", Text, "localhost:4317"),
    ignored("distributed-tracing-service-name", Text, "etcd"),
    ignored("distributed-tracing-instance-id", Text, ""),
    ignored("initial-corrupt-check", Switch, "false"),
    ignored("compact-hash-check-enabled", Switch, "false"),
    ignored("compact-hash-check-time", Text, "1m0s"),
    ignored("enable-lease-checkpoint", Switch, "false"),
    ignored("enable-lease-checkpoint-persist", Switch, "false"),
    ignored("compaction-batch-limit", Number, "1000"),
    ignored("compaction-sleep-interval", Text, "10ms"),
    ignored("peer-skip-client-san-verification", Switch, "false"),
    ignored("warning-apply-duration", Text, "100ms"),
    ignored("warning-unary-request-duration", Text, "300ms"),
    ignored("downgrade-check-time", Text, "5s"),
    ignored("memory-mlock", Switch, "false"),
    ignored("txn-mode-write-with-shared-buffer", Switch, "true"),
    ignored("bootstrap-defrag-threshold-megabytes", Number, "0"),
    ignored("stop-grpc-service-on-defrag", Switch, "false"),
    ignored("feature-gates", Text, ""),
];

const TLS: &str = "TLS";

/// The flag of that name, under its own spelling or with the `experimental-` it once had.
pub fn find(name: &str) -> Option<&'static Flag> {
    let name = name.strip_prefix("experimental-").unwrap_or(name);
    FLAGS.iter().find(|flag| flag.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flag_is_listed_twice() {
        let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        let listed = names.len();
        names.dedup();
        assert_eq!(names.len(), listed);
    }

    #[test]
    fn both_spellings_of_a_renamed_flag_are_one_flag() {
        let name = |text| find(text).map(|flag| flag.name);
        assert_eq!(name("experimental-initial-corrupt-check"), Some("initial-corrupt-check"));
        assert_eq!(name("initial-corrupt-check"), Some("initial-corrupt-check"));
        assert_eq!(name("initial-corrupt-cheque"), None);
    }
}
