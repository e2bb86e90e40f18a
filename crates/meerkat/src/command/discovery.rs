//! `--discovery-srv`: the members of a cluster as a domain's SRV records name them.
//!
//! `_etcd-client-ssl._tcp.<domain>` names members to be talked to encrypted, `_etcd-client._tcp.<domain>`
//! those in clear. The name servers are those of `/etc/resolv.conf`; each is asked once, over UDP, and over
//! TCP if the answer was too long. An answer is somebody else's input: whatever is wrong with it is an error.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::failure::Failure;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
const TIMEOUT: Duration = Duration::from_secs(5);
const TYPE_SRV: u16 = 33;
const CLASS_INTERNET: u16 = 1;
/// Bounds a name whose compression points in circles.
const JUMPS_MAX: usize = 32;

/// What to look for, and what of it to take.
pub struct Discovery<'a> {
    pub domain: &'a str,
    /// Of several clusters in one domain, this one.
    pub service_name: Option<&'a str>,
    /// Take members that are to be talked to in clear, too.
    pub insecure: bool,
}

impl Discovery<'_> {
    /// The members that the domain names. Tells on stderr which of them are passed over.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        let conf = fs::read_to_string(RESOLV_CONF)
            .map_err(|error| self.failed(&format!("{RESOLV_CONF}: {error}")))?;
        self.endpoints_by(&name_servers(&conf))
    }

    fn endpoints_by(&self, servers: &[SocketAddr]) -> Result<Vec<Endpoint>, Failure> {
        let mut found = Vec::new();
        for (service, scheme) in [("etcd-client-ssl", "https"), ("etcd-client", "http")] {
            let suffix = self.service_name.map_or(String::new(), |name| format!("-{name}"));
            let name = format!("_{service}{suffix}._tcp.{}", self.domain.trim_end_matches('.'));
            let records = ask_any(&name, servers).map_err(|reason| self.failed(&reason))?;
            for Srv { target, port, .. } in records {
                let endpoint = format!("{scheme}://{target}:{port}");
                if scheme == "http" && !self.insecure {
                    eprintln!("ignoring discovered insecure endpoint {endpoint:?}");
                    continue;
                }
                found.push(Endpoint::parse(&endpoint)?);
            }
        }
        match found.is_empty() {
            true => Err(self.failed("it names no members to talk to")),
            false => Ok(found),
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::error(format!("--discovery-srv {}: {reason}", self.domain))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Srv {
    priority: u16,
    target: String,
    port: u16,
}

fn name_servers(conf: &str) -> Vec<SocketAddr> {
    let addresses = conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    addresses.filter_map(|text| text.trim().parse::<IpAddr>().ok()).map(|ip| (ip, DNS_PORT).into()).collect()
}

fn ask_any(name: &str, servers: &[SocketAddr]) -> Result<Vec<Srv>, String> {
    let mut reason = format!("no name server in {RESOLV_CONF}");
    for server in servers {
        match ask(name, *server) {
            Ok(records) => return Ok(records),
            Err(why) => reason = format!("{name} at {server}: {why}"),
        }
    }
    Err(reason)
}

/// The records of a name, the most wanted first. A name that there is not has none.
fn ask(name: &str, server: SocketAddr) -> Result<Vec<Srv>, String> {
    let id = rand::random();
    let question = question(id, name)?;
    let answer = ask_udp(&question, server).map_err(|error| error.to_string())?;
    let answer = match parse(&answer, id)? {
        Answer::TooLong => ask_tcp(&question, server).map_err(|error| error.to_string())?,
        Answer::Records(records) => return Ok(records),
    };
    match parse(&answer, id)? {
        Answer::Records(records) => Ok(records),
        Answer::TooLong => Err("its answer is too long for any message".to_owned()),
    }
}

fn ask_udp(question: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let here: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
    let socket = UdpSocket::bind(here)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // Only what that server sends is received then.
    socket.connect(server)?;
    socket.send(question)?;
    let mut answer = vec![0; usize::from(u16::MAX)];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn ask_tcp(question: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn question(id: u16, name: &str) -> Result<Vec<u8>, String> {
    const RECURSION_DESIRED: u16 = 0x0100;
    let mut bytes = Vec::new();
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length));
        bytes.push(length.ok_or_else(|| format!("{name:?} is no name"))?);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&TYPE_SRV.to_be_bytes());
    bytes.extend_from_slice(&CLASS_INTERNET.to_be_bytes());
    Ok(bytes)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Records(Vec<Srv>),
    TooLong,
}

fn parse(message: &[u8], id: u16) -> Result<Answer, String> {
    const TRUNCATED: u16 = 0x0200;
    const NO_SUCH_NAME: u16 = 3;
    let mut reader = Reader { message, at: 0 };
    let header: [u16; 6] = std::array::from_fn(|_| reader.word().unwrap_or_default());
    let [its_id, flags, questions, answers, ..] = header;
    if its_id != id || message.len() < 12 {
        return Err("it answered something else".to_owned());
    }
    match flags & 0x000f {
        0 => {}
        NO_SUCH_NAME => return Ok(Answer::Records(Vec::new())),
        code => return Err(format!("it refused with code {code}")),
    }
    if flags & TRUNCATED != 0 {
        return Ok(Answer::TooLong);
    }
    let garbled = || "its answer is garbled".to_owned();
    for _ in 0..questions {
        reader.name().ok_or_else(garbled)?;
        reader.skip(4).ok_or_else(garbled)?;
    }
    let mut records = Vec::new();
    for _ in 0..answers {
        records.extend(reader.record().ok_or_else(garbled)?);
    }
    records.sort();
    Ok(Answer::Records(records))
}

struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.message.len()).then_some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.message.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// The next record, if it is one of those that were asked for.
    fn record(&mut self) -> Option<Option<Srv>> {
        self.name()?;
        let (kind, class) = (self.word()?, self.word()?);
        self.skip(4)?;
        let length = usize::from(self.word()?);
        let end = self.at + length;
        if (kind, class) != (TYPE_SRV, CLASS_INTERNET) {
            self.skip(length)?;
            return Some(None);
        }
        let (priority, _weight, port) = (self.word()?, self.word()?, self.word()?);
        let target = self.name()?;
        self.at = end;
        (end <= self.message.len()).then_some(Some(Srv { priority, target, port }))
    }

    /// A name, which may go on at an earlier place of the message.
    fn name(&mut self) -> Option<String> {
        let mut labels = Vec::new();
        let mut back_to = None;
        let mut jumps = 0;
        loop {
            let length = self.byte()?;
            match length {
                0 => break,
                0xc0.. => {
                    let low = self.byte()?;
                    back_to.get_or_insert(self.at);
                    self.at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    jumps += 1;
                    if JUMPS_MAX < jumps {
                        return None;
                    }
                }
                length => {
                    let label = self.message.get(self.at..self.at + usize::from(length))?;
                    labels.push(String::from_utf8_lossy(label).into_owned());
                    self.at += usize::from(length);
                }
            }
        }
        self.at = back_to.unwrap_or(self.at);
        Some(labels.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to a question, its records' targets pointing into it.
    fn answer(question: &[u8], records: &[(u16, u16, &str)]) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2] |= 0x80;
        bytes[7] = u8::try_from(records.len()).expect("few");
        for (priority, port, host) in records {
            // The name of the question, by its place.
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&[0, 33, 0, 1, 0, 0, 0, 60]);
            let mut data: Vec<u8> =
                [*priority, 0, *port].iter().flat_map(|word| word.to_be_bytes()).collect();
            data.push(u8::try_from(host.len()).expect("short"));
            data.extend_from_slice(host.as_bytes());
            data.push(0);
            bytes.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
            bytes.extend_from_slice(&data);
        }
        bytes
    }

    #[test]
    fn records_come_in_the_order_of_their_priority_and_garbage_is_refused() {
        let question = question(7, "_etcd-client._tcp.example.org").expect("a name");
        let good = answer(&question, &[(2, 2379, "b"), (1, 2380, "a")]);
        let records = match parse(&good, 7) {
            Ok(Answer::Records(records)) => records,
            other => panic!("{other:?}"),
        };
        let seen: Vec<_> = records.iter().map(|srv| (srv.target.as_str(), srv.port)).collect();
        assert_eq!(seen, [("a", 2380), ("b", 2379)]);
        assert!(parse(&good, 8).is_err(), "an answer to another question");
        for length in 0..good.len() {
            assert!(parse(&good[..length], 7).is_err(), "cut off at {length}");
        }
        let mut circle = good;
        circle[12..14].copy_from_slice(&[0xc0, 12]);
        assert!(parse(&circle, 7).is_err(), "a name that points at itself");
    }

    #[test]
    fn a_domain_names_its_members_and_which_of_them_to_encrypt() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let server = socket.local_addr().expect("bound");
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let secure = bytes[..length].windows(4).any(|part| part == b"-ssl");
                let host = if secure { "s" } else { "p" };
                socket.send_to(&answer(&bytes[..length], &[(1, 2379, host)]), from).expect("sent");
            }
        });
        let found = |insecure| {
            let discovery = Discovery { domain: "example.org.", service_name: Some("x"), insecure };
            let endpoints = discovery.endpoints_by(&[server]).expect("members");
            endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(true), ["https://s:2379", "http://p:2379"]);
        assert_eq!(found(false), ["https://s:2379"]);
        let nowhere = Discovery { domain: "example.org", service_name: None, insecure: true };
        let reason = "--discovery-srv example.org: no name server in /etc/resolv.conf";
        assert_eq!(nowhere.endpoints_by(&[]).expect_err("nobody to ask").message, reason);
    }

    #[test]
    fn name_servers_are_those_of_the_resolver() {
        let conf = "# x\nnameserver 10.0.0.1\nsearch a b\n  nameserver ::1\nnameserver nonsense\n";
        assert_eq!(
            name_servers(conf).iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.1:53", "[::1]:53"]
        );
    }
}
