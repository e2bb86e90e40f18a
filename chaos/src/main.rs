//! The long forms of the suites, and the line that repeats a failure.
//!
//! `meerkat-chaos SCENARIO [--name value …]`. The plan of each scenario says which flags there are. Every
//! flag has a default, and every run prints the command that repeats it.

use std::fmt::Debug;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::{Shell, generate};
use meerkat_chaos::driver::Product;
use meerkat_chaos::run::arguments::{minutes, some_seed};
use meerkat_chaos::run::command;
use meerkat_chaos::scenario::{
    big_store, client_failover, client_fate, crash, failover_time, fault_points, inject, lease_precision,
    listwatch_failover, listwatch_index, listwatch_many, membership, pause, snapshot, timed, watch_crash,
    watch_many, watch_stalled,
};
use meerkat_chaos::{Failure, differential, report};

/// Break clusters of real processes and judge what they did
#[derive(Parser)]
#[command(name = "meerkat-chaos", after_help = BINARY)]
struct Words {
    #[command(subcommand)]
    what: What,
    /// Hard deadline, 60 by default; of run: time in which faults are made
    #[arg(long, global = true, value_parser = minutes)]
    minutes: Option<Duration>,
}

const BINARY: &str = "The meerkat to test is the one built beside this program, or MEERKAT_BIN.";

#[derive(Subcommand)]
enum What {
    /// Send random KV requests to etcd and to a cluster
    Differential {
        #[arg(long, default_value_t = 5_000)]
        requests: usize,
        #[command(flatten)]
        beside: Beside,
    },
    /// Take random steps with watches on etcd and on a cluster
    WatchDifferential {
        #[arg(long, default_value_t = 5_000)]
        steps: usize,
        #[arg(long, default_value_t = 3)]
        members: usize,
        #[command(flatten)]
        beside: Beside,
    },
    /// Take random steps with leases on etcd and on a cluster
    LeaseDifferential {
        #[arg(long, default_value_t = 5_000)]
        steps: usize,
        /// Rounds of leases that run out
        #[arg(long, default_value_t = 8)]
        expiries: usize,
        #[arg(long, default_value_t = 3)]
        members: usize,
        #[command(flatten)]
        beside: Beside,
    },
    /// Take random steps with membership on etcd and on a cluster
    ClusterDifferential {
        #[arg(long, default_value_t = 400)]
        steps: usize,
        /// Members that each cluster begins with
        #[arg(long, default_value_t = 1)]
        members: usize,
        #[command(flatten)]
        beside: Beside,
    },
    /// Hold leases while leaders are killed and stopped
    LeasePrecision(lease_precision::Plan),
    /// Change the membership under load while members are killed
    Membership(membership::Plan),
    /// Kill members under load
    Crash(crash::Plan),
    /// Strike a member at each named fault point
    Faults {
        #[arg(long, value_enum, default_value_t)]
        action: fault_points::Strike,
    },
    /// Stop the leader for a while
    Pause(pause::Plan),
    /// Let a member sleep through a purged log
    Snapshot(snapshot::Plan),
    /// Kill and compact a large store
    Bigstore(big_store::Plan),
    /// Watch while members are killed and paused
    WatchCrash(watch_crash::Plan),
    /// Hold watches that nobody reads
    WatchStalled(watch_stalled::Plan),
    /// Hold many watches on one member
    WatchMany(watch_many::Plan),
    /// Run informers of the list-watch door while members are killed
    ListwatchFailover(listwatch_failover::Plan),
    /// Hold many watches over HTTP
    ListwatchMany(listwatch_many::Plan),
    /// List by label among many objects
    ListwatchIndex(listwatch_index::Plan),
    /// Watch through a client library under faults
    ClientFailover(client_failover::Plan),
    /// Write through a client library under faults
    ClientFate(client_fate::Plan),
    /// Kill leaders of Meerkat and of etcd and compare the time without writes
    FailoverTime(failover_time::Plan),
    /// Make the page of a run again from its record
    Report {
        #[arg(long, value_name = "FILE.json")]
        record: PathBuf,
        #[arg(long, value_name = "FILE.html")]
        to: PathBuf,
    },
    /// Break members of a docker compose project that is up
    Inject(inject::Plan),
    /// Make faults by a schedule under several workloads at once
    Run(command::Request),
    /// Generate completion script
    Completions { shell: Shell },
}

/// What is compared with etcd.
#[derive(Args)]
struct Beside {
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    seed: u64,
    /// Servers under test; etcd tests the comparison itself
    #[arg(long, value_enum, default_value_t)]
    product: Product,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut tree = Words::command();
    if std::env::args_os().len() == 1 {
        println!("{}", tree.render_long_help());
        return ExitCode::FAILURE;
    }
    let matches = tree.get_matches_mut();
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    let words = Words::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let What::Completions { shell } = words.what {
        return complete(shell, &mut tree);
    }
    match start(&name, words).await {
        Ok(()) => {
            println!("{name}: passed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{name}: {failure}");
            // A program that asks can tell a broken promise from a run that proved nothing.
            ExitCode::from(if matches!(failure, Failure::Broken(_) | Failure::Slow(_)) { 1 } else { 2 })
        }
    }
}

/// A reader that has seen enough closes the pipe; that is no failure.
fn complete(shell: Shell, tree: &mut clap::Command) -> ExitCode {
    let mut script = Vec::new();
    generate(shell, tree, "meerkat-chaos", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The longest a composed run may take beyond its faults: starting, settling, judging, reporting.
const BEYOND: Duration = Duration::from_secs(45 * 60);

async fn start(name: &str, words: Words) -> Result<(), Failure> {
    let deadline = words.minutes.unwrap_or(HOUR);
    match words.what {
        What::Differential { requests, beside: Beside { seed, product } } => {
            let plan = differential::Plan { seed, requests, product };
            over(name, deadline, differential::run(&plan)).await
        }
        What::WatchDifferential { steps, members, beside: Beside { seed, product } } => {
            let plan = differential::watch::Plan { seed, steps, members, product };
            over(name, deadline, differential::watch::run(&plan)).await
        }
        What::LeaseDifferential { steps, expiries, members, beside: Beside { seed, product } } => {
            let plan = differential::lease::Plan { seed, steps, expiries, members, product };
            over(name, deadline, differential::lease::run(&plan)).await
        }
        What::ClusterDifferential { steps, members, beside: Beside { seed, product } } => {
            let plan = differential::cluster::Plan { seed, steps, members, product };
            over(name, deadline, differential::cluster::run(&plan)).await
        }
        What::LeasePrecision(plan) => over(name, deadline, lease_precision::run(&plan)).await,
        What::Membership(plan) => {
            // What is left is for the judgement.
            let plan = membership::Plan { lasting: deadline.mul_f64(0.8), ..plan };
            over(name, deadline, membership::run(&plan)).await
        }
        What::Crash(plan) => over(name, deadline, crash::run(&plan)).await,
        What::Faults { action } => over(name, deadline, fault_points::run(&action.points(), action)).await,
        What::Pause(plan) => over(name, deadline, pause::run(&plan)).await,
        What::Snapshot(plan) => over(name, deadline, snapshot::run(&plan)).await,
        What::Bigstore(plan) => shown(name, deadline, big_store::run(&plan)).await,
        What::WatchCrash(plan) => over(name, deadline, watch_crash::run(&plan)).await,
        What::WatchStalled(plan) => over(name, deadline, watch_stalled::run(&plan)).await,
        What::WatchMany(plan) => over(name, deadline, watch_many::run(&plan)).await,
        What::ListwatchFailover(plan) => over(name, deadline, listwatch_failover::run(&plan)).await,
        What::ListwatchMany(plan) => over(name, deadline, listwatch_many::run(&plan)).await,
        What::ListwatchIndex(plan) => over(name, deadline, listwatch_index::run(&plan)).await,
        What::ClientFailover(plan) => over(name, deadline, client_failover::run(&plan)).await,
        What::ClientFate(plan) => over(name, deadline, client_fate::run(&plan)).await,
        What::FailoverTime(plan) => over(name, deadline, failover_time::run(&plan)).await,
        What::Report { record, to } => report::write(&to, &report::load(&record)?),
        // Not cut short: it has to leave the members as it found them.
        What::Inject(plan) => inject::run(&inject::Plan { lasting: deadline, ..plan }).await.map(drop),
        What::Run(request) => {
            let request = command::Request { length: words.minutes, ..request };
            let deadline = words.minutes.unwrap_or(BEYOND) + BEYOND;
            over(name, deadline, command::run(&request)).await
        }
        What::Completions { .. } => Ok(()),
    }
}

/// A run that says itself what happened.
async fn over<T>(
    name: &str,
    deadline: Duration,
    run: impl Future<Output = Result<T, Failure>>,
) -> Result<(), Failure> {
    timed(name, deadline, Box::pin(run)).await.map(drop)
}

/// A run whose report says it.
async fn shown<T: Debug>(
    name: &str,
    deadline: Duration,
    run: impl Future<Output = Result<T, Failure>>,
) -> Result<(), Failure> {
    timed(name, deadline, Box::pin(run)).await.map(|report| println!("{report:?}"))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn parsed(line: &str) -> Result<Words, clap::Error> {
        Words::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn command_lines_of_scripts_and_documents_are_understood() {
        Words::command().debug_assert();
        for line in [
            "inject --faults 1000 --minutes 1440 --rest-seconds 20 --seed 1 --kinds kill,stop,pause,partition",
            "run smoke --seed 7 --target etcd --driver netns --minutes 0.5 --report all.html",
            "lease-precision --faults 100 --seed 7 --checkpoint-ms 500 --pauses 0 --product etcd",
            "faults --action enospc",
            "client-failover --client meerkat --silent-seconds 8",
            "bigstore --keys 1000 --minutes 5",
            "report --record x.json --to x.html",
            "completions zsh",
        ] {
            assert!(parsed(&format!("meerkat-chaos {line}")).is_ok(), "{line}");
        }
        for line in
            ["crash --kills many", "crash --kill 5", "run", "inject --kinds fire", "faults --action rain"]
        {
            assert!(parsed(&format!("meerkat-chaos {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn no_seconds_of_silence_mean_faults_of_every_kind() {
        let kinds = |line| match parsed(line).expect("a line").what {
            What::ClientFailover(plan) => plan.kinds().len(),
            _ => 0,
        };
        let all = kinds("meerkat-chaos client-failover");
        assert_eq!(kinds("meerkat-chaos client-failover --silent-seconds 0"), all);
        assert!((1..all).contains(&kinds("meerkat-chaos client-failover --silent-seconds 8")));
    }

    #[test]
    fn every_fault_of_the_injector_is_made_unless_some_are_chosen() {
        let kinds = |line| match parsed(line).expect("a line").what {
            What::Inject(plan) => plan.kinds,
            _ => Vec::new(),
        };
        assert_eq!(kinds("meerkat-chaos inject"), inject::Kind::value_variants());
        assert_eq!(kinds("meerkat-chaos inject --kinds pause"), [inject::Kind::Pause]);
        let spaced = Words::try_parse_from(["meerkat-chaos", "inject", "--kinds", "kill, pause"]);
        match spaced.expect("blanks are allowed").what {
            What::Inject(plan) => assert_eq!(plan.kinds, [inject::Kind::Kill, inject::Kind::Pause]),
            _ => panic!("another command"),
        }
    }
}
