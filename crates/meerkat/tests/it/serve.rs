//! `meerkat serve`: what it refuses before it touches anything, and how it comes and goes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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
