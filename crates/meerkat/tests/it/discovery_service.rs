//! Members that find each other at a discovery service: an etcd, or a Meerkat, that runs already.

use std::path::Path;

use crate::authority::Authority;
use crate::etcd::{Etcd, etcd_is_here};
use crate::member::{Member, Place, words};
use crate::process::{meerkat, run, stderr, stdout, wait_until};

/// A Meerkat of one member that keeps the registry.
struct Service {
    endpoint: String,
    _member: Member,
}

impl Service {
    fn start(directory: &Path, scheme: &str, more: &[String]) -> Service {
        let place = Place::new();
        let client = format!("{scheme}://{}", place.client);
        let peer = format!("http://{}", place.peer);
        let mut flags = words(&[
            "--name=service",
            &format!("--listen-client-urls={client}"),
            &format!("--advertise-client-urls={client}"),
            &format!("--listen-peer-urls={peer}"),
            &format!("--initial-advertise-peer-urls={peer}"),
            &format!("--initial-cluster=service={peer}"),
            "--bcrypt-cost=4",
        ]);
        flags.extend_from_slice(more);
        let member = Member::start(directory, &flags).ready();
        Service { endpoint: place.client, _member: member }
    }
}

/// What the tool says when it asks that endpoint.
fn ask(endpoint: &str, args: &[&str]) -> String {
    let output = run(meerkat().args(["--endpoints", endpoint]).args(args), b"");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// The list of three members once all have told their names. A leader may still have to be found.
fn listed(endpoint: &str) -> String {
    let mut list = String::new();
    wait_until("all members have told their names", || {
        let output = run(meerkat().args(["--endpoints", endpoint, "member", "list"]), b"");
        list = stdout(&output);
        if !output.status.success() {
            println!("member list: {}", stderr(&output));
        }
        output.status.success() && list.matches("started, m").count() == 3
    });
    list
}

fn flags(name: &str, place: &Place, service: &str, token: &str) -> Vec<String> {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    words(&[
        &format!("--name={name}"),
        &format!("--data-dir={name}.data"),
        &format!("--listen-client-urls={client}"),
        &format!("--advertise-client-urls={client}"),
        &format!("--listen-peer-urls={peer}"),
        &format!("--initial-advertise-peer-urls={peer}"),
        &format!("--discovery-endpoints={service}"),
        &format!("--discovery-token={token}"),
    ])
}

fn ends_with(directory: &Path, flags: &[String], reason: &str) {
    let mut member = Member::start(directory, flags);
    assert_eq!(member.process.wait().code(), Some(1));
    member.wait_for(reason);
}

/// Three members come together there, and a fourth is told that it is late.
fn check(service: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    let flags = |at: usize| flags(&format!("m{at}"), &places[at], service, "t");
    ends_with(
        directory.path(),
        &flags(0),
        "failed to join discovery cluster (discovery: size key not found)",
    );
    ask(service, &["put", "/_etcd/registry/t/_config/size", "many"]);
    ends_with(directory.path(), &flags(0), "failed to join discovery cluster (discovery: size key is bad)");
    ask(service, &["put", "/_etcd/registry/t/_config/size", "3"]);
    let first = Member::start(directory.path(), &flags(0));
    first.wait_for("waiting for peers from discovery service");
    let members: Vec<Member> = [1, 2].map(|at| Member::start(directory.path(), &flags(at))).into();
    let mut members: Vec<Member> = std::iter::once(first).chain(members).map(Member::ready).collect();

    let listed = listed(&places[0].client);
    let registry = ask(service, &["get", "--prefix", "/_etcd/registry/t/members"]);
    let mut expected: Vec<String> = Vec::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split(", ").collect();
        expected.push(format!("/_etcd/registry/t/members/{}\n{}={}\n", fields[0], fields[2], fields[3]));
    }
    expected.sort();
    assert_eq!(registry, expected.concat(), "the keys and values that etcd writes");

    let late = self::flags("m3", &Place::new(), service, "t");
    ends_with(directory.path(), &late, "failed to join discovery cluster (discovery: cluster is full)");
    members.remove(2).stop();
    let mut again = flags(2);
    again.retain(|flag| !flag.starts_with("--discovery-endpoints"));
    again.push("--discovery-endpoints=127.0.0.1:1".to_owned());
    let again = Member::start(directory.path(), &again).ready();
    assert!(again.logged("discovery is ignored since this member is already initialized"));
}

#[test]
fn members_come_together_at_an_etcd() {
    if etcd_is_here() {
        check(&Etcd::start().endpoint);
    }
}

#[test]
fn members_come_together_at_a_meerkat() {
    let directory = tempfile::tempdir().expect("a directory");
    check(&Service::start(directory.path(), "http", &[]).endpoint);
}

#[test]
fn a_member_that_waits_for_others_can_be_told_to_stop() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Service::start(directory.path(), "http", &[]);
    ask(&service.endpoint, &["put", "/_etcd/registry/t/_config/size", "2"]);
    let mut flags = flags("m0", &Place::new(), &service.endpoint, "t");
    // An empty list is none.
    flags.push("--initial-cluster=".to_owned());
    let member = Member::start(directory.path(), &flags);
    member.wait_for("waiting for peers from discovery service");
    member.stop();
    assert!(!directory.path().join("m0.data").join("member").exists(), "no data of a member that never was");
}

#[test]
fn a_service_may_want_certificates_and_passwords() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path(), "private");
    let pair = authority.issue("service", &["127.0.0.1"]);
    let tls = words(&[&format!("--cert-file={}", pair.cert), &format!("--key-file={}", pair.key)]);
    let service = Service::start(directory.path(), "https", &tls);
    let known = format!("--cacert={}", authority.file);
    let tool = |args: &[&str]| ask(&service.endpoint, &[&[known.as_str()], args].concat());
    tool(&["put", "/_etcd/registry/t/_config/size", "1"]);
    tool(&["user", "add", "root:secret"]);
    tool(&["auth", "enable"]);
    let flags = |more: &[&str]| {
        let mut flags = flags("m0", &Place::new(), &service.endpoint, "t");
        flags.push(format!("--discovery-cacert={}", authority.file));
        flags.extend(words(more));
        flags
    };
    let wrong = flags(&["--discovery-user=root", "--discovery-password=guess"]);
    ends_with(directory.path(), &wrong, "etcdserver: authentication failed, invalid user ID or password");
    let right = flags(&["--discovery-user=root:secret"]);
    drop(Member::start(directory.path(), &right).ready());
}

#[test]
fn a_configuration_file_may_say_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = Service::start(directory.path(), "http", &[]);
    ask(&service.endpoint, &["put", "/_etcd/registry/t/_config/size", "1"]);
    let place = Place::new();
    let text = format!(
        "name: m0\nlisten-client-urls: http://{client}\nadvertise-client-urls: http://{client}\n\
         listen-peer-urls: http://{peer}\ninitial-advertise-peer-urls: http://{peer}\n\
         discovery-config:\n  token: t\n  client:\n    endpoints: [{service}]\n    dial-timeout: 2000000000\n",
        client = place.client,
        peer = place.peer,
        service = service.endpoint,
    );
    let file = directory.path().join("c.yml");
    std::fs::write(&file, text).expect("written");
    let member = Member::start(directory.path(), &[format!("--config-file={}", file.display())]).ready();
    assert!(member.logged("register member itself successfully"));
}
