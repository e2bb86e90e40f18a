//! A whole cluster in one process, from a seed: the real `server`, `raft`, `state` and `watch` code on
//! a simulated network, disks that lose what was not synced, and a clock that jumps to whatever comes
//! next. The workloads and checkers are those of the chaos harness.
//!
//! Each seed runs in a process of its own, forked from this one, and is the same each time: the
//! same messages at the same instants. `meerkat-sim run` runs many, `meerkat-sim replay` one, with
//! what the members say.

mod disk;
mod faults;
mod host;
mod member;
mod net;
mod processes;
mod scenario;
mod setup;
mod stream;
mod world;

use clap::{Parser, Subcommand};
use setup::Setup;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Parser)]
#[command(name = "meerkat-sim", about = "A cluster in one process, from a seed")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds, and say which of them broke a promise.
    Run {
        /// How many.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// How many at once; as many as there are cores unless given.
        #[arg(long)]
        jobs: Option<usize>,
        /// Print a line for each seed, and not only for those that failed.
        #[arg(long)]
        each: bool,
    },
    /// Run one seed again, with what the members log.
    Replay {
        #[arg(long)]
        seed: u64,
        /// What to log, as in RUST_LOG.
        #[arg(long, default_value = "info")]
        log: String,
    },
}

fn main() -> ExitCode {
    match processes::settle_addresses() {
        Ok(()) => {}
        Err(error) => {
            eprintln!("meerkat-sim: cannot fix where memory lies, so seeds may not replay exactly: {error}")
        }
    }
    let result = match Arguments::parse().command {
        Command::Run { seeds, from, jobs, each } => run(from, seeds, jobs, each),
        Command::Replay { seed, log } => replay(seed, &log),
    };
    result.unwrap_or_else(|error| {
        eprintln!("meerkat-sim: {error}");
        ExitCode::from(2)
    })
}

fn run(from: u64, seeds: u64, jobs: Option<usize>, each: bool) -> std::io::Result<ExitCode> {
    let began = Instant::now();
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut totals = Totals::default();
    let mut out = std::io::stdout().lock();
    processes::run_all(from..from + seeds, jobs, |outcome| {
        if each {
            writeln!(
                out,
                "seed {} history {:016x} trace {:016x}",
                outcome.seed, outcome.history, outcome.trace
            )?;
        }
        if let Some(failure) = &outcome.failure {
            writeln!(
                out,
                "seed {} FAILED: {failure}\n  again with: meerkat-sim replay --seed {}",
                outcome.seed, outcome.seed
            )?;
        }
        totals.add(&outcome);
        Ok(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    writeln!(
        out,
        "{} seeds, {} failed, in {seconds:.1} s ({:.0} per minute); {} operations, {} watch events, {} messages, {} s of simulated time; faults: {}",
        totals.seeds,
        totals.failed.len(),
        totals.seeds as f64 * 60.0 / seconds,
        totals.operations,
        totals.events,
        totals.messages,
        totals.millis / 1_000,
        totals.faults.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", "),
    )?;
    if !totals.failed.is_empty() {
        writeln!(out, "failed seeds: {:?}", totals.failed)?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    failed: Vec<u64>,
    operations: u64,
    events: u64,
    messages: u64,
    millis: u64,
    faults: std::collections::BTreeMap<String, u64>,
}

impl Totals {
    fn add(&mut self, outcome: &world::Outcome) {
        self.seeds += 1;
        self.failed.extend(outcome.failure.is_some().then_some(outcome.seed));
        self.operations += outcome.operations;
        self.events += outcome.events;
        self.messages += outcome.messages;
        self.millis += outcome.millis;
        for (name, count) in &outcome.faults {
            *self.faults.entry(name.clone()).or_default() += count;
        }
    }
}

fn replay(seed: u64, log: &str) -> std::io::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::try_new(log).map_err(std::io::Error::other)?;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    println!("{:?}", Setup::of(seed));
    let mut failed = false;
    processes::run_all(seed..seed + 1, 1, |outcome| {
        println!("{outcome:#?}");
        if let Some(failure) = &outcome.failure {
            println!("{failure}");
            failed = true;
        }
        Ok(())
    })?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
