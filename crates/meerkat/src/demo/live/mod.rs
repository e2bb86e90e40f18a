//! `meerkat demo write` and `meerkat demo watch`: a writer and a watcher for a cluster that is already
//! there, each a process of its own, to be left running while somebody breaks members.
//!
//! The writer puts the next number under one of a few keys in turn; the watcher holds the versions of
//! each key against one another, so that one lost or repeated event is seen. Both print a line every
//! few seconds, end well on SIGTERM, and do nothing about failures that their client does not do.

mod chain;
mod watcher;
mod writer;

use std::time::Duration;

use clap::Args;
use meerkat_client::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use super::parse_seconds;
use crate::command::endpoints_from;
use crate::failure::Failure;

/// All keys of the two are below this.
const PREFIX: &str = "live/";
/// Few enough for each to be written every few seconds: only then is its chain of versions long.
const KEYS: u64 = 64;

#[derive(Args, Debug)]
pub struct LiveArgs {
    /// Members to talk to, comma-separated [default: 127.0.0.1:2379; MEERKAT_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long)]
    endpoints: Option<String>,
    /// Between two lines of output
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    report: Duration,
    /// Ends by itself after so long; 0: when it is stopped
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    lasting: Duration,
}

#[derive(Args, Debug)]
pub struct WriteArgs {
    #[command(flatten)]
    live: LiveArgs,
    /// Writes a second
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

pub async fn write(args: &WriteArgs) -> Result<(), Failure> {
    writer::run(&client(&args.live).await?, args).await
}

pub async fn watch(args: &LiveArgs) -> Result<(), Failure> {
    watcher::run(&client(args).await?, args).await
}

/// A client that does not mind if nobody answers yet: members may be starting beside it.
async fn client(args: &LiveArgs) -> Result<Client, Failure> {
    let endpoints = endpoints_from(args.endpoints.as_deref())?;
    let config = Config::new(endpoints.iter().map(|endpoint| endpoint.authority().to_owned())).lazy();
    Client::connect_with(config).await.map_err(|error| Failure::error(error.to_string()))
}

/// Done when the process is told to stop, or its time is over. The first process of a container dies
/// of a signal only if it asked for it.
fn ending(lasting: Duration) -> Result<impl Future<Output = ()>, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let over = async {
            match lasting {
                Duration::ZERO => std::future::pending().await,
                lasting => tokio::time::sleep(lasting).await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = over => {}
        }
    })
}
