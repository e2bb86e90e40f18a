//! Membership changes under load, with members killed while a change is on its way.
//!
//! Each change grows, shrinks or renews the cluster, one request in a few is met by a `kill -9`, most
//! often of the leader, and the cluster is brought back to its size. Meanwhile writers and readers go
//! on, and everybody is asked all the time whether it leads. Afterwards nothing acknowledged may be
//! missing on any member, no term may have had two leaders, and all members hold the same.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;

use crate::Failure;
use crate::checker;
use crate::checker::one_leader::{self, Claim};
use crate::driver::local::LocalGround;
use crate::driver::{ClusterSpec, Product};
use crate::endpoint::{Contact, Endpoint, Roster};
use crate::ground::{self, Ground};
use crate::nemesis::Nemesis;
use crate::nemesis::membership::{Membership, Tally};
use crate::nemesis::sight;
use crate::outcome::describe;
use crate::record::history::History;
use crate::run::arguments::some_seed;
use crate::run::settle::differences;
use crate::workload::unique::{self, Shape};

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(60);
const ASK_WITHIN: Duration = Duration::from_millis(300);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// One in so many requests is met by a death.
const DEATHS: u32 = 2;
/// Writes that must be acknowledged between two changes, or the run would test a cluster that stands.
const PROGRESS: u64 = 20;

/// How to run it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Changes, each of which is undone again
    #[arg(long, default_value_t = 200)]
    pub changes: usize,
    /// No change begins after this time.
    #[arg(skip)]
    pub lasting: Duration,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// Changes, undone again.
    pub changes: usize,
    /// Requests that did something, requests that did not, and deaths.
    pub tally: Tally,
    /// Members that ever were.
    pub members: usize,
    /// Terms in which somebody was seen leading.
    pub terms: usize,
    /// Writes acknowledged, refused, unknown.
    pub writes: (usize, usize, usize),
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!(
        "membership: seed {}; again with: meerkat-chaos membership --changes {} --seed {}",
        plan.seed, plan.changes, plan.seed
    );
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections();
    let mut ground = LocalGround::start(&spec, plan.seed).await?;
    let roster = Roster::default();
    let contact = |member: usize| Contact { member, endpoint: ground.endpoint(member) };
    roster.set((0..MEMBERS).map(contact).collect());
    let started_at = ground.endpoint(0).linearizable_probe(READY_WITHIN).await;
    let started_at = started_at.map_err(|status| Failure::broken(describe(&status)))?;

    let began = Instant::now();
    let load = unique::start_on(&roster, Shape::default(), 1, began);
    let witness = Witness::start(roster.clone());
    let mut nemesis = Membership::with_deaths(DEATHS, roster);
    let mut dice = StdRng::seed_from_u64(plan.seed);
    let mut changes = 0;
    while changes < plan.changes && began.elapsed() < plan.lasting {
        let blow = nemesis.strike(&mut ground, &mut dice).await?;
        println!("  {:>6.1} s  {}", began.elapsed().as_secs_f64(), blow.what);
        nemesis.heal(&mut ground).await?;
        load.wait_for_more(PROGRESS, READY_WITHIN)
            .await
            .map_err(|failure| failure.during(&format!("after change {changes} ({})", blow.what)))?;
        changes += 1;
    }
    let history = load.finish().await?;
    let claims = witness.end();
    let terms = claims.iter().map(|claim| claim.term).collect::<BTreeSet<_>>().len();
    // etcd's status has the term of what was applied last, in which another may have led.
    if plan.product == Product::Meerkat {
        Failure::from_findings("no term has two leaders", one_leader::check(claims))?;
    }
    judge(&mut ground, plan.product, &history, started_at).await?;
    let members = ground.members();
    Box::new(ground).finish().await?;
    Ok(Report { changes, tally: nemesis.tally, members, terms, writes: history.counts() })
}

/// Everything the clients did, against what each member holds, and the members against each other.
async fn judge(
    ground: &mut LocalGround,
    product: Product,
    history: &History,
    started_at: i64,
) -> Result<(), Failure> {
    let mut members: Vec<(String, Endpoint)> = Vec::new();
    for member in ground::enlisted(ground) {
        let name = ground.name(member);
        if !sight::serves(ground, member, READY_WITHIN).await? {
            return Err(Failure::broken(format!("{name} does not serve: {}", ground.tail(member))));
        }
        let state = unique::final_state(&ground.endpoint(member), started_at).await?;
        checker::check_all(history, &state)
            .map_err(|failure| failure.during(&format!("as {name} has it")))?;
        members.push((name, ground.endpoint(member)));
    }
    if members.len() != MEMBERS {
        return Err(Failure::broken(format!("{} members are left of {MEMBERS}", members.len())));
    }
    Failure::from_findings("members agree", differences(&members, product).await?)
}

/// Asks everybody all the time whether it leads.
struct Witness {
    claims: Arc<Mutex<BTreeSet<Claim>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    fn start(roster: Roster) -> Self {
        let claims: Arc<Mutex<BTreeSet<Claim>>> = Arc::default();
        let seen = claims.clone();
        let task = tokio::spawn(async move {
            loop {
                let asked = roster.all().into_iter().map(|contact| claim(contact.endpoint));
                let told = futures::future::join_all(asked).await;
                seen.lock().extend(told.into_iter().flatten());
                tokio::time::sleep(ASK_EVERY).await;
            }
        });
        Self { claims, task }
    }

    fn end(self) -> Vec<Claim> {
        self.task.abort();
        self.claims.lock().iter().copied().collect()
    }
}

/// A member may read its leader and its term one after the other, and lose its place in between. If it
/// says the same twice, it led in that term between the two.
async fn claim(endpoint: Endpoint) -> Option<Claim> {
    let first = leads(&endpoint).await?;
    let second = leads(&endpoint).await?;
    (first == second).then_some(first)
}

async fn leads(endpoint: &Endpoint) -> Option<Claim> {
    let status = endpoint.status(ASK_WITHIN).await.ok()?;
    let own = sight::id(&status);
    (status.leader == own && own != 0).then_some(Claim { term: status.raft_term, leader: own })
}
