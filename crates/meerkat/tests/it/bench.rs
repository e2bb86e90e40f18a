//! `meerkat bench`: every load against a real member, and a server that goes away in the middle.

use std::process::{Command, Stdio};

use crate::process::{Running, free_port, meerkat, run, stderr, stdout, wait_until};

/// A cluster of one member.
pub struct Solo {
    pub endpoint: String,
    pub process: Running,
    _data: tempfile::TempDir,
}

fn solo() -> Solo {
    let mut command = meerkat();
    command.arg("serve");
    start(command)
}

/// A member alone, of whatever understands etcd's flags.
pub fn start(mut command: Command) -> Solo {
    let data = tempfile::tempdir().expect("a directory");
    let endpoint = format!("127.0.0.1:{}", free_port());
    let client = format!("http://{endpoint}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let initial = format!("default={peer}");
    command
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &initial, "--data-dir"])
        .arg(data.path())
        .stderr(Stdio::null());
    let process = Running(command.spawn().expect("the binary starts"));
    let healthy =
        || run(meerkat().args(["endpoint", "health", "--endpoints", &endpoint]), b"").status.success();
    wait_until("the member serves", healthy);
    Solo { endpoint, process, _data: data }
}

/// How many keys of the load there are.
fn keys(endpoint: &str) -> u64 {
    let count = ["get", "bench/", "--prefix", "--count-only", "-w=fields", "--endpoints", endpoint];
    let said = stdout(&run(meerkat().args(count), b""));
    let number = said.lines().find_map(|line| line.strip_prefix("\"Count\" : ")?.parse().ok());
    number.unwrap_or_else(|| panic!("no count: {said}"))
}

fn bench(endpoint: &str, args: &[&str]) -> serde_json::Value {
    let output = run(meerkat().args(["bench", "--json", "--endpoints", endpoint]).args(args), b"");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("one JSON object")
}

#[test]
fn every_load_runs_to_its_end_without_an_error() {
    let solo = solo();
    for kind in ["put", "get", "get-serializable", "range", "txn", "mixed"] {
        let report = bench(
            &solo.endpoint,
            &[
                kind,
                "--total=300",
                "--clients=8",
                "--conns=2",
                "--key-space=500",
                "--range-keys=50",
                "--target-leader",
            ],
        );
        assert_eq!(report["operations"], 300, "{report}");
        assert_eq!(report["error_count"], 0, "{report}");
        assert!(report["latency_ms"]["p99"].as_f64() >= report["latency_ms"]["p50"].as_f64(), "{report}");
    }
    assert_eq!(keys(&solo.endpoint), 500, "the key space was filled");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let solo = solo();
    let report = bench(&solo.endpoint, &["put", "--rate=200", "--duration=1s", "--clients=16"]);
    assert_eq!(report["operations"], 200, "{report}");
    let seconds = report["seconds"].as_f64().expect("a number");
    assert!(0.9 <= seconds, "{report}");
    assert!(seconds < 5.0, "too slow: {report}");
}

#[test]
fn a_stall_shows_in_the_latencies_of_an_open_loop() {
    let solo = solo();
    let mut command = meerkat();
    command.args(["bench", "put", "--json", "--rate=100", "--duration=6s", "--clients=8"]);
    command.args(["--endpoints", &solo.endpoint]).stdout(Stdio::piped());
    let bench = command.spawn().expect("the binary starts");
    wait_until("it puts", || keys(&solo.endpoint) != 0);
    solo.process.signal("STOP");
    std::thread::sleep(std::time::Duration::from_secs(2));
    solo.process.signal("CONT");
    let output = bench.wait_with_output().expect("the bench ends");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    // A third of the requests were due while the server stood still. A closed loop would have made
    // eight of them, and called the rest fast.
    let p90 = report["latency_ms"]["p90"].as_f64().expect("a number");
    assert!(p90 > 200.0, "the stall is hidden: {report}");
    assert_eq!(report["operations"], 600, "{report}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_and_not_a_number() {
    let output = run(
        meerkat().args(["bench", "put", "--total=5", "--json", "--timeout=2s", "--endpoints=127.0.0.1:1"]),
        b"",
    );
    assert!(!output.status.success());
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    assert_eq!(report["operations"], 0);
    assert_eq!(report["error_count"], 5, "{report}");
}
