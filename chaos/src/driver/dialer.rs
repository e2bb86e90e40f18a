//! Which connections of this machine belong to a process, read from `/proc`.
//!
//! All members of a cluster dial from 127.0.0.1, so only this tells one that is to be cut off from
//! those that are not.

use std::collections::HashSet;

use crate::Failure;

/// The local ports of all TCP sockets that a process holds.
pub fn ports_of(pid: u32) -> Result<HashSet<u16>, Failure> {
    let mut sockets = HashSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may close while the list is read.
        let Ok(link) = entry.and_then(|entry| std::fs::read_link(entry.path())) else { continue };
        sockets.extend(link.to_str().and_then(socket_of));
    }
    let mut ports = HashSet::new();
    for table in ["tcp", "tcp6"] {
        // A machine without IPv6 has no such table.
        let Ok(table) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else { continue };
        ports
            .extend(table.lines().filter_map(row_of).filter(|row| sockets.contains(&row.1)).map(|row| row.0));
    }
    Ok(ports)
}

/// Which of these processes holds the socket whose local port is this one.
pub fn owner_of(port: u16, pids: &[u32]) -> Option<u32> {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/self/net/{table}")));
    let rows = tables.iter().flatten().flat_map(|table| table.lines().filter_map(row_of));
    // A connection that ended keeps its row for a while, without a socket.
    let sockets: HashSet<u64> =
        rows.filter(|(local, socket)| *local == port && *socket != 0).map(|(_, socket)| socket).collect();
    pids.iter().copied().find(|pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.filter_map(|link| link.to_str().and_then(socket_of)).any(|socket| sockets.contains(&socket))
    })
}

fn socket_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The local port and the socket of one row of the kernel's table.
fn row_of(row: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = row.split_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    Some((u16::from_str_radix(port, 16).ok()?, fields.get(9)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_kernels_table_is_read_and_its_heading_is_not() {
        let row =
            "  1: 0100007F:2A30 0100007F:94B2 01 00000000:00000000 00:00000000 00000000  0  0 99 1 0 20";
        assert_eq!(row_of(row), Some((0x2A30, 99)));
        assert_eq!(row_of("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), None);
        assert_eq!((socket_of("socket:[12]"), socket_of("pipe:[12]")), (Some(12), None));
    }

    #[test]
    fn a_port_this_process_listens_on_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert!(ports_of(std::process::id()).expect("own sockets").contains(&port));
        assert_eq!(owner_of(port, &[1, std::process::id()]), Some(std::process::id()));
        drop(listener);
        assert!(!ports_of(std::process::id()).expect("own sockets").contains(&port));
        assert_eq!(owner_of(port, &[std::process::id()]), None);
    }
}
