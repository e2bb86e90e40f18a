//! `meerkat demo failover`, shortened: its verdict, its table, its picture, and nothing left behind.

use std::path::Path;
use std::process::Stdio;

use crate::process::{Running, collect, meerkat, run, stderr, stdout, wait_until};

/// The processes that have this directory on their command line.
fn members_under(directory: &Path) -> Vec<u32> {
    let mark = directory.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("there is a list of processes").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // One that ends while we look is not there.
    let line = |id: u32| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    ids.filter(|id| String::from_utf8_lossy(&line(*id)).contains(&mark)).collect()
}

#[test]
fn a_short_demo_passes_and_shows_its_table_and_its_picture() {
    let place = tempfile::tempdir().expect("a directory");
    let picture = place.path().join("demo.svg");
    let mut command = meerkat();
    command.env("TMPDIR", place.path()).args(["demo", "failover", "--plain", "--seed=3"]);
    command.args(["--faults=kill-watched,cut", "--seconds-between=0.5", "--svg"]).arg(&picture);
    let output = run(&mut command, b"");
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));

    let verdict = said.lines().last().expect("it says something");
    let expected = "PASS: 0 lost, 0 repeated, 0 reordered over 2 faults, 3 watchers, ";
    assert!(verdict.starts_with(expected), "{said}");
    let head = said.lines().position(|line| line.starts_with("#  fault ")).expect("a table is printed");
    let rows: Vec<&str> = said.lines().skip(head + 1).take(2).collect();
    for (row, title) in rows.iter().zip(["kill -9 of a watcher's member", "network cut, nothing closed"]) {
        assert!(row.contains(title), "{said}");
        assert!(row.contains("→"), "its watcher has moved: {said}");
        assert!(!row.contains('…'), "everybody has resumed: {said}");
    }

    let svg = std::fs::read_to_string(&picture).expect("the picture is written");
    assert!(svg.starts_with("<svg ") && svg.contains("PASS: 0 lost"), "{svg}");
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
    std::fs::remove_file(&picture).expect("it is there");
    assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 0, "the data is removed");
}

/// Starts a demo in that place and waits until its members run.
fn start(place: &Path) -> Running {
    let mut command = meerkat();
    command.env("TMPDIR", place).args(["demo", "failover", "--plain"]);
    let mut demo = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts"));
    let out = collect(demo.0.stdout.take().expect("piped"));
    wait_until("the members are ready", || out.lock().expect("readable").contains("members are ready"));
    assert_eq!(members_under(place).len(), 3);
    demo
}

#[test]
fn a_stopped_demo_leaves_nothing_behind() {
    let place = tempfile::tempdir().expect("a directory");
    let mut demo = start(place.path());
    demo.signal("INT");
    assert!(!demo.wait().success(), "without a verdict there is no success");
    assert_eq!(members_under(place.path()), [0; 0]);
    assert_eq!(std::fs::read_dir(place.path()).expect("readable").count(), 0, "the data is removed");
}

#[test]
fn members_do_not_outlive_a_demo_that_is_killed() {
    let place = tempfile::tempdir().expect("a directory");
    let mut demo = start(place.path());
    // A paused member hears nothing but KILL.
    let paused = members_under(place.path())[0];
    crate::process::signal(paused, "STOP");
    demo.signal("KILL");
    demo.wait();
    wait_until("the members are gone", || members_under(place.path()).is_empty());
}

#[test]
fn faults_that_do_not_exist_are_refused_by_name() {
    let output = run(meerkat().args(["demo", "failover", "--plain", "--faults=flood"]), b"");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("kill-watched"), "{}", stderr(&output));
}
