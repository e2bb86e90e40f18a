//! A hundred thousand watchers on one member: each is given its events, once, and nobody waits long.
//!
//! Most watch a key of their own, some a key that many watch, some a prefix. All exist before the
//! first put; then keys are put one at a time, and every watcher's record is held against the
//! history.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use meerkat_proto::pb::etcdserver::PutRequest;
use tokio::task::JoinSet;

use crate::checker::watch_history::WatchHistory;
use crate::checker::watch_properties::{STRICT, check_all};
use crate::driver::usage::mib;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::describe;
use crate::run::arguments;
use crate::watch::{Recorder, WatchLog, WatchSpec};
use crate::{Failure, binary};

/// Streams that share a connection.
const STREAMS_PER_CONNECTION: usize = 10;
/// Watchers of keys under one prefix.
const KEYS_PER_PREFIX: usize = 1_000;
const HOT_KEYS: usize = 100;
/// Rest between puts, so that each is measured alone.
const PUT_EVERY: Duration = Duration::from_millis(20);
const CREATE_WITHIN: Duration = Duration::from_secs(300);
const DELIVER_WITHIN: Duration = Duration::from_secs(60);
/// Nothing that was not asked for may come in this time after the last event.
const QUIET: Duration = Duration::from_millis(500);
const ASK_WITHIN: Duration = Duration::from_secs(20);

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Streams
    #[arg(long, default_value_t = 100)]
    pub streams: usize,
    /// Watchers on each
    #[arg(long, default_value_t = 1_000)]
    pub watchers_per_stream: usize,
    /// Puts, each of another key
    #[arg(long, default_value_t = 400)]
    pub puts: usize,
    /// Within which time the slowest of a hundred events must come.
    #[arg(skip = Duration::from_secs(1))]
    pub event_p99_max: Duration,
}

impl Plan {
    /// The full size.
    pub fn full(product: Product) -> Self {
        Self { product, ..arguments::full() }
    }

    /// What the test suite runs, with its budget.
    pub fn for_suite(product: Product) -> (Self, Duration) {
        let full = Self::full(product);
        if binary::long_forms_wanted() {
            return (full, Duration::from_secs(900));
        }
        (Self { watchers_per_stream: 200, puts: 200, ..full }, Duration::from_secs(120))
    }

    fn watchers(&self) -> usize {
        self.streams * self.watchers_per_stream
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the first creation asked for to the last answered.
    pub created_in: Duration,
    /// What one more watcher costs the member.
    pub bytes_per_watcher: u64,
    /// Events delivered.
    pub events: usize,
    /// Median time from a put to an event of it.
    pub event_median: Duration,
    /// And the p99.
    pub event_p99: Duration,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(plan.product, 1)).await?;
    let member = &cluster.members()[0];
    let endpoint = member.endpoint();
    let began = Instant::now();
    let mut archive = Recorder::open(&endpoint.apart(None)?, 0, began, &[])?;
    archive.create("archive", WatchSpec::of_all().from(1)).await;
    archive.take_until("a creation", CREATE_WITHIN, |logs| logs[0].replies().next().is_some()).await?;

    let before = member.usage()?.rss_bytes;
    let creating = Instant::now();
    let recorders = create_all(plan, endpoint, began).await?;
    let created_in = creating.elapsed();
    let grown = member.usage()?.rss_bytes.saturating_sub(before);
    let bytes_per_watcher = grown / plan.watchers() as u64;
    println!(
        "watch many: {} watchers on {} streams in {created_in:?}; memory grew by {}, {bytes_per_watcher} bytes each",
        plan.watchers(),
        plan.streams,
        mib(grown)
    );

    let keys = keys(plan);
    let readers = read_all(recorders, &keys);
    let issued = put_all(endpoint, &keys, began).await?;
    let logs = readers.finish().await?;
    let wanted = |logs: &[WatchLog]| keys.len() <= logs[0].events().count();
    archive.take_until("every put", DELIVER_WITHIN, wanted).await?;
    let (history, findings) = WatchHistory::replay(archive.logs()[0].events().cloned().collect());
    Failure::from_findings("a watch from the beginning tells a history that can be", findings)?;
    check_all(&logs, &history, STRICT)?;

    let report = Report { created_in, bytes_per_watcher, ..latencies(&logs, &issued)? };
    println!(
        "watch many: {} puts, {} events, each exactly once; from put to event median {:?}, p99 {:?}",
        keys.len(),
        report.events,
        report.event_median,
        report.event_p99
    );
    if plan.event_p99_max < report.event_p99 {
        let (p99, max) = (report.event_p99, plan.event_p99_max);
        return Err(Failure::slow(format!("the p99 from put to event is {p99:?}, allowed are {max:?}")));
    }
    cluster.finish()?;
    Ok(report)
}

/// What the watcher of a number watches: seven in ten a key of their own, two a hot key, one all
/// keys under a prefix.
fn spec(number: usize) -> WatchSpec {
    match number % 10 {
        0..=6 => WatchSpec::of_key(&own_key(number)),
        7 | 8 => WatchSpec::of_key(&hot_key(number / 10)),
        _ => WatchSpec::of_prefix(format!("own/{:04}/", number / KEYS_PER_PREFIX).as_bytes()),
    }
}

fn own_key(number: usize) -> Bytes {
    format!("own/{:04}/{:03}", number / KEYS_PER_PREFIX, number % KEYS_PER_PREFIX).into_bytes().into()
}

fn hot_key(number: usize) -> Bytes {
    format!("hot/{:03}", number % HOT_KEYS).into_bytes().into()
}

/// The keys to put, all different: some hot ones, and the keys of watchers spread over all.
fn keys(plan: &Plan) -> Vec<Bytes> {
    let stride = (plan.watchers() / plan.puts).max(1);
    let own = (0..plan.puts).map(|index| own_key(index * stride % plan.watchers()));
    let hot = (0..HOT_KEYS.min(plan.puts / 2)).map(hot_key);
    let mut keys: Vec<Bytes> = own.take(plan.puts - HOT_KEYS.min(plan.puts / 2)).chain(hot).collect();
    // By their last bytes, so that hot keys and prefixes take turns.
    keys.sort_unstable_by_key(|key| key.iter().rev().copied().collect::<Vec<u8>>());
    keys.dedup();
    keys
}

async fn create_all(plan: &Plan, endpoint: &Endpoint, began: Instant) -> Result<Vec<Recorder>, Failure> {
    let mut tasks = JoinSet::new();
    let mut connection = endpoint.apart(None)?;
    for stream in 0..plan.streams {
        if stream % STREAMS_PER_CONNECTION == 0 {
            connection = endpoint.apart(None)?;
        }
        let mut recorder = Recorder::open(&connection, 0, began, &[])?;
        let first = stream * plan.watchers_per_stream;
        let count = plan.watchers_per_stream;
        tasks.spawn(async move {
            for number in first..first + count {
                recorder.create(format!("{number}"), spec(number)).await;
            }
            let mut answered = 0;
            let all = |logs: &[WatchLog]| {
                // Answers come in the order of the creations.
                while answered < count && logs[answered].replies().next().is_some() {
                    answered += 1;
                }
                answered == count
            };
            recorder.take_until("every creation", CREATE_WITHIN, all).await?;
            Ok::<_, Failure>(recorder)
        });
    }
    let mut recorders = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        recorders.push(ended.map_err(|error| Failure::harness(format!("a stream's task ended: {error}")))??);
    }
    Ok(recorders)
}

/// Readers of all streams, at work.
struct Readers(JoinSet<Result<Vec<WatchLog>, Failure>>);

/// Reads every stream until its watchers have what the puts will bring them.
fn read_all(recorders: Vec<Recorder>, keys: &[Bytes]) -> Readers {
    let mut tasks = JoinSet::new();
    let mut puts: HashMap<&[u8], usize> = HashMap::new();
    for key in keys {
        *puts.entry(key.as_ref()).or_default() += 1;
    }
    for mut recorder in recorders {
        let owed: usize = recorder.logs().iter().map(|log| owed(&log.spec, &puts, keys)).sum();
        tasks.spawn(async move {
            let all = |logs: &[WatchLog]| owed <= logs.iter().map(|log| log.events().count()).sum();
            recorder.take_until("every event of a stream", DELIVER_WITHIN, all).await?;
            // An event too many would come now.
            recorder.take_until_quiet(QUIET, DELIVER_WITHIN).await;
            if !recorder.strays().is_empty() {
                let strays = recorder.strays();
                return Err(Failure::broken(format!("responses for nobody: {:?}", &strays[..1])));
            }
            Ok(recorder.finish())
        });
    }
    Readers(tasks)
}

/// How many events a watcher will be given.
fn owed(spec: &WatchSpec, puts: &HashMap<&[u8], usize>, keys: &[Bytes]) -> usize {
    if spec.range_end.is_empty() {
        return puts.get(spec.key.as_ref()).copied().unwrap_or(0);
    }
    keys.iter().filter(|key| spec.wants(crate::watch::Kind::Put, key)).count()
}

impl Readers {
    async fn finish(mut self) -> Result<Vec<WatchLog>, Failure> {
        let mut logs = Vec::new();
        while let Some(ended) = self.0.join_next().await {
            let read = ended.map_err(|error| Failure::harness(format!("a reader ended: {error}")))?;
            logs.extend(read?);
        }
        Ok(logs)
    }
}

async fn put_all(
    endpoint: &Endpoint,
    keys: &[Bytes],
    began: Instant,
) -> Result<HashMap<Bytes, Duration>, Failure> {
    let own = endpoint.apart(None)?;
    let mut issued = HashMap::new();
    for key in keys {
        issued.insert(key.clone(), began.elapsed());
        let request =
            PutRequest { key: key.clone(), value: Bytes::from_static(b"many"), ..Default::default() };
        let answer = own.put(request, ASK_WITHIN).await;
        answer.map_err(|status| Failure::broken(format!("put refused: {}", describe(&status))))?;
        tokio::time::sleep(PUT_EVERY).await;
    }
    Ok(issued)
}

fn latencies(logs: &[WatchLog], issued: &HashMap<Bytes, Duration>) -> Result<Report, Failure> {
    let mut all: Vec<Duration> = Vec::new();
    for reply in logs.iter().flat_map(WatchLog::replies) {
        let arrived = |key| issued.get(key).map(|issued| reply.at.saturating_sub(*issued));
        all.extend(reply.events.iter().filter_map(|event| arrived(&event.key)));
    }
    all.sort_unstable();
    let at = |share: usize| all.get(all.len() * share / 100).copied();
    match (at(50), at(99)) {
        (Some(event_median), Some(event_p99)) => Ok(Report {
            created_in: Duration::ZERO,
            bytes_per_watcher: 0,
            events: all.len(),
            event_median,
            event_p99,
        }),
        _ => Err(Failure::broken("no watcher was given an event")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Kind;

    #[test]
    fn every_put_has_watchers_of_its_key_and_some_are_hot() {
        let plan = Plan { streams: 10, watchers_per_stream: 1_000, puts: 60, ..Plan::full(Product::Meerkat) };
        let keys = keys(&plan);
        let watchers =
            |key: &Bytes| (0..plan.watchers()).filter(|number| spec(*number).wants(Kind::Put, key)).count();
        let counts: Vec<usize> = keys.iter().map(watchers).collect();
        assert_eq!(keys.len(), plan.puts);
        assert!(counts.iter().all(|count| 10 <= *count), "{counts:?}");
    }
}
