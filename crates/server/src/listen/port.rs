//! One open socket, and the handshakes of those that came in at it.
//!
//! A port that clients may come in at with TLS and without looks at the first byte that each caller sends.
//!
//! A handshake never keeps others from being accepted: each runs in a task of its own, with a time
//! limit, and [`Port::accept`] gives whichever is done first. When as many are under way as there may
//! be, others wait in the system's queue. So does who comes for a place among the clients, or among the
//! members, when there is none left.

use super::{Listener, Places, Socket};
use crate::config::{MemberUrl, NetworkOptions};
use crate::open_files;
use crate::tls::{Acceptor, Keys};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::socket::Stream;

/// Handshakes under way at one port. Each holds some kilobytes for at most ten seconds.
const HANDSHAKES_MAX: usize = 4_096;

/// As etcd: who is gone without a word, as a machine without power is, is asked for as often as this.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connections that may wait to be accepted at a port that is shared; the system's own bound may be lower.
const BACKLOG: u32 = 4_096;

/// What callers at a socket in the file system are said to come from.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {url}: {source}; is another process using the port?")]
pub struct ListenError {
    url: String,
    source: io::Error,
}

/// An open port of a member.
pub struct Port {
    open: Open,
    tls: Option<Acceptor>,
    /// Whether callers may do without TLS where there is TLS.
    or_plain: bool,
    /// One for each connection that may be open, shared with other ports of its kind.
    places: Arc<Places>,
    handshakes: JoinSet<Option<(Socket, SocketAddr)>>,
}

enum Open {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Open {
    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Open::Tcp(listener) => listener.accept().await.map(|(stream, from)| (Stream::Tcp(stream), from)),
            Open::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), NOWHERE))
            }
        }
    }
}

/// Binds every address that the URLs' hosts resolve to, for clients.
///
/// # Errors
/// If one cannot be bound; it is named.
pub async fn bind_client(
    urls: &[MemberUrl],
    keys: &Keys,
    network: NetworkOptions,
) -> Result<Vec<Port>, ListenError> {
    let wanted = wanted(urls, |url| keys.for_client(url));
    bind(wanted, open_files::places_of_clients(), network).await
}

/// Each address once, however many URLs name it.
fn wanted(urls: &[MemberUrl], acceptor: impl Fn(&MemberUrl) -> Option<Acceptor>) -> Vec<Wanted<'_>> {
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for url in urls {
        let tls = acceptor(url);
        let is_other =
            |other: &&mut Wanted<'_>| url.host_and_port().is_some() && other.url.address() == url.address();
        match wanted.iter_mut().find(is_other) {
            // Only a URL that says `http://` opens the address to callers without TLS.
            Some(same) => {
                let or_plain = same.or_plain || same.tls.is_some() != tls.is_some();
                *same = Wanted { tls: same.tls.take().or(tls), or_plain, ..*same };
            }
            None => wanted.push(Wanted { url, tls, or_plain: false }),
        }
    }
    wanted
}

/// As [`bind_client`], for other members.
///
/// # Errors
/// If one cannot be bound; it is named.
pub async fn bind_peer(
    urls: &[MemberUrl],
    keys: &Keys,
    network: NetworkOptions,
) -> Result<Vec<Port>, ListenError> {
    let wanted = urls.iter().map(|url| Wanted { url, tls: keys.for_peer(url), or_plain: false });
    bind(wanted.collect(), open_files::places_of_peers(), network).await
}

/// An address, and how callers are to speak there.
struct Wanted<'a> {
    url: &'a MemberUrl,
    tls: Option<Acceptor>,
    or_plain: bool,
}

async fn bind(
    wanted: Vec<Wanted<'_>>,
    places: Arc<Places>,
    network: NetworkOptions,
) -> Result<Vec<Port>, ListenError> {
    let mut ports = Vec::new();
    for Wanted { url, tls, or_plain } in wanted {
        let opened =
            open(url, network).await.map_err(|source| ListenError { url: url.to_string(), source })?;
        let port = |open| {
            let (tls, places) = (tls.clone(), places.clone());
            Port { open, tls, or_plain, places, handshakes: JoinSet::new() }
        };
        ports.extend(opened.into_iter().map(port));
    }
    Ok(ports)
}

/// A host with an IPv4 and an IPv6 address needs only one of them to work: containers often lack the
/// other.
async fn open(url: &MemberUrl, network: NetworkOptions) -> io::Result<Vec<Open>> {
    let Some((_, port)) = url.host_and_port() else { return open_file(url).map(|it| vec![it]) };
    let addresses = tokio::net::lookup_host((url.bare_host().unwrap_or_default(), port)).await?;
    let mut opened = Vec::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        let listening = match network.reuse_port {
            true => listen_beside_others(address),
            false => TcpListener::bind(address).await,
        };
        match listening {
            Ok(listener) => opened.push(Open::Tcp(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => last_error = error,
        }
    }
    if opened.is_empty() { Err(last_error) } else { Ok(opened) }
}

/// SO_REUSEADDR has every listener, as etcd's do: a port is free though its old connections linger.
fn listen_beside_others(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// As in etcd, a socket that was left behind is taken over. Anything else at its place is not.
fn open_file(url: &MemberUrl) -> io::Result<Open> {
    use std::os::unix::fs::FileTypeExt;
    let path = url.socket_path().unwrap_or_default();
    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        if std::os::unix::net::UnixStream::connect(&path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(&path)?;
    }
    UnixListener::bind(&path).map(Open::Unix)
}

impl Port {
    /// Where it is open.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.open {
            Open::Tcp(listener) => listener.local_addr(),
            Open::Unix(_) => Ok(NOWHERE),
        }
    }
}

/// The next connection, once there is a place for it.
async fn accept(open: &Open, places: &Places) -> io::Result<(Stream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.take().await?;
    let (stream, from) = open.accept().await?;
    Ok((stream, from, place))
}

impl Listener for Port {
    type Io = Socket;

    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        let Some(tls) = &self.tls else {
            let (stream, from, place) = accept(&self.open, &self.places).await?;
            return Ok((Socket::plain(stream, from, place), from));
        };
        loop {
            let has_room = self.handshakes.len() < HANDSHAKES_MAX;
            tokio::select! {
                accepted = accept(&self.open, &self.places), if has_room => {
                    let (stream, from, place) = accepted?;
                    let (tls, or_plain) = (tls.clone(), self.or_plain);
                    self.handshakes.spawn(async move {
                        if or_plain && !stream.begins_with_tls().await? {
                            return Some((Socket::plain(stream, from, place), from));
                        }
                        let greeted = tls.greet(stream, from).await?;
                        Some((Socket::encrypted(greeted, place), from))
                    });
                }
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(socket)) = done {
                        return Ok(socket);
                    }
                }
            }
        }
    }

    fn hurry(io: &Socket) -> io::Result<()> {
        let Some(tcp) = io.tcp() else { return Ok(()) };
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        SockRef::from(tcp).set_tcp_keepalive(&keepalive)
    }

    fn is_encrypted(io: &Socket) -> bool {
        io.is_encrypted()
    }

    fn common_name(io: &Socket) -> Option<Arc<str>> {
        io.common_name()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Open::Unix(listener) = &self.open
            && let Ok(at) = listener.local_addr()
            && let Some(path) = at.as_pathname()
        {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    fn plain(urls: &[MemberUrl]) -> Vec<Wanted<'_>> {
        urls.iter().map(|url| Wanted { url, tls: None, or_plain: false }).collect()
    }

    #[tokio::test]
    async fn a_connection_is_asked_after_by_the_system() {
        let url = MemberUrl::parse("http://127.0.0.1:0").expect("a URL");
        let places = Arc::new(Places::new("tests", 1));
        let mut ports = bind(plain(&[url]), places, NetworkOptions::default()).await.expect("a port");
        let _client = TcpStream::connect(ports[0].local_addr().expect("open")).await.expect("it listens");
        let (socket, _) = ports[0].accept().await.expect("a connection");
        Port::hurry(&socket).expect("it is open");
        let tcp = SockRef::from(socket.tcp().expect("over TCP"));
        assert!(tcp.keepalive().expect("known") && tcp.tcp_nodelay().expect("known"));
        assert_eq!(tcp.tcp_keepalive_time().expect("known"), KEEPALIVE);
    }

    #[tokio::test]
    async fn a_port_is_shared_by_those_who_all_say_so() {
        let shared = NetworkOptions { reuse_port: true, ..NetworkOptions::default() };
        let open = async |port: u16, network| {
            let url = MemberUrl::parse(&format!("http://127.0.0.1:{port}")).expect("a URL");
            bind(plain(&[url]), Arc::new(Places::new("tests", 1)), network).await
        };
        let first = open(0, shared).await.expect("a port");
        let port = first[0].local_addr().expect("open").port();
        let second = open(port, shared).await.expect("the same again");
        assert!(
            open(port, NetworkOptions::default()).await.is_err(),
            "who does not say so has no part in it"
        );
        drop((first, second));
        let alone = open(0, NetworkOptions::default()).await.expect("a port");
        let port = alone[0].local_addr().expect("open").port();
        assert!(open(port, shared).await.is_err(), "nor is it had of who does not");
        let Open::Tcp(listener) = &alone[0].open else { panic!("a port of TCP") };
        assert!(SockRef::from(listener).reuse_address().expect("known"), "every listener has this");
    }

    #[tokio::test]
    async fn who_comes_when_all_places_are_taken_waits_until_one_is_free() {
        let url = MemberUrl::parse("http://127.0.0.1:0").expect("a URL");
        let places = Arc::new(Places::new("tests", 2));
        let urls = [url.clone(), url];
        let ports = bind(plain(&urls), places, NetworkOptions::default()).await.expect("two ports");
        let [mut one, mut other] = <[Port; 2]>::try_from(ports).ok().expect("two ports");
        let (at_one, at_other) = (one.local_addr().expect("open"), other.local_addr().expect("open"));
        let mut clients = Vec::new();
        for at in [at_one, at_other, at_one] {
            clients.push(TcpStream::connect(at).await.expect("the system's queue has room"));
        }
        let (first, _) = one.accept().await.expect("a place");
        let (_second, _) = other.accept().await.expect("another one, of the same");
        let third = tokio::time::timeout(Duration::from_millis(100), one.accept()).await;
        assert!(third.is_err(), "there were two places");
        drop(first);
        let third = tokio::time::timeout(Duration::from_secs(30), one.accept()).await;
        assert!(third.is_ok_and(|third| third.is_ok()), "who has gone left a place");
    }
}
