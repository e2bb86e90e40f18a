//! Real members on loopback, Meerkat's or etcd's, each behind a proxy that can swallow everything.
//!
//! Clients connect to the proxies. Cutting one is what a cable that is pulled looks like from both ends:
//! connections stay open, new ones are accepted, and nothing comes through any more. Only processes
//! started here are ever signalled, and all end with the cluster.

use rand::Rng;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Whose servers to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Meerkat,
    Etcd,
}

/// Those that can be started here. On CI a missing one is a failure, elsewhere it is said.
pub fn products() -> Vec<Product> {
    let mut found = Vec::new();
    for product in [Product::Etcd, Product::Meerkat] {
        if program(product).is_some() {
            found.push(product);
            continue;
        }
        let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        assert!(!strict, "{product:?} cannot be started: set ETCD_BIN_DIR and MEERKAT_BIN");
        println!("skipped on {product:?}: set ETCD_BIN_DIR and MEERKAT_BIN");
    }
    found
}

pub struct Cluster {
    members: Vec<Member>,
    _dir: TempDir,
}

struct Member {
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    port: u16,
    proxy: Proxy,
    process: Option<Child>,
}

impl Cluster {
    /// Starts members and waits until each answers through its proxy.
    pub async fn start(product: Product, count: usize) -> Cluster {
        let dir = tempfile::Builder::new().prefix("meerkat-client-").tempdir().expect("a directory");
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> =
            ports.iter().enumerate().map(|(i, (_, peer))| format!("m{i}=http://127.0.0.1:{peer}")).collect();
        let mut members = Vec::new();
        for (index, (client, peer)) in ports.iter().enumerate() {
            let flags = [
                ("name", format!("m{index}")),
                ("data-dir", dir.path().join(format!("m{index}.data")).display().to_string()),
                ("listen-client-urls", format!("http://127.0.0.1:{client}")),
                ("advertise-client-urls", format!("http://127.0.0.1:{client}")),
                ("listen-peer-urls", format!("http://127.0.0.1:{peer}")),
                ("initial-advertise-peer-urls", format!("http://127.0.0.1:{peer}")),
                ("initial-cluster", peers.join(",")),
                ("initial-cluster-token", "client-it".to_owned()),
                ("initial-cluster-state", "new".to_owned()),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
            ];
            let (program, mut args) = program(product).expect("a program to start");
            args.extend(flags.iter().map(|(name, value)| format!("--{name}={value}")));
            let log = dir.path().join(format!("m{index}.log"));
            let proxy = Proxy::start(*client).await;
            members.push(Member { program, args, log, port: *client, proxy, process: None });
        }
        let mut cluster = Cluster { members, _dir: dir };
        for index in 0..count {
            cluster.revive(index);
        }
        cluster.wait_until_ready().await;
        cluster
    }

    /// The addresses of the proxies.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint()).collect()
    }

    /// Which member has this endpoint.
    pub fn index_of(&self, endpoint: &str) -> usize {
        let is = |member: &Member| endpoint.ends_with(&member.endpoint());
        self.members.iter().position(is).expect("an endpoint of this cluster")
    }

    /// `kill -9`.
    pub fn kill(&mut self, index: usize) {
        let mut child = self.members[index].process.take().expect("a running member");
        child.kill().expect("to kill a child");
        child.wait().expect("to wait for a child");
    }

    /// Starts a member that does not run.
    pub fn revive(&mut self, index: usize) {
        let member = &mut self.members[index];
        let log = std::fs::File::options().create(true).append(true).open(&member.log).expect("a log");
        let child = Command::new(&member.program)
            .args(&member.args)
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().expect("a log")))
            .stderr(Stdio::from(log))
            .spawn()
            .expect("to start a member");
        member.process = Some(child);
    }

    /// SIGSTOP.
    pub fn pause(&self, index: usize) {
        self.signal(index, "-STOP");
    }

    /// SIGCONT.
    pub fn resume(&self, index: usize) {
        self.signal(index, "-CONT");
    }

    /// From now on nothing passes between clients and this member, in either direction.
    pub fn cut(&self, index: usize) {
        self.members[index].proxy.cut.send_replace(true);
    }

    /// Everything passes again, what was under way included.
    pub fn mend(&self, index: usize) {
        self.members[index].proxy.cut.send_replace(false);
    }

    /// Waits until every member has a leader.
    pub async fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        for member in &self.members {
            while !self.get(member.port, "/health").await.is_some_and(|text| text.contains("\"true\"")) {
                assert!(Instant::now() < deadline, "a member is not ready; its log is {:?}", member.log);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// One number of a member's metrics.
    pub async fn metric(&self, index: usize, name: &str) -> f64 {
        let text = self.get(self.members[index].port, "/metrics").await.expect("metrics");
        let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name));
        let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}"))
    }

    async fn get(&self, port: u16, path: &str) -> Option<String> {
        let exchange = async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok()?;
            Some(String::from_utf8_lossy(&answer).into_owned())
        };
        tokio::time::timeout(Duration::from_secs(5), exchange).await.ok().flatten()
    }

    fn signal(&self, index: usize, signal: &str) {
        let child = self.members[index].process.as_ref().expect("a running member");
        let status = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }
}

impl Member {
    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            // Fails only if it has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn program(product: Product) -> Option<(PathBuf, Vec<String>)> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (program, args) = match product {
        Product::Etcd => (variable("ETCD_BIN_DIR")?.join("etcd"), Vec::new()),
        Product::Meerkat => {
            // A test runs from `<profile>/deps/`.
            let own = std::env::current_exe().ok()?;
            let beside = || own.ancestors().nth(2).map(|dir| dir.join("meerkat"));
            (variable("MEERKAT_BIN").or_else(beside)?, vec!["serve".to_owned()])
        }
    };
    program.is_file().then_some((program, args))
}

/// Below the ephemeral range, so that no outgoing connection takes it while its member is dead.
fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = rand::rng().random_range(12_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
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
