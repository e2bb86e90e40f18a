//! One run from beginning to end: clients at work, faults by the schedule, healing, judgement.
//!
//! The faults go by the schedule's clock, which stands still while a fault is being made or undone:
//! gaps for recovery stay as long as they were meant. A fault that could not be made or undone
//! is kept, and the run goes on: what the clients saw is judged all the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::plan::Plan;
use super::schedule::{Schedule, Strike};
use super::{sample, settle};
use crate::Failure;
use crate::endpoint::{Contact, Endpoint, Roster};
use crate::ground::{self, Change, Ground};
use crate::nemesis::{Blow, Nemesis, catalogue, sight};
use crate::record::trace::Record;
use crate::record::{Trace, Verdict};
use crate::workload;
use crate::workload::{Setting, Workload};

/// A fault that takes longer to make or to undo is given up.
const STEP_WITHIN: Duration = Duration::from_secs(240);
/// A workload that takes longer to end and judge is given up.
const JUDGE_WITHIN: Duration = Duration::from_secs(900);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Too late for another strike: it would be undone at once.
const STRIKE_MIN: Duration = Duration::from_millis(500);

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub record: Record,
    /// What was found.
    pub verdicts: Vec<Verdict>,
    /// Where the harness failed: nothing is proved then.
    pub troubles: Vec<String>,
    /// What the members say their version is.
    pub version: String,
    /// The members' names, by number.
    pub members: Vec<String>,
    /// From the first operation to the last judgement.
    pub length: Duration,
}

/// Runs a plan by its schedule on a ground whose members serve.
pub async fn run(ground: &mut dyn Ground, plan: &Plan, schedule: Schedule, seed: u64) -> Outcome {
    let began = Instant::now();
    let trace = Trace::new(began);
    let mut run = Run {
        ground,
        trace: trace.clone(),
        roster: Roster::default(),
        began,
        active: Vec::new(),
        looks: 0,
        ended: Vec::new(),
        broken: Vec::new(),
        troubles: Vec::new(),
    };
    run.call_the_roll();
    let version = version(run.roster.all().into_iter().map(|contact| contact.endpoint)).await;
    let lookout = sample::Lookout::start(run.roster.clone(), trace.clone());
    let workloads = run.start_workloads(plan, seed);
    run.by_schedule(plan, schedule).await;
    let verdicts = run.judge(plan, workloads).await;
    drop(lookout);
    Outcome {
        record: trace.take(),
        verdicts,
        troubles: run.troubles,
        version,
        members: (0..run.ground.members()).map(|member| run.ground.name(member)).collect(),
        length: began.elapsed(),
    }
}

struct Run<'a> {
    ground: &'a mut dyn Ground,
    trace: Trace,
    roster: Roster,
    began: Instant,
    active: Vec<Active>,
    /// How often members were looked at.
    looks: u64,
    /// Members that ended though nothing was done to them.
    ended: Vec<String>,
    /// What the system did wrong while faults were made and undone.
    broken: Vec<String>,
    troubles: Vec<String>,
}

/// A fault that has not been undone yet.
struct Active {
    nemesis: Box<dyn Nemesis>,
    kind: String,
    /// Its place in the trace.
    fault: usize,
    /// Who may be down until it is undone.
    down: Vec<usize>,
    /// By the schedule's clock.
    until: Duration,
}

impl Run<'_> {
    /// Clients may talk to whoever belongs to the cluster now.
    fn call_the_roll(&self) {
        let contact = |member| Contact { member, endpoint: self.ground.endpoint(member) };
        self.roster.set(ground::enlisted(self.ground).into_iter().map(contact).collect());
    }

    fn start_workloads(&mut self, plan: &Plan, seed: u64) -> Vec<Box<dyn Workload>> {
        let mut workloads = Vec::new();
        for (number, name) in plan.workloads.iter().enumerate() {
            let setting = Setting {
                product: self.ground.product(),
                roster: self.roster.clone(),
                seed: seed.wrapping_add(1_000 * (number as u64 + 1)),
                prefix: format!("{name}/"),
                began: self.began,
                trace: self.trace.clone(),
            };
            match workload::catalogue::by_name(name, setting) {
                Some(Ok(workload)) => workloads.push(workload),
                Some(Err(failure)) => self.troubles.push(failure.during(name).to_string()),
                None => self.troubles.push(format!("there is no workload {name:?}")),
            }
        }
        workloads
    }

    async fn by_schedule(&mut self, plan: &Plan, schedule: Schedule) {
        let mut strikes = VecDeque::from(schedule.strikes);
        let mut stood_still = Duration::ZERO;
        loop {
            // Time that faults took is lost to those planned last.
            strikes.retain(|strike| strike.at + stood_still + STRIKE_MIN <= plan.length);
            let strike_at = strikes.front().map(|strike| strike.at);
            let heal_at = self.active.iter().map(|active| active.until).min();
            let Some(due) = strike_at.into_iter().chain(heal_at).min() else { break };
            self.wait_until(due + stood_still).await;
            let step = Instant::now();
            self.look_for_the_dead().await;
            if heal_at == Some(due) {
                self.heal(due).await;
            } else if let Some(strike) = strikes.pop_front() {
                self.strike(strike).await;
            }
            self.call_the_roll();
            stood_still += step.elapsed();
        }
        self.wait_until(plan.length).await;
        self.look_for_the_dead().await;
    }

    /// Waits until so long after the start, and samples meanwhile.
    async fn wait_until(&mut self, offset: Duration) {
        loop {
            let left = offset.saturating_sub(self.began.elapsed());
            if left.is_zero() {
                return;
            }
            sample::usage(self.ground, &self.trace);
            tokio::time::sleep(left.min(SAMPLE_EVERY)).await;
        }
    }

    async fn strike(&mut self, strike: Strike) {
        let Some(mut nemesis) = catalogue::by_name(&strike.kind) else {
            self.troubles.push(format!("there is no nemesis {:?}", strike.kind));
            return;
        };
        let fault = self.trace.struck(&strike.kind);
        let mut dice = StdRng::seed_from_u64(strike.seed);
        let blow = match in_time(nemesis.strike(self.ground, &mut dice)).await {
            Ok(blow) => blow,
            Err(failure) => {
                let what = format!("not made: {failure}");
                self.note(failure.during(&format!("making a fault ({})", strike.kind)));
                Blow { members: ground::enlisted(self.ground), ..Blow::not_made(what) }
            }
        };
        println!("{:8.1} s  {:<16} {}", self.began.elapsed().as_secs_f64(), strike.kind, blow.what);
        self.trace.tell(fault, &blow);
        let until = strike.at + strike.lasting;
        let down = left_down(&strike.kind, &blow);
        self.active.push(Active { nemesis, kind: strike.kind, fault, down, until });
    }

    /// Undoes all that is due.
    async fn heal(&mut self, due: Duration) {
        let (over, active) = std::mem::take(&mut self.active).into_iter().partition(|one| one.until <= due);
        self.active = active;
        let over: Vec<Active> = over;
        for mut one in over {
            if let Err(failure) = in_time(one.nemesis.heal(self.ground)).await {
                self.note(failure.during(&format!("undoing a fault ({})", one.kind)));
                self.start_the_dead().await;
            }
            self.trace.healed(one.fault);
        }
    }

    fn note(&mut self, failure: Failure) {
        match failure {
            Failure::Broken(why) | Failure::Slow(why) => self.broken.push(why),
            other => self.troubles.push(other.to_string()),
        }
    }

    /// Whoever a fault has left down although it was to be undone: not their own doing.
    async fn start_the_dead(&mut self) {
        let everybody = ground::enlisted(self.ground);
        if let Err(failure) = sight::start(self.ground, &everybody).await {
            self.note(failure.during("starting what a fault left down"));
        }
    }

    /// Every member runs, but for those that a fault keeps down.
    async fn look_for_the_dead(&mut self) {
        let struck: Vec<usize> = self.active.iter().flat_map(|active| active.down.clone()).collect();
        for member in ground::enlisted(self.ground) {
            if struck.contains(&member) {
                continue;
            }
            self.looks += 1;
            if self.ground.is_running(member).await.unwrap_or(true) {
                continue;
            }
            let at = self.began.elapsed().as_secs_f64();
            let (name, tail) = (self.ground.name(member), self.ground.tail(member));
            self.ended.push(format!("{name} has ended by itself, seen at {at:.1} s: {tail}"));
            if let Err(failure) = self.ground.start(member, Change::default()).await {
                self.note(failure.during("starting a member that had ended"));
            }
        }
    }

    /// Heals, waits until all serve, ends the clients, compares the members.
    async fn judge(&mut self, plan: &Plan, workloads: Vec<Box<dyn Workload>>) -> Vec<Verdict> {
        self.heal(Duration::MAX).await;
        if let Err(failure) = settle::heal_all(self.ground).await {
            self.note(failure.during("healing at the end"));
        }
        self.call_the_roll();
        let serve = settle::serve_again(self.ground, plan.serve_within).await;
        // One that ended meanwhile is told apart from one that is merely late.
        self.look_for_the_dead().await;
        println!("{:8.1} s  healed; {} members serve", self.began.elapsed().as_secs_f64(), serve.judged);
        let mut verdicts = Vec::new();
        let endings = workloads.into_iter().map(|workload| async {
            let name = workload.name();
            (name, tokio::time::timeout(JUDGE_WITHIN, workload.finish()).await)
        });
        for (name, ended) in join_all(endings).await {
            match ended {
                Ok(Ok(found)) => verdicts.extend(found),
                Ok(Err(failure)) => self.note(failure.during(name)),
                Err(_) => self.troubles.push(format!("{name} has not ended within {JUDGE_WITHIN:?}")),
            }
        }
        verdicts.push(serve);
        match settle::agree(self.ground).await {
            Ok(verdict) => verdicts.push(verdict),
            Err(failure) => self.note(failure.during("comparing the members")),
        }
        verdicts.push(Verdict {
            workload: "cluster".to_owned(),
            promise: "no member ends by itself".to_owned(),
            judged: self.looks,
            findings: std::mem::take(&mut self.ended),
        });
        if !self.broken.is_empty() {
            verdicts.push(Verdict {
                workload: "cluster".to_owned(),
                promise: "members do what they are asked while faults are made and undone".to_owned(),
                judged: self.broken.len() as u64,
                findings: std::mem::take(&mut self.broken),
            });
        }
        verdicts
    }
}

/// Whom a fault may leave down until it is undone. One that failed half way may have left anybody so.
fn left_down(kind: &str, blow: &Blow) -> Vec<usize> {
    if catalogue::leaves_down(kind) || !blow.made { blow.members.clone() } else { Vec::new() }
}

async fn in_time<T>(step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(STEP_WITHIN, step).await {
        Ok(result) => result,
        Err(_) => Err(Failure::harness(format!("not done within {STEP_WITHIN:?}"))),
    }
}

/// What the first of these members that answers says its version is.
pub async fn version(endpoints: impl IntoIterator<Item = Endpoint>) -> String {
    for endpoint in endpoints {
        if let Ok(status) = endpoint.status(Duration::from_secs(2)).await {
            return status.version;
        }
    }
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_whom_a_fault_keeps_down_may_be_down() {
        let met = |blow: Blow| Blow { members: vec![0, 2], ..blow };
        let made = met(Blow::made("done", vec![]));
        assert_eq!(left_down("kill", &made), [0, 2]);
        for kind in ["pause", "clock-jump", "slow-disk", "rolling-restart", "snapshot-storm"] {
            assert!(left_down(kind, &made).is_empty(), "{kind}: a member that is not there has crashed");
        }
        // The harness failed half way: who is not there now may be its own doing.
        assert_eq!(left_down("rolling-restart", &met(Blow::not_made("failed"))), [0, 2]);
        assert!(left_down("leader-transfer", &Blow::not_made("nobody leads")).is_empty());
    }
}
