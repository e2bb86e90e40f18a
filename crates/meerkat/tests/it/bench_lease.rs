//! `meerkat bench lease-*`: every kind against real servers, and runs that must be found faulty.

use std::process::{Command, Stdio};

use crate::bench_watch::{bench, servers};
use crate::process::{meerkat, run, stderr, stdout, wait_until};

fn leases_left(endpoint: &str) -> String {
    stdout(&run(meerkat().args(["lease", "list", "--endpoints", endpoint]), b""))
}

#[test]
fn every_lease_load_runs_to_its_end_and_leaves_no_lease_behind() {
    for (name, server) in servers() {
        let report = bench(name, &server, &["lease-grant", "--total=200", "--clients=8", "--conns=2"]);
        assert_eq!(report["operations"], 200, "{name}: {report}");
        let keep_alive = ["lease-keepalive", "--leases=50", "--clients=7", "--conns=3", "--total=900"];
        let report = bench(name, &server, &keep_alive);
        assert_eq!(report["operations"], 900, "{name}: {report}");
        assert_eq!((&report["streams"], &report["connections"]), (&7.into(), &3.into()), "{name}: {report}");
        assert!(report["latency_ms"]["p99"].as_f64() >= report["latency_ms"]["p50"].as_f64(), "{report}");
        assert!(report["member_cpu_s_per_1000"].is_number(), "{name}: {report}");
        assert_eq!(leases_left(&server.endpoint), "found 0 leases\n", "{name}");
    }
}

#[test]
fn a_timed_load_of_one_stream_renews_until_its_time_is_over() {
    for (name, server) in servers() {
        let args = ["lease-keepalive", "--leases=3", "--clients=1", "--duration=3s", "--target-leader"];
        let report = bench(name, &server, &args);
        assert!(report["operations"].as_u64() > Some(20), "{name}: {report}");
        let seconds = report["seconds"].as_f64().expect("a number");
        assert!((2.5..20.0).contains(&seconds), "{name}: {report}");
    }
}

#[test]
fn puts_are_measured_in_turn_with_and_without_renewals() {
    for (name, server) in servers() {
        let puts = ["--clients=4", "--conns=2", "--duration=1s", "--pairs=2"];
        let leases = ["lease-renewed-puts", "--leases=300", "--lease-ttl=6", "--lease-streams=7"];
        let report = bench(name, &server, &[&leases[..], &puts].concat());
        for phases in ["before", "idle", "renewed"] {
            let phases = report["puts"][phases].as_array().expect("a list");
            assert_eq!(phases.len(), 2, "{name}: {report}");
            assert!(phases.iter().all(|phase| phase["per_second"].as_f64() > Some(1.0)), "{name}: {report}");
        }
        // Three hundred leases in two seconds, in a phase of one second that a busy machine makes longer or
        // fills unevenly. It may see the end of the renewals of the one before.
        let renewals = |phase: &serde_json::Value| phase["renewals_per_second"].as_f64().expect("a number");
        let renewed = report["puts"]["renewed"].as_array().expect("a list");
        assert!(renewed.iter().all(|phase| (20.0..=400.0).contains(&renewals(phase))), "{name}: {report}");
        let idle = report["puts"]["idle"].as_array().expect("a list");
        assert!(idle.iter().all(|phase| renewals(phase) < 60.0), "{name}: {report}");
        assert_eq!(leases_left(&server.endpoint), "found 0 leases\n", "{name}");
    }
}

#[test]
fn a_server_that_dies_fails_the_run() {
    for (name, server) in servers() {
        let mut command = meerkat();
        command.args(["bench", "lease-keepalive", "--json", "--leases=20", "--duration=20s", "--timeout=2s"]);
        command.args(["--endpoints", &server.endpoint]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = command.spawn().expect("the binary starts");
        wait_until("all are granted", || leases_left(&server.endpoint).starts_with("found 20 leases"));
        // Renewals begin then.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        server.process.signal("KILL");
        let output = load.wait_with_output().expect("the bench ends");
        assert!(!output.status.success(), "{name}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(report["faults"].as_array().is_some_and(|faults| !faults.is_empty()), "{name}: {report}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let refused = |args: &[&str], why: &str| {
        let output = run(meerkat().args(["bench", "--endpoints=127.0.0.1:1"]).args(args), b"");
        assert_eq!(output.status.code(), Some(128), "{args:?}");
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    };
    refused(&["lease-keepalive", "--leases=0"], "--leases must be at least 1");
    refused(&["lease-keepalive", "--rate=5"], "--rate is not for lease-keepalive");
    refused(&["lease-keepalive", "--lease-ttl=2"], "--lease-ttl must be at least 3");
    refused(&["lease-keepalive", "--threads=2"], "--threads is not for lease-keepalive");
    refused(&["lease-renewed-puts", "--pairs=0"], "--pairs must be at least 1");
    refused(&["lease-renewed-puts", "--duration=20s"], "--duration may be at most a 4th of --lease-ttl");
    refused(&["lease-grant", "--prefill=1"], "--prefill is not for lease loads");
}

#[test]
fn the_comparison_of_leases_judges_as_its_own_tests_say() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "bench_vs_etcd.test_leases"]).current_dir(scripts);
    let output = run(&mut python, b"");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("Ran 0 tests"), "{}", stderr(&output));
}
