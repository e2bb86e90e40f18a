//! 1 → 3 → 5 → 3 members under load, with the leader killed between the steps; afterwards nothing may
//! be missing.
//!
//! Members join one by one, voters and promoted learners in turn, and leave one by one, the leader
//! among them. Every change either is made or is asked for again, whoever leads by then.

use std::time::{Duration, Instant};

use super::account::{Account, members_of};
use super::stage::first_revision;
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product, Role};
use crate::record::history::History;
use crate::report::Story;
use crate::workload::unique::{self, Running, Shape};

const READY_WITHIN: Duration = Duration::from_secs(30);
/// Long enough for the five seconds that members must have been connected, several times over.
const CHANGE_WITHIN: Duration = Duration::from_secs(60);
/// Writes that must go through after each step, or the run would test a cluster that never serves.
const WRITES_BETWEEN: u64 = 20;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose servers.
    pub product: Product,
    /// `kill -9` the leader after each step, where others can go on, and bring it back.
    pub kills: bool,
}

struct Run {
    cluster: Cluster,
    plan: Plan,
    account: Account,
    history: History,
    writers: u32,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Story, Failure> {
    let account = Account::open("growth", plan.product, 0, "scripts/test membership".to_owned());
    let spec = ClusterSpec::new(plan.product, 1).with_quick_elections();
    let cluster = Cluster::start(&spec).await?;
    let started_at = first_revision(cluster.members()[0].endpoint()).await?;
    let mut run = Run { cluster, plan: plan.clone(), account, history: History::default(), writers: 1 };
    for size in [3, 5] {
        run.grow_to(size).await?;
    }
    run.shrink_to(3).await?;
    run.cluster.revive(READY_WITHIN).await?;
    let members = members_of(&run.cluster);
    run.account.judge(&members, &run.history, started_at).await;
    let story = run.account.close(members).await?;
    run.cluster.finish()?;
    Ok(story)
}

impl Run {
    async fn grow_to(&mut self, size: usize) -> Result<(), Failure> {
        let mut load = self.load();
        while self.cluster.members().len() < size {
            let began = Instant::now();
            let role =
                if self.cluster.members().len().is_multiple_of(2) { Role::Learner } else { Role::Voter };
            let joined = self.cluster.join(role, CHANGE_WITHIN).await?;
            if role == Role::Learner {
                self.cluster.promote(joined.id, CHANGE_WITHIN).await?;
                self.cluster.member(joined.index).wait_until_ready(READY_WITHIN).await?;
            }
            load = self.after_a_step(began, load).await?;
        }
        self.absorb(load).await
    }

    async fn shrink_to(&mut self, size: usize) -> Result<(), Failure> {
        let mut load = self.load();
        while size < self.cluster.members().len() {
            let began = Instant::now();
            // Leaders first: that is the harder way.
            let victim = self.cluster.leader(READY_WITHIN).await?;
            let mut gone = self.cluster.forget(victim, CHANGE_WITHIN).await?;
            let status = gone.wait_for_exit(READY_WITHIN)?;
            println!("{} was removed while it led and ended: {status}", gone.name());
            load = self.after_a_step(began, load).await?;
        }
        self.absorb(load).await
    }

    /// The load goes on at the members of now, which the next one of it knows.
    async fn after_a_step(&mut self, began: Instant, load: Running) -> Result<Running, Failure> {
        let what =
            format!("{} members after {:.1} s", self.cluster.members().len(), began.elapsed().as_secs_f64());
        println!("{what}");
        let change = self.account.struck("membership", what, Vec::new());
        self.account.trace.healed(change);
        load.wait_for_more(WRITES_BETWEEN, CHANGE_WITHIN).await?;
        let next = self.load();
        self.absorb(load).await?;
        // Two cannot go on without one of them.
        if self.plan.kills && 2 < self.cluster.members().len() {
            let leader = self.cluster.leader(READY_WITHIN).await?;
            self.cluster.member(leader).kill()?;
            let fault = self.account.struck("kill", "1 killed (leader)", vec![leader]);
            next.wait_for_more(WRITES_BETWEEN, CHANGE_WITHIN).await?;
            self.cluster.revive(READY_WITHIN).await?;
            self.account.trace.healed(fault);
        }
        Ok(next)
    }

    /// Load on the members of now; others take over where one is gone.
    fn load(&mut self) -> Running {
        let shape = Shape::default();
        let load = unique::start(&self.cluster.endpoints(), shape, self.writers, &self.account.trace);
        self.writers += shape.writers;
        load
    }

    async fn absorb(&mut self, load: Running) -> Result<(), Failure> {
        self.history.absorb(load.finish().await?);
        Ok(())
    }
}
