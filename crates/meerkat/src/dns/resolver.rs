//! Whom to ask, and how often: the rules of `/etc/resolv.conf`.
//!
//! Each name server is asked over UDP, and over TCP if the answer was too long; one that is silent or broken
//! makes way for the next. A name that is not there is not looked for at another server, but with the next
//! domain of the search list.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::message::{self, Answer, Srv};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
/// More servers, dots, seconds or rounds than this are not believed, as by the C library.
const SERVERS_MAX: usize = 3;
const DOTS_MAX: usize = 15;
const TIMEOUT_MAX: u64 = 30;
const ROUNDS_MAX: u32 = 5;

/// Name servers and how to ask them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    /// Domains that a name may be short for.
    search: Vec<String>,
    /// A name with so many dots is taken for whole before it is tried with those.
    dots: usize,
    timeout: Duration,
    rounds: u32,
}

impl Resolver {
    /// As this machine is set up. Without a file, the machine itself is asked, as by the C library.
    pub fn of_system() -> Resolver {
        Resolver::from_conf(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
    }

    fn from_conf(conf: &str) -> Resolver {
        let mut resolver = Resolver {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: Duration::from_secs(5),
            rounds: 2,
        };
        for line in conf.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().and_then(server)),
                Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| resolver.option(option)),
                _ => {}
            }
        }
        resolver.servers.truncate(SERVERS_MAX);
        if resolver.servers.is_empty() {
            resolver.servers.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
        }
        resolver
    }

    fn option(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            "ndots" => self.dots = usize::try_from(value).unwrap_or(DOTS_MAX).min(DOTS_MAX),
            "timeout" => self.timeout = Duration::from_secs(u64::from(value).clamp(1, TIMEOUT_MAX)),
            "attempts" => self.rounds = value.clamp(1, ROUNDS_MAX),
            _ => {}
        }
    }

    #[cfg(test)]
    pub fn at(server: SocketAddr) -> Resolver {
        let one = Resolver { servers: vec![server], rounds: 1, ..Resolver::from_conf("") };
        Resolver { timeout: Duration::from_secs(20), ..one }
    }

    /// The SRV records of a name, the most wanted first and at least one; else why there are none, in the
    /// words that operators of etcd know.
    pub fn srv(&self, name: &str) -> Result<Vec<Srv>, String> {
        let mut reason = format!("lookup {name}: no such host");
        for whole in self.candidates(name) {
            match self.ask_any(&whole) {
                Ok(records) => return Ok(records),
                Err((server, why)) => reason = format!("lookup {name} on {server}: {why}"),
            }
        }
        Err(reason)
    }

    /// The names that a name may be short for, in the order in which they are tried.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let with = |domain: &String| format!("{name}.{}", domain.trim_end_matches('.'));
        let longer = self.search.iter().map(with);
        match self.dots <= name.matches('.').count() {
            true => std::iter::once(name.to_owned()).chain(longer).collect(),
            false => longer.chain(std::iter::once(name.to_owned())).collect(),
        }
    }

    fn ask_any(&self, name: &str) -> Result<Vec<Srv>, (SocketAddr, String)> {
        let mut last = None;
        for server in (0..self.rounds).flat_map(|_| &self.servers) {
            match self.ask(name, *server) {
                Ok(records) if records.is_empty() => return Err((*server, "no such host".to_owned())),
                Ok(records) => return Ok(records),
                Err(why) => last = Some((*server, why)),
            }
        }
        Err(last.expect("there is a server, and at least one round"))
    }

    /// The records of a name. A name that there is not has none.
    fn ask(&self, name: &str, server: SocketAddr) -> Result<Vec<Srv>, String> {
        let question = message::question(rand::random(), name)?;
        let first = self.ask_udp(&question, server)?;
        let answer = match first {
            Answer::TooLong => self.ask_tcp(&question, server)?,
            answer => answer,
        };
        match answer {
            Answer::Records(records) => Ok(records),
            Answer::NoSuchName => Ok(Vec::new()),
            Answer::TooLong | Answer::OfAnother => Err("server misbehaving".to_owned()),
        }
    }

    fn ask_udp(&self, question: &[u8], server: SocketAddr) -> Result<Answer, String> {
        let here: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
        let sent = || {
            let socket = UdpSocket::bind(here)?;
            // Only what that server sends is received then.
            socket.connect(server)?;
            socket.send(question)?;
            Ok(socket)
        };
        let socket = sent().map_err(told)?;
        let deadline = Instant::now() + self.timeout;
        let mut bytes = vec![0; usize::from(u16::MAX)];
        loop {
            let received = left(deadline).and_then(|left| {
                socket.set_read_timeout(Some(left))?;
                socket.recv(&mut bytes)
            });
            let length = match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received.map_err(told)?,
            };
            match message::answer(&bytes[..length], question)? {
                // A late one to somebody else's question, or a forged one: the right one may follow.
                Answer::OfAnother => {}
                answer => return Ok(answer),
            }
        }
    }

    fn ask_tcp(&self, question: &[u8], server: SocketAddr) -> Result<Answer, String> {
        let deadline = Instant::now() + self.timeout;
        let exchange = || {
            let mut stream = TcpStream::connect_timeout(&server, self.timeout)?;
            stream.set_write_timeout(Some(left(deadline)?))?;
            let length = u16::try_from(question.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes(), question].concat())?;
            let mut length = [0; 2];
            read_until(deadline, &mut stream, &mut length)?;
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            read_until(deadline, &mut stream, &mut answer)?;
            Ok(answer)
        };
        message::answer(&exchange().map_err(told)?, question)
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    Some((text.parse::<IpAddr>().ok()?, DNS_PORT).into())
}

/// The time until then, of which there must be some.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Fills the buffer, in however many parts it comes, but not for longer than that.
fn read_until(deadline: Instant, stream: &mut TcpStream, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer = &mut buffer[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn told(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_server::TestServer;
    use super::*;

    #[test]
    fn the_file_says_whom_to_ask_and_how() {
        let conf = "# x\nnameserver 10.0.0.1\nsearch a b\n  nameserver ::1\nnameserver nonsense\n\
                    options ndots:5 timeout:1 attempts:9 rotate\n";
        let resolver = Resolver::from_conf(conf);
        let servers: Vec<String> = resolver.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[::1]:53"]);
        assert_eq!((resolver.dots, resolver.timeout, resolver.rounds), (5, Duration::from_secs(1), 5));
        assert_eq!(Resolver::from_conf("").servers, [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }

    #[test]
    fn a_short_name_is_tried_with_the_search_list() {
        let check = |name: &str, expected: &[&str]| {
            let resolver = Resolver::from_conf("search x.y. z\noptions ndots:2");
            assert_eq!(resolver.candidates(name), expected, "{name}");
        };
        check("_s._tcp", &["_s._tcp.x.y", "_s._tcp.z", "_s._tcp"]);
        check("_s._tcp.d", &["_s._tcp.d", "_s._tcp.d.x.y", "_s._tcp.d.z"]);
        check("_s._tcp.d.", &["_s._tcp.d."]);
    }

    #[test]
    fn an_answer_that_is_too_long_is_fetched_over_tcp() {
        let targets: Vec<String> = (0..40).map(|at| format!("member-{at}.of.a.long.domain")).collect();
        let records: Vec<_> = targets.iter().map(|target| ("_s._tcp.d", target.as_str(), 1)).collect();
        let server = TestServer::start(&records);
        let found = Resolver::at(server.address()).srv("_s._tcp.d").expect("records");
        assert_eq!(found.len(), targets.len());
    }

    #[test]
    fn an_answer_that_never_ends_is_not_waited_for() {
        let server = TestServer::start_dripping();
        let resolver = Resolver { timeout: Duration::from_secs(1), ..Resolver::at(server.address()) };
        let reason = format!("lookup _s._tcp.d on {}: i/o timeout", server.address());
        assert_eq!(resolver.srv("_s._tcp.d"), Err(reason));
    }

    #[test]
    fn what_is_not_there_is_told_in_known_words() {
        let server = TestServer::start(&[("_s._tcp.d", "a", 1)]);
        let resolver = Resolver::at(server.address());
        let reason = format!("lookup _x._tcp.d on {}: no such host", server.address());
        assert_eq!(resolver.srv("_x._tcp.d"), Err(reason));
        assert!(resolver.srv("a..b").expect_err("no name").ends_with("no such host"));
    }

    #[test]
    fn a_silent_server_makes_way_for_the_next_and_a_forged_answer_for_the_right_one() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let server = TestServer::start_with_forgeries(&[("_s._tcp.d", "a", 1)]);
        let mut resolver = Resolver::at(silent.local_addr().expect("bound"));
        resolver.timeout = Duration::from_millis(300);
        let reason = format!("lookup _s._tcp.d on {}: i/o timeout", resolver.servers[0]);
        assert_eq!(resolver.srv("_s._tcp.d"), Err(reason));
        // Long enough for a busy machine.
        resolver.timeout = Duration::from_secs(3);
        resolver.servers.push(server.address());
        let found = resolver.srv("_s._tcp.d").expect("records");
        assert_eq!(found, [Srv { priority: 1, target: "a".to_owned(), port: 1 }]);
    }
}
