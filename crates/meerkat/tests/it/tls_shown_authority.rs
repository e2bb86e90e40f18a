//! One self-signed certificate that is both what is shown and what is trusted: here and in etcd, with the
//! same files, the same are let in and the same are not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::authority::{Authority, Pair};
use crate::member::{Place, ask, links, tool};
use crate::process::{Running, clean, etcd_program, stderr, wait_until};
use crate::tls::{With, check, try_with};

/// Ours under etcd's name, and the real one if it is here.
fn programs(directory: &Path) -> Vec<PathBuf> {
    std::iter::once(links(directory).join("etcd")).chain(etcd_program("etcd")).collect()
}

/// One member, with those URLs for clients and members.
fn start(program: &Path, data: &Path, place: &Place, schemes: (&str, &str), more: &[String]) -> Running {
    let (client, peer) =
        (format!("{}://{}", schemes.0, place.client), format!("{}://{}", schemes.1, place.peer));
    let mut command = clean(Command::new(program));
    command
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg("--unsafe-no-fsync")
        .args(more)
        .stderr(Stdio::null());
    Running(command.spawn().expect("the program starts"))
}

fn https<'a>(authority: &'a str, own: Option<&'a Pair>) -> With<'a> {
    With { scheme: "https", authority: Some(authority), own, ..With::default() }
}

#[test]
fn a_self_signed_certificate_is_shown_and_trusted_as_in_etcd() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (itself, shown) = Authority::shown(at, "itself", &["127.0.0.1"], 2200);
    let (stranger, of_stranger) = Authority::shown(at, "itself", &["127.0.0.1"], 2200);
    let (expired, of_expired) = Authority::shown(at, "expired", &["127.0.0.1"], 2020);
    let issued = itself.issue_authority("issued", &["client.test"]);
    // The member trusts its own, and one that has run out.
    let trusted = at.join("trusted.pem");
    let both = [&itself.file, &expired.file].map(|file| std::fs::read_to_string(file).expect("written"));
    std::fs::write(&trusted, both.concat()).expect("written");
    let misnamed = Authority::shown(at, "misnamed", &["elsewhere.test"], 2200).1;
    for (number, program) in programs(at).iter().enumerate() {
        let member = |name: &str, place: &Place, own: &Pair, more: &[String]| {
            let flags = [format!("--cert-file={}", own.cert), format!("--key-file={}", own.key)];
            let peers = format!("--initial-cluster=default=http://{}", place.peer);
            let flags: Vec<String> = flags.into_iter().chain([peers]).chain(more.iter().cloned()).collect();
            start(program, &at.join(format!("{name}{number}")), place, ("https", "http"), &flags)
        };
        let (place, elsewhere) = (Place::new(), Place::new());
        let asks = [format!("--trusted-ca-file={}", trusted.display()), "--client-cert-auth".to_owned()];
        let _members = [member("m", &place, &shown, &asks), member("e", &elsewhere, &misnamed, &[])];
        let good = https(&itself.file, Some(&shown));
        let serves = |place: &Place, with| try_with(&tool(), place, with, 2).status.success();
        wait_until("the member serves", || serves(&place, good));
        check(
            &place,
            &[
                ("the certificate itself", good, true),
                ("an authority that it has issued", https(&itself.file, Some(&issued)), true),
                ("no certificate", https(&itself.file, None), false),
                ("another of the same name", https(&itself.file, Some(&of_stranger)), false),
                ("one that has run out", https(&itself.file, Some(&of_expired)), false),
                ("who trusts another", https(&stranger.file, Some(&shown)), false),
            ],
        );
        let unchecked = With { scheme: "https", skips_check: true, ..With::default() };
        wait_until("the other serves", || serves(&elsewhere, unchecked));
        check(&elsewhere, &[("who is called otherwise", https(&misnamed.cert, None), false)]);
    }
}

#[test]
fn a_server_may_show_an_authority_that_a_trusted_one_has_issued() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (ours, other) = (Authority::new(at, "ours"), Authority::new(at, "other"));
    let (server, client) = (ours.issue_authority("member", &["127.0.0.1"]), ours.issue_authority("me", &[]));
    let foreign = other.issue_authority("me", &[]);
    for (number, program) in programs(at).iter().enumerate() {
        let place = Place::new();
        let flags = [
            format!("--cert-file={}", server.cert),
            format!("--key-file={}", server.key),
            format!("--trusted-ca-file={}", ours.file),
            format!("--initial-cluster=default=http://{}", place.peer),
        ];
        let _member = start(program, &at.join(format!("m{number}")), &place, ("https", "http"), &flags);
        let good = https(&ours.file, Some(&client));
        wait_until("the member serves", || try_with(&tool(), &place, good, 2).status.success());
        check(
            &place,
            &[
                ("one of the same authority", good, true),
                ("one of another", https(&ours.file, Some(&foreign)), false),
                ("who trusts another", https(&other.file, Some(&client)), false),
            ],
        );
    }
}

#[test]
fn members_that_share_a_self_signed_certificate_find_each_other_and_no_stranger() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let (_, shared) = Authority::shown(at, "member", &["127.0.0.1"], 2200);
    let (_, strange) = Authority::shown(at, "member", &["127.0.0.1"], 2200);
    for (number, program) in programs(at).iter().enumerate() {
        let places = [Place::new(), Place::new(), Place::new()];
        let cluster: Vec<String> =
            places.iter().enumerate().map(|(at, place)| format!("m{at}=https://{}", place.peer)).collect();
        let member = |which: usize, pair: &Pair| {
            let flags = [
                format!("--name=m{which}"),
                format!("--initial-cluster={}", cluster.join(",")),
                format!("--peer-cert-file={}", pair.cert),
                format!("--peer-key-file={}", pair.key),
                format!("--peer-trusted-ca-file={}", pair.cert),
                "--peer-client-cert-auth".to_owned(),
            ];
            let data = at.join(format!("p{number}-{which}"));
            start(program, &data, &places[which], ("http", "https"), &flags)
        };
        let _members = [member(0, &shared), member(1, &shared), member(2, &strange)];
        let put = |which: usize, seconds: u64| {
            let timeout = format!("--command-timeout={seconds}s");
            ask(&tool(), &["--endpoints", &places[which].client, &timeout, "put", "key", "value"])
        };
        for which in [0, 1] {
            wait_until("a member serves", || put(which, 2).status.success());
        }
        let kept_out = put(2, 3);
        assert!(!kept_out.status.success(), "the stranger is no member of {}", program.display());
        assert!(!stderr(&kept_out).is_empty());
    }
}
