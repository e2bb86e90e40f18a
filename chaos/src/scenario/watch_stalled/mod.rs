//! Clients that hold a watch and read nothing cost others nothing, and lose nothing.
//!
//! One member takes a steady megabyte a second. Windows of that load, with and without the stalled
//! clients, are measured in turn: the latency of small puts, the time from such a put to its event
//! at healthy watchers, and the member's memory. After each window with them, half of the clients
//! wake and must be given everything; then history is compacted, and the others must be given
//! everything or the compacted revision.

mod clients;
mod load;
mod verdict;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use meerkat_proto::pb::etcdserver::CompactionRequest;

use self::clients::Healthy;
use self::load::Probe;
use self::verdict::Quantiles;
pub use self::verdict::Window;
use crate::checker::watch_history::{Compaction, WatchHistory};
use crate::checker::watch_properties::{Demand, STRICT, check_all};
use crate::driver::usage::mib;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::outcome::describe;
use crate::run::arguments::{self, mebibytes, seconds};
use crate::watch::{Recorder, Seen, WatchLog};
use crate::{Failure, binary};

/// Bytes of recent revisions kept for late watchers.
pub const RING_FLAG: &str = "--meerkat-watch-ring-bytes";
/// Bytes of everything watchers hold beyond the ring.
pub const MEMORY_FLAG: &str = "--meerkat-watch-memory-bytes";

/// Before anything is measured the clients' windows fill, which is no stall yet.
const WARM_UP: Duration = Duration::from_secs(2);
const HEALTHY: usize = 3;
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const REACH_WITHIN: Duration = Duration::from_secs(30);
const WAKE_WITHIN: Duration = Duration::from_secs(180);
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Servers under test
    #[arg(long, value_enum, default_value_t)]
    pub product: Product,
    /// Clients that read nothing
    #[arg(long = "clients", default_value_t = 1_000)]
    pub stalled: usize,
    /// Windows with them, and as many without
    #[arg(long, default_value_t = 7)]
    pub pairs: usize,
    /// Length of a window
    #[arg(long = "seconds", value_parser = seconds, default_value = "10")]
    pub window: Duration,
    /// Bytes written in a second.
    #[arg(skip = 1_u64 << 20)]
    pub bytes_per_second: u64,
    /// The ring, as the member is told
    #[arg(long = "ring-mib", value_parser = mebibytes, default_value = "64")]
    pub ring_bytes: u64,
    /// All else that watchers hold, as the member is told
    #[arg(long = "memory-mib", value_parser = mebibytes, default_value = "128")]
    pub memory_bytes: u64,
    /// What a connection costs a server before anything is sent on it, and what the store itself
    /// may grow by meanwhile, for each stalled client.
    #[arg(skip = 96_u64 << 10)]
    pub client_bytes: u64,
    /// How far the clients may raise a p99 where there are too few pairs to know its spread.
    #[arg(skip = 2.0)]
    pub p99_ratio_max: f64,
    /// A p99 below this is no pain to anybody, whatever its ratio.
    #[arg(skip)]
    pub p99_floor: Duration,
}

impl Plan {
    /// The full size.
    pub fn full(product: Product) -> Self {
        Self { product, ..arguments::full() }
    }

    /// What the test suite runs, with its budget: one short pair, and room for the noise of a
    /// machine that also builds. The bounds on memory are small, so that they are reached.
    pub fn for_suite(product: Product) -> (Self, Duration) {
        let full = Self::full(product);
        if binary::long_forms_wanted() {
            return (full, Duration::from_secs(1_800));
        }
        let short = Self {
            pairs: 1,
            window: Duration::from_secs(4),
            ring_bytes: 4 << 20,
            memory_bytes: 16 << 20,
            p99_ratio_max: 4.0,
            p99_floor: Duration::from_millis(250),
            ..full
        };
        (short, Duration::from_secs(150))
    }

    /// How much more memory a member may hold because of the clients.
    pub fn extra_bytes_max(&self) -> u64 {
        self.ring_bytes + self.memory_bytes + self.client_bytes * self.stalled as u64
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--quota-backend-bytes={}", 8_u64 << 30)];
        if self.product == Product::Meerkat {
            flags.push(format!("{RING_FLAG}={}", self.ring_bytes));
            flags.push(format!("{MEMORY_FLAG}={}", self.memory_bytes));
        }
        flags
    }
}

/// Runs it; returns every window measured, in order.
pub async fn run(plan: &Plan) -> Result<Vec<Window>, Failure> {
    let flags = plan.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let cluster = Cluster::start(&ClusterSpec::new(plan.product, 1).with_flags(&flags)).await?;
    let mut scene = Scene::set(plan, cluster).await?;
    let mut rounds = Vec::new();
    for pair in 0..plan.pairs {
        // Which comes first changes, so that growth over time burdens both alike.
        for stalled in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            rounds.push(scene.round(stalled).await?);
        }
    }
    let healthy = scene.curtain().await?;
    let windows: Vec<Window> =
        rounds.into_iter().map(|round| round.window(&healthy)).collect::<Result<_, _>>()?;
    windows.iter().for_each(|window| println!("watch stalled: {window}"));
    verdict::judge(plan, &windows)?;
    scene.cluster.finish()?;
    Ok(windows)
}

/// One measured window, before the events of its timed puts are looked up.
struct Round {
    stalled: bool,
    probes: Vec<Probe>,
    rss_max_bytes: u64,
}

impl Round {
    fn window(self, healthy: &[WatchLog]) -> Result<Window, Failure> {
        let events = verdict::event_latencies(&self.probes, healthy)?;
        Ok(Window {
            stalled: self.stalled,
            puts: Quantiles::of(self.probes.iter().map(|probe| probe.answered - probe.issued))?,
            events,
            rss_max_bytes: self.rss_max_bytes,
        })
    }
}

struct Scene<'a> {
    plan: &'a Plan,
    cluster: Cluster,
    began: Instant,
    /// The first has seen everything since the store was empty.
    healthy: Vec<Healthy>,
    /// What the first has seen and nobody has looked at yet.
    unread: Arc<Mutex<Vec<Seen>>>,
    /// All it has seen before.
    history: WatchHistory,
    rounds: u64,
}

impl<'a> Scene<'a> {
    async fn set(plan: &'a Plan, cluster: Cluster) -> Result<Self, Failure> {
        let began = Instant::now();
        let endpoint = cluster.members()[0].endpoint();
        let unread = Arc::new(Mutex::new(Vec::new()));
        let mut healthy = vec![Healthy::start(endpoint, "archive", 1, began, Some(unread.clone())).await?];
        for number in 0..HEALTHY {
            healthy.push(Healthy::start(endpoint, &format!("healthy {number}"), 0, began, None).await?);
        }
        Ok(Self { plan, cluster, began, healthy, unread, history: WatchHistory::default(), rounds: 0 })
    }

    async fn round(&mut self, stalled: bool) -> Result<Round, Failure> {
        self.rounds += 1;
        let endpoint = self.cluster.members()[0].endpoint().clone();
        let opened = Instant::now();
        let count = if stalled { self.plan.stalled } else { 0 };
        let clients = clients::stall(&endpoint, count, self.began).await?;
        let opened = opened.elapsed();
        let load = load::start(&endpoint, self.plan.bytes_per_second, self.rounds, self.began)?;
        tokio::time::sleep(WARM_UP).await;
        let measured_from = self.began.elapsed();
        let rss_max_bytes = self.watch_memory(self.plan.window).await?;
        let mut written = load.finish().await?;
        written.probes.retain(|probe| measured_from <= probe.issued);
        let revision = endpoint.linearizable_probe(ASK_WITHIN).await?;
        for healthy in &mut self.healthy {
            healthy.reach(revision, REACH_WITHIN).await?;
        }
        if stalled {
            println!("watch stalled: {count} clients in {opened:?}, {} unread each", mib(written.bytes));
            self.wake(clients).await?;
        }
        Ok(Round { stalled, probes: written.probes, rss_max_bytes })
    }

    async fn watch_memory(&self, length: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + length;
        let mut most = 0;
        while Instant::now() < end {
            most = most.max(self.cluster.members()[0].usage()?.rss_bytes);
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        Ok(most)
    }

    /// Half are given all; then history goes, and the others are given all or told so.
    async fn wake(&mut self, mut clients: Vec<Recorder>) -> Result<(), Failure> {
        let endpoint = self.cluster.members()[0].endpoint().clone();
        let late = clients.split_off(clients.len() / 2);
        let last = self.mark_the_end().await?;
        let began = Instant::now();
        let whole = clients::wake(clients, last, WAKE_WITHIN).await?;
        println!("watch stalled: {} clients have caught up in {:?}", whole.len(), began.elapsed());
        self.read_history(last).await?;
        check_all(&whole, &self.history, STRICT)?;
        self.history.compactions.push(Compaction { revision: last, asked: self.began.elapsed() });
        let request = CompactionRequest { revision: last, physical: true };
        let answer = endpoint.compact(request, WAKE_WITHIN).await;
        answer.map_err(|status| Failure::broken(format!("compaction: {}", describe(&status))))?;
        let began = Instant::now();
        let late = clients::wake(late, last, WAKE_WITHIN).await?;
        let (told, all): (Vec<_>, Vec<_>) = late.into_iter().partition(clients::overtaken);
        println!(
            "watch stalled: after compaction {} clients were told so and {} given all, in {:?}",
            told.len(),
            all.len(),
            began.elapsed()
        );
        check_all(&all, &self.history, STRICT)?;
        check_all(&told, &self.history, Demand { complete: false, ..STRICT })
    }

    /// Takes what the first watcher has seen, up to a revision, into the history.
    async fn read_history(&mut self, upto: i64) -> Result<(), Failure> {
        self.healthy[0].reach(upto, REACH_WITHIN).await?;
        let unread = std::mem::take(&mut *self.unread.lock().expect("nobody panics while pushing"));
        let findings = unread.into_iter().flat_map(|event| self.history.append(event)).collect();
        Failure::from_findings("a watch from the beginning tells a history that can be", findings)
    }

    /// One more put under the busy prefix, so that there is an event everybody waits for.
    async fn mark_the_end(&self) -> Result<i64, Failure> {
        let key = [load::BUSY_PREFIX, b"end"].concat().into();
        let request = meerkat_proto::pb::etcdserver::PutRequest { key, ..Default::default() };
        let answer = self.cluster.members()[0].endpoint().put(request, ASK_WITHIN).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Ends the healthy watchers, and holds them against what the first of them saw.
    async fn curtain(&mut self) -> Result<Vec<WatchLog>, Failure> {
        let last = self.mark_the_end().await?;
        self.read_history(last).await?;
        let mut healthy = Vec::new();
        for mut watcher in self.healthy.drain(..) {
            watcher.reach(last, REACH_WITHIN).await?;
            healthy.push(watcher.finish().await?);
        }
        check_all(&healthy, &self.history, STRICT)?;
        Ok(healthy)
    }
}
