//! `check datascale`: how much memory a member takes to hold a known amount of data.

use clap::Args;
use indicatif::ProgressBar;

use super::load::{self, Load, Pace};
use super::{Size, clean_up, compact, defragment, metrics, refuse_used_prefix};
use crate::command::cluster::{Cluster, refused};
use crate::command::signals::Signals;
use crate::failure::Failure;

#[derive(Args, Debug)]
pub struct DatascaleArgs {
    /// How much is written: s(mall) 10000, m(edium) 100000, l(arge) 1000000 or xl(arge) 3000000 keys
    #[arg(long, default_value = "s")]
    load: String,
    /// The prefix for writing the datascale check's keys
    #[arg(long, default_value = "/etcdctl-check-datascale/")]
    prefix: String,
    /// Compact storage with last revision after test is finished
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    auto_compact: bool,
    /// Defragment storage after test is finished
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    auto_defrag: bool,
}

/// Key and value together.
const PAIR_BYTES: usize = 1_024;

pub async fn run(args: &DatascaleArgs, cluster: &Cluster) -> Result<(), Failure> {
    let size = Size::parse(&args.load)?;
    let mut signals = Signals::listen()?;
    refuse_used_prefix(cluster, &args.prefix).await?;
    let before = memory(cluster, "before").await?;
    let puts = keys(size);
    println!(
        "Start data scale check for work load [{puts} key-value pairs, {PAIR_BYTES} bytes per key-value, {} concurrent clients].",
        size.clients()
    );
    let load = Load {
        clients: size.clients(),
        prefix: args.prefix.clone(),
        key_bytes: PAIR_BYTES / 2,
        value_bytes: PAIR_BYTES / 2,
        pace: Pace::AtOnce { puts },
    };
    let bar = ProgressBar::new(puts);
    let outcome = load::run(load, cluster, &mut signals, &bar).await;
    bar.finish_and_clear();
    let after = memory(cluster, "after").await;
    let revision = clean_up(cluster, &args.prefix).await.map_err(refused)?;
    if args.auto_compact {
        compact(cluster, revision).await?;
    }
    if args.auto_defrag {
        defragment(cluster).await?;
    }
    let (report, after) = (outcome?, after?);
    if report.interrupted {
        return Err(Failure::error("interrupted; what was written has been deleted"));
    }
    if !report.errors.is_empty() {
        println!("FAIL: too many errors");
        report.errors.iter().for_each(|(reason, count)| println!("FAIL: ERROR({reason}) -> {count}"));
        return Err(Failure::already_told());
    }
    println!("PASS: Approximate system memory used : {:.2} MB.", (after - before) / (1024.0 * 1024.0));
    Ok(())
}

async fn memory(cluster: &Cluster, when: &str) -> Result<f64, Failure> {
    metrics::resident_memory_bytes(cluster).await.map_err(|reason| {
        println!("FAIL: Could not read process_resident_memory_bytes {when} the put operations.");
        Failure::error(reason)
    })
}

fn keys(size: Size) -> u64 {
    match size {
        Size::Small => 10_000,
        Size::Medium => 100_000,
        Size::Large => 1_000_000,
        Size::ExtraLarge => 3_000_000,
    }
}
