//! When the cluster is lost: etcd's documented command lines, under etcd's names.

use std::path::Path;
use std::process::{Command, Output};

use crate::member::{Member, Place, links, words};
use crate::process::{clean, run, stderr, stdout, wait_until};
use crate::snapshot_rules::{holds, rules, set_up};

const TOKEN: &str = "etcd-cluster-1";

fn flags_of(name: &str, place: &Place) -> Vec<String> {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    words(&[
        "--name",
        name,
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
        "--listen-peer-urls",
        &peer,
    ])
}

/// Those of a member that begins a cluster.
fn first_flags_of(name: &str, place: &Place, cluster: &str) -> Vec<String> {
    let peer = format!("http://{}", place.peer);
    let more = words(&["--initial-advertise-peer-urls", &peer, "--initial-cluster", cluster]);
    let more =
        [more, words(&["--initial-cluster-token", TOKEN, "--unsafe-no-fsync", "--bcrypt-cost=4"])].concat();
    [flags_of(name, place), more].concat()
}

fn call(directory: &Path, program: &str, args: &[&str]) -> Output {
    let mut command = clean(Command::new(links(directory).join(program)));
    run(command.current_dir(directory).env("ETCDCTL_API", "3").args(args), b"")
}

fn done(directory: &Path, program: &str, args: &[&str]) -> String {
    let output = call(directory, program, args);
    assert!(output.status.success(), "{program} {args:?}: {}", stderr(&output));
    stdout(&output)
}

/// As in etcd's guide to disaster recovery: a snapshot of one member, restored for three, which are
/// started without any of the flags that begin a cluster. They ask who their clients are, as before.
#[test]
fn a_lost_cluster_is_restored_as_in_etcds_guide() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let lost = Place::new();
    let source =
        Member::start(at, &first_flags_of("lost", &lost, &format!("lost=http://{}", lost.peer))).ready();
    set_up(&lost.client);
    let before = rules(&lost.client);
    done(
        at,
        "etcdctl",
        &["--endpoints", &lost.client, "--user=root:secret", "snapshot", "save", "snapshot.db"],
    );
    source.stop();
    assert!(done(at, "etcdutl", &["snapshot", "status", "snapshot.db", "-w", "table"]).contains("REVISION"));

    let places = [Place::new(), Place::new(), Place::new()];
    let names = ["m1", "m2", "m3"];
    let rows = names.iter().zip(&places).map(|(name, place)| format!("{name}=http://{}", place.peer));
    let cluster = rows.collect::<Vec<_>>().join(",");
    for (name, place) in names.iter().zip(&places) {
        let peer = format!("http://{}", place.peer);
        let flags = ["--name", name, "--initial-cluster", &cluster, "--initial-cluster-token", TOKEN];
        let more = ["--initial-advertise-peer-urls", &peer];
        done(at, "etcdutl", &[&["snapshot", "restore", "snapshot.db"], &flags[..], &more].concat());
        assert!(at.join(format!("{name}.etcd")).is_dir());
    }
    let start = |n: usize| Member::start(at, &flags_of(names[n], &places[n]));
    let members = [start(0), start(1), start(2)].map(Member::ready);
    holds(&places[0].client, &before);
    for place in &places {
        let got = done(at, "etcdctl", &["--endpoints", &place.client, "--user=bob:hunter2", "get", "app/x"]);
        assert_eq!(got, "app/x\nv\n");
    }
    for member in members {
        member.stop();
    }
}

/// Two of three are lost for good. The third goes on alone with what was written, and grows again; a lost
/// one that comes back is turned away.
#[test]
fn one_of_three_goes_on_alone_and_grows_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let places = [Place::new(), Place::new(), Place::new(), Place::new()];
    let names = ["m0", "m1", "m2", "m3"];
    let row = |n: usize| format!("{}=http://{}", names[n], places[n].peer);
    let cluster = [row(0), row(1), row(2)].join(",");
    let flags = |n: usize| first_flags_of(names[n], &places[n], &cluster);
    let members = [0, 1, 2].map(|n| Member::start(at, &flags(n))).map(Member::ready);
    let client = |n: usize| format!("--endpoints={}", places[n].client);
    let patient = "--command-timeout=60s";
    for n in 0..20 {
        done(at, "etcdctl", &[&client(n % 3), patient, "put", &format!("key{n:02}"), "before"]);
    }
    for mut member in members {
        member.process.signal("KILL");
        member.process.wait();
    }
    let forced = [flags(0), words(&["--force-new-cluster"])].concat();
    let alone = Member::start(at, &forced).ready();
    assert!(alone.logged("this member goes on alone"));
    let got = done(at, "etcdctl", &[&client(0), patient, "get", "key", "--prefix", "--keys-only"]);
    assert_eq!(got.split_whitespace().count(), 20, "{got}");
    done(at, "etcdctl", &[&client(0), patient, "put", "key20", "alone"]);
    let members = done(at, "etcdctl", &[&client(0), patient, "member", "list"]);
    assert!(members.contains("m0") && members.lines().count() == 1, "{members}");
    // The flag is for one start.
    alone.stop();
    let alone = Member::start(at, &flags(0)).ready();
    let mut back = Member::start(at, &flags(1));
    assert!(!back.process.wait().success(), "a removed member ends");

    let peer = format!("--peer-urls=http://{}", places[3].peer);
    wait_until("a member is added", || {
        call(at, "etcdctl", &[&client(0), patient, "member", "add", "m3", &peer]).status.success()
    });
    let cluster = [row(0), row(3)].join(",");
    let flags = first_flags_of(names[3], &places[3], &cluster);
    let newcomer =
        Member::start(at, &[flags, words(&["--initial-cluster-state", "existing"])].concat()).ready();
    let got = done(at, "etcdctl", &[&client(3), patient, "get", "key", "--prefix", "--print-value-only"]);
    assert_eq!(got.lines().filter(|line| *line == "before").count(), 20, "{got}");
    assert!(got.contains("alone"), "{got}");
    done(at, "etcdctl", &[&client(3), patient, "put", "key21", "two"]);
    newcomer.stop();
    alone.stop();
}
