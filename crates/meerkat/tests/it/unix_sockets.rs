//! Members that reach each other, and clients that reach them, by sockets in the file system.

use std::path::Path;

use crate::member::{Member, ask, links};
use crate::process::{stderr, stdout, wait_until};

/// Under the names that etcd gives such sockets: relative to where a member is started.
fn flags(at: usize) -> Vec<String> {
    let cluster = (0..3).map(|at| format!("m{at}=unix://peer{at}:1")).collect::<Vec<String>>().join(",");
    [
        format!("--name=m{at}"),
        format!("--listen-client-urls=unix://client{at}:1"),
        format!("--advertise-client-urls=unix://client{at}:1"),
        format!("--listen-peer-urls=unix://peer{at}:1"),
        format!("--initial-advertise-peer-urls=unix://peer{at}:1"),
        format!("--initial-cluster={cluster}"),
        "--unsafe-no-fsync".to_owned(),
    ]
    .to_vec()
}

fn tell(directory: &Path, at: usize, args: &[&str]) -> Option<String> {
    let endpoint = format!("unix://{}", directory.join(format!("client{at}:1")).display());
    let flags = ["--endpoints", &endpoint, "--command-timeout=60s"];
    let output = ask(&links(directory).join("etcdctl"), &[&flags, args].concat());
    if !output.status.success() {
        println!("{args:?}: {}", stderr(&output));
    }
    output.status.success().then(|| stdout(&output))
}

#[test]
fn members_and_clients_meet_at_unix_sockets() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let start = |at| Member::start(path, &flags(at));
    let members: Vec<Member> = (0..3).map(start).collect();
    let mut members: Vec<Option<Member>> = members.into_iter().map(|one| Some(one.ready())).collect();
    assert_eq!(tell(path, 0, &["put", "key", "value"]).as_deref(), Some("OK\n"));
    assert_eq!(tell(path, 1, &["get", "key", "--print-value-only"]).as_deref(), Some("value\n"));
    // One that was killed leaves its sockets behind, and takes them over when it is back.
    members[2] = None;
    members[2] = Some(start(2).ready());
    wait_until("it has what the others have", || {
        tell(path, 2, &["get", "key", "--print-value-only"]).as_deref() == Some("value\n")
    });
    let listed = tell(path, 0, &["member", "list"]).expect("a list");
    assert!(listed.contains("unix://peer2:1"), "{listed}");
}
