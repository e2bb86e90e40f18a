//! What a label costs among 300,000 objects: a list that finds a hundred of them, and writes that
//! 100,000 watchers are not concerned by. And that the index finds what a scan of the store finds.

mod differential;
mod writes;

use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::driver::usage::mib;
use crate::driver::{Cluster, open_files};
use crate::listwatch::crowd::percentile;
use crate::listwatch::http::Kept;
use crate::listwatch::stock::{self, Item, Labels, Row};
use crate::run::arguments::{self, seconds, some_seed};
use crate::{Failure, binary, listwatch};

pub use writes::Pair;

/// Objects that one list is to find.
const FOUND: usize = 100;
const NAMESPACES: usize = 10;
const FILES: u64 = 4_000;
/// Answers that are held against a scan of the whole store.
const COMPARED: usize = 3;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Objects in the store
    #[arg(long, default_value_t = 300_000)]
    pub objects: usize,
    /// Lists whose time is taken.
    #[arg(skip = 200_usize)]
    pub lists: usize,
    /// The most that half of them may take.
    #[arg(skip = Duration::from_millis(5))]
    pub list_p50_max: Duration,
    /// Random selectors at random revisions
    #[arg(long, default_value_t = 1_000)]
    pub comparisons: usize,
    /// Watchers that no write concerns
    #[arg(long, default_value_t = 100_000)]
    pub watchers: usize,
    /// Windows with these, and as many without
    #[arg(long, default_value_t = 15)]
    pub pairs: usize,
    /// Length of a window
    #[arg(long = "seconds", value_parser = seconds, default_value = "5")]
    pub window: Duration,
    /// Seed of everything random
    #[arg(long, default_value_t = some_seed(), hide_default_value = true)]
    pub seed: u64,
}

impl Plan {
    pub fn full(seed: u64) -> Self {
        Self { seed, ..arguments::full() }
    }

    /// What the test suite runs, with its budget: as many objects and watchers, shorter windows.
    pub fn for_suite(seed: u64) -> (Plan, Duration) {
        let full = Plan::full(seed);
        if binary::long_forms_wanted() {
            return (full, Duration::from_secs(1_200));
        }
        let short = Plan { comparisons: 150, pairs: 7, window: Duration::from_millis(1_500), ..full };
        (short, Duration::from_secs(200))
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub list_p50: Duration,
    pub list_p99: Duration,
    pub pairs: Vec<Pair>,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    println!("listwatch-index: again with: --objects {} --seed {}", plan.objects, plan.seed);
    open_files::raise(FILES)?;
    let cluster = listwatch::start(1).await?;
    let member = &cluster.members()[0];
    let loading = Instant::now();
    stock::load(member.endpoint(), plan.objects, |number| item(plan, number)).await?;
    println!("listwatch-index: {} objects stored in {:?}", plan.objects, loading.elapsed());
    let (list_p50, list_p99) = lists(plan, &cluster).await?;
    differential::run(plan, &cluster).await?;
    let pairs = writes::run(plan, &cluster).await?;
    println!("listwatch-index: the member has {}", mib(member.usage()?.rss_bytes));
    cluster.finish()?;
    Ok(Report { list_p50, list_p99, pairs })
}

/// Each in one of as many groups as give a hundred objects each; groups are spread over all keys.
fn item(plan: &Plan, number: usize) -> Item {
    let group = number % (plan.objects / FOUND).max(1);
    let labels = Labels::from([
        ("group".to_owned(), format!("g{group}")),
        ("tier".to_owned(), ["front", "middle", "back"][number % 3].to_owned()),
        ("app".to_owned(), format!("app-{}", number % 97)),
    ]);
    Item { namespace: format!("ns-{}", number / FOUND % NAMESPACES), name: format!("o{number:06}"), labels }
}

async fn lists(plan: &Plan, cluster: &Cluster) -> Result<(Duration, Duration), Failure> {
    let member = &cluster.members()[0];
    let filling = Instant::now();
    let mut kept = Kept::open(&member.listwatch_url()).await?;
    let mut random = StdRng::seed_from_u64(plan.seed);
    // The first list waits until the cache is filled.
    while kept.ask("GET", &path(0), None).await?.status != 200 {
        if Duration::from_secs(60) < filling.elapsed() {
            return Err(Failure::broken("the cache is not filled after a minute"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("listwatch-index: the cache answers after {:?}", filling.elapsed());
    let (mut times, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..plan.lists {
        let group = random.random_range(0..(plan.objects / FOUND).max(1));
        let began = Instant::now();
        let answered = kept.ask("GET", &path(group), None).await?;
        times.push(began.elapsed());
        answers.push((group, answered));
    }
    times.sort_unstable();
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    println!(
        "listwatch-index: {} lists of {FOUND} of {} objects by label: p50 {p50:?}, p99 {p99:?}",
        plan.lists, plan.objects
    );
    for (number, (group, answered)) in answers.iter().enumerate() {
        let list = answered.json()?;
        let (rv, shown) = shown(&list)?;
        if shown.len() != FOUND {
            return Err(Failure::broken(format!("group {group} has {} objects, not {FOUND}", shown.len())));
        }
        if number < COMPARED {
            let mut all = stock::rows(member.endpoint(), "", rv).await?;
            all.retain(|row| row.labels.get("group") == Some(&format!("g{group}")));
            if all != shown {
                return Err(Failure::broken(format!("the list of group {group} is not what a scan finds")));
            }
        }
    }
    if plan.list_p50_max < p50 {
        return Err(Failure::slow(format!(
            "a list by label takes {p50:?} in the median, allowed are {:?}",
            plan.list_p50_max
        )));
    }
    Ok((p50, p99))
}

fn path(group: usize) -> String {
    format!("/api/v1/configmaps?labelSelector=group%3Dg{group}")
}

/// The revision of a list and its items, in their order.
fn shown(list: &serde_json::Value) -> Result<(u64, Vec<Row>), Failure> {
    let rv = list["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
    let rv = rv.ok_or_else(|| Failure::broken(format!("a list without a revision: {}", list["metadata"])))?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok((rv, items.map(stock::row_of).collect::<Result<_, _>>()?))
}
