//! `--socket-reuse-port`: ports that several processes have open.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::net::{TcpListener, TcpSocket};

use crate::member::{Place, links};
use crate::process::{Running, clean, collect, etcd_program, wait_until};

/// Runs until it has said one of these; which.
fn outcome(program: &Path, directory: &Path, place: &Place, switch: &str, outcomes: [&str; 2]) -> usize {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    let mut command = clean(Command::new(program));
    command.current_dir(directory).stderr(Stdio::piped()).args([
        switch,
        &format!("--listen-client-urls={client}"),
        &format!("--advertise-client-urls={client}"),
        &format!("--listen-peer-urls={peer}"),
        &format!("--initial-advertise-peer-urls={peer}"),
        &format!("--initial-cluster=default={peer}"),
    ]);
    let mut process = Running(command.spawn().expect("it starts"));
    let log = collect(process.0.stderr.take().expect("piped"));
    let mut which = None;
    wait_until(&format!("{} says one of {outcomes:?}", program.display()), || {
        let said = log.lock().expect("no writer panics").to_lowercase();
        which = outcomes.iter().position(|text| said.contains(text));
        which.is_some()
    });
    drop(process);
    std::fs::remove_dir_all(directory.join("default.etcd")).unwrap_or_default();
    which.expect("just seen")
}

fn listen(address: &str, reuse_port: bool) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    // As every server: it does not let two listen.
    socket.set_reuseaddr(true).expect("set");
    socket.set_reuseport(reuse_port).expect("set");
    socket.bind(address.parse().expect("an address")).expect("free");
    socket.listen(16).expect("open")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_shares_its_ports_only_if_told_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = links(directory.path()).join("etcd");
    let programs: Vec<PathBuf> = std::iter::once(ours).chain(etcd_program("etcd")).collect();
    const OUTCOMES: [&str; 2] = ["ready to serve client requests", "address already in use"];
    for program in &programs {
        for (switch, shared_by_other, expected) in [
            ("--socket-reuse-port", true, 0),
            ("--socket-reuse-port=true", false, 1),
            ("--socket-reuse-port=false", true, 1),
            ("--socket-reuse-address", true, 1),
        ] {
            let place = Place::new();
            let others = [&place.client, &place.peer].map(|address| listen(address, shared_by_other));
            let got = outcome(program, directory.path(), &place, switch, OUTCOMES);
            assert_eq!(got, expected, "{} {switch} beside {others:?}", program.display());
        }
    }
}
