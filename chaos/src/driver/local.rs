//! A ground of processes on loopback, whose members reach one another through a crossing.
//!
//! Everything is here; small disks only where the machine allows file systems to be mounted.
//! All processes end with the ground, and with this program whatever way that ends.

use std::path::PathBuf;
use std::time::Duration;

use super::cluster::{Cluster, ClusterSpec, START_WITHIN, State, initial_cluster, member_args};
use super::crossing::Crossing;
use super::growth::Standing;
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::ground::{Ability, Change, Done, Ground, Link, Product, Usage};

/// How long a member may take to end after SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Processes on loopback.
#[derive(Debug)]
pub struct LocalGround {
    cluster: Cluster,
    crossing: Crossing,
    standings: Vec<Standing>,
}

impl LocalGround {
    /// Starts a cluster and waits until every member serves. Must be called by a thread that lives as
    /// long as the members are to.
    pub async fn start(spec: &ClusterSpec, seed: u64) -> Result<Self, Failure> {
        let mut cluster = Cluster::prepare(spec)?;
        let mut crossing = Crossing::new(seed);
        let mut urls = Vec::new();
        for member in &cluster.members {
            urls.push(crossing.add_gate(member.peer_port()).await?);
        }
        let initial = initial_cluster(&cluster.members, &urls);
        for (member, url) in cluster.members.iter_mut().zip(urls) {
            let args = member_args(spec, member, &url, &initial, State::New);
            member.set_args(url, args);
            member.bind_to_this_program();
        }
        let standings = vec![Standing::Enlisted; cluster.members.len()];
        let mut ground = Self { cluster, crossing, standings };
        for member in 0..ground.members() {
            ground.start(member, Change::default()).await?;
        }
        ground.cluster.wait_until_ready(START_WITHIN).await?;
        Ok(ground)
    }

    /// Where logs and data are.
    pub fn dir(&self) -> PathBuf {
        self.cluster.dir().to_owned()
    }
}

impl Ground for LocalGround {
    fn product(&self) -> Product {
        self.cluster.spec.product
    }

    fn can(&self, ability: Ability) -> bool {
        ability != Ability::SmallDisk || super::small_disk::available().is_ok()
    }

    fn members(&self) -> usize {
        self.standings.len()
    }

    fn enlisted(&self, member: usize) -> bool {
        self.standings[member] == Standing::Enlisted
    }

    fn name(&self, member: usize) -> String {
        self.cluster.members[member].name().to_owned()
    }

    fn endpoint(&self, member: usize) -> Endpoint {
        self.cluster.members[member].endpoint().clone()
    }

    fn is_running(&mut self, member: usize) -> Done<'_, bool> {
        Box::pin(async move { self.cluster.member(member).is_running() })
    }

    fn kill(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.cluster.member(member).kill() })
    }

    fn terminate(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.cluster.member(member).end(STOP_WITHIN).await })
    }

    fn start(&mut self, member: usize, change: Change) -> Done<'_> {
        Box::pin(async move {
            if self.standings[member] == Standing::New {
                let others = crate::ground::enlisted(self);
                self.cluster.introduce(member, self.crossing.url(member), &others).await?;
                self.standings[member] = Standing::Enlisted;
            }
            self.cluster.member(member).start_altered(&change.env, &change.flags)?;
            if let Some(pid) = self.cluster.members[member].pid() {
                self.crossing.lives_as(member, pid);
            }
            Ok(())
        })
    }

    fn pause(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.cluster.member(member).freeze() })
    }

    fn resume(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.cluster.member(member).thaw() })
    }

    fn set_link(&mut self, from: usize, to: usize, link: Link) -> Done<'_> {
        self.crossing.set(from, to, link);
        Box::pin(async { Ok(()) })
    }

    fn heal_links(&mut self) -> Done<'_> {
        self.crossing.heal();
        Box::pin(async { Ok(()) })
    }

    fn enlist(&mut self) -> Done<'_, usize> {
        Box::pin(async move {
            let mut member = self.cluster.lay_out()?;
            let url = self.crossing.add_gate(member.peer_port()).await?;
            member.bind_to_this_program();
            // Who the others are is asked when it is started: only then has it been added.
            member.set_args(url, Vec::new());
            self.cluster.members.push(member);
            self.standings.push(Standing::New);
            Ok(self.standings.len() - 1)
        })
    }

    fn discharge(&mut self, member: usize) -> Done<'_> {
        self.standings[member] = Standing::Discharged;
        self.kill(member)
    }

    fn peer_url(&self, member: usize) -> String {
        self.crossing.url(member)
    }

    fn data_dir(&self, member: usize) -> Option<PathBuf> {
        Some(self.cluster.members[member].data_dir().to_owned())
    }

    fn usage(&self, member: usize) -> Option<Usage> {
        self.cluster.members[member].usage().ok()
    }

    fn tail(&self, member: usize) -> String {
        self.cluster.members[member].tail()
    }

    fn finish(self: Box<Self>) -> Done<'static> {
        Box::pin(async move { self.cluster.finish() })
    }
}
