//! `meerkat-chaos run`: from the words of a command to a run, its report and its last line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::arguments::some_seed;
use super::conduct::{self, Outcome};
use super::plan::{Kind, Plan};
use super::{judgement, schedule};
use crate::Failure;
use crate::driver::cluster::START_WITHIN;
use crate::driver::compose::ComposeGround;
use crate::driver::netns::NetnsGround;
use crate::driver::{ClusterSpec, LocalGround, Product};
use crate::ground::Ground;
use crate::nemesis::catalogue;
use crate::report::Story;

/// What to run.
#[derive(Clone, Debug, Args)]
pub struct Request {
    /// smoke, all, partitions, disks, membership, soak, or the path of a .toml file
    pub scenario: String,
    /// How long faults are made, if not as long as the scenario says.
    #[arg(skip)]
    pub length: Option<Duration>,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub target: Product,
    /// Where they stand
    #[arg(long, value_parser = ["local", "netns", "compose"], default_value = "local")]
    pub driver: String,
    /// File of the report; the record goes beside it
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

impl Request {
    /// The command that does the same again.
    pub fn replay(&self) -> String {
        let minutes = self
            .length
            .map_or_else(String::new, |length| format!(" --minutes {}", length.as_secs_f64() / 60.0));
        format!(
            "meerkat-chaos run {}{minutes} --seed {} --target {} --driver {}",
            self.scenario, self.seed, self.target, self.driver
        )
    }
}

/// Runs it, reports, and fails if anything was found or nothing could be proved. Must be called by
/// the thread that lives longest: members end with it.
pub async fn run(request: &Request) -> Result<Story, Failure> {
    let mut plan = Plan::find(&request.scenario)?;
    if let Some(length) = request.length {
        plan.length = length;
    }
    println!("{}: {}; again with: {}", plan.name, plan.about, request.replay());
    let stopped = stop_signal()?;
    let mut ground = open(request, &plan).await?;
    for (kind, why) in leave_out(&mut plan, &*ground) {
        println!("left out: {kind}: {why}");
    }
    let schedule = schedule::draw(&plan, request.seed);
    let time_for_all = schedule.has_time_for_all(plan.length);
    let mut outcome = tokio::select! {
        outcome = conduct::run(&mut *ground, &plan, schedule, request.seed) => outcome,
        // Dropping the ground ends its members.
        () = stopped => return Err(Failure::harness("ended by a signal")),
    };
    let missed = not_struck(&plan, &outcome);
    if !missed.is_empty() {
        let missed = format!("planned, and never struck: {}", missed.join(", "));
        println!("{missed}");
        if time_for_all {
            outcome.troubles.push(missed);
        }
    }
    let story = story(request, &plan, outcome);
    judgement::judge(&story, request.report.as_deref())?;
    ground.finish().await?;
    Ok(story)
}

async fn open(request: &Request, plan: &Plan) -> Result<Box<dyn Ground>, Failure> {
    let mut spec = ClusterSpec::new(request.target, plan.members);
    spec.flags = plan.flags_of(request.target);
    match request.driver.as_str() {
        "local" => Ok(Box::new(LocalGround::start(&spec, request.seed).await?)),
        "netns" => Ok(Box::new(NetnsGround::start(&spec).await?)),
        "compose" if request.target == Product::Etcd => {
            Err(Failure::harness("--driver compose has no etcd; take local or netns for the control"))
        }
        // The project that is up: COMPOSE_PROJECT_NAME, or the only one that has members.
        "compose" => {
            let project = std::env::var("COMPOSE_PROJECT_NAME").ok();
            let mut ground = ComposeGround::find(project.as_deref()).await?;
            ground.restore().await?;
            ground.wait_until_ready(START_WITHIN).await?;
            Ok(Box::new(ground))
        }
        other => Err(Failure::harness(format!("--driver {other:?} is not local, compose or netns"))),
    }
}

/// Takes out of the plan what this ground or its product cannot do; says what and why.
fn leave_out(plan: &mut Plan, ground: &dyn Ground) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let watches = plan.workloads.iter().any(|name| name == "watch");
    let mut can = |kind: &Kind| {
        let why = match catalogue::suits(&kind.name, ground) {
            Err(why) => why,
            Ok(()) => match known_of_the_control(ground.product(), &kind.name, watches) {
                Some(why) => why.to_owned(),
                None => return true,
            },
        };
        out.push((kind.name.clone(), why));
        false
    };
    plan.foreground.retain(&mut can);
    plan.background.retain(&mut can);
    plan.workloads.retain(|name| match known_of_the_control(ground.product(), name, watches) {
        Some(why) => {
            out.push((name.clone(), why.to_owned()));
            false
        }
        None => true,
    });
    out
}

/// What etcd is known for, and the control is not here to show again.
fn known_of_the_control(product: Product, name: &str, watches: bool) -> Option<&'static str> {
    match (product, name) {
        (Product::Etcd, "compaction") if watches => Some("etcd loses events when it overtakes a watcher"),
        (Product::Etcd, "lease") => {
            Some("etcd ends living leases when a leader wakes, and denies those it has not applied yet")
        }
        _ => None,
    }
}

/// Kinds that never came to be struck, because others took longer than planned, or could not be made.
fn not_struck<'a>(plan: &'a Plan, outcome: &Outcome) -> Vec<&'a str> {
    let made = || outcome.record.faults.iter().filter(|fault| fault.made);
    let struck = |kind: &Kind| made().any(|fault| fault.kind == kind.name);
    let kinds = plan.foreground.iter().chain(&plan.background);
    kinds.filter(|kind| !struck(kind)).map(|kind| kind.name.as_str()).collect()
}

fn story(request: &Request, plan: &Plan, outcome: Outcome) -> Story {
    Story {
        scenario: plan.name.clone(),
        seed: request.seed,
        target: request.target.to_string(),
        driver: request.driver.clone(),
        version: outcome.version,
        replay: request.replay(),
        length: outcome.length,
        record: outcome.record,
        verdicts: outcome.verdicts,
        members: outcome.members,
        troubles: outcome.troubles,
    }
}

/// Ends when somebody asks this program to.
fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    })
}
