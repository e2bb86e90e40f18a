//! The pace of compactions, and what the log says of them.

use std::path::Path;

use crate::member::{Member, Place, ask, tool, words};
use crate::process::stderr;

fn start(directory: &Path, place: &Place, more: &[&str]) -> Member {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    let mut arguments = words(&["--unsafe-no-fsync"]);
    arguments.push(format!("--listen-client-urls={client}"));
    arguments.push(format!("--advertise-client-urls={client}"));
    arguments.push(format!("--listen-peer-urls={peer}"));
    arguments.push(format!("--initial-advertise-peer-urls={peer}"));
    arguments.push(format!("--initial-cluster=default={peer}"));
    arguments.extend(words(more));
    Member::start(directory, &arguments).ready()
}

fn call(place: &Place, args: &[&str]) {
    let at = format!("--endpoints={}", place.client);
    let output = ask(&tool(), &[&[at.as_str(), "--command-timeout=60s"][..], args].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
}

#[test]
fn slow_compaction_is_finished_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place::new();
    let slow = ["--compaction-batch-limit=1", "--compaction-sleep-interval=1h"];
    let member = start(directory.path(), &place, &slow);
    for value in ["1", "2", "3", "4", "5"] {
        call(&place, &["put", "key", value]);
    }
    call(&place, &["compact", "5"]);
    let said = member.stop_and_hear();
    assert!(!said.contains("finished scheduled compaction"), "{said}");
    let checks = ["--compact-hash-check-enabled", "--compact-hash-check-time=1s"];
    let member = start(directory.path(), &place, &checks);
    member.wait_for("finished scheduled compaction");
    member.wait_for(r#""compact-revision":5"#);
    call(&place, &["compact", "6"]);
    member.wait_for("finished compaction hash check");
    member.stop();
}
