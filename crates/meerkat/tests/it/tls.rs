//! TLS with real certificates, real sockets and real processes: who is let in and who is not.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use meerkat_server::config::KeyPair;
use meerkat_server::tls::{ClientTls, Connector, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority::{Authority, Pair};
use crate::member::{Member, Place, ask, tool, tools, words};
use crate::process::{PATIENCE, Running, free_port, meerkat, stderr, wait_until};

/// What a tool is given to get in with.
#[derive(Clone, Copy, Default)]
pub struct With<'a> {
    pub scheme: &'a str,
    pub authority: Option<&'a str>,
    pub own: Option<&'a Pair>,
    pub skips_check: bool,
}

pub fn try_with(tool: &Path, place: &Place, with: With<'_>, timeout_s: u64) -> Output {
    let endpoint = format!("--endpoints={}://{}", with.scheme, place.client);
    let timeout = format!("--command-timeout={timeout_s}s");
    let dial = format!("--dial-timeout={timeout_s}s");
    let authority = with.authority.map(|file| format!("--cacert={file}"));
    let own = with.own.map(|own| [format!("--cert={}", own.cert), format!("--key={}", own.key)]);
    // The real tool heeds the one only beside the other.
    let skip = with.skips_check.then(|| words(&["--insecure-skip-tls-verify", "--insecure-transport=false"]));
    let skip = skip.into_iter().flatten();
    let args =
        [endpoint, timeout, dial].into_iter().chain(authority).chain(own.into_iter().flatten()).chain(skip);
    let args: Vec<String> = args.chain(words(&["put", "key", "value"])).collect();
    ask(tool, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// All tools at once: a refusal takes as long as the tool is patient.
pub fn check(place: &Place, rows: &[(&str, With<'_>, bool)]) {
    std::thread::scope(|scope| {
        for (what, with, is_let_in) in rows {
            for tool in tools() {
                scope.spawn(move || {
                    let timeout_s = if *is_let_in { PATIENCE.as_secs() } else { 2 };
                    let output = try_with(&tool, place, *with, timeout_s);
                    assert_eq!(
                        output.status.success(),
                        *is_let_in,
                        "{what} by {}: {}",
                        tool.display(),
                        stderr(&output)
                    );
                });
            }
        }
    });
}

fn start(directory: &Path, place: &Place, scheme: &str, more: &[String]) -> Member {
    let (client, peer) = (format!("{scheme}://{}", place.client), format!("http://{}", place.peer));
    let data = place.client.replace(':', "-");
    let args = [
        format!("--data-dir={}", directory.join(data).display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
    ];
    let args: Vec<String> = args.into_iter().chain(more.iter().cloned()).collect();
    Member::start(directory, &args)
}

/// The answer to a GET over TLS, or why there is none.
fn get(address: &str, path: &str, authority: &str, own: Option<&Pair>) -> std::io::Result<String> {
    let own =
        own.map(|own| KeyPair { cert_file: PathBuf::from(&own.cert), key_file: PathBuf::from(&own.key) });
    let tls = ClientTls::new(Trust::Authorities(Some(authority.into())), own).expect("a protocol");
    let connector = Connector::new(tls).expect("good files");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::connect(address).await?;
        let mut stream = connector.connect("127.0.0.1", tcp).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // Who closes in a hurry has answered all the same.
        let ended = stream.read_to_end(&mut answer).await;
        if answer.is_empty() {
            ended?
        } else {
            0
        };
        Ok(String::from_utf8_lossy(&answer).into_owned())
    })
}

fn server_flags(pair: &Pair) -> Vec<String> {
    vec![format!("--cert-file={}", pair.cert), format!("--key-file={}", pair.key)]
}

#[test]
fn a_server_shows_its_certificate_and_new_files_are_taken_up_without_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ours, other) = (Authority::new(directory.path(), "ours"), Authority::new(directory.path(), "other"));
    let pair = ours.issue("member", &["127.0.0.1"]);
    let place = Place::new();
    let member = start(directory.path(), &place, "https", &server_flags(&pair)).ready();
    member.wait_for("serving client traffic securely");
    let https = With { scheme: "https", ..With::default() };
    let trusted = With { authority: Some(&ours.file), ..https };
    let not_trusted = With { authority: Some(&other.file), ..https };
    check(
        &place,
        &[
            ("whom it can check", trusted, true),
            ("whom it need not check", With { skips_check: true, ..https }, true),
            ("whom it cannot check", not_trusted, false),
            ("without TLS", With { scheme: "http", ..With::default() }, false),
        ],
    );
    member.wait_for("the caller does not speak TLS, and this port does: use https://");
    member.wait_for("the caller does not accept this member's certificate");

    let next = other.issue("member", &["127.0.0.1"]);
    std::fs::copy(&next.key, &pair.key).expect("copied");
    check(&place, &[("with half of the new pair in place", trusted, true)]);
    member.wait_for("the new certificate files cannot be used");
    std::fs::copy(&next.cert, &pair.cert).expect("copied");
    check(&place, &[("with the new pair", not_trusted, true), ("with the old authority", trusted, false)]);
    std::fs::write(&pair.cert, "broken").expect("written");
    check(&place, &[("with a broken file", not_trusted, true)]);
    member.stop();
}

/// What a port says to one who asks without TLS, until it hangs up.
fn answer_without_tls(address: &str) -> Vec<u8> {
    let mut plain = std::net::TcpStream::connect(address).expect("it listens");
    let asked = b"GET /version HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n";
    let _ = std::io::Write::write_all(&mut plain, asked);
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    answer
}

#[test]
fn clients_are_let_in_by_the_certificates_they_show() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ours, other) = (Authority::new(directory.path(), "ours"), Authority::new(directory.path(), "other"));
    let server = ours.issue("member", &["127.0.0.1"]);
    let good = ours.issue("root", &["good.test"]);
    let revoked = ours.issue("gone", &["good.test"]);
    let elsewhere = ours.issue("root", &["elsewhere.test"]);
    let expired = ours.issue_until("root", &["good.test"], 2020);
    let foreign = other.issue("root", &["good.test"]);
    let mut flags = server_flags(&server);
    flags.extend([
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", ours.file),
        format!("--client-crl-file={}", ours.revoke(&revoked)),
        "--client-cert-allowed-hostname=first.test,good.test".to_owned(),
    ]);
    let (door, metrics) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    flags.extend([
        // Named twice, as lists that are put together may: that opens nothing to callers without TLS.
        format!("--listen-listwatch-urls=https://{door},https://{door}"),
        format!("--listen-metrics-urls=https://{metrics}"),
    ]);
    let place = Place::new();
    let member = start(directory.path(), &place, "https", &flags).ready();
    let with = |own| With { scheme: "https", authority: Some(&ours.file), own, ..With::default() };
    check(
        &place,
        &[
            ("a good certificate", with(Some(&good)), true),
            ("no certificate", with(None), false),
            ("one of another authority", with(Some(&foreign)), false),
            ("one that has run out", with(Some(&expired)), false),
            ("one that was revoked", with(Some(&revoked)), false),
            ("one for another host", with(Some(&elsewhere)), false),
        ],
    );
    for reason in [
        "the caller showed no certificate",
        "certificate expired",
        "Revoked",
        "UnknownIssuer",
        "elsewhere.test",
    ] {
        member.wait_for(reason);
    }
    let is_ok = |address: &str, path: &str| {
        get(address, path, &ours.file, Some(&good)).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    };
    wait_until("the list-watch door answers", || is_ok(&door, "/api/v1/namespaces/default"));
    assert!(is_ok(&metrics, "/metrics"));
    for address in [&door, &metrics] {
        let got_in = get(address, "/version", &ours.file, None);
        assert!(got_in.is_err(), "without a certificate: {got_in:?}");
        let answer = answer_without_tls(address);
        assert!(!answer.starts_with(b"HTTP/1.1"), "without TLS: {}", answer.escape_ascii());
    }

    // The same door as a process of its own, with TLS on both sides.
    let front = format!("127.0.0.1:{}", free_port());
    let mut tier = meerkat();
    tier.args(["listwatch", "--cert-file", &server.cert, "--key-file", &server.key])
        .args(["--trusted-ca-file", &ours.file, "--listen-urls", &format!("https://{front}")])
        .args(["--endpoints", &format!("https://{}", place.client), "--cacert", &ours.file])
        .args(["--cert", &good.cert, "--key", &good.key])
        .stderr(Stdio::null());
    let _tier = Running(tier.spawn().expect("the binary starts"));
    wait_until("the tier answers", || is_ok(&front, "/api/v1/namespaces/default"));
    assert!(get(&front, "/version", &ours.file, Some(&foreign)).is_err());
    member.stop();
}

#[test]
fn tls_on_a_plain_port_is_told_of_and_generated_certificates_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let (plain, auto) = (Place::new(), Place::new());
    let of_plain = start(directory.path(), &plain, "http", &[]);
    let flags = words(&["--auto-tls", "--self-signed-cert-validity=2"]);
    let of_auto = start(directory.path(), &auto, "https", &flags).ready();
    let of_plain = of_plain.ready();
    let https = With { scheme: "https", ..With::default() };
    check(&plain, &[("TLS", With { skips_check: true, ..https }, false)]);
    of_plain.wait_for("the caller speaks TLS, and this port does not: use http://");
    of_plain.wait_for("serving client traffic insecurely");
    of_plain.stop();

    let made = directory.path().join(auto.client.replace(':', "-")).join("fixtures/client/cert.pem");
    let before = std::fs::read_to_string(&made).expect("made");
    let made = made.display().to_string();
    of_auto.stop();
    let again = start(directory.path(), &auto, "https", &flags).ready();
    assert_eq!(std::fs::read_to_string(&made).expect("kept"), before);
    check(
        &auto,
        &[
            ("anybody", With { skips_check: true, ..https }, true),
            ("the one it made", With { authority: Some(&made), ..https }, true),
        ],
    );
    again.stop();
}

#[test]
fn a_port_named_with_both_schemes_serves_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = Authority::new(directory.path(), "ours");
    let pair = ours.issue("member", &["127.0.0.1"]);
    let (place, peer) = (Place::new(), Place::new().peer);
    let urls = format!("https://{0},http://{0}", place.client);
    let args = [
        format!("--listen-client-urls={urls}"),
        format!("--advertise-client-urls={urls}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--unsafe-no-fsync".to_owned(),
    ];
    let args: Vec<String> = args.into_iter().chain(server_flags(&pair)).collect();
    let member = Member::start(directory.path(), &args).ready();
    let https = With { scheme: "https", ..With::default() };
    check(
        &place,
        &[
            ("TLS", With { authority: Some(&ours.file), ..https }, true),
            ("without TLS", With { scheme: "http", ..With::default() }, true),
            ("TLS of whom it cannot check", https, false),
        ],
    );
    let health = get(&place.client, "/health", &ours.file, None).expect("an answer over TLS");
    assert!(health.contains("\"health\":\"true\""), "{health}");
    let mut plain = std::net::TcpStream::connect(&place.client).expect("it listens");
    // In two pieces: the first byte decides, whenever the others come.
    for piece in ["G", "ET /version HTTP/1.1\r\nHost: member\r\nConnection: close\r\n\r\n"] {
        std::io::Write::write_all(&mut plain, piece.as_bytes()).expect("sent");
    }
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut plain, &mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    member.stop();
}

#[test]
fn members_let_in_only_whom_their_list_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = Authority::new(directory.path(), "ours");
    let good = ours.issue("member", &["127.0.0.1"]);
    let wrong = ours.issue("stranger", &["127.0.0.1"]);
    let places = [Place::new(), Place::new(), Place::new()];
    let cluster: Vec<String> =
        places.iter().enumerate().map(|(at, place)| format!("m{at}=https://{}", place.peer)).collect();
    let start = |at: usize, pair: &Pair| {
        let place: &Place = &places[at];
        let args = [
            format!("--name=m{at}"),
            format!("--data-dir={}", directory.path().join(format!("m{at}")).display()),
            format!("--listen-client-urls=http://{}", place.client),
            format!("--advertise-client-urls=http://{}", place.client),
            format!("--listen-peer-urls=https://{}", place.peer),
            format!("--initial-advertise-peer-urls=https://{}", place.peer),
            format!("--initial-cluster={}", cluster.join(",")),
            format!("--peer-cert-file={}", pair.cert),
            format!("--peer-key-file={}", pair.key),
            format!("--peer-trusted-ca-file={}", ours.file),
            "--peer-client-cert-auth".to_owned(),
            "--peer-cert-allowed-cn=member".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ];
        Member::start(directory.path(), &args)
    };
    let (first, second) = (start(0, &good), start(1, &good));
    let kept_out = start(2, &wrong);
    let (first, second) = (first.ready(), second.ready());
    let tool = tool();
    let put = ask(&tool, &["--endpoints", &places[0].client, "--command-timeout=60s", "put", "key", "value"]);
    assert!(put.status.success(), "{}", stderr(&put));
    wait_until("a member has turned the stranger away", || {
        [&first, &second]
            .iter()
            .any(|member| member.logged("rejected connection on peer endpoint") && member.logged("stranger"))
    });
    assert!(!kept_out.logged("ready to serve client requests"), "the stranger is no member");
    // In the words of etcd and of Go, at both ends.
    wait_until("both ends tell", || {
        let at_one =
            [&first, &second].iter().any(|member| member.logged("client certificate authentication failed"));
        at_one && kept_out.logged("remote error: tls: bad certificate")
    });
    drop(kept_out);
    let third = start(2, &good).ready();
    let get = ask(
        &tool,
        &["--endpoints", &places[2].client, "--command-timeout=60s", "get", "key", "--print-value-only"],
    );
    assert_eq!(get.stdout, b"value\n", "{}", stderr(&get));
    for member in [third, second, first] {
        member.stop();
    }
}
