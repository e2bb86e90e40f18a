//! Which loopback ports the members of a throw-away cluster take.
//!
//! etcd's own example ports if they are free (2379, 22379, 32379, …), others if not. A cluster that
//! keeps its data keeps its ports too: they are part of its membership.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub client: u16,
    pub peer: u16,
    /// Of the list-watch door, if it is to have one.
    pub listwatch: Option<u16>,
}

impl Ports {
    pub fn client_authority(self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    pub fn client_url(self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    pub fn listwatch_url(self) -> Option<String> {
        self.listwatch.map(|port| format!("http://127.0.0.1:{port}"))
    }

    pub fn peer_url(self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }
}

/// Ports one after the other from `base` on; refused if one is taken.
pub fn fixed(nodes: u16, base: u16) -> Result<Vec<Ports>, String> {
    let port =
        |offset: u16| base.checked_add(offset).ok_or_else(|| format!("--base-port {base} is too high"));
    let of = |node: u16| {
        Ok(Ports {
            client: port(2 * node)?,
            peer: port(2 * node + 1)?,
            listwatch: Some(port(2 * nodes + node)?),
        })
    };
    let ports: Result<Vec<Ports>, String> = (0..nodes).map(of).collect();
    require_free(ports?)
}

/// etcd's example ports where free, any free ones where not.
pub fn free(nodes: u16) -> io::Result<Vec<Ports>> {
    // Held until all are chosen, so that no port is chosen twice.
    let mut held = Vec::new();
    let mut take = |preferred: Option<u16>| -> io::Result<u16> {
        let listener = preferred.and_then(|port| listen(port).ok()).map_or_else(|| listen(0), Ok)?;
        let port = listener.local_addr()?.port();
        held.push(listener);
        Ok(port)
    };
    let mut of = |node| {
        Ok(Ports {
            client: take(example(node, 2379))?,
            peer: take(example(node, 2380))?,
            listwatch: Some(take(example(node, 2378))?),
        })
    };
    (0..nodes).map(&mut of).collect()
}

/// Ports that nobody else is likely to take while a member is dead: outgoing connections get theirs
/// from a range above these. The search begins at a place of this process's own.
pub fn lasting(nodes: u16) -> io::Result<Vec<Ports>> {
    let span = u32::from(LASTING_END - LASTING_FIRST);
    let start = std::process::id().wrapping_mul(31) % span;
    let candidates = (0..span).map(|step| LASTING_FIRST + ((start + step) % span) as u16);
    let mut free = candidates.filter(|port| listen(*port).is_ok());
    let mut take = || free.next().ok_or_else(|| io::Error::other("loopback has no free port"));
    (0..nodes).map(|_| Ok(Ports { client: take()?, peer: take()?, listwatch: None })).collect()
}

/// Above the services of a usual machine, below where Linux begins with outgoing connections.
const LASTING_FIRST: u16 = 12_000;
const LASTING_END: u16 = 32_000;

/// The ports written down in a data directory, if there is one with a cluster in it.
pub fn remembered(directory: &Path) -> Result<Option<Vec<Ports>>, String> {
    let text = match std::fs::read_to_string(directory.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", directory.join(FILE).display())),
    };
    let line = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse().ok());
        let (client, peer) = (numbers.next()??, numbers.next()??);
        // Older directories have none.
        let listwatch = numbers.next().map_or(Some(None), |number| number.map(Some))?;
        Some(Ports { client, peer, listwatch })
    };
    let ports: Option<Vec<Ports>> = text.lines().map(line).collect();
    let ports = ports.ok_or_else(|| format!("{} is not a list of ports", directory.join(FILE).display()))?;
    require_free(ports).map(Some)
}

pub fn remember(directory: &Path, ports: &[Ports]) -> io::Result<()> {
    let line = |ports: &Ports| match ports.listwatch {
        Some(listwatch) => format!("{} {} {listwatch}\n", ports.client, ports.peer),
        None => format!("{} {}\n", ports.client, ports.peer),
    };
    let lines: String = ports.iter().map(line).collect();
    std::fs::write(directory.join(FILE), lines)
}

const FILE: &str = "ports";

/// The port of the n-th member in etcd's examples.
fn example(node: u16, first: u16) -> Option<u16> {
    match node {
        0 => Some(first),
        node => (node + 1).checked_mul(10_000)?.checked_add(first),
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn require_free(ports: Vec<Ports>) -> Result<Vec<Ports>, String> {
    let all = ports.iter().flat_map(|ports| [Some(ports.client), Some(ports.peer), ports.listwatch]);
    for port in all.flatten() {
        listen(port).map_err(|error| format!("port {port}: {error}"))?;
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Looking whether a port is free takes it for a moment; two tests that look at once would find
    /// each other.
    fn alone() -> MutexGuard<'static, ()> {
        static LOOKING: Mutex<()> = Mutex::new(());
        LOOKING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn nine_members_get_twenty_seven_different_ports() {
        let _alone = alone();
        let ports = free(9).expect("loopback has free ports");
        let of = |ports: &Ports| [Some(ports.client), Some(ports.peer), ports.listwatch];
        let mut all: Vec<u16> = ports.iter().flat_map(of).flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 27);
    }

    #[test]
    fn lasting_ports_differ_and_lie_below_those_of_outgoing_connections() {
        let _alone = alone();
        let ports = lasting(9).expect("loopback has free ports");
        let mut all: Vec<u16> = ports.iter().flat_map(|ports| [ports.client, ports.peer]).collect();
        assert!(all.iter().all(|port| (LASTING_FIRST..LASTING_END).contains(port)), "{all:?}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 18);
    }

    #[test]
    fn the_examples_are_etcds() {
        assert_eq!(
            (example(0, 2379), example(1, 2379), example(2, 2379)),
            (Some(2379), Some(22379), Some(32379))
        );
        assert_eq!(example(6, 2379), None, "there is no port 72379");
    }

    #[test]
    fn a_taken_port_is_refused_by_its_number() {
        let taken = listen(0).expect("a free port");
        let base = taken.local_addr().expect("bound").port();
        let refusal = fixed(1, base).expect_err("the port is taken");
        assert!(refusal.starts_with(&format!("port {base}: ")), "{refusal}");
    }

    #[test]
    fn a_kept_cluster_keeps_its_ports() {
        let _alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(remembered(directory.path()), Ok(None));
        let ports = free(3).expect("free ports");
        remember(directory.path(), &ports).expect("written");
        assert_eq!(remembered(directory.path()), Ok(Some(ports)));
    }
}
