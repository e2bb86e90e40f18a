//! `meerkat demo`: the promises of the product, put to the test on screen.
//!
//! `failover` starts three members of this binary, a writer and three watchers, then kills, pauses
//! and cuts off members one after another, and at the end compares what every watcher was told with
//! what the store holds. Only the main loop in [`performance`] owns the model; all others tell it
//! what happens. `controllers` is the same for the list-watch door: see [`controllers`]. `write` and `watch` are its writer and its watcher for a cluster that is already there.

mod checker;
mod controllers;
mod director;
mod history;
mod live;
mod model;
mod observer;
mod performance;
mod plain;
mod proxy;
#[cfg(test)]
mod sample;
mod screen;
mod script;
mod stage;
mod svg;
mod teller;
mod verdict;
mod view;
mod watcher;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use script::Choice;

#[derive(Args, Debug)]
pub struct DemoArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand, Debug)]
enum Which {
    /// Three members die, hang and are cut off; three watchers miss nothing
    Failover(FailoverArgs),
    /// kubectl asks for pods; controllers bring them about while members die
    Controllers(controllers::ControllersArgs),
    /// Keep writing to a cluster, and say what was acknowledged
    Write(live::WriteArgs),
    /// Watch what such writers write, and fail if an event is lost or repeated
    Watch(live::LiveArgs),
}

#[derive(Args, Debug)]
struct FailoverArgs {
    /// Print lines, without taking over the terminal
    #[arg(long)]
    plain: bool,
    /// How many faults, or which: kill-watched, kill-leader, pause, cut, majority, restart
    #[arg(long, value_name = "N|KIND,…", default_value_t = Choice::Count(script::KINDS.len()))]
    faults: Choice,
    /// Repeats the choices of an earlier run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Quiet time before each fault
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = parse_seconds)]
    seconds_between: Duration,
    /// Keep the data and the logs of the members
    #[arg(long)]
    keep: bool,
    /// Write the last screen to this file, as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    // One thread: a member ends with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &args.which {
        Which::Failover(args) => runtime.block_on(performance::run(args)),
        Which::Controllers(args) => runtime.block_on(controllers::run(args)),
        Which::Write(args) => runtime.block_on(live::write(args)),
        Which::Watch(args) => runtime.block_on(live::watch(args)),
    }
}

const SECONDS_BETWEEN_MAX: f64 = 3_600.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_BETWEEN_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("a number of seconds from 0 to {SECONDS_BETWEEN_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction_but_not_be_endless() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "nan", "inf", "1e9", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
