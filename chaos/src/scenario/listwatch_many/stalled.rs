//! One watcher that reads nothing beside many that do.
//!
//! It watches all namespaces, one of which is written to by the megabyte, so that its line is full
//! within a second; the healthy ones watch a small object in another. Windows with and without it
//! take turns. After each it wakes, and must be given everything, or be told that it is too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{DELIVER_WITHIN, Plan};
use crate::driver::Cluster;
use crate::listwatch::crowd::{Crowd, Scribe, percentile};
use crate::listwatch::http::{self, Lines, Next};
use crate::listwatch::raw::{Arrival, RawWatch};
use crate::metrics::Metrics;
use crate::{Failure, Patience};

const SMALL_EVERY: Duration = Duration::from_millis(50);
const LARGE_EVERY: Duration = Duration::from_millis(40);
/// A window of them is more than the kernel keeps for a connection.
const LARGE_BYTES: usize = 400 << 10;
/// As little as the kernel allows.
const RECEIVE_BYTES: u32 = 2_048;
const WAKE_WITHIN: Duration = Duration::from_secs(20);
/// How far the median of the windows with it may lie above that of those without.
const RATIO_MAX: f64 = 1.25;

/// Runs it on a member that is idle; the p99 of the healthy without and with it, pair by pair.
pub async fn run(plan: &Plan, cluster: &Cluster) -> Result<Vec<(Duration, Duration)>, Failure> {
    let server = cluster.members()[0].listwatch_url();
    let began = Instant::now();
    let bulk = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bulk"}});
    http::expect(&server, "POST", "/api/v1/namespaces", Some(&bulk), &[201]).await?;
    let mut scene = Scene {
        plan,
        small: Scribe::open(&server, "default", "small", began).await?,
        large: Some(Scribe::open(&server, "bulk", "large", began).await?),
        server,
        began,
        parked: 0,
    };
    let (mut pairs, mut fates) = (Vec::new(), Vec::new());
    for pair in 0..plan.pairs {
        let (mut without, mut with) = (Duration::ZERO, Duration::ZERO);
        // Which comes first changes, so that growth over time burdens both alike.
        for stalled in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            let (p99, fate) = scene.window(stalled).await?;
            *(if stalled { &mut with } else { &mut without }) = p99;
            fates.extend(fate);
        }
        pairs.push((without, with));
    }
    println!("listwatch stalled: p99 of {} healthy without and with a stalled one: {pairs:?}", plan.healthy);
    let parked = scene.parked;
    println!("listwatch stalled: {parked} were parked before they woke; they woke: {fates:?}");
    judge(&pairs)?;
    Ok(pairs)
}

/// The windows with it must not stand out among those without.
fn judge(pairs: &[(Duration, Duration)]) -> Result<(), Failure> {
    let sorted = |times: Vec<Duration>| {
        let mut times = times;
        times.sort_unstable();
        times
    };
    let without = sorted(pairs.iter().map(|pair| pair.0).collect());
    let with = sorted(pairs.iter().map(|pair| pair.1).collect());
    let (median, usual) = (percentile(&with, 50), percentile(&without, 50));
    let worst = without.last().copied().unwrap_or_default();
    println!("listwatch stalled: median p99 {usual:?} without, {median:?} with");
    if worst < median && usual.mul_f64(RATIO_MAX) < median {
        return Err(Failure::slow(format!(
            "a stalled watcher is felt: the healthy have a p99 of {median:?}, and {usual:?} without it"
        )));
    }
    Ok(())
}

/// What became of a stalled watcher.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It was given everything, so many events, over so many streams.
    Whole {
        events: usize,
        streams: usize,
    },
    Expired,
}

struct Scene<'a> {
    plan: &'a Plan,
    server: String,
    began: Instant,
    small: Scribe,
    /// Away while it writes.
    large: Option<Scribe>,
    /// Stalled watchers that the door had parked when they woke.
    parked: usize,
}

impl Scene<'_> {
    async fn window(&mut self, stalled: bool) -> Result<(Duration, Option<Fate>), Failure> {
        let (first, _) = self.small.write(0).await?;
        let of_one = "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dsmall";
        let path = format!("{of_one}&resourceVersion={first}");
        let mut crowd = Crowd::open(&self.server, &path, self.plan.healthy, self.began).await?;
        let stalled = match stalled {
            false => None,
            true => {
                let path = format!("/api/v1/configmaps?watch=1&resourceVersion={first}");
                Some(RawWatch::begin(&self.server, &path, self.began, Some(RECEIVE_BYTES)).await?)
            }
        };
        let large = self.large.take().ok_or_else(|| Failure::harness("the large scribe is away"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let bulk = tokio::spawn(write_large(large, stop.clone()));
        let (mut written, until) = (Vec::new(), Instant::now() + self.plan.window);
        while Instant::now() < until {
            written.push(self.small.write(0).await?);
            tokio::time::sleep(SMALL_EVERY).await;
        }
        crowd.wait_for(written.len(), DELIVER_WITHIN).await?;
        stop.store(true, Ordering::Release);
        let bulk = bulk.await.map_err(|error| Failure::harness(format!("the large scribe: {error}")))??;
        self.large = Some(bulk.0);
        let (times, _) = crowd.take(&written)?;
        let fate = match stalled {
            None => None,
            Some(watch) => {
                self.parked += usize::from(0.0 < parked(&self.server).await?);
                let mut owed: Vec<u64> = written.iter().chain(&bulk.1).map(|(rv, _)| *rv).collect();
                owed.sort_unstable();
                Some(wake(watch, &self.server, first, &owed).await?)
            }
        };
        Ok((percentile(&times, 99), fate))
    }
}

async fn parked(server: &str) -> Result<f64, Failure> {
    let metrics = Metrics::read(server.strip_prefix("http://").unwrap_or(server)).await?;
    metrics.get("meerkat_listwatch_feed_watchers_parked{place=\"configmaps\"}")
}

async fn write_large(mut scribe: Scribe, stop: Arc<AtomicBool>) -> Result<(Scribe, Vec<Arrival>), Failure> {
    let mut written = Vec::new();
    while !stop.load(Ordering::Acquire) {
        written.push(scribe.write(LARGE_BYTES).await?);
        tokio::time::sleep(LARGE_EVERY).await;
    }
    Ok((scribe, written))
}

/// Reads on where it slept, and resumes as often as it must.
async fn wake(mut watch: RawWatch, server: &str, first: u64, owed: &[u64]) -> Result<Fate, Failure> {
    let mut told: Vec<Arrival> = Vec::new();
    let reading = async {
        while told.len() < owed.len() && watch.read(&mut told).await? {}
        Ok::<_, Failure>(())
    };
    let patience = || Patience::of("a stalled watcher that reads again is told", WAKE_WITHIN);
    patience().wait(reading).await??;
    let mut told: Vec<u64> = told.into_iter().map(|(rv, _)| rv).collect();
    let mut streams = 1;
    while told.len() < owed.len() {
        let after = told.last().copied().unwrap_or(first);
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={after}");
        let mut lines = Lines::begin(server, &path).await?;
        streams += 1;
        while told.len() < owed.len() {
            match patience().wait(lines.next()).await?? {
                Next::End => break,
                Next::Event(event) if event["type"] == "ERROR" && event["object"]["code"] == 410 => {
                    return Ok(Fate::Expired);
                }
                Next::Event(event) => {
                    let rv = event["object"]["metadata"]["resourceVersion"].as_str();
                    let rv = rv.and_then(|rv| rv.parse().ok());
                    told.push(rv.ok_or_else(|| Failure::broken(format!("no revision: {event}")))?);
                }
            }
        }
    }
    if told != owed {
        let at = told.iter().zip(owed).position(|(told, owed)| told != owed);
        return Err(Failure::broken(format!("a stalled watcher lost or repeated events, first at {at:?}")));
    }
    Ok(Fate::Whole { events: owed.len(), streams })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_that_is_felt_in_most_windows_is_found() {
        let ms = Duration::from_millis;
        assert!(judge(&[(ms(10), ms(11)), (ms(12), ms(30)), (ms(9), ms(9))]).is_ok());
        assert!(judge(&[(ms(10), ms(20)), (ms(12), ms(30)), (ms(9), ms(9))]).is_err());
    }
}
