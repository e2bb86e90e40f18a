//! Ten thousand watchers of one resource over HTTP, each on a connection of its own; and one that
//! reads nothing beside a thousand that do.

mod stalled;

use std::time::{Duration, Instant};

use clap::Args;

use crate::driver::usage::mib;
use crate::driver::{Cluster, open_files};
use crate::listwatch::crowd::{Crowd, Scribe, percentile};
use crate::metrics::Metrics;
use crate::run::arguments::{self, seconds};
use crate::{Failure, binary, listwatch};

const PATH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const DELIVER_WITHIN: Duration = Duration::from_secs(60);
/// An event too many would come in this time.
const QUIET: Duration = Duration::from_millis(500);
/// Open files beside those of the watchers.
const OTHER_FILES: usize = 500;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Watchers
    #[arg(long, default_value_t = 10_000)]
    pub watchers: usize,
    /// Writes at a pace, for their latency
    #[arg(long = "writes", default_value_t = 60)]
    pub paced: usize,
    /// Time from one of these to the next.
    #[arg(skip = Duration::from_millis(400))]
    pub pace: Duration,
    /// Writes without a rest between them, for the throughput.
    #[arg(skip = 200_usize)]
    pub burst: usize,
    /// The most that one delivery in a hundred may take at that pace.
    #[arg(skip = Duration::from_secs(1))]
    pub p99_max: Duration,
    /// Healthy watchers beside one that is stalled
    #[arg(long, default_value_t = 1_000)]
    pub healthy: usize,
    /// Windows with the stalled one, and as many without
    #[arg(long, default_value_t = 7)]
    pub pairs: usize,
    /// Length of a window
    #[arg(long = "seconds", value_parser = seconds, default_value = "5")]
    pub window: Duration,
}

impl Plan {
    pub fn full() -> Self {
        arguments::full()
    }

    /// What the test suite runs, with its budget: as many watchers, fewer writes and shorter windows,
    /// and room for the noise of a machine that also builds.
    pub fn for_suite() -> (Plan, Duration) {
        let full = Plan::full();
        if binary::long_forms_wanted() {
            return (full, Duration::from_secs(600));
        }
        let short = Plan {
            paced: 30,
            burst: 60,
            p99_max: Duration::from_secs(5),
            pairs: 5,
            window: Duration::from_secs(2),
            ..full
        };
        (short, Duration::from_secs(120))
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub opened_in: Duration,
    pub bytes_per_watcher: u64,
    pub encodes_per_event: f64,
    pub deliveries_per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
    /// Of the healthy, in each window without and with the stalled one.
    pub healthy_p99: Vec<(Duration, Duration)>,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    open_files::raise((plan.watchers + OTHER_FILES) as u64)?;
    let cluster = listwatch::start(1).await?;
    let report = many(plan, &cluster).await?;
    let healthy_p99 = Box::pin(stalled::run(plan, &cluster)).await?;
    cluster.finish()?;
    Ok(Report { healthy_p99, ..report })
}

async fn many(plan: &Plan, cluster: &Cluster) -> Result<Report, Failure> {
    let member = &cluster.members()[0];
    let server = member.listwatch_url();
    let began = Instant::now();
    let mut scribe = Scribe::open(&server, "default", "watched", began).await?;
    let (first, _) = scribe.write(0).await?;

    let before = member.usage()?.rss_bytes;
    let opening = Instant::now();
    let path = format!("{PATH}&resourceVersion={first}");
    let mut crowd = Crowd::open(&server, &path, plan.watchers, began).await?;
    let opened_in = opening.elapsed();
    let bytes_per_watcher = member.usage()?.rss_bytes.saturating_sub(before) / plan.watchers as u64;
    println!(
        "listwatch many: {} watchers, each on its connection, in {opened_in:?}; {bytes_per_watcher} bytes each",
        crowd.len()
    );

    let counted = encodes(&server).await?;
    let mut written = Vec::new();
    for _ in 0..plan.paced {
        written.push(scribe.write(0).await?);
        tokio::time::sleep(plan.pace).await;
    }
    crowd.wait_for(plan.paced, DELIVER_WITHIN).await?;
    tokio::time::sleep(QUIET).await;
    let (times, _) = crowd.take(&written)?;
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    let encoded = encodes(&server).await? - counted;
    let encodes_per_event = encoded / plan.paced as f64;
    println!(
        "listwatch many: {} writes, {} deliveries, each exactly once; from write to delivery p50 {p50:?}, \
         p99 {p99:?}; {encodes_per_event} encodes for each event",
        plan.paced,
        times.len()
    );

    let deliveries_per_second = burst(plan, &mut scribe, &mut crowd, began).await?;
    let encoded = encodes(&server).await? - counted;
    let events = (plan.paced + plan.burst) as f64;
    println!(
        "listwatch many: {} writes without a rest: {deliveries_per_second:.0} deliveries per second; in all \
         {encoded} encodes for {events} events; the member has {}",
        plan.burst,
        mib(member.usage()?.rss_bytes)
    );
    if encoded != events {
        return Err(Failure::broken(format!(
            "{encoded} encodes for {events} events: each is to be encoded once"
        )));
    }
    if plan.p99_max < p99 {
        let max = plan.p99_max;
        return Err(Failure::slow(format!("the p99 from write to delivery is {p99:?}, allowed are {max:?}")));
    }
    drop(crowd);
    Ok(Report {
        opened_in,
        bytes_per_watcher,
        encodes_per_event,
        deliveries_per_second,
        p50,
        p99,
        healthy_p99: Vec::new(),
    })
}

async fn burst(plan: &Plan, scribe: &mut Scribe, crowd: &mut Crowd, began: Instant) -> Result<f64, Failure> {
    let from = began.elapsed();
    let mut written = Vec::new();
    for _ in 0..plan.burst {
        written.push(scribe.write(0).await?);
    }
    crowd.wait_for(plan.burst, DELIVER_WITHIN).await?;
    tokio::time::sleep(QUIET).await;
    let (times, last) = crowd.take(&written)?;
    let took = Duration::from_micros(last).saturating_sub(from);
    Ok(times.len() as f64 / took.as_secs_f64())
}

/// Frames that the feed of config maps has made.
async fn encodes(server: &str) -> Result<f64, Failure> {
    let address = server.strip_prefix("http://").unwrap_or(server);
    let metrics = Metrics::read(address).await?;
    metrics.get("meerkat_listwatch_feed_encodes_total{place=\"configmaps\"}")
}
