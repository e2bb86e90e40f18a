//! Members behind proxies that can swallow everything.
//!
//! Clients connect to the proxies. Cutting one is what a cable that is pulled looks like from both ends:
//! connections stay open, new ones are accepted, and nothing comes through any more.

use crate::server::{self, Kind, Options};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

pub struct Cluster {
    inner: server::Cluster,
    proxies: Vec<Proxy>,
}

impl Cluster {
    /// Starts members and waits until each is ready. Elections are short, so that what is measured is the
    /// client.
    pub async fn start(kind: Kind, count: usize) -> Cluster {
        let flags = ["--heartbeat-interval=50", "--election-timeout=500"].map(str::to_owned).to_vec();
        let inner = server::Cluster::start_with(kind, count, &Options { flags, ..Options::default() });
        let mut proxies = Vec::new();
        for member in &inner.members {
            proxies.push(Proxy::start(port_of(&member.url)).await);
        }
        let cluster = Cluster { inner, proxies };
        cluster.wait_until_ready().await;
        cluster
    }

    /// The addresses of the proxies.
    pub fn endpoints(&self) -> Vec<String> {
        self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect()
    }

    /// Which member has this endpoint.
    pub fn index_of(&self, endpoint: &str) -> usize {
        let is = |proxy: &Proxy| endpoint.ends_with(&format!(":{}", proxy.port));
        self.proxies.iter().position(is).expect("an endpoint of this cluster")
    }

    /// `kill -9`.
    pub fn kill(&mut self, index: usize) {
        self.inner.members[index].kill();
    }

    /// Starts a member that was killed.
    pub fn revive(&mut self, index: usize) {
        self.inner.members[index].restart();
    }

    /// SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.inner.members[index].pause();
    }

    /// SIGCONT.
    pub fn resume(&self, index: usize) {
        self.inner.members[index].resume();
    }

    /// From now on nothing passes between clients and this member, in either direction.
    pub fn cut(&self, index: usize) {
        self.proxies[index].cut.send_replace(true);
    }

    /// Everything passes again, what was under way included.
    pub fn mend(&self, index: usize) {
        self.proxies[index].cut.send_replace(false);
    }

    /// Waits until every member has a leader.
    pub async fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for member in &self.inner.members {
            while !get(&member.url, "/health").await.is_some_and(|text| text.contains("\"true\"")) {
                assert!(Instant::now() < deadline, "{} is not ready", member.url);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// One number of a member's metrics.
    pub async fn metric(&self, index: usize, name: &str) -> f64 {
        let text = get(&self.inner.members[index].url, "/metrics").await.expect("metrics");
        let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name));
        let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}"))
    }
}

async fn get(url: &str, path: &str) -> Option<String> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port_of(url))).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await.ok().flatten()
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a URL with a port")
}

/// Passes bytes to and fro until it is cut.
struct Proxy {
    port: u16,
    cut: Arc<watch::Sender<bool>>,
}

impl Proxy {
    async fn start(to: u16) -> Proxy {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cut = Arc::new(watch::Sender::new(false));
        let state = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, to, state.subscribe()));
            }
        });
        Proxy { port, cut }
    }
}

async fn connect(client: TcpStream, to: u16, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    // A dead member's connection is refused; so is the client's, by being dropped.
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass(from_client, to_server, cut.clone()) => {}
        () = pass(from_server, to_client, cut) => {}
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        // An end is swallowed as well.
        let open = cut.wait_for(|cut| !cut).await.is_ok();
        if !open || read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
