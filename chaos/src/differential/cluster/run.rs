//! What a run about membership is: the same steps to both clusters, one at a time, each answer compared.

use std::time::Duration;

use meerkat_proto::error_text::EtcdError;
use tonic::Status;

use super::allow_list::ROWS;
use super::answer::{Answer, Raw};
use super::coverage::{self, is_not_ready};
use super::generator::Generator;
use super::side::Side;
use super::step::{Ask, Step, Target, Urls};
use super::world::{Health, Mate, Role, World};
use crate::Failure;
use crate::differential::allow_list::{Row, allowed};
use crate::differential::coverage::Coverage;
pub use crate::differential::engine::Plan;
use crate::differential::engine::{self, Both, Surface};
use crate::driver::{Cluster, Product};

/// A run goes on for so many times its steps if some kind has not come up.
const EXTENSION_MAX: usize = 3;
/// After a change, even one that was refused when it was applied, until a leader of 3.5.1 takes another.
const AFTER_CHANGE: Duration = Duration::from_millis(150);
/// After a transfer of leadership that cannot succeed, until 3.5.1 gives it up.
const AFTER_TRANSFER: Duration = Duration::from_millis(1_500);
/// For how long after a start the cluster is surely unhealthy: somewhat less than the 5 s for which its
/// voters have to be connected, which they are some time after it.
const SURELY_FRESH: Duration = Duration::from_secs(4);
/// Until a death has been noticed by all.
const AFTER_KILL: Duration = Duration::from_millis(1_000);

/// Runs it; what came up. Some kinds of step need a cluster that began with one member; such a run goes
/// on beyond its steps until every kind has come up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let Plan { seed, steps, members, .. } = plan;
    let again =
        format!("meerkat-chaos cluster-differential --seed {seed} --steps {steps} --members {members}");
    let mut world = World::new(*members);
    if 1 < *members {
        world.health = Health::Fresh;
    }
    engine::run(plan, world, Generator::new(*seed), &again).await
}

impl Surface for World {
    const NAME: &'static str = "cluster differential";
    const ALLOWED: &'static [Row<Step, Answer>] = ROWS;
    type Step = Step;
    type Answer = Answer;
    type Side = Side;
    type Generator = Generator;

    fn coverage(&self) -> Coverage {
        coverage::table()
    }

    fn patience(&self) -> Option<usize> {
        (self.began_with == 1).then_some(EXTENSION_MAX)
    }

    fn at(&self) -> String {
        format!("in {self:?}")
    }

    async fn start(&self, product: Product, members: usize) -> Result<Side, Failure> {
        Side::start(product, members).await
    }

    fn cluster(side: Side) -> Cluster {
        side.cluster
    }

    async fn next(both: &mut Both<Self>, _: usize) -> Result<Step, Failure> {
        let step = both.generator.next(&mut both.world, &both.coverage);
        let probes_freshness = matches!(step, Step::Ask { ask: Ask::Add { urls: Urls::Plain(_), .. }, .. });
        let too_late = SURELY_FRESH < both.etcd.started_for().max(both.other.started_for());
        let missed = both.world.health == Health::Fresh && probes_freshness && too_late;
        Ok(if missed { Step::Rest } else { step })
    }

    async fn take(both: &mut Both<Self>, step: &Step) -> Result<(), Failure> {
        coverage::note_step(&mut both.coverage, step, &both.world);
        if !matches!(step, Step::Ask { .. } | Step::AtLearner { .. }) {
            println!("  {step:?}");
        }
        match step {
            Step::Ask { at, ask } => both.ask(step, *at, ask).await,
            Step::AtLearner { at, errand } => {
                let (etcd, other) =
                    tokio::join!(both.etcd.run_errand(*at, *errand), both.other.run_errand(*at, *errand));
                both.compare(step, &etcd?, &other?).map(drop)
            }
            Step::Start(mate) | Step::Restart(mate) => both.start_mate(*mate).await,
            Step::Kill(mate) => {
                both.etcd.kill(*mate)?;
                both.other.kill(*mate)?;
                both.world.mates[*mate].running = false;
                tokio::time::sleep(AFTER_KILL).await;
                both.settle().await
            }
            Step::StartRemoved(mate) => {
                both.etcd.start_removed(*mate)?;
                both.other.start_removed(*mate)?;
                both.await_end_of(*mate).await
            }
            Step::Rest => {
                tokio::join!(both.etcd.rest(), both.other.rest());
                both.world.health = Health::Healthy;
                Ok(())
            }
        }
    }
}

/// Whether a change came too soon after another for 3.5.1; see the list of wanted differences. It has
/// a deadline of its own for what a follower hands on.
fn was_dropped(answer: &Answer) -> bool {
    *answer == Answer::Hung
        || matches!(answer, Answer::Refused(_, text) if text == EtcdError::Timeout.message())
}

/// Whether this is what is left of an answer when its server has ended.
fn is_parting(status: &Status) -> bool {
    status.message() == EtcdError::Stopped.message() || !status.message().starts_with("etcdserver: ")
}

impl Both<World> {
    async fn start_mate(&mut self, mate: usize) -> Result<(), Failure> {
        let role = self.world.mates[mate].role;
        if !self.world.mates[mate].started {
            self.etcd.introduce(mate, self.world.leader).await?;
            self.other.introduce(mate, self.world.leader).await?;
        }
        let (etcd, other) = tokio::join!(self.etcd.start_mate(mate, role), self.other.start_mate(mate, role));
        etcd.and(other)?;
        let known = &mut self.world.mates[mate];
        (known.started, known.running) = (true, true);
        if role == Role::Voter {
            self.world.health = Health::Fresh;
        }
        self.settle().await
    }

    async fn await_end_of(&mut self, mate: usize) -> Result<(), Failure> {
        let (etcd, other) = tokio::join!(self.etcd.await_end_of(mate), self.other.await_end_of(mate));
        etcd.and(other)
    }

    /// Waits until all members of each cluster agree who they are and who leads.
    async fn settle(&mut self) -> Result<(), Failure> {
        if !self.world.has_quorum_without(0) {
            return Ok(());
        }
        for side in [&self.etcd, &self.other] {
            side.agree(&self.world).await?;
            side.align(&self.world).await?;
        }
        tokio::time::sleep(AFTER_CHANGE).await;
        Ok(())
    }

    async fn ask(&mut self, step: &Step, at: usize, ask: &Ask) -> Result<(), Failure> {
        if let Ask::Promote(Target::Mate(mate)) = ask
            && self.world.mates[*mate]
                == (Mate { role: Role::Learner, real: true, started: true, running: true })
        {
            self.etcd.catch_up(*mate, self.world.leader).await?;
            self.other.catch_up(*mate, self.world.leader).await?;
        }
        let (etcd, other) = tokio::join!(self.etcd.ask(at, ask), self.other.ask(at, ask));
        let (mut etcd, mut other) = (etcd?, other?);
        if matches!(ask, Ask::MoveLeader(_)) && self.is_unexplained(step, &etcd, &other) {
            // An election of its own may have come between; both are asked again with the same leader.
            self.settle().await?;
            etcd = self.etcd.ask(at, ask).await?;
            other = self.other.ask(at, ask).await?;
        }
        let changes = !matches!(ask, Ask::List { .. } | Ask::Status | Ask::MoveLeader(_));
        for (side, raw) in [(&mut self.etcd, &mut etcd), (&mut self.other, &mut other)] {
            if changes && side.product == Product::Etcd && was_dropped(&side.names.comparable(raw)) {
                tokio::time::sleep(AFTER_TRANSFER).await;
                *raw = side.ask(at, ask).await?;
            }
        }
        // The leader may hear of what a learner has only with its next heartbeat.
        for (side, raw) in [(&mut self.etcd, &mut etcd), (&mut self.other, &mut other)] {
            if self.world.mates[at].role == Role::Voter
                && matches!(ask, Ask::Promote(Target::Mate(mate)) if self.world.mates[*mate].running)
                && is_not_ready(&side.names.comparable(raw))
            {
                tokio::time::sleep(AFTER_KILL).await;
                *raw = side.ask(at, ask).await?;
            }
        }
        for (side, raw) in [(&mut self.etcd, &etcd), (&mut self.other, &other)] {
            if let (Ask::Add { urls, .. }, Raw::Members { member: Some(member), .. }) = (ask, raw) {
                side.added(member, urls);
            }
        }
        if *ask == Ask::Remove(Target::Mate(at)) && self.has_parted(at, &etcd, &other).await? {
            return self.learn(ask, &etcd, &other).await;
        }
        let answer = self.compare(step, &etcd, &other)?;
        if answer == Answer::Hung {
            tokio::time::sleep(AFTER_TRANSFER).await;
            return self.settle().await;
        }
        if answer.is_refusal() {
            if changes {
                tokio::time::sleep(AFTER_CHANGE).await;
            }
            return Ok(());
        }
        self.learn(ask, &etcd, &other).await
    }

    /// Whether an etcd that was asked to remove itself ended before it could answer, and is no member.
    async fn has_parted(&self, mate: usize, etcd: &Raw, other: &Raw) -> Result<bool, Failure> {
        let mut parted = false;
        for (side, raw) in [(&self.etcd, etcd), (&self.other, other)] {
            if side.product == Product::Etcd && matches!(raw, Raw::Refused(status) if is_parting(status)) {
                parted |= side.is_gone(mate, &self.world).await?;
            }
        }
        Ok(parted)
    }

    fn is_unexplained(&self, step: &Step, etcd: &Raw, other: &Raw) -> bool {
        let (etcd, other) = (self.etcd.names.comparable(etcd), self.other.names.comparable(other));
        etcd != other && allowed(ROWS, step, &etcd, &other).is_none()
    }

    /// Compares two answers; etcd's.
    fn compare(&mut self, step: &Step, etcd: &Raw, other: &Raw) -> Result<Answer, Failure> {
        let (etcd, other) = (self.etcd.names.comparable(etcd), self.other.names.comparable(other));
        coverage::note_answer(&mut self.coverage, step, &etcd);
        let difference = (etcd != other).then_some("the answers differ");
        // Once only one of them has changed, nothing later could be compared.
        let apart = etcd.is_refusal() != other.is_refusal() || etcd == Answer::Hung || other == Answer::Hung;
        if !self.judge(step, difference, &etcd, &other)? && apart {
            self.verdict()?;
        }
        Ok(etcd)
    }

    /// Takes in what a change has changed.
    async fn learn(&mut self, ask: &Ask, etcd: &Raw, other: &Raw) -> Result<(), Failure> {
        match ask {
            Ask::List { .. } | Ask::Status => return Ok(()),
            Ask::Add { learner, urls } => {
                let role = if *learner { Role::Learner } else { Role::Voter };
                let real = *urls == Urls::Newcomer;
                self.world.mates.push(Mate { role, real, started: false, running: false });
            }
            Ask::Remove(Target::Mate(mate)) => {
                let was = self.world.mates[*mate];
                self.world.mates[*mate].role = Role::Removed;
                self.world.mates[*mate].running = false;
                if was.running {
                    self.await_end_of(*mate).await?;
                }
                if self.world.leader == *mate {
                    self.world.leader = self.world.running_voters().first().copied().unwrap_or(0);
                }
            }
            Ask::Update { target: Target::Mate(mate), .. } => {
                for (side, raw) in [(&mut self.etcd, etcd), (&mut self.other, other)] {
                    if let Raw::Members { members, .. } = raw {
                        side.updated(*mate, members);
                    }
                }
            }
            Ask::Promote(Target::Mate(mate)) => {
                self.world.mates[*mate].role = Role::Voter;
                self.world.health = Health::Unsure;
                self.etcd.count_anew();
                self.other.count_anew();
            }
            Ask::MoveLeader(Target::Mate(mate)) => self.world.leader = *mate,
            Ask::Remove(_) | Ask::Update { .. } | Ask::Promote(_) | Ask::MoveLeader(_) => {}
        }
        self.settle().await
    }
}
