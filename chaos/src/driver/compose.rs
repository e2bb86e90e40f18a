//! The members of one compose project as a ground: docker-compose.yml brought them up, this strikes
//! them, and no container outside the project or without the label of a member.
//!
//! Two ways to cut a member off. `isolate` takes its container off the network between members; the
//! engine does it, so it works from inside a container too. Links, one by one and one way, are cut by
//! the firewall within the members' namespaces, which takes root on the machine that the engine runs
//! on. Clients reach members over a network of their own, past either.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use super::docker::{Details, Engine};
use super::firewall::{self, Room};
use super::usage;
use crate::endpoint::Endpoint;
use crate::ground::{Ability, Change, Done, Ground, Link, Product, Usage};
use crate::{Failure, Patience};

const PROJECT_LABEL: &str = "com.docker.compose.project";
const SERVICE_LABEL: &str = "com.docker.compose.service";
const NETWORK_LABEL: &str = "com.docker.compose.network";
const MEMBER_LABEL: &str = "meerkat.role=member";
const CLIENT_PORT: u16 = 2379;
const STOP_GRACE: Duration = Duration::from_secs(10);
const READY_POLL: Duration = Duration::from_millis(100);

/// The members of one compose project.
#[derive(Debug)]
pub struct ComposeGround {
    engine: Engine,
    project: String,
    /// The network between members.
    peers: String,
    seats: Vec<Seat>,
    links: Vec<(usize, usize, Link)>,
    can_cut: bool,
}

#[derive(Debug)]
struct Seat {
    service: String,
    container: String,
    endpoint: Endpoint,
    /// Of its present life, where this machine's numbers are the engine's.
    pid: Option<u32>,
    address: Option<Ipv4Addr>,
}

impl ComposeGround {
    /// The members of a project: the named one, else that of the container this runs in, else the only
    /// one that has members.
    pub async fn find(project: Option<&str>) -> Result<Self, Failure> {
        let engine = Engine::find().await?;
        let own = own_project(&engine).await;
        let inside = own.is_some();
        let project = match project.map(str::to_owned).or(own) {
            Some(project) => project,
            None => only_project(&engine).await?,
        };
        let of_project = format!("{PROJECT_LABEL}={project}");
        let peers = engine.networks(&[of_project.clone(), format!("{NETWORK_LABEL}=peers")]).await?;
        let peers = peers
            .into_iter()
            .next()
            .map(|network| network.id)
            .ok_or_else(|| none_of(&project, "network between members"))?;
        let mut seats = Vec::new();
        for container in engine.containers(&[of_project, MEMBER_LABEL.to_owned()]).await? {
            let service = container.labels.get(SERVICE_LABEL).cloned().unwrap_or_default();
            let details = engine.inspect(&container.id).await?;
            let endpoint =
                if inside { Endpoint::of(&service, CLIENT_PORT)? } else { published(&service, &details)? };
            seats.push(Seat { service, container: container.id, endpoint, pid: None, address: None });
        }
        if seats.is_empty() {
            return Err(none_of(&project, "member"));
        }
        seats.sort_by(|one, other| one.service.cmp(&other.service));
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let can_cut =
            root && !inside && firewall::works(&["nft", "-v"]) && firewall::works(&["nsenter", "-V"]);
        let mut ground = Self { engine, project, peers, seats, links: Vec::new(), can_cut };
        for member in 0..ground.seats.len() {
            ground.look_again(member).await?;
        }
        Ok(ground)
    }

    /// The project's name.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// Takes a member off the network between members; clients still reach it.
    pub async fn isolate(&mut self, member: usize) -> Result<(), Failure> {
        self.engine.disconnect(&self.peers, &self.seats[member].container).await
    }

    /// What a container costs, as the engine counts.
    pub async fn stats(&self, member: usize) -> Result<super::docker::Stats, Failure> {
        self.engine.stats(&self.seats[member].container).await
    }

    /// The last lines a member printed.
    pub async fn logs(&self, member: usize, lines: usize) -> Result<String, Failure> {
        self.engine.logs(&self.seats[member].container, lines).await
    }

    /// Whatever was done to members, by this process or one before it: every one runs, awake, on all
    /// its networks, and no packet is dropped.
    pub async fn restore(&mut self) -> Result<(), Failure> {
        self.links.clear();
        for member in 0..self.seats.len() {
            let details = self.engine.inspect(&self.seats[member].container).await?;
            let Seat { service, container, .. } = &self.seats[member];
            if details.state.paused {
                self.engine.unpause(container).await?;
            }
            if !self.on_peers(&details) {
                let names = [service.clone(), format!("{service}.peers")];
                self.engine.connect(&self.peers, container, &names).await?;
            }
            if !details.state.running {
                self.engine.start(container).await?;
            }
            self.look_again(member).await?;
        }
        self.apply_all()
    }

    /// Waits until every member answers a linearizable read; how long that took.
    pub async fn wait_until_ready(&self, within: Duration) -> Result<Duration, Failure> {
        let patience = Patience::of("every member serves", within);
        for seat in &self.seats {
            while let Err(status) = seat.endpoint.linearizable_probe(Duration::from_secs(1)).await {
                if patience.left().is_zero() {
                    let why = crate::outcome::describe(&status);
                    let log = self.engine.logs(&seat.container, 12).await.unwrap_or_default();
                    return Err(patience.never(format_args!("{}: {why}\n{log}", seat.service)));
                }
                tokio::time::sleep(READY_POLL).await;
            }
        }
        patience.came()
    }

    /// The member that leads, if one of them says so now: the one that does in the highest term.
    pub async fn leader(&self) -> Option<usize> {
        let mut best: Option<(u64, usize)> = None;
        for (member, seat) in self.seats.iter().enumerate() {
            let Ok(status) = seat.endpoint.status(Duration::from_millis(500)).await else { continue };
            let own = status.header.as_ref().map_or(0, |header| header.member_id);
            if own != 0 && status.leader == own && best.is_none_or(|(term, _)| term < status.raft_term) {
                best = Some((status.raft_term, member));
            }
        }
        best.map(|(_, member)| member)
    }

    fn on_peers(&self, details: &Details) -> bool {
        details.network_settings.networks.values().any(|attached| attached.network_id == self.peers)
    }

    /// Process and address change with every life of a container.
    async fn look_again(&mut self, member: usize) -> Result<Details, Failure> {
        let details = self.engine.inspect(&self.seats[member].container).await?;
        let mut attached = details.network_settings.networks.values();
        let on_peers = attached.find(|attached| attached.network_id == self.peers);
        self.seats[member].address = on_peers.and_then(|attached| attached.ip_address.parse().ok());
        self.seats[member].pid = (self.can_cut && details.state.running).then_some(details.state.pid);
        Ok(details)
    }

    /// Brings the rules of all receivers to what `links` says. A member that is dead has none, and
    /// gets them when it starts.
    fn apply_all(&self) -> Result<(), Failure> {
        for (receiver, seat) in self.seats.iter().enumerate() {
            let Some(pid) = seat.pid else { continue };
            let incoming: Vec<(Ipv4Addr, Link)> = self
                .links
                .iter()
                .filter(|(_, to, _)| *to == receiver)
                .filter_map(|(from, _, link)| Some((self.seats[*from].address?, *link)))
                .collect();
            firewall::apply(&Room::OfProcess(pid), &incoming)?;
        }
        Ok(())
    }

    fn set(&mut self, from: usize, to: usize, link: Link) -> Result<(), Failure> {
        if !self.can_cut || matches!(link, Link::Slow(..)) {
            return Err(Failure::harness(format!("a link cannot be {link:?} here")));
        }
        self.links.retain(|(sender, receiver, _)| (*sender, *receiver) != (from, to));
        if link != Link::Up {
            self.links.push((from, to, link));
        }
        self.apply_all()
    }
}

impl Drop for ComposeGround {
    fn drop(&mut self) {
        // The containers live on, and must not keep our rules.
        if !std::mem::take(&mut self.links).is_empty()
            && let Err(failure) = self.apply_all()
        {
            eprintln!("compose: {failure}");
        }
    }
}

/// The project of the container that this process runs in, if it runs in one. A container's host name
/// is its id unless somebody named it.
async fn own_project(engine: &Engine) -> Option<String> {
    let name = std::fs::read_to_string("/etc/hostname").ok()?;
    let details = engine.inspect(name.trim()).await.ok()?;
    details.config.labels.get(PROJECT_LABEL).cloned()
}

async fn only_project(engine: &Engine) -> Result<String, Failure> {
    let members = engine.containers(&[MEMBER_LABEL.to_owned()]).await?;
    let mut projects: Vec<String> =
        members.iter().filter_map(|container| container.labels.get(PROJECT_LABEL).cloned()).collect();
    projects.sort_unstable();
    projects.dedup();
    match projects.as_slice() {
        [project] => Ok(project.clone()),
        [] => Err(Failure::Missing(
            "no compose project has members here; start one with: docker compose up -d".to_owned(),
        )),
        several => Err(Failure::Missing(format!(
            "several compose projects have members: {}; name one",
            several.join(", ")
        ))),
    }
}

fn none_of(project: &str, what: &str) -> Failure {
    Failure::Missing(format!(
        "the compose project {project:?} has no {what}; is it up? (docker compose up -d)"
    ))
}

fn published(service: &str, details: &Details) -> Result<Endpoint, Failure> {
    let bound = details.network_settings.ports.get(&format!("{CLIENT_PORT}/tcp")).and_then(Option::as_ref);
    let port = bound
        .and_then(|bound| bound.first())
        .and_then(|bound| Some((bound.host_ip.as_str(), bound.host_port.parse().ok()?)));
    let (address, port) = port.ok_or_else(|| {
        Failure::harness(format!("{service} is not running, or its client port is not published"))
    })?;
    Endpoint::of(if address == "0.0.0.0" { "127.0.0.1" } else { address }, port)
}

impl Ground for ComposeGround {
    fn product(&self) -> Product {
        Product::Meerkat
    }

    fn can(&self, ability: Ability) -> bool {
        match ability {
            Ability::Terminate | Ability::Pause => true,
            Ability::Cut | Ability::OneWay | Ability::Lossy => self.can_cut,
            Ability::Slow | Ability::Changed | Ability::SmallDisk | Ability::Membership => false,
        }
    }

    fn members(&self) -> usize {
        self.seats.len()
    }

    fn enlisted(&self, member: usize) -> bool {
        member < self.seats.len()
    }

    fn name(&self, member: usize) -> String {
        self.seats[member].service.clone()
    }

    fn endpoint(&self, member: usize) -> Endpoint {
        self.seats[member].endpoint.clone()
    }

    fn is_running(&mut self, member: usize) -> Done<'_, bool> {
        Box::pin(async move { Ok(self.look_again(member).await?.state.running) })
    }

    fn kill(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move {
            self.seats[member].pid = None;
            self.engine.kill(&self.seats[member].container).await
        })
    }

    fn terminate(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move {
            self.seats[member].pid = None;
            self.engine.stop(&self.seats[member].container, STOP_GRACE).await
        })
    }

    fn start(&mut self, member: usize, change: Change) -> Done<'_> {
        Box::pin(async move {
            if !change.env.is_empty() || !change.flags.is_empty() {
                return Err(Failure::harness("a container starts as it was made, with no change"));
            }
            self.engine.start(&self.seats[member].container).await?;
            self.look_again(member).await?;
            self.apply_all()
        })
    }

    fn pause(&mut self, member: usize) -> Done<'_> {
        Box::pin(async move { self.engine.pause(&self.seats[member].container).await })
    }

    fn resume(&mut self, member: usize) -> Done<'_> {
        // Older engines answer with an error of their own if it is not paused.
        Box::pin(async move {
            if self.look_again(member).await?.state.paused {
                self.engine.unpause(&self.seats[member].container).await?;
            }
            Ok(())
        })
    }

    fn set_link(&mut self, from: usize, to: usize, link: Link) -> Done<'_> {
        Box::pin(async move { self.set(from, to, link) })
    }

    fn heal_links(&mut self) -> Done<'_> {
        Box::pin(async move {
            self.links.clear();
            self.apply_all()
        })
    }

    fn enlist(&mut self) -> Done<'_, usize> {
        Box::pin(async { Err(Failure::harness("a compose project has the members that its file gives it")) })
    }

    fn discharge(&mut self, _: usize) -> Done<'_> {
        Box::pin(async { Err(Failure::harness("a compose project has the members that its file gives it")) })
    }

    fn peer_url(&self, member: usize) -> String {
        format!("http://{}.peers:2380", self.seats[member].service)
    }

    fn data_dir(&self, _: usize) -> Option<PathBuf> {
        None
    }

    fn usage(&self, member: usize) -> Option<Usage> {
        usage::of_process(self.seats[member].pid?).ok()
    }

    fn tail(&self, member: usize) -> String {
        format!("docker logs {}", self.seats[member].container)
    }
}
