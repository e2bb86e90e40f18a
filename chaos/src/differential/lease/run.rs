//! What a run of leases is: the same steps to both clusters, one at a time, each answer compared.

use std::time::{Duration, Instant};

use meerkat_proto::pb::etcdserver::LeaseGrantRequest;
use meerkat_proto::pb::mvcc::Event;

use super::answer::{LeaseAnswer, same};
use super::generator::Generator;
use super::side::Side;
use super::step::{Ask, Step};
use super::world::World;
use super::{coverage, expiry, leaderless, names};
use crate::Failure;
use crate::differential::compare::{HiddenValues, difference};
use crate::differential::coverage::Coverage;
use crate::differential::engine::{self, Both, Surface};
use crate::differential::request::{Request, everything};
use crate::driver::{Cluster, Product};

/// Steps between two comparisons of all events.
const COMPARE_EVERY: usize = 100;
/// How long nothing happens at the end, for events that nobody is owed.
const LISTEN_ON: Duration = Duration::from_millis(700);

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

/// Runs it; what came up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let Plan { seed, steps, expiries, members, product } = *plan;
    let again = format!(
        "meerkat-chaos lease-differential --seed {seed} --steps {steps} --expiries {expiries} --members {members}"
    );
    let expire_every = (steps / expiries.max(1)).max(1);
    let world = World { expiries, expire_every, ..World::new(members) };
    let plan = engine::Plan { seed, steps, members, product };
    engine::run(&plan, world, Generator::new(seed), &again).await
}

impl Surface for World {
    const NAME: &'static str = "lease differential";
    type Step = Step;
    type Answer = LeaseAnswer;
    type Side = Side;
    type Generator = Generator;

    fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::of(coverage::KINDS);
        if 1 < self.members {
            coverage.want(coverage::NO_LEADER.to_owned());
        }
        coverage
    }

    fn at(&self) -> String {
        format!("at revision {}", self.revision)
    }

    async fn start(&self, product: Product, members: usize) -> Result<Side, Failure> {
        Side::start(product, members).await
    }

    fn cluster(side: Side) -> Cluster {
        side.members.cluster
    }

    async fn next(both: &mut Both<Self>, number: usize) -> Result<Step, Failure> {
        if number != 0 && number.is_multiple_of(COMPARE_EVERY) {
            both.compare_events().await?;
        }
        if number != 0 && number.is_multiple_of(both.world.expire_every) {
            both.expire().await?;
        }
        Ok(both.generator.next(&both.world))
    }

    async fn take(both: &mut Both<Self>, step: &Step) -> Result<(), Failure> {
        coverage::note_step(&mut both.coverage, step, &both.world);
        match step {
            Step::Ask { member, ask } => both.ask(*member, *ask).await,
            Step::Kv { member, request } => both.change(*member, request).await,
            Step::Open { member } => {
                both.world.streams.push(Some(*member));
                both.etcd.open(*member);
                both.other.open(*member);
                Ok(())
            }
            Step::Close { stream } => {
                both.world.streams[*stream] = None;
                both.etcd.close(*stream);
                both.other.close(*stream);
                Ok(())
            }
            Step::HalfClose { stream } => {
                both.world.streams[*stream] = None;
                let (etcd, other) =
                    tokio::join!(both.etcd.half_close(*stream), both.other.half_close(*stream));
                both.require_same("the ends of a half-closed stream", &etcd, &other)
            }
            Step::Renew { stream, leases } => both.renew(*stream, leases).await,
        }
    }

    async fn close(both: &mut Both<Self>) -> Result<(), Failure> {
        both.expire().await?;
        tokio::time::sleep(LISTEN_ON).await;
        both.compare_events().await?;
        both.compare_state().await?;
        if 1 < both.world.members { leaderless::compare(both).await } else { Ok(()) }
    }
}

impl Both<World> {
    /// The next round of leases that run out, if one is left.
    async fn expire(&mut self) -> Result<(), Failure> {
        if self.world.rounds < self.world.expiries {
            self.compare_events().await?;
            expiry::round(self, self.world.rounds).await?;
            self.world.rounds += 1;
        }
        Ok(())
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
        coverage::note_answer(&mut self.coverage, &etcd);
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

    async fn change(&mut self, member: usize, request: &Request) -> Result<(), Failure> {
        if request.may_be_answered_locally() {
            self.level().await?;
        }
        let (etcd, other) =
            tokio::join!(self.etcd.change(member, request), self.other.change(member, request));
        if let Some(what) = difference(request, &etcd, &other, &HiddenValues::new()) {
            // Nothing after it could be compared.
            self.differ(&what, &etcd, &other)?;
            return self.verdict();
        }
        coverage::note_change(&mut self.coverage, &etcd);
        self.learn(etcd.header().map(|header| header.revision)).await
    }

    async fn renew(&mut self, stream: usize, leases: &[i64]) -> Result<(), Failure> {
        self.level().await?;
        let (etcd, other) = tokio::join!(self.etcd.renew(stream, leases), self.other.renew(stream, leases));
        if etcd.len() != other.len() {
            self.differ("not equally many answers to renewals", &etcd, &other)?;
            return self.verdict();
        }
        for (etcd, other) in etcd.iter().zip(&other) {
            self.require_same("the answers to a renewal", etcd, other)?;
            coverage::note_answer(&mut self.coverage, etcd);
        }
        Ok(())
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
        if same(etcd, other) { Ok(()) } else { self.differ(&format!("{what} differ"), etcd, other) }
    }

    /// Takes in what a step has changed, if it changed anything: who hangs on what is read off the
    /// events of etcd.
    async fn learn(&mut self, revision: Option<i64>) -> Result<(), Failure> {
        let Some(revision) = revision.filter(|revision| self.world.revision < *revision) else {
            return Ok(());
        };
        let events = self.etcd.events(revision, self.world.learned).await?;
        let events = events.first().map_or(&[][..], Vec::as_slice);
        events.iter().for_each(|event| self.world.happened(event));
        self.world.learned += events.len();
        Ok(())
    }

    /// Brings all members level; both clusters must be at one revision, which is returned.
    async fn level(&self) -> Result<i64, Failure> {
        let (etcd, other) = tokio::join!(self.etcd.members.level_all(), self.other.members.level_all());
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
        let etcd = self.etcd.events(revision, self.world.compared).await?;
        let other = self.other.events(revision, self.world.compared).await?;
        let reference = etcd.first().cloned().unwrap_or_default();
        for (whose, lists) in [("etcd", &etcd), ("other", &other)] {
            for (member, events) in lists.iter().enumerate() {
                if let Some(what) = first_difference(&reference, events) {
                    return Err(Failure::broken(format!("events of member {member} of {whose}: {what}")));
                }
            }
        }
        self.world.compared += reference.len();
        Ok(())
    }

    /// All there is to read of keys and leases, on every member.
    pub async fn compare_state(&mut self) -> Result<(), Failure> {
        for member in 0..self.world.members {
            self.take(&Step::Kv { member, request: Request::Range(everything()) }).await?;
            self.take(&Step::Ask { member, ask: Ask::Leases }).await?;
            let leases: Vec<i64> = self.world.leases.keys().copied().collect();
            for lease in leases {
                self.take(&Step::Ask { member, ask: Ask::TimeToLive { lease, keys: true } }).await?;
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

    #[test]
    fn several_members_must_show_what_they_do_without_a_leader() {
        let wants = |members| {
            let missing = format!("never exercised: {}", coverage::NO_LEADER);
            World::new(members).coverage().gaps().contains(&missing)
        };
        assert!(wants(3));
        assert!(!wants(1));
    }

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
