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
    /// Go's duration, as `1m30s`; in a configuration file also a number of nanoseconds.
    Time,
    /// Go's boolean: `--flag`, `--flag=true`, `--flag=false`.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, with commas between them.
    Words(&'static [&'static str]),
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
    /// The same of one that late etcd does not know any more: on the command line it is refused, and in
    /// files and variables, where etcd passes it over, one line says that it is.
    Gone(&'static str),
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

const fn gone(name: &'static str, kind: Kind, default: &'static str, what: &'static str) -> Flag {
    Flag { name, kind, default, effect: Effect::Gone(what), help: "Not supported, as in late etcd" }
}

use Kind::{Number, Switch, Text, Time, Word, Words};

/// What etcd takes for `--v2-deprecation`, and does without looking at it.
const V2_STAGES: &[&str] = &["write-only", "write-only-skip-check", "write-only-drop-data", "gone"];

/// Those that etcd 3.5 or 3.6 knows as `experimental-` and the name.
const EXPERIMENTAL: &[&str] = &[
    "bootstrap-defrag-threshold-megabytes",
    "compact-hash-check-enabled",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "enable-lease-checkpoint",
    "enable-lease-checkpoint-persist",
    "enable-v2v3",
    "initial-corrupt-check",
    "max-learners",
    "memory-mlock",
    "peer-skip-client-san-verification",
    "set-member-localaddr",
    "snapshot-catchup-entries",
    "stop-grpc-service-on-defrag",
    "txn-mode-write-with-shared-buffer",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

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
    used(
        "set-member-localaddr",
        Switch,
        "false",
        "Dial other members from the first address among those, loopback left out",
    ),
    used("listen-metrics-urls", Text, "", "More addresses for /metrics and /health"),
    used(
        "listen-listwatch-urls",
        Text,
        "",
        "Where to serve the list-watch API, as http://127.0.0.1:2378; nowhere unless given (https:// as for clients)",
    ),
    used(
        "listwatch-allow-insecure",
        Switch,
        "false",
        "Let it listen beyond this machine, though nobody there has to say who they are",
    ),
    used(
        "socket-reuse-port",
        Switch,
        "false",
        "Open ports that others have open too, if all of them ask for it (SO_REUSEPORT)",
    ),
    used(
        "socket-reuse-address",
        Switch,
        "false",
        "Open ports whose old connections linger (SO_REUSEADDR); always so, as in etcd",
    ),
    used("initial-cluster", Text, "", "name=url,… of all members, at the first start"),
    used(
        "initial-cluster-state",
        Word(&["new", "existing"]),
        "new",
        "new, or existing to join a running cluster",
    ),
    used("initial-cluster-token", Text, "etcd-cluster", "Keeps clusters with equal addresses apart"),
    used(
        "discovery-srv",
        Text,
        "",
        "Find all members, at the first start, by the SRV records of this domain",
    ),
    used("discovery-srv-name", Text, "", "Of several clusters in that domain, this one"),
    used(
        "discovery-endpoints",
        Text,
        "",
        "Find all members, at the first start, at this discovery service: endpoints of a cluster that runs",
    ),
    used("discovery-token", Text, "", "Which cluster is looked for there"),
    used("discovery-dial-timeout", Time, "2s", "How long a connection to the discovery service may take"),
    used("discovery-request-timeout", Time, "5s", "How long a request to it may take"),
    used("discovery-keepalive-time", Time, "2s", "How often it is asked for a sign of life"),
    used("discovery-keepalive-timeout", Time, "6s", "How long it may take to give one"),
    used(
        "discovery-insecure-transport",
        Switch,
        "true",
        "With =false, encrypt connections to its endpoints that do not say http://",
    ),
    used("discovery-insecure-skip-tls-verify", Switch, "false", "Believe any server there. For testing only"),
    used("discovery-cert", Text, "", "Identify this member there with this certificate (PEM)"),
    used("discovery-key", Text, "", "The key of that certificate (PEM)"),
    used(
        "discovery-cacert",
        Text,
        "",
        "Trust servers there whose certificate this CA bundle (PEM) vouches for",
    ),
    used("discovery-user", Text, "", "Name[:password] there"),
    used("discovery-password", Text, "", "Password there; --discovery-user is then the name alone"),
    used("heartbeat-interval", Number, "100", "Milliseconds between a leader's heartbeats"),
    used("election-timeout", Number, "1000", "Milliseconds without a leader before an election"),
    used("snapshot-count", Number, "10000", "Log entries between snapshots"),
    used("snapshot-catchup-entries", Number, "5000", "Log entries kept for members that lag"),
    used("quota-backend-bytes", Number, "0", "Bytes that the store may hold; 0: 2 GiB, below 0: no bound"),
    used("max-txn-ops", Number, "128", "Operations in one transaction"),
    used("max-request-bytes", Number, "1572864", "Bytes of one request"),
    used("max-concurrent-streams", Number, "4294967295", "Streams of one client connection"),
    used("grpc-keepalive-interval", Time, "2h", "Time without a word after which a client is pinged"),
    used("grpc-keepalive-timeout", Time, "20s", "Time without an answer to that after which it is gone"),
    used("pre-vote", Switch, "true", "Ask before an election whether it could be won"),
    used("strict-reconfig-check", Switch, "true", "Refuse member changes that would lose the quorum"),
    used("max-learners", Number, "1", "Learners that the cluster may have at a time"),
    used("watch-progress-notify-interval", Time, "10m", "Time between progress marks of idle watchers"),
    used("auto-compaction-mode", Text, "periodic", "Keep history by time (periodic) or by number (revision)"),
    used(
        "auto-compaction-retention",
        Text,
        "0",
        "How much history is kept: hours or a duration, or revisions; 0: all of it",
    ),
    used("compaction-batch-limit", Number, "1000", "Events that one step of a compaction looks at"),
    used("compaction-sleep-interval", Time, "10ms", "Pause between two steps of a compaction"),
    used("corrupt-check-time", Time, "0s", "Time between comparisons of what members have stored; 0s: never"),
    used("initial-corrupt-check", Switch, "false", "Compare this member with the others when it starts"),
    used("compact-hash-check-enabled", Switch, "false", "Compare members after compactions"),
    used("compact-hash-check-time", Time, "1m0s", "Time between those comparisons"),
    used(
        "warning-apply-duration",
        Time,
        "100ms",
        "Tell of reads, and of entries being applied, that take longer",
    ),
    used("warning-unary-request-duration", Time, "300ms", "Tell of calls with one answer that take longer"),
    used(
        "bootstrap-defrag-threshold-megabytes",
        Number,
        "0",
        "Defragment at the start if that gives so many megabytes back; 0: never",
    ),
    used(
        "auth-token",
        Text,
        "simple",
        "simple, or jwt,pub-key=FILE,priv-key=FILE,sign-method=RS256,ttl=5m: the tokens that users get",
    ),
    used("auth-token-ttl", Number, "300", "Seconds that a simple token stands without being used"),
    used("bcrypt-cost", Number, "10", "How much work a password's hash takes; each step doubles it"),
    used(
        "force-new-cluster",
        Switch,
        "false",
        "Go on alone with the data of this member; all others are removed for ever",
    ),
    used("unsafe-no-fsync", Switch, "false", "Lose data on power failure, for tests"),
    used("enable-grpc-gateway", Switch, "true", "Serve the JSON gateway on the client port"),
    used("cors", Text, "*", "Origins whose pages may read answers over HTTP, separated by commas"),
    used(
        "host-whitelist",
        Text,
        "*",
        "Host names that HTTP without TLS may be asked for by, separated by commas",
    ),
    used("metrics", Text, "basic", "basic, or extensive for the time that each call takes"),
    used(
        "enable-distributed-tracing",
        Switch,
        "false",
        "Send spans of calls to a collector of OpenTelemetry",
    ),
    used("distributed-tracing-address", Text, "localhost:4317", "Where the collector is, for OTLP over gRPC"),
    used("distributed-tracing-service-name", Text, "etcd", "What the spans say they are of"),
    used("distributed-tracing-instance-id", Text, "", "Which member of it; nothing unless given"),
    used(
        "distributed-tracing-sampling-rate",
        Number,
        "0",
        "How many of a million calls are traced whose callers do not say; 0: none",
    ),
    used("log-level", Text, "info", "debug, info, warn, error, panic or fatal; or a filter by module"),
    used("log-format", Text, "json", "json or console"),
    used(
        "log-outputs",
        Text,
        "default",
        "stderr, stdout and files, with commas between them; or default (stderr)",
    ),
    used("enable-log-rotation", Switch, "false", "Set the file among them aside when it has grown enough"),
    used(
        "log-rotation-config-json",
        Text,
        r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#,
        "When that is (megabytes), and what becomes of those set aside (days, number; 0: all stay)",
    ),
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
        "meerkat-disk-free-min-bytes",
        Number,
        "268435456",
        "Room on the disk of data or log below which no more data is taken",
    ),
    used(
        "meerkat-memory-limit-bytes",
        Number,
        "0",
        "Memory near which requests are refused; 0: that of the container, if it is bounded",
    ),
    used(
        "meerkat-worker-threads",
        Number,
        "0",
        "Threads for requests; 0: one for each two cores, at least one",
    ),
    used(
        "listen-client-http-urls",
        Text,
        "",
        "Where to serve plain HTTP; the client URLs are then for gRPC only",
    ),
    used("cert-file", Text, "", "Certificate for clients"),
    used("key-file", Text, "", "Its key"),
    used("client-cert-file", Text, "", "Certificate that is shown when dialling, if another"),
    used("client-key-file", Text, "", "Its key"),
    used(
        "trusted-ca-file",
        Text,
        "",
        "Authorities that vouch for clients; if given, clients need a certificate",
    ),
    used("client-cert-auth", Switch, "false", "Clients need a certificate, and it says who they are"),
    used("client-crl-file", Text, "", "Certificates of clients that were revoked"),
    used("client-cert-allowed-hostname", Text, "", "Hosts whose certificates are let in, comma-separated"),
    used("auto-tls", Switch, "false", "Make a certificate for clients, and keep it in the data directory"),
    used("peer-cert-file", Text, "", "Certificate for other members"),
    used("peer-key-file", Text, "", "Its key"),
    used(
        "peer-client-cert-file",
        Text,
        "",
        "Certificate that is shown to members that are dialled, if another",
    ),
    used("peer-client-key-file", Text, "", "Its key"),
    used("peer-trusted-ca-file", Text, "", "Authorities that vouch for members"),
    used("peer-client-cert-auth", Switch, "false", "Members need a certificate"),
    used("peer-crl-file", Text, "", "Certificates of members that were revoked"),
    used("peer-cert-allowed-cn", Text, "", "Common names of members that are let in, comma-separated"),
    used("peer-cert-allowed-hostname", Text, "", "Hosts whose members are let in, comma-separated"),
    used("peer-auto-tls", Switch, "false", "Make a certificate for other members, and keep it"),
    used(
        "peer-skip-client-san-verification",
        Switch,
        "false",
        "Let members call from where their certificate is not for",
    ),
    used("self-signed-cert-validity", Number, "1", "Years that a certificate made here is good for"),
    used("cipher-suites", Text, "", "Suites of TLS 1.2 that may be used, comma-separated"),
    used("tls-min-version", Text, "TLS1.2", "TLS1.2 or TLS1.3"),
    used("tls-max-version", Text, "", "TLS1.2 or TLS1.3"),
    used("config-file", Text, "", "Read everything from a YAML file; flags and variables then do not count"),
    used(
        "feature-gates",
        Text,
        "",
        "Name=true,… of etcd's feature gates: InitialCorruptCheck, CompactHashCheck and SetMemberLocalAddr have an effect",
    ),
    used("version", Switch, "false", "Print the version and end"),
    not_yet("discovery", Text, "", "v2 discovery (use --discovery-endpoints or --discovery-srv)"),
    not_yet("discovery-proxy", Text, "", "v2 discovery (use --discovery-endpoints or --discovery-srv)"),
    gone("enable-v2", Switch, "false", "the v2 API"),
    ignored("initial-election-tick-advance", Switch, "true"),
    ignored("enable-pprof", Switch, "false"),
    ignored("max-snapshots", Number, "5"),
    ignored("max-wals", Number, "5"),
    ignored("backend-bbolt-freelist-type", Text, "map"),
    ignored("backend-batch-interval", Time, ""),
    ignored("backend-batch-limit", Number, "0"),
    ignored("grpc-keepalive-min-time", Time, "5s"),
    ignored("discovery-fallback", Word(&["exit", "proxy"]), "exit"),
    ignored("v2-deprecation", Words(V2_STAGES), "write-only"),
    ignored("logger", Text, "zap"),
    ignored("enable-lease-checkpoint", Switch, "false"),
    ignored("enable-lease-checkpoint-persist", Switch, "false"),
    ignored("downgrade-check-time", Time, "5s"),
    ignored("memory-mlock", Switch, "false"),
    ignored("txn-mode-write-with-shared-buffer", Switch, "true"),
    ignored("stop-grpc-service-on-defrag", Switch, "false"),
    ignored("raft-read-timeout", Time, "5s"),
    ignored("raft-write-timeout", Time, "5s"),
    not_yet("enable-v2v3", Text, "", "the v2 API"),
    not_yet("proxy", Text, "off", "the v2 proxy"),
    ignored("proxy-failure-wait", Number, "5000"),
    ignored("proxy-refresh-interval", Number, "30000"),
    ignored("proxy-dial-timeout", Number, "1000"),
    ignored("proxy-write-timeout", Number, "5000"),
    ignored("proxy-read-timeout", Number, "0"),
    // What etcd itself takes and drops.
    ignored("cluster-active-size", Switch, "false"),
    ignored("cluster-remove-delay", Switch, "false"),
    ignored("cluster-sync-interval", Switch, "false"),
    ignored("config", Switch, "false"),
    ignored("force", Switch, "false"),
    ignored("max-result-buffer", Switch, "false"),
    ignored("max-retry-attempts", Switch, "false"),
    ignored("peer-heartbeat-interval", Switch, "false"),
    ignored("peer-election-timeout", Switch, "false"),
    ignored("retry-interval", Switch, "false"),
    ignored("snapshot", Switch, "false"),
    ignored("v", Switch, "false"),
    ignored("vv", Switch, "false"),
    ignored("http-read-timeout", Switch, "false"),
    ignored("http-write-timeout", Switch, "false"),
];

impl Flag {
    /// Its name with what etcd had before it at first, if it had.
    pub fn experimental(&self) -> Option<String> {
        EXPERIMENTAL.contains(&self.name).then(|| format!("experimental-{}", self.name))
    }
}

/// The flag of that name, under its own spelling or with the `experimental-` it once had.
pub fn find(name: &str) -> Option<&'static Flag> {
    let flag = |name: &str| FLAGS.iter().find(|flag| flag.name == name);
    let once = || name.strip_prefix("experimental-").filter(|name| EXPERIMENTAL.contains(name));
    flag(name).or_else(|| once().and_then(flag))
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
        assert_eq!(name("experimental-name"), None, "etcd never had it so");
        let unknown = EXPERIMENTAL.iter().find(|name| FLAGS.iter().all(|flag| flag.name != **name));
        assert_eq!(unknown, None);
    }
}
