//! A name server for tests: SRV records on a loopback port, over UDP and TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// What does not fit is left out, and its absence told.
const UDP_BYTES_MAX: usize = 512;

/// Of an answer that comes a byte at a time: between two, and how many before it is broken off. Together
/// longer than any test waits.
const DRIP_INTERVAL: Duration = Duration::from_millis(20);
const DRIPS_MAX: usize = 1_500;

/// An answer to a question, with records of priority, target and port.
pub fn answer_with(question: &[u8], records: &[(u16, &str, u16)]) -> Vec<u8> {
    let mut bytes = question.to_vec();
    bytes[2] |= 0x80;
    bytes[7] = u8::try_from(records.len()).expect("few");
    for (priority, target, port) in records {
        // The name of the question, by its place.
        bytes.extend_from_slice(&[0xc0, 12]);
        bytes.extend_from_slice(&[0, 33, 0, 1, 0, 0, 0, 60]);
        let mut data: Vec<u8> = [*priority, 0, *port].iter().flat_map(|word| word.to_be_bytes()).collect();
        for label in target.split('.').filter(|label| !label.is_empty()) {
            data.push(u8::try_from(label.len()).expect("short"));
            data.extend_from_slice(label.as_bytes());
        }
        data.push(0);
        bytes.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(&data);
    }
    bytes
}

pub struct TestServer {
    address: SocketAddr,
}

type Records = Vec<(String, String, u16)>;

impl TestServer {
    /// Serves these, of name, target and port, until the test's process ends.
    pub fn start(records: &[(&str, &str, u16)]) -> TestServer {
        TestServer::run(records, false)
    }

    /// As [`TestServer::start`], with a wrong answer before each right one.
    pub fn start_with_forgeries(records: &[(&str, &str, u16)]) -> TestServer {
        TestServer::run(records, true)
    }

    /// Whose answers fit into no datagram, and come by the byte, and never to an end, over TCP.
    pub fn start_dripping() -> TestServer {
        let (stream, socket) = bind_both();
        let address = stream.local_addr().expect("bound");
        std::thread::spawn(move || {
            for connection in stream.incoming() {
                let mut connection = connection.expect("a connection");
                // Who asked goes away when it has waited enough.
                for byte in std::iter::repeat_n(u8::MAX, DRIPS_MAX) {
                    if connection.write_all(&[byte]).is_err() {
                        break;
                    }
                    std::thread::sleep(DRIP_INTERVAL);
                }
            }
        });
        std::thread::spawn(move || {
            let mut bytes = [0; UDP_BYTES_MAX];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                socket.send_to(&cut_short(bytes[..length].to_vec(), length), from).expect("sent");
            }
        });
        TestServer { address }
    }

    fn run(records: &[(&str, &str, u16)], forges: bool) -> TestServer {
        let row =
            |(name, target, port): &(&str, &str, u16)| ((*name).to_owned(), (*target).to_owned(), *port);
        let records: Arc<Records> = Arc::new(records.iter().map(row).collect());
        let (stream, socket) = bind_both();
        let address = stream.local_addr().expect("bound");
        let of_stream = records.clone();
        std::thread::spawn(move || {
            for connection in stream.incoming() {
                let mut connection = connection.expect("a connection");
                let mut length = [0; 2];
                connection.read_exact(&mut length).expect("a length");
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                connection.read_exact(&mut question).expect("a question");
                let answer = reply(&question, &of_stream);
                let length = u16::try_from(answer.len()).expect("a message").to_be_bytes();
                connection.write_all(&[&length, &answer[..]].concat()).expect("sent");
            }
        });
        std::thread::spawn(move || {
            let mut bytes = [0; UDP_BYTES_MAX];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let mut answer = reply(&bytes[..length], &records);
                if UDP_BYTES_MAX < answer.len() {
                    answer = cut_short(answer, length);
                }
                if forges {
                    let mut forged = answer_with(&bytes[..length], &[(1, "forged", 1)]);
                    forged[0] ^= 1;
                    socket.send_to(&forged, from).expect("sent");
                }
                socket.send_to(&answer, from).expect("sent");
            }
        });
        TestServer { address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// One port, for streams and for datagrams. That it is free for the one says nothing about the other.
fn bind_both() -> (TcpListener, UdpSocket) {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = stream.local_addr().expect("bound");
        if let Ok(socket) = UdpSocket::bind(address) {
            return (stream, socket);
        }
    }
}

/// An answer with nothing in it but the question, which has that length, and word that there is more.
fn cut_short(mut answer: Vec<u8>, length: usize) -> Vec<u8> {
    answer.truncate(length);
    answer[2] |= 0x82;
    answer[7] = 0;
    answer
}

fn reply(question: &[u8], records: &Records) -> Vec<u8> {
    let asked = String::from_utf8_lossy(&question[12..question.len() - 4]);
    let asked: String =
        asked.chars().map(|c| if c.is_control() || c == '\u{fffd}' { '.' } else { c }).collect();
    let is_asked = |name: &str| asked.trim_matches('.') == name;
    let found: Vec<(u16, &str, u16)> = records
        .iter()
        .filter(|(name, ..)| is_asked(name))
        .map(|(_, target, port)| (1, target.as_str(), *port))
        .collect();
    let mut answer = answer_with(question, &found);
    if found.is_empty() {
        answer[3] |= 3;
    }
    answer
}
