//! Members come and go under load: one more, one less, a dead one replaced, the leader removed, a
//! learner taken in and promoted.
//!
//! No step trusts an answer. Each round reads the list of members, linearizably, from whoever
//! answers; `next` decides purely what is to be done; it is asked for once, and the next round looks
//! at what came of it. So a step whose answer was lost is neither forgotten nor done twice. A strike
//! that does not end in its time says so in its blow, since other faults may be at work; healing must
//! end, and brings back the size of the beginning.

pub mod next;

use std::time::{Duration, Instant};

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::{Member, MemberAddRequest};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::{Blow, Nemesis, sight};
use crate::endpoint::{Contact, Endpoint, Roster};
use crate::ground::{self, Change, Done, Ground};
use crate::outcome::describe;
use crate::{Failure, Patience};
use next::{Action, Goal, Seat, next};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const LIST_WITHIN: Duration = Duration::from_secs(2);
const STRIKE_WITHIN: Duration = Duration::from_secs(40);
const HEAL_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(150);
/// Voters there may be at most while a strike lasts.
const SIZE_MAX: usize = 5;

/// What a strike does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// One more voter.
    Grow,
    /// One voter less, any.
    Shrink,
    /// The leader less.
    RemoveLeader,
    /// A member is killed, removed, and another takes its place.
    Replace,
    /// One more, first as a learner.
    Learner,
}

/// Changes membership; see the head of the file.
#[derive(Debug, Default)]
pub struct Membership {
    /// How many voters there were before the first strike.
    size: Option<usize>,
    /// Moves to make before any is made again.
    bag: Vec<Move>,
    /// One that was laid out and whose addition is not certain.
    pending: Option<usize>,
    /// One in so many requests is met by the death of a member while it is on its way.
    deaths: Option<u32>,
    /// Whether the last request was refused because the cluster is unhealthy. Nobody dies then: it
    /// would never be anything else, and no change would ever be let pass.
    unhealthy: bool,
    /// Told who is there after each step, if anybody wants to know.
    roster: Option<Roster>,
    /// What was done so far.
    pub tally: Tally,
}

/// What was done, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Members added, by an answer that said so.
    pub added: usize,
    /// Members removed.
    pub removed: usize,
    /// Learners promoted.
    pub promoted: usize,
    /// Requests that were refused or got no answer.
    pub refused: usize,
    /// Members killed while a request was on its way.
    pub killed: usize,
}

impl Membership {
    /// One that kills a member while a request is on its way, once in so many requests, and tells a
    /// roster who is there.
    pub fn with_deaths(one_in: u32, roster: Roster) -> Self {
        Self { deaths: Some(one_in), roster: Some(roster), ..Self::default() }
    }

    async fn strike_with(
        &mut self,
        ground: &mut dyn Ground,
        dice: &mut StdRng,
        chosen: Move,
    ) -> Result<Blow, Failure> {
        let before = ground::enlisted(ground);
        let deadline = Instant::now() + STRIKE_WITHIN;
        let size = *self.size.get_or_insert(before.len());
        let (goal, what) = match chosen {
            Move::Grow => (Goal::voters(size + 1), "grows by one".to_owned()),
            Move::Learner => (Goal::through_learner(size + 1), "grows by a learner".to_owned()),
            Move::Shrink => (Goal::voters(size - 1), "shrinks by one".to_owned()),
            Move::RemoveLeader => {
                let leader = sight::leader(ground).await;
                let id = self.id_of(ground, leader).await;
                (Goal { without: id, ..Goal::voters(size - 1) }, "loses its leader by removal".to_owned())
            }
            Move::Replace => {
                let victim = *before.choose(dice).unwrap_or(&0);
                let id = self.id_of(ground, Some(victim)).await;
                ground.kill(victim).await?;
                let what = format!("replaces {}, killed", ground.name(victim));
                (Goal { without: id, ..Goal::voters(size) }, what)
            }
        };
        let end = self.pursue(ground, dice, goal, deadline).await?;
        let changed: Vec<usize> = (0..ground.members())
            .filter(|member| before.contains(member) != ground.enlisted(*member))
            .collect();
        let names = changed.iter().map(|member| ground.name(*member)).collect::<Vec<_>>().join(", ");
        // A move that was cut short may have left anybody down.
        let met = if end.is_some() { ground::enlisted(ground) } else { changed };
        let end = end.map_or_else(String::new, |last| format!("; not done in time ({last})"));
        Ok(Blow::made(format!("the cluster {what}: {names}{end}"), met))
    }

    /// Takes steps until the goal is reached; otherwise what was last heard.
    async fn pursue(
        &mut self,
        ground: &mut dyn Ground,
        dice: &mut StdRng,
        goal: Goal,
        deadline: Instant,
    ) -> Result<Option<String>, Failure> {
        let mut last = "nobody was asked".to_owned();
        while Instant::now() < deadline {
            self.tell(ground);
            let listed = match list(ground).await {
                Ok(listed) => listed,
                Err(status) => {
                    last = format!("no list: {}", describe(&status));
                    // Whoever does not run may be what is missing.
                    let all = ground::enlisted(ground);
                    sight::start(ground, &all).await?;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let seats = self.seats(ground, &listed).await?;
            let action = next(&seats, goal);
            if action == Action::Done {
                return Ok(None);
            }
            if let Err(refusal) = self.act(ground, dice, action, &seats).await? {
                self.tally.refused += 1;
                last = format!("{action:?}: {refusal}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(Some(last))
    }

    /// One step. What is refused or not answered is looked at again in the next round.
    async fn act(
        &mut self,
        ground: &mut dyn Ground,
        dice: &mut StdRng,
        action: Action,
        seats: &[Seat],
    ) -> Result<Result<(), String>, Failure> {
        let count = |counter: &mut usize, answer: Result<(), tonic::Status>| {
            *counter += usize::from(answer.is_ok());
            Ok(answer.map_err(|status| describe(&status)))
        };
        match action {
            Action::Done => Ok(Ok(())),
            Action::Start(member) => {
                ground.start(member, Change::default()).await?;
                if self.pending == Some(member) {
                    self.pending = None;
                }
                Ok(Ok(()))
            }
            Action::Discharge(member) => {
                ground.discharge(member).await?;
                Ok(Ok(()))
            }
            Action::Add { learner } => {
                let member = match self.pending {
                    Some(member) => member,
                    None => ground.enlist().await?,
                };
                self.pending = Some(member);
                let request =
                    MemberAddRequest { peer_ur_ls: vec![ground.peer_url(member)], is_learner: learner };
                let ask =
                    move |to: Endpoint| async move { to.member_add(request, ANSWER_WITHIN).await.map(drop) };
                let answer = self.request(ground, dice, seats, ask).await?;
                count(&mut self.tally.added, answer)
            }
            Action::Promote(id) => {
                let ask =
                    move |to: Endpoint| async move { to.member_promote(id, ANSWER_WITHIN).await.map(drop) };
                let answer = self.request(ground, dice, seats, ask).await?;
                count(&mut self.tally.promoted, answer)
            }
            Action::Remove(id) => {
                let ask =
                    move |to: Endpoint| async move { to.member_remove(id, ANSWER_WITHIN).await.map(drop) };
                let answer = self.request(ground, dice, seats, ask).await?;
                count(&mut self.tally.removed, answer)
            }
        }
    }

    /// Sends a request to a member that runs; now and then somebody dies while it is on its way.
    async fn request<F>(
        &mut self,
        ground: &mut dyn Ground,
        dice: &mut StdRng,
        seats: &[Seat],
        ask: impl FnOnce(Endpoint) -> F,
    ) -> Result<Result<(), tonic::Status>, Failure>
    where
        F: Future<Output = Result<(), tonic::Status>> + Send + 'static,
    {
        let able = |seat: &Seat| if seat.running && !seat.learner { seat.member } else { None };
        let able: Vec<usize> = seats.iter().filter_map(able).collect();
        let Some(at) = able.choose(dice) else {
            return Ok(Err(tonic::Status::unavailable("no voter runs")));
        };
        let answer = tokio::spawn(ask(ground.endpoint(*at)));
        if !self.unhealthy && self.deaths.is_some_and(|one_in| dice.random_ratio(1, one_in)) {
            // Around the time that a change takes on loopback.
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..60))).await;
            let leader = if dice.random_bool(0.6) { sight::leader(ground).await } else { None };
            let victim = leader.or_else(|| able.choose(dice).copied());
            if let Some(victim) = victim {
                ground.kill(victim).await?;
                self.tally.killed += 1;
            }
        }
        let answer = answer.await.map_err(|error| Failure::harness(format!("a request ended: {error}")))?;
        let unhealthy = |status: &tonic::Status| status.message() == EtcdError::Unhealthy.message();
        self.unhealthy = answer.as_ref().is_err_and(unhealthy);
        Ok(answer)
    }

    /// The list of the cluster beside what stands on the ground.
    async fn seats(&self, ground: &mut dyn Ground, listed: &[Member]) -> Result<Vec<Seat>, Failure> {
        let mut seats = Vec::new();
        for member in listed {
            let stands = (0..ground.members()).find(|it| member.peer_ur_ls.contains(&ground.peer_url(*it)));
            let running = match stands {
                Some(stands) => ground.is_running(stands).await?,
                None => false,
            };
            seats.push(Seat { id: Some(member.id), member: stands, learner: member.is_learner, running });
        }
        for member in ground::enlisted(ground) {
            if !seats.iter().any(|seat| seat.member == Some(member)) {
                let running = ground.is_running(member).await?;
                seats.push(Seat { id: None, member: Some(member), learner: false, running });
            }
        }
        Ok(seats)
    }

    async fn id_of(&self, ground: &mut dyn Ground, member: Option<usize>) -> Option<u64> {
        let url = ground.peer_url(member?);
        let listed = list(ground).await.ok()?;
        listed.iter().find(|listed| listed.peer_ur_ls.contains(&url)).map(|listed| listed.id)
    }

    fn tell(&self, ground: &dyn Ground) {
        if let Some(roster) = &self.roster {
            let contact = |member: usize| Contact { member, endpoint: ground.endpoint(member) };
            roster.set(ground::enlisted(ground).into_iter().map(contact).collect());
        }
    }
}

/// The list, linearizably, from whoever answers first.
async fn list(ground: &mut dyn Ground) -> Result<Vec<Member>, tonic::Status> {
    let mut asked: FuturesUnordered<_> = ground::enlisted(ground)
        .into_iter()
        .map(|member| ground.endpoint(member))
        .map(|endpoint| async move { endpoint.member_list(true, LIST_WITHIN).await })
        .collect();
    let mut last = tonic::Status::unavailable("nobody belongs to the cluster");
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(answer) => return Ok(answer.members),
            Err(status) => last = status,
        }
    }
    Err(last)
}

impl Nemesis for Membership {
    fn strike<'a>(&'a mut self, ground: &'a mut dyn Ground, dice: &'a mut StdRng) -> Done<'a, Blow> {
        async move {
            let size = self.size.unwrap_or_else(|| ground::enlisted(ground).len());
            let moves: &[Move] = match size {
                0..=2 => &[Move::Grow, Move::Learner],
                SIZE_MAX.. => &[Move::Shrink, Move::RemoveLeader, Move::Replace],
                _ => &[Move::Grow, Move::Shrink, Move::RemoveLeader, Move::Replace, Move::Learner],
            };
            if self.bag.is_empty() {
                self.bag = moves.to_vec();
                self.bag.shuffle(dice);
            }
            let chosen = self.bag.pop().unwrap_or(Move::Grow);
            self.strike_with(ground, dice, chosen).await
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, ground: &'a mut dyn Ground) -> Done<'a> {
        async move {
            let Some(size) = self.size else { return Ok(()) };
            let patience = Patience::of(format!("the cluster is back at {size} voters"), HEAL_WITHIN);
            let deaths = self.deaths.take();
            let mut dice = rand::SeedableRng::seed_from_u64(size as u64);
            let end =
                self.pursue(ground, &mut dice, Goal::voters(size), Instant::now() + patience.left()).await;
            self.deaths = deaths;
            match end? {
                None => {
                    self.tell(ground);
                    patience.came().map(drop)
                }
                Some(last) => Err(patience.never(format_args!("last answer: {last}"))),
            }
        }
        .boxed()
    }
}
