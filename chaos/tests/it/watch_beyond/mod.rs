//! Watches where Meerkat does more than etcd: what docs/watch.md promises about slow clients, about
//! what watchers cost, and about what operators are shown.
//!
//! Every test runs a real member, and what watchers were sent is held against all that happened.

mod cost;
mod large;
mod shown;
mod slow;

use std::time::Duration;

use bytes::Bytes;
use meerkat_chaos::driver::Product;
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::metrics::Metrics;
use meerkat_chaos::outcome::describe;
use meerkat_chaos::watch::{Recorder, Stage, WatchLog};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::admin::{ListWatchersResponse, Watcher};

const BUDGET: Duration = Duration::from_secs(90);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// One member with flags of its own.
async fn one_member(flags: &[&str]) -> Result<Stage, Failure> {
    Stage::start(Product::Meerkat, 1, flags).await
}

async fn metrics(endpoint: &Endpoint) -> Result<Metrics, Failure> {
    endpoint.metrics(ANSWER_WITHIN).await
}

/// Waits until the member's numbers are as they should be; else says what they were.
async fn metrics_until(
    endpoint: &Endpoint,
    what: &str,
    satisfied: impl Fn(&Metrics) -> Result<bool, Failure>,
) -> Result<Metrics, Failure> {
    let patience = Patience::of(what, ANSWER_WITHIN);
    loop {
        let metrics = metrics(endpoint).await?;
        if satisfied(&metrics)? {
            return patience.came().map(|_| metrics);
        }
        patience.pause(POLL, format_args!("{metrics:?}")).await?;
    }
}

/// What the member says of its watchers, page by page.
async fn listed_in_pages(stage: &Stage) -> Result<Vec<ListWatchersResponse>, Failure> {
    let pages = stage.endpoint(0).list_watchers(ANSWER_WITHIN).await;
    pages.map_err(|status| Failure::broken(format!("no list of watchers: {}", describe(&status))))
}

async fn listed(stage: &Stage) -> Result<Vec<Watcher>, Failure> {
    Ok(listed_in_pages(stage).await?.into_iter().flat_map(|page| page.watchers).collect())
}

/// Waits for the answers to all creates of a stream.
async fn take_created(recorder: &mut Recorder) -> Result<(), Failure> {
    let created = |logs: &[WatchLog]| logs.iter().all(|log| log.replies().next().is_some());
    recorder.take_until("creation of all watchers", ANSWER_WITHIN, created).await
}

/// A failure of the system unless the condition holds.
fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::broken(what())) }
}

/// A value that is used once, of some length at least.
fn value(name: &str, length: usize) -> Bytes {
    let mut value = format!("{name} ").into_bytes();
    value.resize(length.max(value.len()), b'.');
    value.into()
}
