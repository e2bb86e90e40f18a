//! A domain of the tests' own: a name server on loopback, and programs that ask nobody else.
//!
//! It takes root: port 53, and a mount of `/etc/resolv.conf` that only the program sees.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{clean, run, skip};

const TYPE_A: u16 = 1;
const TYPE_SRV: u16 = 33;

/// A domain whose services are hosts and ports; every host is this machine.
pub struct Domain {
    /// What makes a program believe in it.
    resolv_conf: PathBuf,
}

impl Domain {
    /// Serves SRV records of name, target and port until the tests end. `None`, with a line that says so,
    /// if this machine does not let it.
    pub fn serve(directory: &Path, records: Vec<(String, String, u16)>) -> Option<Domain> {
        let ip = format!("127.53.{}.{}", rand::random::<u8>(), rand::random_range(1..255));
        let socket = match UdpSocket::bind((ip.as_str(), 53)) {
            Ok(socket) => socket,
            Err(error) => {
                skip(&format!("no name server at port 53: {error}"));
                return None;
            }
        };
        if !run(Command::new("unshare").args(["--mount", "true"]), b"").status.success() {
            skip("no mounts of a program's own here");
            return None;
        }
        let resolv_conf = directory.join("resolv.conf");
        let text = format!("nameserver {ip}\noptions timeout:10 attempts:3\n");
        std::fs::write(&resolv_conf, text).expect("written");
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                answer(&socket, &bytes[..length], from, &records);
            }
        });
        Some(Domain { resolv_conf })
    }

    /// One that nobody serves.
    pub fn gone(directory: &Path) -> Domain {
        let resolv_conf = directory.join("resolv.conf.gone");
        std::fs::write(&resolv_conf, "nameserver 127.53.0.0\noptions timeout:1 attempts:1\n")
            .expect("written");
        Domain { resolv_conf }
    }

    /// A program that asks this name server; it keeps the process id that it is started with.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = clean(Command::new("unshare"));
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script]).arg(&self.resolv_conf).arg(program);
        command
    }
}

fn answer(socket: &UdpSocket, asked: &[u8], from: SocketAddr, records: &[(String, String, u16)]) {
    let (labels, end) = name(asked);
    let Some([kind_high, kind_low, ..]) = asked.get(end..end + 4) else { return };
    let kind = u16::from_be_bytes([*kind_high, *kind_low]);
    let data: Vec<Vec<u8>> = match kind {
        TYPE_SRV => records.iter().filter(|(name, ..)| *name == labels).map(srv).collect(),
        TYPE_A if records.iter().any(|(_, target, _)| *target == labels) => vec![vec![127, 0, 0, 1]],
        _ => Vec::new(),
    };
    let is_known = records.iter().any(|(name, target, _)| [name, target].contains(&&labels));
    let code = if is_known { 0 } else { 3 };
    let mut bytes = asked[..2].to_vec();
    let count = u8::try_from(data.len()).expect("few");
    bytes.extend_from_slice(&[0x85, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    bytes.extend_from_slice(&asked[12..end + 4]);
    for record in data {
        bytes.extend_from_slice(&[0xc0, 12]);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 0, 0, 1]);
        bytes.extend_from_slice(&u16::try_from(record.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(&record);
    }
    // Whoever asked may be gone.
    drop(socket.send_to(&bytes, from));
}

/// The name of a question, and where it ends.
fn name(asked: &[u8]) -> (String, usize) {
    let mut labels = Vec::new();
    let mut at = 12;
    while let Some(length) = asked.get(at).map(|length| usize::from(*length)).filter(|length| *length != 0) {
        let label = asked.get(at + 1..at + 1 + length).unwrap_or_default();
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += 1 + length;
    }
    (labels.join("."), at + 1)
}

fn srv((_, target, port): &(String, String, u16)) -> Vec<u8> {
    let mut data = vec![0, 1, 0, 1];
    data.extend_from_slice(&port.to_be_bytes());
    for label in target.split('.') {
        data.push(u8::try_from(label.len()).expect("short"));
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
    data
}
