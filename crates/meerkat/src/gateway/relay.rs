//! Carries bytes between clients and members, and finds out which members are there.
//!
//! A connection stays with its endpoint to its end. An endpoint that cannot be dialled is left out and
//! asked again after each interval; a fault of this machine, as too many open files, is not held against
//! it. The end of one direction is passed on, and the other may still finish.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meerkat_proto::go_duration;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::remotes::{Pick, Remotes};

/// How long an endpoint that does not answer at all holds up the connection that was meant for it.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// As etcd's gateway: who is silent is asked after as often as this.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long a machine without room for another connection waits before it looks again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct Relay {
    /// Never held across an await.
    remotes: Mutex<Remotes>,
    /// Between two looks at endpoints that failed.
    interval: Duration,
}

impl Relay {
    pub fn new(addresses: Vec<String>, interval: Duration) -> Relay {
        Relay { remotes: Mutex::new(Remotes::new(addresses)), interval }
    }

    fn remotes(&self) -> MutexGuard<'_, Remotes> {
        self.remotes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until it is dropped. All of them end with it.
    pub async fn run(self: Arc<Relay>, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self).watch());
        loop {
            while tasks.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((client, _)) => {
                    let relay = Arc::clone(&self);
                    tasks.spawn(async move { relay.serve(client).await });
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(&self, mut client: TcpStream) {
        // With no member to be had, the client finds its connection closed.
        let Some(mut member) = self.reach_one().await else { return };
        for side in [&client, &member] {
            if let Err(error) = prepare(side) {
                // It is at its end already, or will be found to be.
                tracing::debug!(error = %error, "a connection takes no options");
            }
        }
        // That a side breaks off is how connections end.
        drop(tokio::io::copy_bidirectional(&mut client, &mut member).await);
    }

    async fn reach_one(&self) -> Option<TcpStream> {
        let mut tried = Vec::new();
        loop {
            let pick = self.remotes().pick(&tried)?;
            tried.push(pick);
            let address = self.remotes().address(pick).to_owned();
            match dial(&address).await {
                Ok(member) => {
                    if self.remotes().note(pick, true) {
                        tracing::info!(address, "activated");
                    }
                    return Some(member);
                }
                Err(error) if is_of_this_machine(&error) => {
                    tracing::warn!(address, error = %error, "cannot open a connection");
                    return None;
                }
                Err(error) => self.leave_out(pick, &address, &error),
            }
        }
    }

    fn leave_out(&self, pick: Pick, address: &str, error: &io::Error) {
        if self.remotes().note(pick, false) {
            let interval = go_duration::format(self.interval);
            tracing::warn!(address, interval, error = %error, "deactivated endpoint");
        }
    }

    /// Asks after those that were left out.
    async fn watch(self: Arc<Relay>) {
        loop {
            tokio::time::sleep(self.interval).await;
            let inactive = self.remotes().inactive();
            futures::future::join_all(inactive.into_iter().map(|pick| self.ask_after(pick))).await;
        }
    }

    async fn ask_after(&self, pick: Pick) {
        let address = self.remotes().address(pick).to_owned();
        match dial(&address).await {
            Ok(_) => {
                if self.remotes().note(pick, true) {
                    tracing::info!(address, "activated");
                }
            }
            Err(error) => tracing::warn!(
                address,
                interval = go_duration::format(self.interval),
                error = %error,
                "failed to activate endpoint (stay inactive for another interval)"
            ),
        }
    }
}

/// Small messages go at once, and who is gone without a word does not hold two connections for ever.
fn prepare(side: &TcpStream) -> io::Result<()> {
    side.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(side).set_tcp_keepalive(&keepalive)
}

async fn dial(address: &str) -> io::Result<TcpStream> {
    match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")),
    }
}

/// No file or memory left here, which says nothing about who was dialled. An address that cannot be had
/// from here, or a port to dial it from, is another matter: the next endpoint may well be reached.
fn is_of_this_machine(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code.is_some_and(|code| [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const SOON: Duration = Duration::from_millis(50);
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("open").to_string();
        (listener, address)
    }

    /// One who refuses connections, at a port that nobody else can take until it listens.
    fn absent() -> (Socket, String) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
        let address = socket.local_addr().expect("bound").as_socket().expect("of IPv4").to_string();
        (socket, address)
    }

    fn come_back(socket: Socket) -> TcpListener {
        socket.listen(128).expect("it has its port");
        socket.set_nonblocking(true).expect("open");
        TcpListener::from_std(socket.into()).expect("within a runtime")
    }

    /// Says its name to each that comes, then echoes until the other side has said all.
    async fn name_to_all(listener: TcpListener, name: &'static str) {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Who only asks whether somebody is there is gone before it hears anything.
            drop(stream.write_all(name.as_bytes()).await);
            let mut said = Vec::new();
            drop(stream.read_to_end(&mut said).await);
            drop(stream.write_all(&said).await);
        }
    }

    async fn relay(addresses: Vec<String>) -> (Arc<Relay>, String, JoinSet<()>) {
        let (listener, address) = listen().await;
        let relay = Arc::new(Relay::new(addresses, SOON));
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&relay).run(listener));
        (relay, address, tasks)
    }

    /// What comes back through the relay after `said`, and the end of it.
    async fn talk(address: &str, said: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("the relay listens");
        // A relay with nobody behind it closes at once.
        drop(stream.write_all(said.as_bytes()).await);
        drop(stream.shutdown().await);
        let mut heard = String::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut heard)).await;
        drop(read.expect("in time"));
        heard
    }

    #[tokio::test]
    async fn connections_go_round_and_half_of_one_may_end_before_the_other() {
        let mut tasks = JoinSet::new();
        let mut addresses = Vec::new();
        for name in ["a", "b"] {
            let (listener, address) = listen().await;
            tasks.spawn(name_to_all(listener, name));
            addresses.push(address);
        }
        let (_relay, at, _running) = relay(addresses).await;
        let mut heard = Vec::new();
        for said in ["1", "2", "3"] {
            heard.push(talk(&at, said).await);
        }
        assert_eq!(heard, ["a1", "b2", "a3"]);
    }

    #[tokio::test]
    async fn one_that_is_gone_is_left_out_and_taken_back() {
        let (gone, gone_address) = absent();
        let (there, there_address) = listen().await;
        let mut tasks = JoinSet::new();
        tasks.spawn(name_to_all(there, "there"));
        let (relay, at, _running) = relay(vec![gone_address, there_address]).await;
        for _ in 0..3 {
            assert_eq!(talk(&at, "").await, "there");
        }
        assert_eq!(relay.remotes().inactive().len(), 1);
        tasks.spawn(name_to_all(come_back(gone), "back"));
        let taken_back = async {
            while !relay.remotes().inactive().is_empty() {
                tokio::time::sleep(SOON).await;
            }
        };
        tokio::time::timeout(PATIENCE, taken_back).await.expect("it is asked after");
        let both = [talk(&at, "").await, talk(&at, "").await];
        assert!(both.contains(&"back".to_owned()) && both.contains(&"there".to_owned()), "{both:?}");
    }

    #[tokio::test]
    async fn with_nobody_there_a_client_is_let_go_and_the_first_who_returns_is_found_at_once() {
        let (gone, address) = absent();
        let (listener, at) = listen().await;
        // Nobody is asked after in the time of this test.
        let relay = Arc::new(Relay::new(vec![address], Duration::from_secs(3_600)));
        let mut tasks = JoinSet::new();
        tasks.spawn(relay.run(listener));
        assert_eq!(talk(&at, "x").await, "");
        tasks.spawn(name_to_all(come_back(gone), "back"));
        assert_eq!(talk(&at, "x").await, "backx");
    }

    #[tokio::test]
    async fn a_side_that_is_silent_is_asked_after() {
        let (_listener, address) = listen().await;
        let stream = dial(&address).await.expect("it listens");
        prepare(&stream).expect("it is open");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("known") && socket.tcp_nodelay().expect("known"));
        assert_eq!(socket.tcp_keepalive_time().expect("known"), KEEPALIVE);
    }

    #[test]
    fn what_this_machine_lacks_is_not_held_against_who_was_dialled() {
        for (code, expected) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::ENOBUFS, true),
            (libc::ENOMEM, true),
            (libc::EADDRNOTAVAIL, false),
            (libc::ECONNREFUSED, false),
        ] {
            assert_eq!(is_of_this_machine(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert!(!is_of_this_machine(&io::ErrorKind::TimedOut.into()));
    }
}
