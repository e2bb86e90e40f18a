//! `meerkat serve`: what it refuses before it touches anything, and how it comes and goes.

use std::process::Stdio;

use crate::process::{PATIENCE, Running, collect, free_port, meerkat, run, stderr, wait_until};

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
