//! A cluster with a door at every connection that can be broken.
//!
//! Between members there is one door before each peer port. Clients come on lines: a line is one
//! client's way to every member, either through doors of its own or directly, since a door cannot
//! refuse a connection the way a dead host does.

use std::time::Duration;

use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Door, Flow, Product};
use crate::endpoint::Endpoint;
use crate::failover::schedule::{Aim, Fault, Kind};

/// Members of every cluster here.
pub const MEMBERS: usize = 3;

/// What members may take to serve again after anything.
pub const READY_WITHIN: Duration = Duration::from_secs(30);

/// What a slow network adds to each way.
const DELAY: Duration = Duration::from_millis(60);

/// A member that is asked to stop has this long.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// One client's way to every member.
#[derive(Debug)]
struct Line {
    /// None on a direct line.
    doors: Vec<Door>,
    urls: Vec<String>,
    /// What had come through each door when it was last looked at.
    seen: Vec<u64>,
}

/// The cluster and its doors.
#[derive(Debug)]
pub struct Stage {
    cluster: Cluster,
    peers: Vec<Door>,
    lines: Vec<Line>,
}

/// A fault that is going on.
#[derive(Clone, Debug)]
pub struct Strike {
    /// What.
    pub kind: Kind,
    /// To whom.
    pub members: Vec<usize>,
}

impl Stage {
    /// Starts a cluster, with so many lines through doors and so many direct ones after them.
    pub async fn start(product: Product, through_doors: usize, direct: usize) -> Result<Self, Failure> {
        let spec = ClusterSpec::new(product, MEMBERS).with_quick_elections();
        let (cluster, peers) = Cluster::start_with_doors(&spec).await?;
        let ports: Vec<u16> = cluster.members().iter().map(|member| member.client_port()).collect();
        let mut lines = Vec::with_capacity(through_doors + direct);
        for _ in 0..through_doors {
            let mut doors = Vec::with_capacity(ports.len());
            for port in &ports {
                doors.push(Door::before(*port).await?);
            }
            let urls = doors.iter().map(Door::url).collect();
            lines.push(Line { seen: vec![0; doors.len()], doors, urls });
        }
        for _ in 0..direct {
            let urls = ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
            lines.push(Line { doors: Vec::new(), urls, seen: Vec::new() });
        }
        Ok(Self { cluster, peers, lines })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The members, directly.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.cluster.endpoints()
    }

    /// The URLs of all members on a line.
    pub fn urls(&self, line: usize) -> Vec<String> {
        self.lines[line].urls.clone()
    }

    /// The member behind a URL of a line.
    pub fn member_at(&self, line: usize, url: &str) -> Option<usize> {
        let plain = |url: &str| url.trim_end_matches('/').to_owned();
        self.lines[line].urls.iter().position(|known| plain(known) == plain(url))
    }

    /// The member from which most has come on a line since the last look. For clients that do not
    /// say where they hang.
    pub fn busiest(&mut self, line: usize) -> Option<usize> {
        let line = &mut self.lines[line];
        let now: Vec<u64> = line.doors.iter().map(Door::downstream_bytes).collect();
        let came = now.iter().zip(&line.seen).map(|(now, seen)| now - seen).enumerate();
        let most = came.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| 0 < *bytes);
        line.seen = now;
        most.map(|(member, _)| member)
    }

    /// The member that a fault is aimed at. `watched`: the one most watches hang on.
    pub async fn victim(&self, aim: Aim, watched: Option<usize>) -> Result<usize, Failure> {
        match aim {
            Aim::Leader => self.cluster.leader(READY_WITHIN).await,
            Aim::Watched => Ok(watched.unwrap_or(0)),
            Aim::Any(number) => Ok(number % MEMBERS),
        }
    }

    /// Breaks it, and returns as soon as it is broken.
    pub async fn strike(&mut self, fault: &Fault, victim: usize) -> Result<Strike, Failure> {
        let mut members = vec![victim];
        match fault.kind {
            Kind::Kill => self.cluster.member(victim).kill()?,
            Kind::Term => self.terminate(victim)?,
            Kind::Restart => {
                self.terminate(victim)?;
                self.cluster.member(victim).start()?;
            }
            Kind::Freeze => self.cluster.member(victim).pause()?,
            Kind::ClientHole => self.set_clients(victim, Flow::Hole),
            Kind::ClientCut => self.set_clients(victim, Flow::Cut),
            Kind::Slow => self.set_clients(victim, Flow::Slow(DELAY)),
            Kind::PeerHole => self.cut_off(victim)?,
            Kind::MajorityLoss => {
                let other = (victim + 1) % MEMBERS;
                members.push(other);
                self.cluster.member(victim).kill()?;
                self.cluster.member(other).kill()?;
            }
        }
        Ok(Strike { kind: fault.kind, members })
    }

    /// Mends it, and waits until every member serves.
    pub async fn heal(&mut self, strike: &Strike) -> Result<(), Failure> {
        for member in &strike.members {
            match strike.kind {
                Kind::Freeze => self.cluster.member(*member).resume()?,
                Kind::ClientHole | Kind::ClientCut | Kind::Slow => self.set_clients(*member, Flow::Open),
                Kind::PeerHole => self.peers.iter().for_each(|door| door.set(Flow::Open)),
                Kind::Kill | Kind::Term | Kind::Restart | Kind::MajorityLoss => {}
            }
        }
        self.cluster.revive(READY_WITHIN).await
    }

    /// Ends a run that succeeded.
    pub fn finish(self) -> Result<(), Failure> {
        self.cluster.finish()
    }

    /// What the clients' doors before one member do.
    pub fn set_clients(&self, member: usize, flow: Flow) {
        for line in &self.lines {
            if let Some(door) = line.doors.get(member) {
                door.set(flow);
            }
        }
    }

    /// Nothing more goes between this member and the others, whoever dialed.
    fn cut_off(&self, member: usize) -> Result<(), Failure> {
        let pid = self.cluster.members()[member].pid();
        let pid = pid.ok_or_else(|| Failure::harness("a member that does not run cannot be cut off"))?;
        for (index, door) in self.peers.iter().enumerate() {
            if index == member {
                door.set(Flow::Hole);
            } else {
                door.set_for(pid, Flow::Hole)?;
            }
        }
        Ok(())
    }

    fn terminate(&mut self, member: usize) -> Result<(), Failure> {
        // Waits in the thread; other tasks must go on meanwhile.
        let stopped = tokio::task::block_in_place(|| self.cluster.member(member).stop(STOP_WITHIN));
        stopped.map(|_| ())
    }
}
