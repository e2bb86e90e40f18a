//! `meerkat bench`: a load generator for anything that speaks etcd's KV, Watch and Lease services, so that
//! etcd and Meerkat are measured by the same program.
//!
//! The result goes to stdout, progress to stderr. Errors are part of the result; the exit status
//! is 1 if nothing was answered at all, if a watcher did not get exactly what it was owed, or if a lease
//! that was renewed in time was lost.

mod http2;
mod lease;
mod load;
mod members;
mod prefill;
mod report;
mod schedule;
mod watch;
mod wire;
mod workload;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lease::{LeaseArgs, LeaseKind};
use load::{Plan, Progress};
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;
use report::{Conditions, Report, Tally};
use schedule::{Length, Schedule};
use watch::{WatchArgs, WatchKind};
use wire::{Call, Connection};
use workload::{Kind, Shape, Workload};

use crate::command::endpoints_from;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::go_duration;

const WATCH_INTERVAL: Duration = Duration::from_millis(50);
const REQUESTS_DEFAULT: u64 = 10_000;
const CLIENTS_DEFAULT: usize = 1;

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What to do to the cluster
    #[arg(value_enum)]
    what: What,
    /// Members to load, comma-separated [default: 127.0.0.1:2379; MEERKAT_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long)]
    endpoints: Option<String>,
    /// Workers, each with one request in flight; of lease-keepalive, streams [default: 1; 64 lease-*, 16 watch-fanout and watch-latency, 64 watch-many, 256 watch-catchup]
    #[arg(long)]
    clients: Option<usize>,
    /// Connections the workers share [default: one to each endpoint]
    #[arg(long)]
    conns: Option<usize>,
    /// Requests to make; of watch loads and lease-renewed-puts, puts [default: 10000; 5s lease-keepalive, 4s lease-renewed-puts, 1000 watch-fanout and watch-latency, 0 watch-many, 200000 watch-catchup]
    #[arg(long, conflicts_with = "duration")]
    total: Option<u64>,
    /// How long to make requests, as in 30s
    #[arg(long, value_parser = go_duration::parse)]
    duration: Option<Duration>,
    /// Requests a second, whether answered or not; latency then counts from the intended moment
    #[arg(long)]
    rate: Option<f64>,
    /// Bytes of a key; those of watch loads have a form of their own
    #[arg(long, default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 256)]
    val_size: usize,
    /// Different keys
    #[arg(long, default_value_t = 10_000)]
    key_space: u64,
    /// Keys in one range
    #[arg(long, default_value_t = 1_000)]
    range_keys: u64,
    /// Reads in a hundred requests of a mixed load
    #[arg(long, default_value_t = 80)]
    read_percent: u64,
    /// Take keys in order instead of at random, as watch loads always do
    #[arg(long)]
    sequential_keys: bool,
    /// Keys to write before the measurement [default: the key space if the load reads, else none]
    #[arg(long)]
    prefill: Option<u64>,
    /// Load the leader only
    #[arg(long)]
    target_leader: bool,
    /// Threads of the generator; one can keep a small cluster busy
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Seed of the keys; watch loads take theirs in turn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Without any answer for this long, give up
    #[arg(long, default_value = "10s", value_parser = go_duration::parse)]
    timeout: Duration,
    /// Print the result as JSON, and no progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    lease: LeaseArgs,
}

/// Every load, by the name it has on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Requests(Kind),
    Watches(WatchKind),
    Leases(LeaseKind),
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [What] {
        &[
            What::Requests(Kind::Put),
            What::Requests(Kind::Get),
            What::Requests(Kind::GetSerializable),
            What::Requests(Kind::Range),
            What::Requests(Kind::Txn),
            What::Requests(Kind::Mixed),
            What::Watches(WatchKind::Fanout),
            What::Watches(WatchKind::Many),
            What::Watches(WatchKind::Catchup),
            What::Watches(WatchKind::Latency),
            What::Leases(LeaseKind::KeepAlive),
            What::Leases(LeaseKind::Grant),
            What::Leases(LeaseKind::RenewedPuts),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            What::Requests(kind) => kind.to_possible_value(),
            What::Watches(kind) => kind.to_possible_value(),
            What::Leases(kind) => kind.to_possible_value(),
        }
    }
}

pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    check(args)?;
    let mut endpoints = endpoints_from(args.endpoints.as_deref())?;
    if args.target_leader {
        endpoints = vec![find_leader(&endpoints)?];
    }
    match args.what {
        What::Requests(kind) => run_requests(args, kind, endpoints),
        What::Watches(kind) => watch::run(args, kind, endpoints),
        What::Leases(kind) => lease::run(args, kind, endpoints),
    }
}

fn run_requests(args: &BenchArgs, kind: Kind, endpoints: Vec<Endpoint>) -> Result<(), Failure> {
    if args.threads > args.clients.unwrap_or(CLIENTS_DEFAULT) {
        return Err(Failure::bad_arguments("--threads cannot exceed --clients"));
    }
    let prefilled = args.prefill.unwrap_or(if kind.reads() { args.key_space } else { 0 });
    let workload = Workload::new(shape(args, kind, prefilled)).map_err(Failure::bad_arguments)?;
    if prefilled > 0 {
        let bar = progress_bar(args, prefilled, "prefill");
        prefill::run(&workload, &endpoints, prefilled, args.val_size, &bar)?;
        bar.finish_and_clear();
    }
    let report = measure(args, kind, workload, endpoints)?;
    if args.json {
        println!("{}", report.json())
    } else {
        print!("{}", report.text())
    }
    if report.operations == 0 { Err(Failure::error("no request was answered")) } else { Ok(()) }
}

fn check(args: &BenchArgs) -> Result<(), Failure> {
    let refused = |text: &str| Err(Failure::bad_arguments(text));
    if args.clients == Some(0) || args.threads == 0 || args.conns == Some(0) {
        return refused("--clients, --threads and --conns must be at least 1");
    }
    if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return refused("--rate must be above 0");
    }
    Ok(())
}

fn shape(args: &BenchArgs, kind: Kind, prefilled: u64) -> Shape {
    Shape {
        kind,
        key_bytes: args.key_size,
        value_bytes: args.val_size,
        key_space: args.key_space,
        range_keys: args.range_keys,
        read_percent: args.read_percent,
        sequential: args.sequential_keys,
        prefilled,
    }
}

fn measure(
    args: &BenchArgs,
    kind: Kind,
    workload: Workload,
    endpoints: Vec<Endpoint>,
) -> Result<Report, Failure> {
    let clients = args.clients.unwrap_or(CLIENTS_DEFAULT);
    let length = match (args.total, args.duration) {
        (_, Some(duration)) => Length::Time(duration),
        (total, None) => Length::Requests(total.unwrap_or(REQUESTS_DEFAULT)),
    };
    let connections = args.conns.unwrap_or(endpoints.len()).clamp(args.threads, clients.max(args.threads));
    let progress = Arc::new(Progress::default());
    let start = Instant::now();
    let schedule = Arc::new(Schedule::new(start, length, args.rate));
    let plan = |thread: usize| Plan {
        workload: workload.clone(),
        schedule: Arc::clone(&schedule),
        endpoints: rotated(&endpoints, thread),
        clients: share(clients, args.threads, thread),
        connections: share(connections, args.threads, thread),
        progress: Arc::clone(&progress),
        seed: args.seed.wrapping_add(thread as u64 * 1_000_003),
    };
    let bar = match length {
        Length::Requests(total) => progress_bar(args, total, kind.name()),
        Length::Time(time) => progress_bar(args, time.as_millis() as u64, kind.name()),
    };
    let (mut tally, gave_up) = std::thread::scope(|scope| {
        let pacer = scope.spawn(|| schedule.pace());
        let threads: Vec<_> =
            (0..args.threads).map(plan).map(|plan| scope.spawn(|| load::run(plan))).collect();
        let is_over = || threads.iter().all(|thread| thread.is_finished());
        let gave_up = supervise(args.timeout, length, start, &progress, &schedule, &bar, is_over);
        let mut tally = Tally::new();
        for thread in threads {
            tally.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        schedule.stop();
        pacer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Failure>((tally, gave_up))
    })?;
    let elapsed = start.elapsed();
    bar.finish_and_clear();
    tally.failed_many("due but never begun", schedule.never_begun());
    if gave_up {
        tally.failed(&format!("gave up after {} without an answer", go_duration::format(args.timeout)));
    }
    let conditions = Conditions {
        workload: kind.name().to_owned(),
        endpoints: endpoints.iter().map(Endpoint::to_string).collect(),
        clients,
        connections,
        rate: args.rate,
        key_size: args.key_size,
        value_size: args.val_size,
        key_space: args.key_space,
        range_keys: (kind == Kind::Range).then_some(args.range_keys),
    };
    Ok(Report::new(conditions, tally, elapsed))
}

/// Keeps the bar moving until the load is over. Abandons a load that has stood still for too long,
/// and says whether it did.
fn supervise(
    timeout: Duration,
    length: Length,
    start: Instant,
    progress: &Progress,
    schedule: &Schedule,
    bar: &ProgressBar,
    is_over: impl Fn() -> bool,
) -> bool {
    let mut seen = (0, Instant::now());
    while !is_over() {
        std::thread::sleep(WATCH_INTERVAL);
        let finished = progress.finished.load(Ordering::Relaxed);
        let position = match length {
            Length::Requests(_) => finished,
            Length::Time(_) => start.elapsed().as_millis() as u64,
        };
        bar.set_position(position);
        bar.set_message(format!("{:.0} op/s", finished as f64 / start.elapsed().as_secs_f64()));
        if finished != seen.0 {
            seen = (finished, Instant::now());
        }
        let overdue = matches!(length, Length::Time(time) if start.elapsed() > time + timeout);
        if overdue || seen.1.elapsed() > timeout {
            schedule.stop();
            progress.abandon.store(true, Ordering::Relaxed);
            return true;
        }
    }
    false
}

/// One thread's part of a whole, so that the parts differ by at most one.
fn share(whole: usize, parts: usize, part: usize) -> usize {
    whole / parts + usize::from(part < whole % parts)
}

/// Each thread begins at another endpoint, so that few connections still spread.
fn rotated(endpoints: &[Endpoint], by: usize) -> Vec<Endpoint> {
    let mut rotated = endpoints.to_vec();
    rotated.rotate_left(by % endpoints.len());
    rotated
}

/// The endpoint whose member says that it is the leader.
fn find_leader(endpoints: &[Endpoint]) -> Result<Endpoint, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for endpoint in endpoints {
            let connection = Connection::new(endpoint.clone());
            let Ok(answer) = connection.call(Call::Status(pb::StatusRequest {})).await else { continue };
            let status = pb::StatusResponse::decode(answer).map_err(|e| Failure::error(e.to_string()))?;
            let member = status.header.map_or(0, |header| header.member_id);
            if member != 0 && status.leader == member {
                return Ok(endpoint.clone());
            }
        }
        Err(Failure::error("none of the endpoints is the leader"))
    })
}

fn progress_bar(args: &BenchArgs, length: u64, what: &str) -> ProgressBar {
    let hidden = args.json || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let style = ProgressStyle::with_template("{prefix:>10} [{bar:40}] {percent:>3}% {eta:>4} left  {msg}")
        .expect("the template is a constant");
    bar.set_style(style);
    bar.set_prefix(what.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole() {
        for (whole, parts) in [(1, 1), (7, 2), (256, 3), (2, 2)] {
            let shares: Vec<usize> = (0..parts).map(|part| share(whole, parts, part)).collect();
            assert_eq!(shares.iter().sum::<usize>(), whole);
            assert!(shares.iter().all(|share| *share >= whole / parts));
        }
    }
}
