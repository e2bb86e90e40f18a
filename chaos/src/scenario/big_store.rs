//! A large store: back in seconds after `kill -9`, compacted without being felt, and paged through
//! at the same cost from the first page to the last.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeRequest};

use super::settle;
use super::stage::first_revision;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::outcome::describe;
use crate::record::Trace;
use crate::run::arguments;
use crate::workload::unique::{self, Shape};
use crate::workload::{fill, latency};
use crate::{Failure, binary};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ASK_WITHIN: Duration = Duration::from_secs(120);
const PAGE_LIMIT: i64 = 500;
/// Pages at either end that are compared.
const PAGES_COMPARED: usize = 40;
const MEASURING_CLIENTS: usize = 8;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Keys in the store
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Revisions to supersede and compact
    #[arg(long, default_value_t = 100_000)]
    pub superseded: u64,
    /// Bytes of each value.
    #[arg(skip = 256_usize)]
    pub value_bytes: usize,
    /// Within which time a killed cluster must serve again.
    #[arg(skip = Duration::from_secs(3))]
    pub serve_within: Duration,
    /// How far compaction may raise the p99 of a put.
    #[arg(skip = 2.0)]
    pub p99_ratio_max: f64,
    /// A p99 below this is no pain to anybody, whatever its ratio.
    #[arg(skip)]
    pub p99_floor: Duration,
    /// How much dearer a page at the end may be than one at the start.
    #[arg(skip = 1.5)]
    pub page_ratio_max: f64,
}

impl Plan {
    /// The full size.
    pub fn full(product: Product) -> Self {
        Self { product, ..arguments::full() }
    }

    /// What the test suite runs, with its budget: a tenth of the store, and room for the noise of
    /// a machine that also builds.
    pub fn for_suite() -> (Self, Duration) {
        let full = Self::full(Product::Meerkat);
        if binary::long_forms_wanted() {
            return (full, Duration::from_secs(1_800));
        }
        let small = Self {
            keys: 100_000,
            superseded: 20_000,
            serve_within: Duration::from_secs(8),
            p99_floor: Duration::from_millis(250),
            page_ratio_max: 3.0,
            ..full
        };
        (small, Duration::from_secs(150))
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the restart to the first linearizable answer of every member.
    pub served_again_in: Duration,
    /// p99 of a put before compaction.
    pub p99_before: Duration,
    /// p99 of a put while it ran.
    pub p99_during: Duration,
    /// Median cost of a page at the start of the store.
    pub first_pages: Duration,
    /// Median cost of a page at its end.
    pub last_pages: Duration,
}

/// Runs all three parts on one cluster.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let quota = format!("--quota-backend-bytes={}", 8_u64 << 30);
    let spec = ClusterSpec::new(plan.product, 3).with_flags(&[&quota]);
    let mut cluster = Cluster::start(&spec).await?;
    let endpoints = cluster.endpoints();
    let began = Instant::now();
    fill::fill(&endpoints, 0..plan.keys, plan.value_bytes).await?;
    println!("bigstore: {} keys in {:?}", plan.keys, began.elapsed());

    let (first_pages, last_pages) = page_through(&cluster, plan.keys).await?;
    println!(
        "bigstore: median page of {PAGE_LIMIT}: {first_pages:?} at the start, {last_pages:?} at the end"
    );
    let served_again_in = kill_all_under_load(&mut cluster, plan).await?;
    println!("bigstore: all members killed under load, serving again in {served_again_in:?}");
    let (p99_before, p99_during) = compact_under_load(&cluster, plan).await?;
    println!("bigstore: put p99 {p99_before:?} before, {p99_during:?} while compacting");

    settle::agree(&cluster, plan.product).await?;
    let report = Report { served_again_in, p99_before, p99_during, first_pages, last_pages };
    require_bounds(plan, &report)?;
    cluster.finish()?;
    Ok(report)
}

fn require_bounds(plan: &Plan, report: &Report) -> Result<(), Failure> {
    let mut findings = Vec::new();
    if plan.serve_within < report.served_again_in {
        findings
            .push(format!("serving took {:?}, allowed are {:?}", report.served_again_in, plan.serve_within));
    }
    let during = report.p99_during;
    if plan.p99_floor < during && report.p99_before.mul_f64(plan.p99_ratio_max) < during {
        findings.push(format!("compaction raised put p99 from {:?} to {during:?}", report.p99_before));
    }
    if report.first_pages.mul_f64(plan.page_ratio_max) < report.last_pages {
        findings.push(format!(
            "a page costs {:?} at first and {:?} at last",
            report.first_pages, report.last_pages
        ));
    }
    Failure::from_times("a large store stays quick", findings)
}

/// Pages through the whole store and returns the median page time at the start and at the end.
pub async fn page_through(cluster: &Cluster, keys: u64) -> Result<(Duration, Duration), Failure> {
    let endpoint = cluster.members()[cluster.leader(READY_WITHIN).await?].endpoint();
    let mut times = Vec::new();
    let mut seen = 0;
    let mut from = Bytes::from_static(fill::FIRST_KEY);
    let mut revision = 0;
    loop {
        let request = RangeRequest {
            key: from,
            range_end: Bytes::from_static(fill::END_KEY),
            limit: PAGE_LIMIT,
            revision,
            ..Default::default()
        };
        let began = Instant::now();
        let answer = endpoint.range(request, ASK_WITHIN).await?;
        times.push(began.elapsed());
        revision =
            if revision == 0 { answer.header.as_ref().map_or(0, |header| header.revision) } else { revision };
        if u64::try_from(answer.count).unwrap_or(0) != keys - seen {
            return Err(Failure::broken(format!("count is {} with {} keys left", answer.count, keys - seen)));
        }
        seen += answer.kvs().len() as u64;
        match answer.kvs().last() {
            Some(last) if answer.more => from = Bytes::from([last.key.as_ref(), b"\0"].concat()),
            _ => break,
        }
    }
    if seen != keys {
        return Err(Failure::broken(format!("paging showed {seen} of {keys} keys")));
    }
    let compared = PAGES_COMPARED.min(times.len() / 2).max(1);
    // The first page pays for the connection and for cold caches of the harness itself.
    let start = times.iter().skip(1).take(compared).copied().collect();
    let end = times.iter().rev().skip(1).take(compared).copied().collect();
    Ok((median(start), median(end)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Kills every member at once in the middle of writes; returns how long until all serve.
async fn kill_all_under_load(cluster: &mut Cluster, plan: &Plan) -> Result<Duration, Failure> {
    let started_at = first_revision(cluster.members()[0].endpoint()).await?;
    let load = unique::start(&cluster.endpoints(), Shape::default(), 1, &Trace::new(Instant::now()));
    load.wait_for_more(2_000, READY_WITHIN).await?;
    for index in 0..cluster.members().len() {
        cluster.member(index).kill()?;
    }
    let began = Instant::now();
    cluster.revive(READY_WITHIN).await?;
    let served_again_in = began.elapsed();
    load.wait_for_more(100, READY_WITHIN).await?;
    let history = load.finish().await?;
    settle::judge(cluster, plan.product, &history, started_at).await?;
    Ok(served_again_in)
}

/// Supersedes many revisions, then compacts them while puts are timed.
async fn compact_under_load(cluster: &Cluster, plan: &Plan) -> Result<(Duration, Duration), Failure> {
    let endpoints = cluster.endpoints();
    fill::write_singly(&endpoints, 0..plan.superseded, plan.value_bytes, 64).await?;
    let revision = first_revision(&endpoints[0]).await?;

    let before = latency::start(&endpoints, MEASURING_CLIENTS, plan.value_bytes);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = before.finish().await?;

    let during = latency::start(&endpoints, MEASURING_CLIENTS, plan.value_bytes);
    let began = Instant::now();
    // Physical, so that the answer says when the work is over.
    endpoints[0]
        .compact(CompactionRequest { revision, physical: true }, ASK_WITHIN)
        .await
        .map_err(|status| Failure::broken(format!("compaction: {}", describe(&status))))?;
    println!("bigstore: compacting {} superseded revisions took {:?}", plan.superseded, began.elapsed());
    // At least as long as the first measurement, so that both have the same number of slow moments.
    tokio::time::sleep(Duration::from_secs(5).saturating_sub(began.elapsed())).await;
    let during = during.finish().await?;
    let p99 =
        |histogram: &hdrhistogram::Histogram<u64>| Duration::from_micros(histogram.value_at_quantile(0.99));
    Ok((p99(&before), p99(&during)))
}
