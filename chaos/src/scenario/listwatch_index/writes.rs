//! Writes per second with and without watchers whom no write concerns, in windows that take turns.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Plan, item};
use crate::Failure;
use crate::driver::Cluster;
use crate::driver::usage::mib;
use crate::endpoint::Endpoint;
use crate::listwatch::stock;
use crate::listwatch::streams::Streams;
use crate::metrics::Metrics;

const WRITERS: usize = 16;
/// How far the median of the ratios may lie below one.
const LOSS_MAX: f64 = 0.10;
/// A machine on which equal windows differ by more than this measures nothing.
const SPREAD_MAX: f64 = 0.50;
/// After watchers have come or gone, and before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Writes per second of two windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    pub without: f64,
    pub with: f64,
}

/// Measures all pairs. Which window comes first changes, so watchers stay for two windows at a time.
pub async fn run(plan: &Plan, cluster: &Cluster) -> Result<Vec<Pair>, Failure> {
    let member = &cluster.members()[0];
    let server = member.listwatch_url();
    let mut streams: Option<Streams> = None;
    let mut pairs = vec![Pair::default(); plan.pairs];
    let mut marks = 1_000_000_000;
    for (number, pair) in pairs.iter_mut().enumerate() {
        for watched in if number % 2 == 0 { [false, true] } else { [true, false] } {
            streams = match (watched, streams) {
                (false, Some(streams)) => {
                    leave(streams, &server).await?;
                    None
                }
                (true, None) => Some(come(plan, &server).await?),
                (_, streams) => streams,
            };
            tokio::time::sleep(WARM_UP).await;
            let (rate, written) = window(plan, member.endpoint(), marks).await?;
            marks += written;
            *(if watched { &mut pair.with } else { &mut pair.without }) = rate;
            if let Some(streams) = &mut streams {
                let disturbed = streams.disturbed();
                if disturbed != 0 {
                    return Err(Failure::broken(format!("{disturbed} watches were told what is not theirs")));
                }
            }
        }
        println!(
            "listwatch-index: {} writes per second without and {} with {} watchers; the member has {}",
            pair.without.round(),
            pair.with.round(),
            plan.watchers,
            mib(member.usage()?.rss_bytes)
        );
    }
    drop(streams);
    judge(&pairs)?;
    Ok(pairs)
}

/// The windows with watchers must not stand out among those without.
fn judge(pairs: &[Pair]) -> Result<(), Failure> {
    let sorted = |values: Vec<f64>| {
        let mut values = values;
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let ratios = sorted(pairs.iter().map(|pair| pair.with / pair.without).collect());
    let without = sorted(pairs.iter().map(|pair| pair.without).collect());
    let (Some(least), Some(most)) = (without.first(), without.last()) else {
        return Err(Failure::harness("no pair was measured"));
    };
    let middle = without[without.len() / 2];
    let spread = (most - least) / middle;
    let median = ratios[ratios.len() / 2];
    println!(
        "listwatch-index: with to without: median {median:.3}, from {:.3} to {:.3}; windows without spread by \
         {:.1} % around {middle:.0} writes per second",
        ratios[0],
        ratios[ratios.len() - 1],
        100.0 * spread
    );
    if SPREAD_MAX < spread && median < 1.0 - LOSS_MAX {
        return Err(Failure::harness(format!(
            "windows without watchers spread by {spread:.3}: nothing can be said of a median ratio of {median:.3}"
        )));
    }
    if median < 1.0 - LOSS_MAX.max(spread / 2.0) {
        return Err(Failure::slow(format!(
            "watchers whom no write concerns cost writes: the median ratio is {median:.3}, with a spread of \
             {spread:.3} without them"
        )));
    }
    Ok(())
}

async fn come(plan: &Plan, server: &str) -> Result<Streams, Failure> {
    let began = Instant::now();
    let path = |number| {
        format!(
            "/api/v1/configmaps?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&labelSelector=group%3Dnobody-{number}"
        )
    };
    let streams = Streams::open(server, plan.watchers, path).await?;
    let open = watches(server).await?;
    if open < plan.watchers as f64 {
        return Err(Failure::broken(format!("{open} watches are open, not {}", plan.watchers)));
    }
    println!("listwatch-index: {} watchers in {:?}", streams.len(), began.elapsed());
    Ok(streams)
}

async fn leave(streams: Streams, server: &str) -> Result<(), Failure> {
    streams.close().await;
    let began = Instant::now();
    while 0.0 < watches(server).await? {
        if Duration::from_secs(30) < began.elapsed() {
            return Err(Failure::broken("watches outlive their connections by 30 s"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn watches(server: &str) -> Result<f64, Failure> {
    Metrics::read(server.strip_prefix("http://").unwrap_or(server)).await?.get("meerkat_listwatch_watches")
}

/// As many writes as come through in one window; how many in a second, and how many.
async fn window(plan: &Plan, endpoint: &Endpoint, marks: u64) -> Result<(f64, u64), Failure> {
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (plan, endpoint) = (plan.clone(), endpoint.clone());
        writers.spawn(async move {
            let mut written = 0_u64;
            while began.elapsed() < plan.window {
                let object = item(&plan, (writer + WRITERS * written as usize) % plan.objects);
                stock::put(&endpoint, &object, marks + written).await?;
                written += 1;
            }
            Ok::<_, Failure>(written)
        });
    }
    let mut written = 0;
    while let Some(ended) = writers.join_next().await {
        written += ended.map_err(|error| Failure::harness(format!("a writer ended: {error}")))??;
    }
    Ok((written as f64 / began.elapsed().as_secs_f64(), written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(without: f64, with: f64) -> Pair {
        Pair { without, with }
    }

    #[test]
    fn a_loss_in_most_windows_is_found_and_chance_is_not() {
        assert!(judge(&[pair(100.0, 99.0), pair(101.0, 70.0), pair(99.0, 104.0)]).is_ok());
        assert!(judge(&[pair(100.0, 80.0), pair(101.0, 85.0), pair(99.0, 104.0)]).is_err());
        assert!(judge(&[]).is_err());
        let noise = [pair(100.0, 60.0), pair(200.0, 150.0), pair(300.0, 200.0)];
        assert!(matches!(judge(&noise), Err(Failure::Harness(_))));
    }
}
