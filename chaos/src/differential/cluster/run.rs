//! The run itself: the same steps to both clusters, one at a time, each answer compared.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use meerkat_proto::error_text::EtcdError;
use tonic::Status;

use super::allow_list::allowed;
use super::answer::{Answer, Raw};
use super::coverage::{Coverage, is_not_ready};
use super::generator::Generator;
use super::side::Side;
use super::step::{Ask, Step, Target, Urls};
use super::world::{Health, Mate, Role, World};
use crate::Failure;
use crate::driver::Product;

/// A run goes on for so many times its steps if some kind has not come up.
const EXTENSION_MAX: usize = 3;
/// Steps shown before the one that failed.
const CONTEXT: usize = 12;
/// Differences collected before the run gives up.
const FINDINGS_MAX: usize = 8;
/// After a change, even one that was refused when it was applied, until a leader of 3.5.1 takes another.
const AFTER_CHANGE: Duration = Duration::from_millis(150);
/// After a transfer of leadership that cannot succeed, until 3.5.1 gives it up.
const AFTER_TRANSFER: Duration = Duration::from_millis(1_500);
/// For how long after a start the cluster is surely unhealthy: somewhat less than the 5 s for which its
/// voters have to be connected, which they are some time after it.
const SURELY_FRESH: Duration = Duration::from_secs(4);
/// Until a death has been noticed by all.
const AFTER_KILL: Duration = Duration::from_millis(1_000);

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides all steps.
    pub seed: u64,
    /// How many.
    pub steps: usize,
    /// Members that each cluster begins with. Some kinds of step need one that began alone; a run that
    /// did goes on beyond its steps until every kind has come up.
    pub members: usize,
    /// What is compared with etcd: Meerkat, or etcd again to test the test.
    pub product: Product,
}

/// Runs it; what came up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let replay = format!(
        "meerkat-chaos cluster-differential --seed {} --steps {} --members {}",
        plan.seed, plan.steps, plan.members
    );
    println!("cluster differential: seed {}; again with: {replay}", plan.seed);
    let mut both = Both::start(plan).await?;
    let result = both.take_all(plan).await;
    let result = both.verdict().and(result).map_err(|failure| both.explain(failure, &replay));
    println!(
        "cluster differential: {} steps, {} members known, in {:?}\n{}",
        both.taken,
        both.world.mates.len(),
        both.began.elapsed(),
        both.coverage
    );
    result?;
    let coverage = both.coverage.clone();
    both.etcd.finish()?;
    both.other.finish()?;
    Ok(coverage)
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

/// Both clusters in step.
#[derive(Debug)]
struct Both {
    etcd: Side,
    other: Side,
    world: World,
    coverage: Coverage,
    recent: VecDeque<String>,
    findings: Vec<String>,
    taken: usize,
    began: Instant,
}

impl Both {
    async fn start(plan: &Plan) -> Result<Self, Failure> {
        let (etcd, other) =
            tokio::join!(Side::start(Product::Etcd, plan.members), Side::start(plan.product, plan.members));
        let (etcd, other) = (etcd?, other?);
        let mut world = World::new(plan.members);
        if 1 < plan.members {
            world.health = Health::Fresh;
        }
        let (coverage, recent, findings) = Default::default();
        Ok(Self { etcd, other, world, coverage, recent, findings, taken: 0, began: Instant::now() })
    }

    async fn take_all(&mut self, plan: &Plan) -> Result<(), Failure> {
        let mut generator = Generator::new(plan.seed);
        for taken in 0..plan.steps * EXTENSION_MAX {
            if plan.steps <= taken && (1 < plan.members || self.coverage.gaps().is_empty()) {
                break;
            }
            let step = generator.next(&mut self.world, &self.coverage);
            self.take(&step).await?;
        }
        self.verdict()
    }

    fn explain(&self, failure: Failure, replay: &str) -> Failure {
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        let text = |what| {
            format!(
                "{what}\n  world: {:?}\n  last steps:\n    {}\nagain with: {replay}",
                self.world,
                recent.join("\n    ")
            )
        };
        failure.put(text)
    }

    fn verdict(&self) -> Result<(), Failure> {
        Failure::from_findings("both answer the same", self.findings.clone())
    }

    async fn take(&mut self, step: &Step) -> Result<(), Failure> {
        let probes_freshness = matches!(step, Step::Ask { ask: Ask::Add { urls: Urls::Plain(_), .. }, .. });
        let too_late = SURELY_FRESH < self.etcd.started_for().max(self.other.started_for());
        if self.world.health == Health::Fresh && probes_freshness && too_late {
            return self.rest().await;
        }
        self.recent.push_back(format!("{step:?}"));
        if CONTEXT < self.recent.len() {
            self.recent.pop_front();
        }
        self.coverage.note_step(step, &self.world);
        self.taken += 1;
        if !matches!(step, Step::Ask { .. } | Step::AtLearner { .. }) {
            println!("  {:>6.1} s  step {}: {step:?}", self.began.elapsed().as_secs_f64(), self.taken);
        }
        match step {
            Step::Ask { at, ask } => self.ask(step, *at, ask).await,
            Step::AtLearner { at, errand } => {
                let (etcd, other) =
                    tokio::join!(self.etcd.run_errand(*at, *errand), self.other.run_errand(*at, *errand));
                self.compare(step, &etcd?, &other?).map(drop)
            }
            Step::Start(mate) | Step::Restart(mate) => self.start_mate(*mate).await,
            Step::Kill(mate) => {
                self.etcd.kill(*mate)?;
                self.other.kill(*mate)?;
                self.world.mates[*mate].running = false;
                tokio::time::sleep(AFTER_KILL).await;
                self.settle().await
            }
            Step::StartRemoved(mate) => {
                self.etcd.start_removed(*mate)?;
                self.other.start_removed(*mate)?;
                self.await_end_of(*mate).await
            }
            Step::Rest => self.rest().await,
        }
    }

    async fn rest(&mut self) -> Result<(), Failure> {
        tokio::join!(self.etcd.rest(), self.other.rest());
        self.world.health = Health::Healthy;
        Ok(())
    }

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
        if matches!(ask, Ask::MoveLeader(_)) && self.differ(step, &etcd, &other) {
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

    fn differ(&self, step: &Step, etcd: &Raw, other: &Raw) -> bool {
        let (etcd, other) = (self.etcd.names.comparable(etcd), self.other.names.comparable(other));
        etcd != other && allowed(step, &etcd, &other).is_none()
    }

    /// Compares two answers; etcd's.
    fn compare(&mut self, step: &Step, etcd: &Raw, other: &Raw) -> Result<Answer, Failure> {
        let (etcd, other) = (self.etcd.names.comparable(etcd), self.other.names.comparable(other));
        self.coverage.note_answer(step, &etcd);
        if etcd == other || allowed(step, &etcd, &other).is_some() {
            return Ok(etcd);
        }
        self.findings.push(format!("{step:?}\n    etcd:  {etcd:?}\n    other: {other:?}"));
        // Once only one of them has changed, nothing later could be compared.
        let apart = etcd.is_refusal() != other.is_refusal() || etcd == Answer::Hung || other == Answer::Hung;
        if apart || FINDINGS_MAX <= self.findings.len() {
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
