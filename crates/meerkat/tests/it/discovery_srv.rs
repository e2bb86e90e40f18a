//! Members that find each other by SRV records, and tools that find them so.

use std::path::{Path, PathBuf};

use crate::authority::Authority;
use crate::etcd::etcd_is_here;
use crate::member::{Member, Place, links, tools, words};
use crate::name_server::Domain;
use crate::process::{etcd_program, run, stderr, stdout, wait_until};

const DOMAIN: &str = "cluster.test";

/// Three places and a domain that names them, as members and for clients.
fn stage(directory: &Path, scheme: &str) -> Option<(Domain, Vec<Place>)> {
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    let service = if scheme == "https" { "etcd-server-ssl" } else { "etcd-server" };
    let port = |address: &str| address.rsplit(':').next().expect("a port").parse().expect("a number");
    let records = places.iter().enumerate().flat_map(|(at, place)| {
        let host = format!("m{at}.{DOMAIN}");
        [
            (format!("_{service}-x._tcp.{DOMAIN}"), host.clone(), port(&place.peer)),
            (format!("_etcd-client-x._tcp.{DOMAIN}"), host, port(&place.client)),
        ]
    });
    let domain = Domain::serve(directory, records.collect())?;
    Some((domain, places))
}

/// What a member is told: where it is, and the domain, but nobody else.
fn flags(at: usize, place: &Place, scheme: &str) -> Vec<String> {
    let (client, peer) = (format!("http://{}", place.client), format!("{scheme}://{}", place.peer));
    words(&[
        &format!("--name=m{at}"),
        &format!("--data-dir=m{at}.data"),
        &format!("--listen-client-urls={client}"),
        &format!("--advertise-client-urls={client}"),
        &format!("--listen-peer-urls={peer}"),
        &format!("--initial-advertise-peer-urls={peer}"),
        "--initial-cluster-token=t",
        &format!("--discovery-srv={DOMAIN}"),
        "--discovery-srv-name=x",
    ])
}

fn start(domain: &Domain, program: &Path, directory: &Path, flags: &[String]) -> Member {
    let mut command = domain.command(program);
    command.current_dir(directory).args(flags);
    Member::run(command)
}

fn ours(directory: &Path) -> PathBuf {
    links(directory).join("etcd")
}

/// The members as a tool lists them that knows nothing but the domain. `None` if it could not, as while
/// there is no leader.
fn listed(domain: &Domain, tool: &Path) -> Option<String> {
    let args = ["--discovery-srv", DOMAIN, "--discovery-srv-name", "x", "member", "list"];
    let output = run(domain.command(tool).args(args), b"");
    if !output.status.success() {
        println!("{}: {}", tool.display(), stderr(&output));
        return None;
    }
    Some(stdout(&output))
}

/// Starts a cluster of those programs and gives what all tools see of it.
fn formed(domain: &Domain, places: &[Place], program: &Path, directory: &Path) -> (Vec<Member>, String) {
    let members = places.iter().enumerate();
    let members: Vec<Member> =
        members.map(|(at, place)| start(domain, program, directory, &flags(at, place, "http"))).collect();
    let members: Vec<Member> = members.into_iter().map(Member::ready).collect();
    let mut seen = String::new();
    for tool in tools() {
        wait_until("all members have told their names", || {
            let Some(list) = listed(domain, &tool) else { return false };
            seen = list;
            seen.lines().count() == 3 && seen.matches("started, m").count() == 3
        });
    }
    (members, seen)
}

#[test]
fn three_members_find_each_other_and_need_the_domain_only_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((domain, places)) = stage(directory.path(), "http") else { return };
    let program = ours(directory.path());
    let (mut members, seen) = formed(&domain, &places, &program, directory.path());
    for at in 0..3 {
        assert!(
            seen.contains(&format!("http://m{at}.{DOMAIN}:")),
            "members are known by their records: {seen}"
        );
    }
    members.remove(2).stop();
    // Whoever has data asks nobody.
    let again =
        start(&Domain::gone(directory.path()), &program, directory.path(), &flags(2, &places[2], "http"));
    let again = again.ready();
    assert!(again.logged("discovery is ignored since this member is already initialized"));
    for member in members.into_iter().chain([again]) {
        member.stop();
    }
}

#[test]
fn a_member_that_ended_before_it_knew_its_cluster_looks_for_it_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((domain, places)) = stage(directory.path(), "http") else { return };
    let program = ours(directory.path());
    // In the way of its database, which it opens when it has written down who it is.
    let member_directory = directory.path().join("m2.data").join("member");
    let obstacle = member_directory.join("state");
    std::fs::create_dir_all(&member_directory).expect("a directory");
    std::fs::write(&obstacle, "in the way").expect("a file");
    let mut ended = start(&domain, &program, directory.path(), &flags(2, &places[2], "http"));
    assert!(!ended.process.wait().success());
    assert!(member_directory.join("identity").exists(), "it ended too early for this test");
    std::fs::remove_file(&obstacle).expect("it is ours");
    let (members, _) = formed(&domain, &places, &program, directory.path());
    for member in members {
        member.stop();
    }
}

#[test]
fn the_same_domain_makes_the_same_cluster_of_etcd() {
    if !etcd_is_here() {
        return;
    }
    let theirs = etcd_program("etcd").expect("checked before");
    let directory = tempfile::tempdir().expect("a directory");
    let Some((domain, places)) = stage(directory.path(), "http") else { return };
    let (members, of_etcd) = formed(&domain, &places, &theirs, directory.path());
    drop(members);
    let own = tempfile::tempdir().expect("a directory");
    let (members, of_ours) = formed(&domain, &places, &ours(own.path()), own.path());
    drop(members);
    assert_eq!(of_ours, of_etcd, "ids, names and addresses");
}

#[test]
fn a_member_that_is_not_listed_ends_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((domain, _)) = stage(directory.path(), "http") else { return };
    let stranger = flags(7, &Place::new(), "http");
    let nowhere = words(&["--discovery-srv=nowhere.test"]);
    let conflict =
        words(&["--discovery-srv=nowhere.test", "--initial-cluster=default=http://localhost:2380"]);
    let rows = [
        (&stranger, "cannot find local etcd member \"m7\" in SRV records"),
        (
            &nowhere,
            "error setting up initial cluster: error querying DNS SRV records for _etcd-server-ssl lookup",
        ),
        (&conflict, "multiple discovery or bootstrap flags are set"),
    ];
    for (flags, expected) in rows {
        let program = ours(directory.path());
        let mut member = start(&domain, &program, directory.path(), flags);
        assert_eq!(member.process.wait().code(), Some(1));
        member.wait_for(expected);
    }
    assert!(!directory.path().join("m7.data").join("member").exists(), "no data of a member that never was");
}

#[test]
fn without_an_authority_of_their_own_members_prove_to_be_of_the_domain() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((domain, places)) = stage(directory.path(), "https") else { return };
    let authority = Authority::new(directory.path(), "public");
    // Not of a host that is dialled, and not of an address.
    let pair = authority.issue("members", &[DOMAIN]);
    let program = ours(directory.path());
    let members = places.iter().enumerate().map(|(at, place)| {
        let mut command = domain.command(&program);
        // The authorities of this machine, as the members see it.
        command.current_dir(directory.path()).env("SSL_CERT_FILE", &authority.file);
        command.args(flags(at, place, "https"));
        command.arg(format!("--peer-cert-file={}", pair.cert)).arg(format!("--peer-key-file={}", pair.key));
        Member::run(command)
    });
    let members: Vec<Member> = members.collect();
    for member in members.into_iter().map(Member::ready).collect::<Vec<_>>() {
        member.stop();
    }
}
