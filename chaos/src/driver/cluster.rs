//! A cluster of one product on loopback.
//!
//! Meerkat takes etcd's flags, so one description starts either. Everything lives in one directory,
//! which is removed only after `finish`: a run that ended in any other way leaves logs and data,
//! and says where.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::black_hole::Door;
use super::member::{Member, Ports};
use crate::endpoint::Endpoint;
use crate::ground::Product;
use crate::{Failure, Patience, binary};
use meerkat_ports::Port;

/// How long a whole cluster may take to elect and serve at first.
pub const START_WITHIN: Duration = Duration::from_secs(30);

/// What to start.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// Whose servers.
    pub product: Product,
    /// How many.
    pub members: usize,
    /// The cluster token.
    pub token: String,
    /// Flags for every member, beyond those that name it and its peers.
    pub flags: Vec<String>,
    /// Whether every member opens the list-watch door too.
    pub listwatch: bool,
}

impl ClusterSpec {
    /// A cluster with default settings.
    pub fn new(product: Product, members: usize) -> Self {
        Self { product, members, token: "chaos".to_owned(), flags: Vec::new(), listwatch: false }
    }

    /// Adds flags for every member.
    #[must_use]
    pub fn with_flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// With the list-watch door open on every member.
    #[must_use]
    pub fn with_listwatch(mut self) -> Self {
        self.listwatch = true;
        self
    }

    /// Short election time-outs, for runs that kill leaders by the dozen.
    #[must_use]
    pub fn with_quick_elections(self) -> Self {
        self.with_flags(&["--heartbeat-interval=50", "--election-timeout=500"])
    }

    /// Long election time-outs, for runs in which a busy machine is not to change the leader. No
    /// lease is then granted for less than five seconds.
    #[must_use]
    pub fn with_slow_elections(self) -> Self {
        self.with_flags(&["--heartbeat-interval=300", "--election-timeout=3000"])
    }
}

/// A cluster and all it owns.
#[derive(Debug)]
pub struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) spec: ClusterSpec,
    /// How many members were ever laid out: names are not used twice.
    pub(super) laid_out: usize,
    dir: Option<TempDir>,
}

impl Cluster {
    /// Lays out a cluster whose members reach each other through doors, one before each member's
    /// peer port; starts nothing. The doors are in the members' order.
    async fn prepare_with_doors(spec: &ClusterSpec) -> Result<(Self, Vec<Door>), Failure> {
        let mut cluster = Self::prepare(spec)?;
        let mut doors = Vec::with_capacity(cluster.members.len());
        for member in &cluster.members {
            doors.push(Door::before(member.peer_port()).await?);
        }
        let urls: Vec<String> = doors.iter().map(Door::url).collect();
        let initial = initial_cluster(&cluster.members, &urls);
        for (member, url) in cluster.members.iter_mut().zip(urls) {
            let args = member_args(spec, member, &url, &initial, State::New);
            member.set_args(url, args);
        }
        Ok((cluster, doors))
    }

    /// Lays out a cluster; starts nothing.
    pub fn prepare(spec: &ClusterSpec) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("meerkat-chaos-").tempdir()?;
        let mut cluster = Self { members: Vec::new(), spec: spec.clone(), laid_out: 0, dir: Some(dir) };
        for _ in 0..spec.members {
            let member = cluster.lay_out()?;
            cluster.members.push(member);
        }
        let urls: Vec<String> = cluster.members.iter().map(peer_url).collect();
        let initial = initial_cluster(&cluster.members, &urls);
        for (member, url) in cluster.members.iter_mut().zip(urls) {
            let args = member_args(spec, member, &url, &initial, State::New);
            member.set_args(url, args);
        }
        Ok(cluster)
    }

    /// One more member with ports and a directory of its own, which nobody knows of yet.
    pub(super) fn lay_out(&mut self) -> Result<Member, Failure> {
        let program = match self.spec.product {
            Product::Meerkat => binary::meerkat()?,
            Product::Etcd => binary::etcd()?,
        };
        let ports = Ports { client: Port::take()?, peer: Port::take()?, listwatch: Port::take()? };
        let member = Member::new(format!("m{}", self.laid_out), program, self.dir(), ports)?;
        self.laid_out += 1;
        Ok(member)
    }

    /// Starts a cluster and waits until every member serves.
    pub async fn start(spec: &ClusterSpec) -> Result<Self, Failure> {
        let mut cluster = Self::prepare(spec)?;
        cluster.revive(START_WITHIN).await?;
        Ok(cluster)
    }

    /// Starts a cluster whose members reach each other through doors, and waits until all serve.
    pub async fn start_with_doors(spec: &ClusterSpec) -> Result<(Self, Vec<Door>), Failure> {
        let (mut cluster, doors) = Self::prepare_with_doors(spec).await?;
        cluster.revive(START_WITHIN).await?;
        Ok((cluster, doors))
    }

    /// Waits until every member answers a linearizable read.
    pub async fn wait_until_ready(&mut self, within: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + within;
        for member in &mut self.members {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            member.wait_until_ready(left).await?;
        }
        Ok(())
    }

    /// Starts every member that is not running, and waits until all serve.
    pub async fn revive(&mut self, within: Duration) -> Result<(), Failure> {
        for member in &mut self.members {
            if !member.is_running()? {
                member.start()?;
            }
        }
        self.wait_until_ready(within).await
    }

    /// Its members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One member, to act on.
    pub fn member(&mut self, index: usize) -> &mut Member {
        &mut self.members[index]
    }

    /// Stubs for every member, for workloads that outlive borrows of the cluster.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.members.iter().map(|member| member.endpoint().clone()).collect()
    }

    /// Where everything is kept.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("the directory leaves only in finish and drop").path()
    }

    /// The member that leads: the one that says so in the highest term.
    pub async fn leader(&self, within: Duration) -> Result<usize, Failure> {
        let patience = Patience::of("a member leads", within);
        loop {
            let mut best: Option<(u64, usize)> = None;
            for (index, member) in self.members.iter().enumerate() {
                let Ok(status) = member.endpoint().status(Duration::from_millis(300)).await else { continue };
                let own = status.header.as_ref().map_or(0, |header| header.member_id);
                if status.leader == own && own != 0 && best.is_none_or(|(term, _)| term < status.raft_term) {
                    best = Some((status.raft_term, index));
                }
            }
            if let Some((_, index)) = best {
                return patience.came().map(|_| index);
            }
            patience.pause(Duration::from_millis(50), "nobody says that it leads").await?;
        }
    }

    /// Ends a run that succeeded: nothing is left behind.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.members.clear();
        match self.dir.take() {
            Some(dir) => Ok(dir.close()?),
            None => Ok(()),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Children first, so that nobody writes into a directory that is being reported.
        self.members.clear();
        if let Some(dir) = self.dir.take() {
            eprintln!("logs and data are kept in {}", dir.keep().display());
        }
    }
}

pub(super) fn initial_cluster(members: &[Member], urls: &[String]) -> String {
    let each: Vec<String> =
        members.iter().zip(urls).map(|(member, url)| format!("{}={url}", member.name())).collect();
    each.join(",")
}

pub(super) fn peer_url(member: &Member) -> String {
    format!("http://{}:{}", member.host(), member.peer_port())
}

/// Whether a member begins a cluster or joins one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    New,
    Existing,
}

/// `peer` is where the others reach it; it listens on its own port.
pub(super) fn member_args(
    spec: &ClusterSpec,
    member: &Member,
    peer: &str,
    initial: &str,
    state: State,
) -> Vec<String> {
    let client = format!("http://{}:{}", member.host(), member.client_port());
    let mut args = Vec::new();
    if spec.product == Product::Meerkat {
        args.push("serve".to_owned());
    }
    args.extend([
        format!("--name={}", member.name()),
        format!("--data-dir={}", member.data_dir().display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={}", peer_url(member)),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={initial}"),
        match state {
            State::New => "--initial-cluster-state=new".to_owned(),
            State::Existing => "--initial-cluster-state=existing".to_owned(),
        },
        format!("--initial-cluster-token={}", spec.token),
    ]);
    if spec.listwatch {
        args.push(format!("--listen-listwatch-urls={}", member.listwatch_url()));
    }
    args.extend(spec.flags.iter().cloned());
    args
}
