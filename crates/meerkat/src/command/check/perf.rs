//! `check perf`: a steady load of puts, and whether the cluster keeps up with it.

use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use super::load::{self, Load, Pace, Report};
use super::{Size, clean_up, compact, defragment, refuse_used_prefix};
use crate::command::cluster::Cluster;
use crate::command::signals::Signals;
use crate::failure::Failure;
use crate::go_duration;

/// At least this part of the load must be carried.
const THROUGHPUT_MIN: f64 = 0.9;
/// Seconds.
const SLOWEST_MAX: f64 = 0.5;
const STDDEV_MAX: f64 = 0.1;

#[derive(Args, Debug)]
pub struct PerfArgs {
    /// How much is written: s(mall) 150, m(edium) 1000, l(arge) 8000 or xl(arge) 15000 puts a second
    #[arg(long, default_value = "s")]
    load: String,
    /// The prefix for writing the performance check's keys
    #[arg(long, default_value = "/etcdctl-check-perf/")]
    prefix: String,
    /// Compact storage with last revision after test is finished
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    auto_compact: bool,
    /// Defragment storage after test is finished
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    auto_defrag: bool,
    /// For how long
    #[arg(long, default_value = "60s")]
    duration: String,
}

pub async fn run(args: &PerfArgs, cluster: &Cluster) -> Result<(), Failure> {
    let size = Size::parse(&args.load)?;
    let during = go_duration::parse(&args.duration)
        .map_err(|reason| Failure::bad_arguments(format!("--duration: {reason}")))?;
    let mut signals = Signals::listen()?;
    refuse_used_prefix(cluster, &args.prefix).await?;
    let puts = per_second(size);
    let load = Load {
        clients: size.clients(),
        prefix: args.prefix.clone(),
        key_bytes: 256,
        value_bytes: 1_024,
        pace: Pace::PerSecond { puts, during },
    };
    let bar = ProgressBar::new(during.as_secs());
    let ticker = tokio::spawn(tick(bar.clone()));
    let outcome = load::run(load, cluster, &mut signals, &bar).await;
    ticker.abort();
    bar.finish_and_clear();
    match clean_up(cluster, &args.prefix).await {
        Ok(revision) if args.auto_compact => compact(cluster, revision).await?,
        Ok(_) => {}
        Err(reason) => println!("FAIL: Cleanup failed during key deletion: ERROR({reason})"),
    }
    if args.auto_defrag {
        defragment(cluster).await?;
    }
    let (lines, passed) = verdict(&outcome?, puts);
    lines.iter().for_each(|line| println!("{line}"));
    if passed { Ok(()) } else { Err(Failure::already_told()) }
}

async fn tick(bar: ProgressBar) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    loop {
        second.tick().await;
        bar.inc(1);
    }
}

fn per_second(size: Size) -> u32 {
    match size {
        Size::Small => 150,
        Size::Medium => 1_000,
        Size::Large => 8_000,
        Size::ExtraLarge => 15_000,
    }
}

/// What is to be said of a load of `puts` a second, and whether the cluster has passed.
fn verdict(report: &Report, puts: u32) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    if report.interrupted {
        lines.push("interrupted: the numbers are of the time until then".to_owned());
    }
    if !report.errors.is_empty() {
        lines.push("FAIL: too many errors".to_owned());
        lines.extend(report.errors.iter().map(|(reason, count)| format!("FAIL: ERROR({reason}) -> {count}")));
    }
    let rate = report.per_second();
    let checks = [
        (
            THROUGHPUT_MIN < rate / f64::from(puts),
            format!("PASS: Throughput is {} writes/s", rate as u64 + 1),
            format!("FAIL: Throughput too low: {} writes/s", rate as u64 + 1),
        ),
        (
            report.slowest() <= SLOWEST_MAX,
            format!("PASS: Slowest request took {:.6}s", report.slowest()),
            format!("Slowest request took too long: {:.6}s", report.slowest()),
        ),
        (
            report.stddev() <= STDDEV_MAX,
            format!("PASS: Stddev is {:.6}s", report.stddev()),
            format!("Stddev too high: {:.6}s", report.stddev()),
        ),
    ];
    let passed = report.errors.is_empty() && checks.iter().all(|(holds, ..)| *holds);
    lines.extend(checks.into_iter().map(|(holds, pass, fail)| if holds { pass } else { fail }));
    lines.push(if passed { "PASS" } else { "FAIL" }.to_owned());
    (lines, passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_passes_that_keeps_up_evenly_and_without_errors() {
        let report = |count: usize, ms: u64| Report {
            latencies: vec![Duration::from_millis(ms); count],
            took: Duration::from_secs(1),
            ..Default::default()
        };
        let (lines, passed) = verdict(&report(150, 4), 150);
        let expected = [
            "PASS: Throughput is 151 writes/s",
            "PASS: Slowest request took 0.004000s",
            "PASS: Stddev is 0.000000s",
            "PASS",
        ];
        assert_eq!((lines.as_slice(), passed), (&expected.map(str::to_owned)[..], true));
        let (lines, passed) = verdict(&report(100, 600), 150);
        let expected = [
            "FAIL: Throughput too low: 101 writes/s",
            "Slowest request took too long: 0.600000s",
            "PASS: Stddev is 0.000000s",
            "FAIL",
        ];
        assert_eq!((lines.as_slice(), passed), (&expected.map(str::to_owned)[..], false));
        let mut failed = report(150, 4);
        failed.errors.insert("no".to_owned(), 3);
        let (lines, passed) = verdict(&failed, 150);
        assert_eq!((lines[1].as_str(), passed), ("FAIL: ERROR(no) -> 3", false));
    }
}
