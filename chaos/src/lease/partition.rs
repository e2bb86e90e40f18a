//! Cuts one member off from its peers, both ways, without closing anything.
//!
//! Between the members stand doors: each listens where a member says its peers find it, and carries
//! bytes to where that member really listens. While a member is cut off, its doors and its own
//! connections through the doors of others carry nothing; what had been sent waits, and goes on when
//! the cut is healed, so that old messages arrive late, as they may. Clients are not affected.
//!
//! Whose a connection is, is found out from the kernel's tables, once, when it is opened. Members
//! must not be started again meanwhile: their processes are looked for at the beginning only.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Member};

const READY_WITHIN: Duration = Duration::from_secs(30);
const BUFFER_BYTES: usize = 64 << 10;

/// The doors between the members of one cluster.
#[derive(Debug)]
pub struct Partition {
    cut: watch::Sender<Option<usize>>,
    doors: Vec<JoinHandle<()>>,
}

/// Starts a cluster whose members speak to one another through doors.
pub async fn start(spec: &ClusterSpec) -> Result<(Cluster, Partition), Failure> {
    let mut cluster = Cluster::prepare(spec)?;
    let mut listeners = Vec::new();
    let mut urls = Vec::new();
    for _ in cluster.members() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        urls.push(format!("http://127.0.0.1:{}", listener.local_addr()?.port()));
        listeners.push(listener);
    }
    let each: Vec<String> = (0..urls.len()).map(|number| format!("m{number}={}", urls[number])).collect();
    let initial = format!("--initial-cluster={}", each.join(","));
    for (number, url) in urls.iter().enumerate() {
        let own = format!("--initial-advertise-peer-urls={url}");
        cluster.member(number).start_changed(&[initial.clone(), own])?;
    }
    // Whoever calls before the doors are kept waits in their queues.
    let processes = await_processes(&cluster).await?;
    let (cut, seen) = watch::channel(None);
    let mut doors = Vec::new();
    for (to, listener) in listeners.into_iter().enumerate() {
        let peer_port = cluster.members()[to].peer_port();
        let door = Door { to, peer_port, processes: processes.clone(), cut: seen.clone() };
        doors.push(tokio::spawn(door.keep(listener)));
    }
    let partition = Partition { cut, doors };
    cluster.wait_until_ready(READY_WITHIN).await?;
    Ok((cluster, partition))
}

impl Partition {
    /// Cuts a member off.
    pub fn cut_off(&self, member: usize) {
        self.cut.send_replace(Some(member));
    }

    /// Lets everybody speak again.
    pub fn heal(&self) {
        self.cut.send_replace(None);
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.doors.iter().for_each(JoinHandle::abort);
    }
}

/// One member's door.
#[derive(Clone, Debug)]
struct Door {
    to: usize,
    peer_port: u16,
    /// The directory of each member's process in `/proc`.
    processes: Vec<PathBuf>,
    cut: watch::Receiver<Option<usize>>,
}

impl Door {
    async fn keep(self, listener: TcpListener) {
        // An accept fails only for want of descriptors; the peers will try again.
        while let Ok((caller, _)) = listener.accept().await {
            tokio::spawn(self.clone().carry(caller));
        }
    }

    async fn carry(self, caller: TcpStream) {
        let Ok(address) = caller.peer_addr() else { return };
        let processes = self.processes.clone();
        let owner = tokio::task::spawn_blocking(move || owner_of(address.port(), &processes)).await;
        let from = owner.ok().flatten();
        let Ok(member) = TcpStream::connect(("127.0.0.1", self.peer_port)).await else { return };
        let (Ok(()), Ok(())) = (caller.set_nodelay(true), member.set_nodelay(true)) else { return };
        let ((caller_reads, caller_writes), (member_reads, member_writes)) =
            (caller.into_split(), member.into_split());
        let gate = Gate { ends: [from, Some(self.to)], cut: self.cut };
        tokio::select! {
            () = pump(caller_reads, member_writes, gate.clone()) => {}
            () = pump(member_reads, caller_writes, gate) => {}
        }
    }
}

/// Shut while one of its ends is cut off.
#[derive(Clone, Debug)]
struct Gate {
    ends: [Option<usize>; 2],
    cut: watch::Receiver<Option<usize>>,
}

impl Gate {
    /// Waits until nobody here is cut off. False once there is nothing left to wait for.
    async fn open(&mut self) -> bool {
        let ends = self.ends;
        self.cut.wait_for(|cut| cut.is_none() || !ends.contains(cut)).await.is_ok()
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: Gate) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        if !gate.open().await {
            return;
        }
        let count = match from.read(&mut buffer).await {
            Ok(count) if 0 < count => count,
            _ => return,
        };
        // The cut may have come while waiting for these bytes.
        if !gate.open().await || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits until every member's process runs the member's program: until then it is a copy of ours.
async fn await_processes(cluster: &Cluster) -> Result<Vec<PathBuf>, Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if let Some(processes) = processes_of(cluster)? {
            return Ok(processes);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Failure::harness("a member has no process"))
}

/// The processes of all members, known by the data directories in their command lines.
fn processes_of(cluster: &Cluster) -> Result<Option<Vec<PathBuf>>, Failure> {
    let commands: Vec<(PathBuf, String)> = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| Some((entry.path(), std::fs::read(entry.path().join("cmdline")).ok()?)))
        .map(|(path, command)| (path, String::from_utf8_lossy(&command).into_owned()))
        .collect();
    let process = |member: &Member| {
        let argument = format!("--data-dir={}", member.data_dir().display());
        let found = commands.iter().find(|(_, command)| command.split('\0').any(|one| one == argument));
        found.map(|(path, _)| path.clone())
    };
    Ok(cluster.members().iter().map(process).collect())
}

/// The member whose process opened a connection from this port.
fn owner_of(port: u16, processes: &[PathBuf]) -> Option<usize> {
    let inode = inode_of(&std::fs::read_to_string("/proc/net/tcp").ok()?, port)?;
    let socket = format!("socket:[{inode}]");
    processes.iter().position(|process| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.any(|link| link.to_string_lossy() == socket)
    })
}

/// The inode of the socket whose local port is this one.
fn inode_of(table: &str, port: u16) -> Option<u64> {
    let local = format!(":{port:04X}");
    let row = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = row.filter(|fields| fields.get(1).is_some_and(|address| address.ends_with(&local)));
    found.find_map(|fields| fields.get(9)?.parse().ok().filter(|inode| *inode != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_local_port_only() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0BB8 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 11 1\n\
            1: 0100007F:C350 0100007F:0BB8 01 00000000:00000000 00:00000000 00000000  1000        0 22 1\n";
        assert_eq!(inode_of(table, 50_000), Some(22));
        assert_eq!(inode_of(table, 3_000), Some(11));
        assert_eq!(inode_of(table, 3_001), None);
    }

    #[test]
    fn a_gate_is_shut_for_both_ends_of_a_cut_and_for_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (cut, seen) = watch::channel(Some(1));
            let shut = |ends| {
                let mut gate = Gate { ends, cut: seen.clone() };
                async move { tokio::time::timeout(Duration::from_millis(20), gate.open()).await.is_err() }
            };
            assert!(shut([Some(1), Some(0)]).await && shut([Some(2), Some(1)]).await);
            assert!(!shut([Some(0), Some(2)]).await && !shut([None, Some(2)]).await);
            cut.send_replace(None);
            assert!(!shut([Some(1), Some(0)]).await);
        });
    }
}
