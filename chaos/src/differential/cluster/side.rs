//! One of the two clusters compared: its processes, and what it calls its members.

use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::{Member as Listed, MemberAddRequest, MemberUpdateRequest};
use tonic::Status;

use super::answer::{Names, Raw};
use super::learner::Errand;
use super::step::{Ask, Target, Urls};
use super::world::{Role, World};
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::describe;

/// How long a request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// The same for requests that one product never answers.
const HANG: Duration = Duration::from_secs(2);
/// How long starting, electing, ending and agreeing may take.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// From which time on voters that are connected count as connected for long enough: 5 s, and some.
const HEALTHY_AFTER: Duration = Duration::from_secs(9);
/// An id that no member has.
const UNKNOWN_ID: u64 = 0x0bad_cafe_0bad_cafe;

/// One cluster.
#[derive(Debug)]
pub struct Side {
    /// Whose.
    pub product: Product,
    /// What it calls its members.
    pub names: Names,
    /// Its processes.
    pub cluster: Cluster,
    /// By number: the process, if there is one, and the peer URLs.
    seats: Vec<Seat>,
    /// A process that was laid out and not taken in yet.
    newcomer: Option<usize>,
    /// When the last voter was started: it is connected to nobody before.
    started: Instant,
    /// When it served for the first time after that.
    served: Instant,
}

#[derive(Clone, Debug)]
struct Seat {
    member: Option<usize>,
    urls: Vec<String>,
}

impl Side {
    /// Starts a cluster.
    pub async fn start(product: Product, members: usize) -> Result<Self, Failure> {
        let started = Instant::now();
        let cluster = Cluster::start(&ClusterSpec::new(product, members)).await?;
        let (names, seats, served) = (Names::default(), Vec::new(), Instant::now());
        let mut side = Self { product, names, cluster, seats, newcomer: None, started, served };
        let listed = side.endpoint_of_member(0).member_list(true, ANSWER_WITHIN).await;
        let listed = listed?.members;
        for index in 0..members {
            let url = side.call_by_number(index);
            let id = listed.iter().find(|member| member.peer_ur_ls.contains(&url)).map(|member| member.id);
            let id = id.ok_or_else(|| Failure::broken(format!("{url} is not in {listed:?}")))?;
            side.names.ids.push(id);
            side.seats.push(Seat { member: Some(index), urls: vec![url] });
        }
        Ok(side)
    }

    /// Hides the ports of a process; its peer URL.
    fn call_by_number(&mut self, index: usize) -> String {
        let member = &self.cluster.members()[index];
        let url = member.peer_url().to_owned();
        let client = member.endpoint().url().to_owned();
        self.names.urls.insert(url.clone(), format!("peer of {}", member.name()));
        self.names.urls.insert(client, format!("client of {}", member.name()));
        url
    }

    fn endpoint_of_member(&self, index: usize) -> &Endpoint {
        self.cluster.members()[index].endpoint()
    }

    fn endpoint(&self, mate: usize) -> Result<&Endpoint, Failure> {
        let member = self.seats.get(mate).and_then(|seat| seat.member);
        let member = member.ok_or_else(|| Failure::harness(format!("member {mate} has no process")))?;
        Ok(self.endpoint_of_member(member))
    }

    fn seat(&self, mate: usize) -> Result<usize, Failure> {
        self.seats[mate].member.ok_or_else(|| Failure::harness(format!("member {mate} has no process")))
    }

    fn id(&self, target: Target) -> u64 {
        match target {
            Target::Mate(mate) => self.names.ids[mate],
            Target::Unknown => UNKNOWN_ID,
            Target::Zero => 0,
        }
    }

    /// The URLs of a request about a member.
    fn urls(&mut self, urls: &Urls, about: Option<usize>) -> Result<Vec<String>, Failure> {
        Ok(match urls {
            Urls::Newcomer => {
                let index = match self.newcomer {
                    Some(index) => index,
                    None => self.cluster.lay_out_newcomer()?,
                };
                self.newcomer = Some(index);
                vec![self.call_by_number(index)]
            }
            Urls::Plain(urls) | Urls::Bad(urls) => urls.clone(),
            Urls::UsedBy(mate, before) => {
                before.iter().chain(self.seats[*mate].urls.iter().take(1)).cloned().collect()
            }
            Urls::Own => about.map(|mate| self.seats[mate].urls.clone()).unwrap_or_default(),
        })
    }

    /// Sends a request about membership.
    pub async fn ask(&mut self, at: usize, ask: &Ask) -> Result<Raw, Failure> {
        let members = |header, member, members| Raw::Members { header, member, members };
        let answer: Result<Raw, Status> = match ask {
            Ask::List { linearizable } => {
                let answer = self.endpoint(at)?.member_list(*linearizable, ANSWER_WITHIN).await;
                answer.map(|answer| members(answer.header, None, answer.members))
            }
            Ask::Add { learner, urls } => {
                let peer_ur_ls = self.urls(urls, None)?;
                let request = MemberAddRequest { peer_ur_ls, is_learner: *learner };
                let answer = self.endpoint(at)?.member_add(request, ANSWER_WITHIN).await;
                answer.map(|answer| members(answer.header, answer.member, answer.members))
            }
            Ask::Remove(target) => {
                let answer = self.endpoint(at)?.member_remove(self.id(*target), ANSWER_WITHIN).await;
                answer.map(|answer| members(answer.header, None, answer.members))
            }
            Ask::Update { target, urls } => {
                let about = if let Target::Mate(mate) = target { Some(*mate) } else { None };
                let peer_ur_ls = self.urls(urls, about)?;
                let request = MemberUpdateRequest { id: self.id(*target), peer_ur_ls };
                let answer = self.endpoint(at)?.member_update(request, ANSWER_WITHIN).await;
                answer.map(|answer| members(answer.header, None, answer.members))
            }
            Ask::Promote(target) => {
                let answer = self.endpoint(at)?.member_promote(self.id(*target), ANSWER_WITHIN).await;
                answer.map(|answer| members(answer.header, None, answer.members))
            }
            Ask::MoveLeader(target) => {
                let within = if self.is_listed_learner(*target, at).await? { HANG } else { ANSWER_WITHIN };
                self.endpoint(at)?.move_leader(self.id(*target), within).await.map(Raw::Moved)
            }
            Ask::Status => {
                let answer = self.endpoint(at)?.status(ANSWER_WITHIN).await;
                answer.map(|status| Raw::Status(Box::new(status)))
            }
        };
        Ok(answer.unwrap_or_else(Raw::Refused))
    }

    async fn is_listed_learner(&self, target: Target, at: usize) -> Result<bool, Failure> {
        let id = self.id(target);
        let listed = self.endpoint(at)?.member_list(false, ANSWER_WITHIN).await;
        Ok(listed
            .is_ok_and(|listed| listed.members.iter().any(|member| member.id == id && member.is_learner)))
    }

    /// Sends a request to a learner that is not about membership.
    pub async fn run_errand(&self, at: usize, errand: Errand) -> Result<Raw, Failure> {
        let answer = errand.send(self.endpoint(at)?, ANSWER_WITHIN).await;
        Ok(answer.map_or_else(Raw::Refused, |()| Raw::Served))
    }

    /// Takes in the member that an answer to MemberAdd names. Whether it can be started depends on the
    /// URLs that were asked for.
    pub fn added(&mut self, member: &Listed, urls: &Urls) {
        self.names.ids.push(member.id);
        let index = if *urls == Urls::Newcomer { self.newcomer.take() } else { None };
        self.seats.push(Seat { member: index, urls: member.peer_ur_ls.clone() });
    }

    /// Tells a member that was never started who the others are now.
    pub async fn introduce(&mut self, mate: usize, by: usize) -> Result<(), Failure> {
        let index = self.seat(mate)?;
        let listed = self.endpoint(by)?.member_list(false, ANSWER_WITHIN).await;
        let listed = listed?.members;
        self.cluster.prepare_to_join(index, &listed);
        Ok(())
    }

    /// Takes in what an answer to MemberUpdate says.
    pub fn updated(&mut self, mate: usize, members: &[Listed]) {
        let id = self.names.ids[mate];
        if let Some(member) = members.iter().find(|member| member.id == id) {
            self.seats[mate].urls.clone_from(&member.peer_ur_ls);
        }
    }

    /// Starts a member, and waits until it serves in its role.
    pub async fn start_mate(&mut self, mate: usize, role: Role) -> Result<(), Failure> {
        let index = self.seat(mate)?;
        let member = self.cluster.member(index);
        let started = Instant::now();
        member.start()?;
        if role == Role::Voter {
            member.wait_until_ready(SETTLE_WITHIN).await?;
            (self.started, self.served) = (started, Instant::now());
            return Ok(());
        }
        let deadline = Instant::now() + SETTLE_WITHIN;
        loop {
            let status = self.cluster.members()[index].endpoint().status(ANSWER_WITHIN).await;
            if status.is_ok_and(|status| status.leader != 0) {
                return Ok(());
            }
            let member = self.cluster.member(index);
            if deadline < Instant::now() || !member.is_running()? {
                return Err(Failure::broken(format!("{} has not joined: {}", member.name(), member.tail())));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Starts a member that was removed.
    pub fn start_removed(&mut self, mate: usize) -> Result<(), Failure> {
        let index = self.seat(mate)?;
        self.cluster.member(index).start()
    }

    /// Kills a member.
    pub fn kill(&mut self, mate: usize) -> Result<(), Failure> {
        let index = self.seat(mate)?;
        self.cluster.member(index).kill()
    }

    /// Waits until the process of a removed member has ended by itself.
    pub async fn await_end_of(&mut self, mate: usize) -> Result<(), Failure> {
        let index = self.seat(mate)?;
        let deadline = Instant::now() + SETTLE_WITHIN;
        while self.cluster.member(index).is_running()? {
            if deadline < Instant::now() {
                let member = &self.cluster.members()[index];
                return Err(Failure::broken(format!(
                    "{:?}: {} was removed and still runs after {SETTLE_WITHIN:?}: {}",
                    self.product,
                    member.name(),
                    member.tail()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// How long ago the last voter was started.
    pub fn started_for(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until all voters have been connected for long enough.
    pub async fn rest(&self) {
        tokio::time::sleep(HEALTHY_AFTER.saturating_sub(self.served.elapsed())).await;
    }

    /// Counts the time of connection anew: someone became a voter just now.
    pub fn count_anew(&mut self) {
        self.served = Instant::now();
    }

    /// Waits until every voter that runs lists the members there are, those that were started by name.
    pub async fn agree(&self, world: &World) -> Result<(), Failure> {
        let mut wanted: Vec<(u64, bool)> = world
            .those(|mate| mate.role != Role::Removed)
            .into_iter()
            .map(|mate| (self.names.ids[mate], world.mates[mate].started))
            .collect();
        wanted.sort_unstable();
        let deadline = Instant::now() + SETTLE_WITHIN;
        for mate in world.running_voters() {
            loop {
                let listed = self.endpoint(mate)?.member_list(true, ANSWER_WITHIN).await;
                let shown = |member: &Listed| (member.id, !member.name.is_empty());
                let seen = listed.as_ref().map(|list| list.members.iter().map(shown).collect::<Vec<_>>());
                if seen.as_ref().is_ok_and(|seen| *seen == wanted) {
                    break;
                }
                if deadline < Instant::now() {
                    return Err(Failure::broken(format!(
                        "{:?}: member {mate} does not list (id, named) {wanted:x?} but {listed:?}",
                        self.product
                    )));
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Whether the others say, now or soon, that this one is no member.
    pub async fn is_gone(&self, gone: usize, world: &World) -> Result<bool, Failure> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        while Instant::now() < deadline {
            for mate in world.running_voters().into_iter().filter(|mate| *mate != gone) {
                let listed = self.endpoint(mate)?.member_list(true, ANSWER_WITHIN).await;
                let absent = |member: &Listed| member.id != self.names.ids[gone];
                if listed.is_ok_and(|listed| listed.members.iter().all(absent)) {
                    return Ok(true);
                }
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(false)
    }

    /// Waits until a learner has all that the leader has.
    pub async fn catch_up(&self, mate: usize, leader: usize) -> Result<(), Failure> {
        let deadline = Instant::now() + SETTLE_WITHIN;
        loop {
            let own = self.endpoint(mate)?.status(ANSWER_WITHIN).await;
            let other = self.endpoint(leader)?.status(ANSWER_WITHIN).await;
            if let (Ok(own), Ok(other)) = (&own, &other)
                && other.raft_index <= own.raft_applied_index
            {
                return Ok(());
            }
            if deadline < Instant::now() {
                return Err(Failure::broken(format!("{:?}: member {mate} does not catch up", self.product)));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Brings leadership to a member.
    pub async fn align(&self, world: &World) -> Result<(), Failure> {
        let wanted = self.names.ids[world.leader];
        let deadline = Instant::now() + SETTLE_WITHIN;
        let mut last = "nobody leads".to_owned();
        while Instant::now() < deadline {
            let mut agreed = true;
            for mate in world.running_voters() {
                let Ok(status) = self.endpoint(mate)?.status(ANSWER_WITHIN).await else {
                    agreed = false;
                    continue;
                };
                agreed &= status.leader == wanted;
                if status.leader == self.names.ids[mate] && status.leader != wanted {
                    let moved = self.endpoint(mate)?.move_leader(wanted, ANSWER_WITHIN).await;
                    last = moved.map_or_else(|status| describe(&status), |_| "moved".to_owned());
                }
            }
            if agreed {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Err(Failure::broken(format!(
            "{:?}: member {} does not become leader (last answer: {last})",
            self.product, world.leader
        )))
    }
}
