//! Membership changes under load, with members killed while a change is on its way.
//!
//! Each change grows, shrinks or renews the cluster, one request in a few is met by a `kill -9`, most
//! often of the leader, and the cluster is brought back to its size. Meanwhile writers and readers go
//! on, and everybody is asked all the time whether it leads. Afterwards nothing acknowledged may be
//! missing on any member, no term may have had two leaders, and all members hold the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;

use super::account::{Account, Members};
use super::stage::first_revision;
use crate::Failure;
use crate::checker::one_leader::{self, Claim};
use crate::driver::local::LocalGround;
use crate::driver::{ClusterSpec, Product};
use crate::endpoint::{Contact, Endpoint, Roster};
use crate::ground::{self, Ground};
use crate::nemesis::Nemesis;
use crate::nemesis::membership::{Membership, Tally};
use crate::nemesis::sight;
use crate::record::Verdict;
use crate::report::Story;
use crate::run::arguments::some_seed;
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
#[derive(Clone, Debug, Args)]
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
    /// File of the report; the record goes beside it
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// Requests that did something, requests that did not, and deaths.
    pub tally: Tally,
    /// All else.
    pub story: Story,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let replay = format!(
        "meerkat-chaos membership --changes {} --seed {} --product {}",
        plan.changes, plan.seed, plan.product
    );
    let account = Account::open("membership", plan.product, plan.seed, replay);
    let mut account = account.reporting(plan.report.clone());
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections();
    let mut ground = LocalGround::start(&spec, plan.seed).await?;
    let roster = Roster::default();
    let contact = |member: usize| Contact { member, endpoint: ground.endpoint(member) };
    roster.set((0..MEMBERS).map(contact).collect());
    account.look(&roster);
    let started_at = first_revision(&ground.endpoint(0)).await?;
    let began = Instant::now();
    let load = unique::start_on(&roster, Shape::default(), 1, &account.trace);
    let witness = Witness::start(roster.clone());
    let mut nemesis = Membership::with_deaths(DEATHS, roster);
    let mut dice = StdRng::seed_from_u64(plan.seed);
    let mut changes = 0;
    let all = async {
        while changes < plan.changes && began.elapsed() < plan.lasting {
            let blow = nemesis.strike(&mut ground, &mut dice).await?;
            println!("  {:>6.1} s  {}", began.elapsed().as_secs_f64(), blow.what);
            let fault = account.trace.struck("membership");
            account.trace.tell(fault, &blow);
            nemesis.heal(&mut ground).await?;
            account.trace.healed(fault);
            load.wait_for_more(PROGRESS, READY_WITHIN)
                .await
                .map_err(|failure| failure.during(&format!("after change {changes} ({})", blow.what)))?;
            changes += 1;
        }
        Ok(())
    };
    let ended = all.await;
    account.ended(ended);
    let history = load.finish().await?;
    let claims = witness.end();
    // etcd's status has the term of what was applied last, in which another may have led.
    if plan.product == Product::Meerkat {
        let seen = claims.len();
        account.verdicts([Verdict::new(
            "cluster",
            "no term has two leaders",
            seen,
            one_leader::check(claims),
        )]);
    }
    account.ended(all_stand(&mut ground).await);
    let members = ground::enlisted(&ground).into_iter();
    let members: Members = members.map(|member| (ground.name(member), ground.endpoint(member))).collect();
    account.judge(&members, &history, started_at).await;
    println!("membership: {:?}", nemesis.tally);
    let story = account.close(members).await?;
    Box::new(ground).finish().await?;
    Ok(Report { tally: nemesis.tally, story })
}

/// As many members are left as there were, and all of them serve.
async fn all_stand(ground: &mut LocalGround) -> Result<(), Failure> {
    let members = ground::enlisted(ground);
    for member in members.iter().copied() {
        let name = ground.name(member);
        if !sight::serves(ground, member, READY_WITHIN).await? {
            return Err(Failure::broken(format!("{name} does not serve: {}", ground.tail(member))));
        }
    }
    if members.len() != MEMBERS {
        return Err(Failure::broken(format!("{} members are left of {MEMBERS}", members.len())));
    }
    Ok(())
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
