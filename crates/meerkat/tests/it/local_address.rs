//! `--set-member-localaddr`: from where a member dials the others.

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use crate::member::{Member, Place};
use crate::process::{PATIENCE, skip};

/// An address of this machine that others could find. Nothing is sent: the system only looks up its routes.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

/// One of two, that is to dial the other, which is this test.
fn start(directory: &std::path::Path, advertised: &str, other: &TcpListener, switch: &str) -> Member {
    let place = Place::new();
    let port = place.peer.rsplit(':').next().expect("a port").to_owned();
    let client = format!("http://{}", place.client);
    let own = format!("http://{advertised}:{port}");
    let other = format!("http://{}", other.local_addr().expect("open"));
    Member::start(
        directory,
        &[
            "--name=one".to_owned(),
            switch.to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls=http://127.0.0.1:{port}"),
            format!("--initial-advertise-peer-urls={own}"),
            format!("--initial-cluster=one={own},two={other}"),
        ],
    )
}

/// Where the first connection comes from.
fn caller(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).expect("set");
    let start = Instant::now();
    loop {
        if let Ok((_, from)) = listener.accept() {
            return from.ip().to_string();
        }
        assert!(start.elapsed() < PATIENCE, "nobody dials");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn members_are_dialled_from_the_address_that_is_advertised() {
    let directory = tempfile::tempdir().expect("a directory");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let Some(own) = own_address() else {
        skip("this machine has no address but loopback");
        return;
    };
    for (switch, expected) in [
        ("--set-member-localaddr", own.as_str()),
        ("--feature-gates=SetMemberLocalAddr=true", own.as_str()),
        ("--experimental-set-member-localaddr=false", "127.0.0.1"),
    ] {
        let member = start(directory.path(), &own, &other, switch);
        assert_eq!(caller(&other), expected, "{switch}");
        drop(member);
        std::fs::remove_dir_all(directory.path().join("one.etcd")).expect("its data");
        while other.accept().is_ok() {}
    }
}

#[test]
fn without_an_address_that_others_could_find_the_system_picks() {
    let directory = tempfile::tempdir().expect("a directory");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let member = start(directory.path(), "127.0.0.1", &other, "--set-member-localaddr");
    assert_eq!(caller(&other), "127.0.0.1");
    member.wait_for("unable to set a member local address due to lack of suitable local addresses");
}
