//! `meerkat serve`: what it refuses before it touches anything, and how it comes and goes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::member::{Member, Place, ask, tool, words};
use crate::process::{PATIENCE, Running, clean, collect, free_port, meerkat, run, stderr, wait_until};

fn check_refused(args: &[&str], environment: &[(&str, &str)], expected: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = meerkat();
    command.current_dir(directory.path()).arg("serve").args(args);
    command.envs(environment.iter().copied());
    let output = run(&mut command, b"");
    let said = stderr(&output);
    assert!(!output.status.success(), "{args:?} must be refused");
    assert!(said.contains(expected), "{args:?}: {said:?} should contain {expected:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing was written");
}

#[test]
fn bad_flags_are_refused_with_a_reason_before_anything_is_written() {
    check_refused(&["--nmae", "x"], &[], "--name");
    check_refused(
        &["--heartbeat-interval=300"],
        &[],
        "should be at least as 5 times as --heartbeat-interval[300ms]",
    );
    check_refused(&["--cert-file=x"], &[], "--cert-file and --key-file go together");
    check_refused(&["--cert-file=x", "--key-file=y"], &[], "cannot read x");
    check_refused(
        &[],
        &[("ETCD_LISTEN_PEER_URLS", "https://127.0.0.1:1")],
        "TLS key/cert (--peer-cert-file, --peer-key-file) must be provided",
    );
    check_refused(&["--feature-gates=Nonsense=true"], &[], "unrecognized feature gate: Nonsense");
    check_refused(&["grpc-proxy", "start"], &[], "grpc-proxy is not supported");
    check_refused(&["--listen-client-urls=http://127.0.0.1:1"], &[], "--advertise-client-urls is required");
    check_refused(
        &["--enable-distributed-tracing", "--distributed-tracing-sampling-rate=-1"],
        &[],
        "tracing sampling rate must be positive",
    );
    check_refused(
        &["--experimental-distributed-tracing-address=nowhere"],
        &[("ETCD_EXPERIMENTAL_ENABLE_DISTRIBUTED_TRACING", "true")],
        "--distributed-tracing-address is \"nowhere\": it must be host:port",
    );
    check_refused(&["--log-level=loud"], &[], "unknown --log-level");
    check_refused(&["--logger=capnslog"], &[], "--logger=capnslog is removed in v3.5");
    check_refused(&["--logger=x"], &[], "unknown logger option \"x\"");
    check_refused(&["--compact-hash-check-time=0s"], &[], "--compact-hash-check-time must be >0 (set to 0s)");
    check_refused(
        &["--discovery-fallback=proxy"],
        &[],
        "v2 proxy is deprecated, and --discovery-fallback can't be configured as \"proxy\"",
    );
    check_refused(
        &["--v2-deprecation=not-yet"],
        &[],
        "invalid value \"not-yet\" for flag -v2-deprecation: invalid value \"not-yet\"",
    );
    check_refused(
        &["--experimental-compact-hash-check-enabled", "--feature-gates=CompactHashCheck=true"],
        &[],
        "cannot specify both flags: --experimental-compact-hash-check-enabled=true and --feature-gates=",
    );
    check_refused(
        &["--listen-metrics-urls=https://127.0.0.1:1"],
        &[],
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url",
    );
}

/// Every line is one JSON object in which no key comes twice. Those at warning or above.
fn complaints(log: &str) -> Vec<&str> {
    log.lines().filter(|line| !matches!(level_of(line).as_str(), "debug" | "info")).collect()
}

fn level_of(line: &str) -> String {
    let Ok(Keys(keys)) = serde_json::from_str(line) else { panic!("no line of the log: {line:?}") };
    let mut once: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), keys.len(), "a key comes twice: {line}");
    let level = keys.iter().find(|(key, _)| key == "level").and_then(|(_, value)| value.as_str());
    level.unwrap_or_default().to_owned()
}

/// The keys of an object as they come.
struct Keys(Vec<(String, serde_json::Value)>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Keys;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    keys.push(entry);
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// Flags of one of three members; a machine that is busy makes none of them complain.
fn one_of_three(places: &[Place], at: usize, directory: &std::path::Path) -> Vec<String> {
    let cluster: Vec<String> =
        places.iter().enumerate().map(|(at, place)| format!("m{at}=http://{}", place.peer)).collect();
    let place = &places[at];
    [
        format!("--name=m{at}"),
        format!("--data-dir={}", directory.join(format!("m{at}")).display()),
        format!("--listen-client-urls=http://{}", place.client),
        format!("--advertise-client-urls=http://{}", place.client),
        format!("--listen-peer-urls=http://{}", place.peer),
        format!("--initial-advertise-peer-urls=http://{}", place.peer),
        format!("--initial-cluster={}", cluster.join(",")),
        "--unsafe-no-fsync".to_owned(),
        "--heartbeat-interval=500".to_owned(),
        "--election-timeout=5000".to_owned(),
        "--warning-apply-duration=1h".to_owned(),
        "--warning-unary-request-duration=1h".to_owned(),
    ]
    .to_vec()
}

fn write_and_read(place: &Place) {
    let at = format!("--endpoints={}", place.client);
    for args in [&["put", "key", "value"][..], &["get", "key"], &["del", "key"], &["member", "list"]] {
        let output = ask(&tool(), &[&[at.as_str(), "--command-timeout=60s"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_clean_start_life_and_stop_log_nothing_at_warning_or_above() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = [Place::new()];
    for _ in 0..2 {
        let mut flags = one_of_three(&place, 0, directory.path());
        // Alone it needs nobody's time.
        flags.retain(|flag| !flag.starts_with("--heartbeat") && !flag.starts_with("--election"));
        let member = Member::start(directory.path(), &flags).ready();
        write_and_read(&place[0]);
        let log = member.stop_and_hear();
        assert_eq!(complaints(&log), <[&str; 0]>::default(), "in {log}");
        assert!(log.contains("\"starting an etcd server\""), "{log}");
    }
}

#[test]
fn a_member_that_leaves_a_cluster_that_goes_on_has_nothing_to_complain_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let places = [Place::new(), Place::new(), Place::new()];
    let start = |at: usize| Member::start(directory.path(), &one_of_three(&places, at, directory.path()));
    let mut members: Vec<Member> = (0..3).map(start).collect();
    members.iter().for_each(|member| member.wait_for("ready to serve client requests"));
    // Of two that go while all others are there, one at least follows.
    for (going, place) in places.iter().enumerate().take(2) {
        write_and_read(place);
        let log = members.remove(going).stop_and_hear();
        let end = log.find("received signal").expect("it was told to stop");
        let end = log[..end].rfind('\n').map_or(0, |at| at + 1);
        assert_eq!(complaints(&log[end..]), <[&str; 0]>::default(), "in {log}");
        members.insert(going, start(going).ready());
    }
}

#[test]
fn what_is_slow_what_is_deprecated_and_what_is_not_worth_it_is_told_in_etcds_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = [Place::new()];
    let mut flags = one_of_three(&place, 0, directory.path());
    flags.retain(|flag| {
        !flag.starts_with("--heartbeat") && !flag.starts_with("--election") && !flag.starts_with("--warning")
    });
    flags.extend(words(&[
        "--warning-apply-duration=1ns",
        "--experimental-warning-unary-request-duration=1ns",
        "--experimental-bootstrap-defrag-threshold-megabytes=1000",
        "--experimental-snapshot-catchup-entries=1000",
        "--v2-deprecation=gone",
    ]));
    let member = Member::start(directory.path(), &flags).ready();
    write_and_read(&place[0]);
    for text in [
        "Skipping defragmentation",
        "\"snapshot-catchup-entries\":1000",
        "\"v2-deprecation\":\"write-only\"",
        "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is enforced, ignoring",
        "--experimental-warning-unary-request-duration is deprecated, and will be decommissioned in v3.7.",
        "--experimental-snapshot-catchup-entries is deprecated in v3.6 and will be decommissioned in v3.7.",
        "\"apply request took too long\"",
        "\"read-only range \"",
        "\"request stats\"",
        "\"response type\":\"/etcdserverpb.KV/",
    ] {
        member.wait_for(text);
    }
    complaints(&member.stop_and_hear());
}

#[test]
fn a_member_serves_until_sigterm_and_finds_its_data_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (client, peer) = (free_port(), free_port());
    let endpoint = format!("127.0.0.1:{client}");
    let client_url = format!("http://{endpoint}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    for round in 0..2 {
        let mut command = meerkat();
        // Half by flags, half by variables, and the way Go writes them.
        command
            .args(["serve", "-name", "solo", "--pre-vote=true", "-data-dir"])
            .arg(directory.path().join("data"))
            .env("ETCD_LISTEN_CLIENT_URLS", &client_url)
            .env("ETCD_ADVERTISE_CLIENT_URLS", &client_url)
            .env("ETCD_LISTEN_PEER_URLS", &peer_url)
            .env("ETCD_INITIAL_ADVERTISE_PEER_URLS", &peer_url)
            .env("ETCD_INITIAL_CLUSTER", format!("solo={peer_url}"))
            .env("ETCD_UNHEARD_OF", "x")
            .stderr(Stdio::piped());
        let mut member = Running(command.spawn().expect("the binary starts"));
        let log = collect(member.0.stderr.take().expect("piped"));
        let logged = |text: &str| log.lock().expect("no writer panics").contains(text);
        wait_until("the member is ready", || logged("ready to serve client requests"));
        assert!(logged("ETCD_UNHEARD_OF"), "an unknown variable is told");
        let timeout = format!("--command-timeout={}s", PATIENCE.as_secs());
        let on = |args: &[&str]| run(meerkat().args(["--endpoints", &endpoint, &timeout]).args(args), b"");
        if round == 0 {
            let put = on(&["put", "kept", "value"]);
            assert!(put.status.success(), "{}", stderr(&put));
        }
        let get = on(&["get", "kept", "--print-value-only"]);
        assert_eq!(get.stdout, b"value\n", "in round {round}: {}", stderr(&get));
        member.signal("TERM");
        assert!(member.wait().success(), "a member told to stop exits with 0");
    }
}

/// Puts a value of some size over a connection that stays open, and returns the status line.
fn put_by_gateway(stream: &mut TcpStream) -> String {
    let body = format!(r#"{{"key":"aw==","value":"{}"}}"#, "A".repeat(100 << 10));
    let head = format!("POST /v3/kv/put HTTP/1.1\r\nHost: member\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).expect("an answer");
        assert_ne!(length, 0, "the member ended: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&chunk[..length]);
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn more_clients_than_files_may_be_open_do_not_keep_the_log_from_its_next_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let (at, peer) = (format!("127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
    let mut command = clean(Command::new("sh"));
    command
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_meerkat"), "serve"])
        .args([format!("--listen-client-urls=http://{at}"), format!("--advertise-client-urls=http://{at}")])
        .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
        .args([format!("--initial-cluster=default={peer}"), "--meerkat-log-segment-bytes=200000".to_owned()])
        .current_dir(directory.path())
        .stderr(Stdio::piped());
    let mut member = Running(command.spawn().expect("the binary starts"));
    let log = collect(member.0.stderr.take().expect("piped"));
    let logged = |text: &str| log.lock().expect("no writer panics").contains(text);
    wait_until("the member is ready", || logged("ready to serve client requests"));
    let mut client = TcpStream::connect(&at).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(put_by_gateway(&mut client).contains("200"));
    let crowd: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(&at).ok()).collect();
    assert!(250 < crowd.len(), "only {} came", crowd.len());
    let files = format!("/proc/{}/fd", member.0.id());
    let open = || std::fs::read_dir(&files).expect("it runs").count();
    // A place for each client but those that are connected already.
    wait_until("those that may have come in", || 64 <= open());
    for _ in 0..20 {
        assert!(put_by_gateway(&mut client).contains("200"));
        assert!(open() < 250, "{} files are open", open());
    }
    assert!(member.0.try_wait().expect("a child").is_none(), "the member ended");
}
