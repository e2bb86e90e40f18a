//! A cluster whose members stand in network namespaces of their own, joined by a bridge: what is cut
//! here is cut between kernels' worth of network, packet by packet and one way if need be.
//!
//! The harness reaches every member past the faults, since they meet only packets whose sender is a
//! member. Needs root and Linux; says so where it has not got them. Everything is removed when it is
//! dropped, members first.

mod bridge;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use self::bridge::Bridge;
use super::cluster::{Cluster, ClusterSpec, START_WITHIN, State, initial_cluster, member_args, peer_url};
use super::firewall;
use super::growth::Standing;
use super::member::Member;
use crate::Failure;
use crate::endpoint::Endpoint;
use crate::ground::{Ability, Change, Done, Ground, Link, Product, Usage};

const STOP_WITHIN: Duration = Duration::from_secs(20);

/// A cluster in network namespaces.
#[derive(Debug)]
pub struct NetnsGround {
    // In this order: members end before the ground is taken from under them.
    cluster: Cluster,
    bridge: Bridge,
    /// By sender and receiver, those that are not up.
    links: Vec<(usize, usize, Link)>,
    standings: Vec<Standing>,
    can_delay: bool,
}

impl NetnsGround {
    /// Lays out a cluster and starts it; waits until every member serves. Must be called by a thread
    /// that lives as long as the members are to.
    pub async fn start(spec: &ClusterSpec) -> Result<Self, Failure> {
        let mut bridge = Bridge::build()?;
        let mut cluster = Cluster::prepare(spec)?;
        for number in 0..cluster.members.len() {
            let address = bridge.add_room(number)?;
            let launcher = bridge.room(number).launcher();
            cluster.member(number).place(&address.to_string(), launcher)?;
        }
        let urls: Vec<String> = cluster.members.iter().map(peer_url).collect();
        let initial = initial_cluster(&cluster.members, &urls);
        for (member, url) in cluster.members.iter_mut().zip(urls) {
            let args = member_args(spec, member, &url, &initial, State::New);
            member.set_args(url, args);
            member.bind_to_this_program();
        }
        let can_delay = bridge.can_delay(0);
        if !can_delay {
            println!("netns: this kernel has no netem: networks are cut and lossy here, never slow");
        }
        let standings = vec![Standing::Enlisted; cluster.members.len()];
        let mut ground = Self { cluster, bridge, links: Vec::new(), standings, can_delay };
        ground.cluster.revive(START_WITHIN).await?;
        Ok(ground)
    }

    /// The cluster, for scenarios that know more of it than a ground tells.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The words before a command that make it run where a member stands.
    pub fn launcher(&self, member: usize) -> Vec<String> {
        self.bridge.room(member).launcher()
    }

    /// Ends a run that succeeded: nothing is left behind.
    pub fn end(self) -> Result<(), Failure> {
        let Self { cluster, bridge, .. } = self;
        cluster.finish()?;
        bridge.tear_down()
    }

    fn member(&mut self, number: usize) -> Result<&mut Member, Failure> {
        let known = self.cluster.members.len();
        self.cluster
            .members
            .get_mut(number)
            .ok_or_else(|| Failure::harness(format!("there is no member {number}, only {known}")))
    }

    fn address(&self, member: usize) -> Ipv4Addr {
        self.bridge.address(member)
    }

    /// Brings the rules of one receiver, and the delays of one sender, to what `links` says.
    fn apply(&self, from: usize, to: usize) -> Result<(), Failure> {
        let incoming: Vec<(Ipv4Addr, Link)> = self
            .links
            .iter()
            .filter(|(_, receiver, _)| *receiver == to)
            .map(|(sender, _, link)| (self.address(*sender), *link))
            .collect();
        firewall::apply(&self.bridge.room(to), &incoming)?;
        if self.can_delay {
            let delays: Vec<(Ipv4Addr, Duration, Duration)> = self
                .links
                .iter()
                .filter(|(sender, ..)| *sender == from)
                .filter_map(|(_, receiver, link)| match link {
                    Link::Slow(delay, jitter) => Some((self.address(*receiver), *delay, *jitter)),
                    _ => None,
                })
                .collect();
            self.bridge.delay(from, &delays)?;
        }
        Ok(())
    }

    fn set(&mut self, from: usize, to: usize, link: Link) -> Result<(), Failure> {
        if matches!(link, Link::Slow(..)) && !self.can_delay {
            return Err(Failure::harness("this kernel has no netem, so nothing can be delayed"));
        }
        self.links.retain(|(sender, receiver, _)| (*sender, *receiver) != (from, to));
        if link != Link::Up {
            self.links.push((from, to, link));
        }
        self.apply(from, to)
    }

    fn heal(&mut self) -> Result<(), Failure> {
        for (from, to, _) in std::mem::take(&mut self.links) {
            self.apply(from, to)?;
        }
        Ok(())
    }

    fn add(&mut self) -> Result<usize, Failure> {
        let number = self.cluster.members.len();
        let mut member = self.cluster.lay_out()?;
        let address = self.bridge.add_room(number)?;
        member.place(&address.to_string(), self.bridge.room(number).launcher())?;
        member.bind_to_this_program();
        // Who the others are is asked when it is started: only then has it been added.
        let url = peer_url(&member);
        member.set_args(url, Vec::new());
        self.cluster.members.push(member);
        self.standings.push(Standing::New);
        Ok(number)
    }
}

impl Ground for NetnsGround {
    fn product(&self) -> Product {
        self.cluster.spec.product
    }

    fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::Terminate | Ability::Pause | Ability::Changed | Ability::Membership => true,
            Ability::Cut | Ability::OneWay | Ability::Lossy => true,
            Ability::Slow => self.can_delay,
            Ability::SmallDisk => false,
        }
    }

    fn members(&self) -> usize {
        self.cluster.members.len()
    }

    fn enlisted(&self, member: usize) -> bool {
        self.standings.get(member) == Some(&Standing::Enlisted)
    }

    fn name(&self, member: usize) -> String {
        self.cluster.members[member].name().to_owned()
    }

    fn endpoint(&self, member: usize) -> Endpoint {
        self.cluster.members[member].endpoint().clone()
    }

    fn is_running(&mut self, member: usize) -> Done<'_, bool> {
        Box::pin(async move { self.member(member)?.is_running() })
    }

    fn kill(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.member(member)?.kill() })
    }

    fn terminate(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.member(member)?.end(STOP_WITHIN).await })
    }

    fn start(&mut self, member: usize, change: Change) -> Done<'_> {
        Box::pin(async move {
            if self.standings.get(member) == Some(&Standing::New) {
                let url = self.peer_url(member);
                let others = crate::ground::enlisted(self);
                self.cluster.introduce(member, url, &others).await?;
                self.standings[member] = Standing::Enlisted;
            }
            self.member(member)?.start_altered(&change.env, &change.flags)
        })
    }

    fn pause(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.member(member)?.freeze() })
    }

    fn resume(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.member(member)?.thaw() })
    }

    fn set_link(&mut self, from: usize, to: usize, link: Link) -> Done<'_> {
        Box::pin(async move { self.set(from, to, link) })
    }

    fn heal_links(&mut self) -> Done<'_> {
        Box::pin(async move { self.heal() })
    }

    fn enlist(&mut self) -> Done<'_, usize> {
        Box::pin(async move { self.add() })
    }

    fn discharge(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move {
            self.member(member)?.kill()?;
            self.standings[member] = Standing::Discharged;
            Ok(())
        })
    }

    fn peer_url(&self, member: usize) -> String {
        self.cluster.members[member].peer_url().to_owned()
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
        Box::pin(async move { (*self).end() })
    }
}
