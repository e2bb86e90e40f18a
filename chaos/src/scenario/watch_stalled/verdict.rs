//! What the windows showed, and whether that is good enough. Pure.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::Plan;
use super::load::{Probe, probe_key};
use crate::Failure;
use crate::driver::usage::mib;
use crate::watch::WatchLog;

/// Pairs from which the spread of a p99 is known well enough to be the bound.
const PAIRS_FOR_SPREAD: usize = 7;

/// Median and p99 of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// How many were measured.
    pub count: usize,
    /// Half are quicker.
    pub median: Duration,
    /// One in a hundred is slower.
    pub p99: Duration,
}

impl Quantiles {
    /// Of some latencies; at least one.
    pub fn of(latencies: impl Iterator<Item = Duration>) -> Result<Self, Failure> {
        let mut all: Vec<Duration> = latencies.collect();
        all.sort_unstable();
        let at = |share: usize| all.get((all.len() * share / 100).min(all.len().saturating_sub(1))).copied();
        match (at(50), at(99)) {
            (Some(median), Some(p99)) => Ok(Self { count: all.len(), median, p99 }),
            _ => Err(Failure::harness("nothing was measured in a window")),
        }
    }
}

/// One window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Whether the stalled clients were there.
    pub stalled: bool,
    /// Of small puts.
    pub puts: Quantiles,
    /// From such a put to its event at healthy watchers.
    pub events: Quantiles,
    /// The most memory the member held.
    pub rss_max_bytes: u64,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.stalled { "with" } else { "without" };
        let (puts, events) = (&self.puts, &self.events);
        write!(
            f,
            "{which:>8}: put median {:?} p99 {:?} of {}; event median {:?} p99 {:?} of {}; memory {}",
            puts.median,
            puts.p99,
            puts.count,
            events.median,
            events.p99,
            events.count,
            mib(self.rss_max_bytes)
        )
    }
}

/// The time from each put to its event, at each watcher. An event that is not there is for the
/// checker to find.
pub fn event_latencies(probes: &[Probe], healthy: &[WatchLog]) -> Result<Quantiles, Failure> {
    let issued: HashMap<Bytes, Duration> =
        probes.iter().map(|probe| (probe_key(probe.number), probe.issued)).collect();
    let arrivals = healthy.iter().flat_map(WatchLog::replies).flat_map(|reply| {
        let issued = &issued;
        reply
            .events
            .iter()
            .filter_map(move |event| issued.get(&event.key).map(|issued| reply.at.saturating_sub(*issued)))
    });
    Quantiles::of(arrivals)
}

/// Holds the windows against the plan.
pub fn judge(plan: &Plan, windows: &[Window]) -> Result<(), Failure> {
    let (with, without): (Vec<Window>, Vec<Window>) = windows.iter().partition(|window| window.stalled);
    let mut findings = Vec::new();
    let most = |windows: &[Window]| windows.iter().map(|window| window.rss_max_bytes).max().unwrap_or(0);
    let extra = most(&with).saturating_sub(most(&without));
    println!("watch stalled: memory grew by {}, allowed are {}", mib(extra), mib(plan.extra_bytes_max()));
    if plan.extra_bytes_max() < extra {
        findings.push(format!("memory grew by {}, allowed are {}", mib(extra), mib(plan.extra_bytes_max())));
    }
    Failure::from_findings("stalled clients cost bounded memory", findings)?;
    let mut findings = Vec::new();
    let puts = |windows: &[Window]| windows.iter().map(|window| window.puts.p99).collect::<Vec<_>>();
    let events = |windows: &[Window]| windows.iter().map(|window| window.events.p99).collect::<Vec<_>>();
    findings.extend(p99_finding(plan, "a put", puts(&with), puts(&without)));
    findings.extend(p99_finding(plan, "an event", events(&with), events(&without)));
    Failure::from_times("stalled clients cost others nothing", findings)
}

/// With enough pairs, the median with the clients must lie within what was seen without them.
fn p99_finding(
    plan: &Plan,
    what: &str,
    mut with: Vec<Duration>,
    mut without: Vec<Duration>,
) -> Option<String> {
    with.sort_unstable();
    without.sort_unstable();
    let median = *with.get(with.len() / 2)?;
    let (least, most) = (*without.first()?, *without.last()?);
    let spread_is_known = PAIRS_FOR_SPREAD <= without.len();
    let allowed = if spread_is_known { most } else { most.mul_f64(plan.p99_ratio_max).max(plan.p99_floor) };
    println!(
        "watch stalled: p99 of {what}: {median:?} with the clients, {least:?} to {most:?} without, {allowed:?} allowed"
    );
    (allowed < median)
        .then(|| format!("p99 of {what} is {median:?} with the clients, {least:?} to {most:?} without"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Product;

    fn window(stalled: bool, p99_ms: u64, rss_max_bytes: u64) -> Window {
        let p99 = Duration::from_millis(p99_ms);
        let quantiles = Quantiles { count: 100, median: p99 / 2, p99 };
        Window { stalled, puts: quantiles, events: quantiles, rss_max_bytes }
    }

    fn judged(with: &[u64], without: &[u64], grown: u64) -> bool {
        let base = 100 << 20;
        let with = with.iter().map(|p99| window(true, *p99, base + grown));
        let windows: Vec<Window> = with.chain(without.iter().map(|p99| window(false, *p99, base))).collect();
        judge(&Plan::full(Product::Meerkat), &windows).is_ok()
    }

    #[test]
    fn with_seven_pairs_the_spread_without_is_the_bound() {
        let without = [4, 5, 6, 7, 8, 9, 10];
        assert!(judged(&[5, 6, 7, 9, 10, 30, 30], &without, 0));
        assert!(!judged(&[5, 6, 7, 11, 11, 12, 12], &without, 0));
    }

    #[test]
    fn memory_beyond_the_bound_is_found() {
        let allowed = Plan::full(Product::Meerkat).extra_bytes_max();
        assert!(judged(&[5], &[5], allowed));
        assert!(!judged(&[5], &[5], allowed + 1));
    }

    #[test]
    fn a_quantile_is_one_of_what_was_measured() {
        let all = (1..=200).map(Duration::from_millis);
        let quantiles = Quantiles::of(all).expect("something was measured");
        assert_eq!((quantiles.median.as_millis(), quantiles.p99.as_millis()), (101, 199));
        assert!(Quantiles::of(std::iter::empty()).is_err());
    }
}
