//! `meerkat dev`: three members up with one command, one killed, all gone at Ctrl-C.

use std::process::Stdio;

use crate::process::{Running, collect, meerkat, run, signal, stderr, wait_until};

struct Announced {
    endpoints: Vec<String>,
    ids: Vec<u32>,
    directory: std::path::PathBuf,
}

/// A cluster for other tests. It ends with this value, its members too.
pub struct Dev {
    pub endpoints: Vec<String>,
    /// The processes of the members, in the order of their endpoints.
    pub ids: Vec<u32>,
    process: Running,
}

impl Dev {
    pub fn start(nodes: &str) -> Dev {
        let mut command = meerkat();
        command.args(["dev", "--nodes", nodes]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running(command.spawn().expect("the binary starts"));
        let out = collect(process.0.stdout.take().expect("piped"));
        wait_until("the cluster is announced", || {
            out.lock().expect("readable").contains("Ctrl-C stops them")
        });
        let announced = read_announcement(&out.lock().expect("readable"));
        Dev { endpoints: announced.endpoints, ids: announced.ids, process }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Killed outright it would leave its members behind.
        self.process.signal("INT");
        self.process.wait();
    }
}

fn read_announcement(text: &str) -> Announced {
    let endpoints = text.lines().find_map(|line| line.trim().strip_prefix("export ETCDCTL_ENDPOINTS="));
    let logs: Vec<&str> = text.lines().filter(|line| line.contains(" logs to ")).collect();
    let id = |line: &&str| {
        let after = line.split("(pid ").nth(1)?;
        after.split(')').next()?.parse().ok()
    };
    let first_log = logs[0].split(" logs to ").nth(1).expect("a path follows");
    Announced {
        endpoints: endpoints.expect("endpoints are printed").split(',').map(str::to_owned).collect(),
        ids: logs.iter().map(id).map(|id| id.expect("an id is printed")).collect(),
        directory: std::path::Path::new(first_log).parent().expect("a file in a directory").to_owned(),
    }
}

#[test]
fn a_cluster_comes_up_survives_a_kill_and_leaves_nothing_behind() {
    let mut command = meerkat();
    command.args(["dev", "--nodes", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut dev = Running(command.spawn().expect("the binary starts"));
    let out = collect(dev.0.stdout.take().expect("piped"));
    let errors = collect(dev.0.stderr.take().expect("piped"));
    let said = |pipe: &std::sync::Mutex<String>, text: &str| pipe.lock().expect("readable").contains(text);
    wait_until("the cluster is announced", || said(&out, "Ctrl-C stops them"));
    let announced = read_announcement(&out.lock().expect("readable"));
    assert_eq!((announced.endpoints.len(), announced.ids.len()), (3, 3));

    let on = |endpoint: &str, args: &[&str]| run(meerkat().args(["--endpoints", endpoint]).args(args), b"");
    let put = on(&announced.endpoints[0], &["put", "hello", "world"]);
    assert!(put.status.success(), "{}", stderr(&put));
    for endpoint in &announced.endpoints {
        let get = on(endpoint, &["get", "hello", "--print-value-only"]);
        assert_eq!(get.stdout, b"world\n", "{endpoint}: {}", stderr(&get));
    }

    signal(announced.ids[0], "KILL");
    wait_until("the death is announced", || said(&errors, "member m1 has ended"));
    let rest = announced.endpoints[1..].join(",");
    // A write under way while the leader dies may be refused as timed out; two of three go on.
    wait_until("a write is accepted again", || on(&rest, &["put", "hello", "again"]).status.success());

    assert!(announced.directory.is_dir());
    dev.signal("INT");
    assert!(dev.wait().success(), "Ctrl-C is the way to end it");
    assert!(!announced.directory.exists(), "the data is removed");
    let gone = on(&rest, &["get", "hello", "--command-timeout=300ms"]);
    assert!(!gone.status.success(), "the members have stopped");
}

#[test]
fn a_kept_cluster_is_there_again_on_the_same_ports() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut endpoints = Vec::new();
    for round in 0..2 {
        let mut command = meerkat();
        command.args(["dev", "--nodes=1", "--data-dir"]).arg(directory.path()).stdout(Stdio::piped());
        let mut dev = Running(command.stderr(Stdio::null()).spawn().expect("the binary starts"));
        let out = collect(dev.0.stdout.take().expect("piped"));
        wait_until("the cluster is announced", || {
            out.lock().expect("readable").contains("Ctrl-C stops them")
        });
        let announced = read_announcement(&out.lock().expect("readable"));
        let on =
            |args: &[&str]| run(meerkat().args(["--endpoints", &announced.endpoints[0]]).args(args), b"");
        if round == 0 {
            assert!(on(&["put", "kept", "value"]).status.success());
        } else {
            assert_eq!(on(&["get", "kept", "--print-value-only"]).stdout, b"value\n");
        }
        endpoints.push(announced.endpoints);
        dev.signal("TERM");
        assert!(dev.wait().success());
    }
    assert_eq!(endpoints[0], endpoints[1]);
}

#[test]
fn no_cluster_of_zero_or_ten() {
    for nodes in ["0", "10"] {
        let output = run(meerkat().args(["dev", "--nodes", nodes]), b"");
        assert!(!output.status.success());
        assert!(stderr(&output).contains("1..=9"), "{}", stderr(&output));
    }
}
