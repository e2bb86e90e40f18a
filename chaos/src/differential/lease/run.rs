//! The run itself: the same steps to both clusters, one at a time, each answer compared.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::LeaseGrantRequest;
use meerkat_proto::pb::mvcc::Event;

use super::answer::{LeaseAnswer, same};
use super::coverage::Coverage;
use super::expiry;
use super::generator::{Generator, everything};
use super::leaderless;
use super::names;
use super::side::Side;
use super::step::{Ask, Step};
use super::world::World;
use crate::Failure;
use crate::differential::compare::{HiddenValues, difference};
use crate::differential::request::Request;
use crate::driver::Product;

/// Steps between two comparisons of all events.
const COMPARE_EVERY: usize = 100;
/// How long nothing happens at the end, for events that nobody is owed.
const LISTEN_ON: Duration = Duration::from_millis(700);
/// Steps shown before the one that failed.
const CONTEXT: usize = 12;
/// Differences collected before the run gives up. One run then shows the kinds there are, as long
/// as the two stores themselves stay in step.
const FINDINGS_MAX: usize = 8;

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides all steps.
    pub seed: u64,
    /// How many.
    pub steps: usize,
    /// Rounds of leases that run out, spread over the run. Four show every kind.
    pub expiries: usize,
    /// Members of each cluster.
    pub members: usize,
    /// What is compared with etcd: Meerkat, or etcd again to test the test.
    pub product: Product,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let replay = format!(
        "meerkat-chaos lease-differential --seed {} --steps {} --expiries {} --members {}",
        plan.seed, plan.steps, plan.expiries, plan.members
    );
    println!("lease differential: seed {}; again with: {replay}", plan.seed);
    let began = Instant::now();
    let mut both = Both::start(plan).await?;
    let result = both.take_all(plan).await;
    // If the stores fell out of step, the differences before that say why.
    let result = both.verdict().and(result).map_err(|failure| both.explain(failure, &replay));
    println!(
        "lease differential: {} steps, {} member(s), in {:?}, revision {}\n{}",
        plan.steps,
        plan.members,
        began.elapsed(),
        both.world.revision,
        both.coverage
    );
    result?;
    Failure::from_findings("every kind of step and answer is exercised", both.coverage.gaps(plan.members))
        .map_err(|failure| both.explain(failure, &replay))?;
    let coverage = both.coverage.clone();
    both.etcd.finish()?;
    both.other.finish()?;
    Ok(coverage)
}

/// Both clusters in step.
#[derive(Debug)]
pub struct Both {
    etcd: Side,
    other: Side,
    /// What has been built up.
    pub world: World,
    /// What came up.
    pub coverage: Coverage,
    recent: VecDeque<String>,
    /// Answers of the Lease service that differ.
    findings: Vec<String>,
    /// Events the world has taken in.
    learned: usize,
    /// Events compared so far.
    compared: usize,
}

impl Both {
    async fn start(plan: &Plan) -> Result<Self, Failure> {
        let etcd = Side::start(Product::Etcd, plan.members).await?;
        let other = Side::start(plan.product, plan.members).await?;
        let (world, coverage) = (World::new(plan.members), Coverage::default());
        Ok(Self {
            etcd,
            other,
            world,
            coverage,
            recent: VecDeque::new(),
            findings: Vec::new(),
            learned: 0,
            compared: 0,
        })
    }

    async fn take_all(&mut self, plan: &Plan) -> Result<(), Failure> {
        let mut generator = Generator::new(plan.seed);
        let every = (plan.steps / plan.expiries.max(1)).max(1);
        let mut rounds = 0;
        for index in 0..plan.steps {
            let step = generator.next(&self.world);
            self.take(step).await?;
            if index % COMPARE_EVERY == COMPARE_EVERY - 1 {
                self.compare_events().await?;
            }
            if index % every == every - 1 && rounds < plan.expiries {
                self.compare_events().await?;
                expiry::round(self, rounds).await?;
                rounds += 1;
            }
        }
        let listening = tokio::join!(self.etcd.listen(LISTEN_ON), self.other.listen(LISTEN_ON));
        listening.0.and(listening.1)?;
        self.compare_events().await?;
        self.compare_state().await?;
        if 1 < plan.members {
            leaderless::compare(self).await?;
        }
        self.verdict()
    }

    fn explain(&self, failure: Failure, replay: &str) -> Failure {
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        let text =
            |what| format!("{what}\n  last steps:\n    {}\nagain with: {replay}", recent.join("\n    "));
        failure.put(text)
    }

    /// One step on both.
    pub async fn take(&mut self, step: Step) -> Result<(), Failure> {
        self.recent.push_back(format!("at {}: {step:?}", self.world.revision));
        if CONTEXT < self.recent.len() {
            self.recent.pop_front();
        }
        self.coverage.note_step(&step, &self.world);
        match step {
            Step::Ask { member, ask } => self.ask(member, ask).await,
            Step::Kv { member, request } => self.change(member, request).await,
            Step::Open { member } => {
                self.world.streams.push(Some(member));
                self.etcd.open(member);
                self.other.open(member);
                Ok(())
            }
            Step::Close { stream } => {
                self.world.streams[stream] = None;
                self.etcd.close(stream);
                self.other.close(stream);
                Ok(())
            }
            Step::HalfClose { stream } => {
                self.world.streams[stream] = None;
                let (etcd, other) = tokio::join!(self.etcd.half_close(stream), self.other.half_close(stream));
                self.require_same("the ends of a half-closed stream", &etcd, &other)
            }
            Step::Renew { stream, leases } => self.renew(stream, &leases).await,
        }
    }

    async fn ask(&mut self, member: usize, ask: Ask) -> Result<(), Failure> {
        self.level().await?;
        let (etcd, other) = tokio::join!(self.etcd.ask(member, ask), self.other.ask(member, ask));
        if let (
            Ask::Grant(LeaseGrantRequest { id: 0, .. }),
            LeaseAnswer::Grant(one),
            LeaseAnswer::Grant(two),
        ) = (ask, &etcd, &other)
        {
            if one.id <= 0 || two.id <= 0 {
                return Err(Failure::broken(format!("ids {} and {} were picked", one.id, two.id)));
            }
            let name = self.next_name(0);
            self.world.picked += 1;
            self.etcd.names.learn(name, one.id);
            self.other.names.learn(name, two.id);
        }
        let (etcd, other) = (etcd.comparable(&self.etcd.names), other.comparable(&self.other.names));
        self.require_same("the answers", &etcd, &other)?;
        self.coverage.note_answer(&etcd);
        match (ask, &etcd) {
            (Ask::Grant(_), LeaseAnswer::Grant(granted)) => self.world.granted(granted.id, granted.ttl),
            (Ask::Revoke(lease), LeaseAnswer::Revoke(_)) => self.world.ended(lease),
            _ => {}
        }
        self.learn(etcd.revision()).await
    }

    /// The name that a lease granted with this id would have.
    pub fn next_name(&self, id: i64) -> i64 {
        if id == 0 { names::picked(self.world.picked) } else { id }
    }

    async fn change(&mut self, member: usize, request: Request) -> Result<(), Failure> {
        if request.may_be_answered_locally() {
            self.level().await?;
        }
        let (etcd, other) =
            tokio::join!(self.etcd.change(member, &request), self.other.change(member, &request));
        if let Some(what) = difference(&request, &etcd, &other, &HiddenValues::new()) {
            return Err(Failure::broken(format!(
                "{what}\n    etcd:  {}\n    other: {}",
                etcd.shown(),
                other.shown()
            )));
        }
        self.coverage.note_change(&etcd);
        self.learn(etcd.header().map(|header| header.revision)).await
    }

    async fn renew(&mut self, stream: usize, leases: &[i64]) -> Result<(), Failure> {
        self.level().await?;
        let (etcd, other) = tokio::join!(self.etcd.renew(stream, leases), self.other.renew(stream, leases));
        if etcd.len() != other.len() {
            return Err(Failure::broken(format!(
                "not equally many answers to renewals\n    etcd:  {etcd:?}\n    other: {other:?}"
            )));
        }
        for (etcd, other) in etcd.iter().zip(&other) {
            self.require_same("the answers to a renewal", etcd, other)?;
            self.coverage.note_answer(etcd);
        }
        Ok(())
    }

    /// Kills all members but the first, on both.
    pub fn bereave(&mut self) -> Result<(), Failure> {
        self.etcd.bereave()?;
        self.other.bereave()
    }

    /// Asks the first members, which have no leader, all that is answered without consensus; what
    /// etcd says.
    pub async fn ask_without_leader(&mut self, lease: i64) -> Result<Vec<LeaseAnswer>, Failure> {
        let (etcd, other) =
            tokio::join!(self.etcd.ask_without_leader(lease), self.other.ask_without_leader(lease));
        for (etcd, other) in etcd.iter().zip(&other) {
            self.require_same("the answers without a leader", etcd, other)?;
        }
        Ok(etcd)
    }

    fn require_same(&mut self, what: &str, etcd: &LeaseAnswer, other: &LeaseAnswer) -> Result<(), Failure> {
        if same(etcd, other) {
            return Ok(());
        }
        let step = self.recent.back().map_or("", String::as_str);
        let finding = format!("{what} differ, {step}\n    etcd:  {etcd:?}\n    other: {other:?}");
        self.findings.push(finding);
        if FINDINGS_MAX <= self.findings.len() { self.verdict() } else { Ok(()) }
    }

    fn verdict(&self) -> Result<(), Failure> {
        Failure::from_findings("both answer the same", self.findings.clone())
    }

    /// Takes in what a step has changed, if it changed anything: who hangs on what is read off the
    /// events of etcd.
    async fn learn(&mut self, revision: Option<i64>) -> Result<(), Failure> {
        let Some(revision) = revision.filter(|revision| self.world.revision < *revision) else {
            return Ok(());
        };
        let events = self.etcd.events(revision, self.learned).await?;
        let events = events.first().map_or(&[][..], Vec::as_slice);
        events.iter().for_each(|event| self.world.happened(event));
        self.learned += events.len();
        Ok(())
    }

    /// Brings all members level; both clusters must be at one revision, which is returned.
    async fn level(&self) -> Result<i64, Failure> {
        let (etcd, other) = tokio::join!(self.etcd.level(), self.other.level());
        let (etcd, other) = (etcd?, other?);
        if etcd != other {
            return Err(Failure::broken(format!("etcd is at revision {etcd}, the other at {other}")));
        }
        Ok(etcd)
    }

    /// Waits until leases have run out on both; neither may do so before its time.
    pub async fn await_ends(&mut self, leases: &[(i64, Instant)], within: Duration) -> Result<(), Failure> {
        for (name, not_before) in leases {
            let (etcd, other) =
                tokio::join!(self.etcd.await_end_of(*name, within), self.other.await_end_of(*name, within));
            for (whose, ended) in [("etcd", etcd?), ("other", other?)] {
                let early = not_before.saturating_duration_since(ended);
                if !early.is_zero() {
                    return Err(Failure::broken(format!("{whose}: lease {name} ended {early:?} too early")));
                }
            }
        }
        Ok(())
    }

    /// Every member of both clusters must have told the same events.
    pub async fn compare_events(&mut self) -> Result<(), Failure> {
        let revision = self.level().await?;
        self.learn(Some(revision)).await?;
        let etcd = self.etcd.events(revision, self.compared).await?;
        let other = self.other.events(revision, self.compared).await?;
        let reference = etcd.first().cloned().unwrap_or_default();
        for (whose, lists) in [("etcd", &etcd), ("other", &other)] {
            for (member, events) in lists.iter().enumerate() {
                if let Some(what) = first_difference(&reference, events) {
                    return Err(Failure::broken(format!("events of member {member} of {whose}: {what}")));
                }
            }
        }
        self.compared += reference.len();
        Ok(())
    }

    /// All there is to read of keys and leases, on every member.
    pub async fn compare_state(&mut self) -> Result<(), Failure> {
        for member in 0..self.world.members {
            self.take(Step::Kv { member, request: Request::Range(everything()) }).await?;
            self.take(Step::Ask { member, ask: Ask::Leases }).await?;
            let leases: Vec<i64> = self.world.leases.keys().copied().collect();
            for lease in leases {
                self.take(Step::Ask { member, ask: Ask::TimeToLive { lease, keys: true } }).await?;
            }
        }
        Ok(())
    }
}

fn first_difference(reference: &[Event], events: &[Event]) -> Option<String> {
    let at = reference.iter().zip(events).position(|(one, two)| one != two);
    let at = at.or_else(|| (reference.len() != events.len()).then(|| reference.len().min(events.len())))?;
    Some(format!(
        "{} events, the reference has {}; the first that differs:\n    reference: {:?}\n    here:      {:?}",
        events.len(),
        reference.len(),
        reference.get(at),
        events.get(at)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::mvcc::KeyValue;

    fn deleted(key: &'static str, mod_revision: i64) -> Event {
        let kv = KeyValue { key: key.into(), mod_revision, ..Default::default() };
        Event { r#type: 1, kv: Some(kv), prev_kv: None }
    }

    #[test]
    fn a_missing_an_added_and_a_moved_event_are_found() {
        let all = [deleted("a", 5), deleted("b", 5)];
        assert!(first_difference(&all, &all).is_none());
        for wrong in [
            vec![deleted("a", 5)],
            vec![deleted("b", 5), deleted("a", 5)],
            vec![deleted("a", 5), deleted("b", 6)],
            vec![deleted("a", 5), deleted("b", 5), deleted("c", 5)],
        ] {
            assert!(first_difference(&all, &wrong).is_some(), "{wrong:?}");
        }
    }
}
