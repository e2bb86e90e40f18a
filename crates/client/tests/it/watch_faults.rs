//! Watches while members are killed, frozen, cut off and outvoted: nothing is lost, repeated or
//! reordered, and the watch is back within its bound.
//!
//! A writer goes on all the time. Its own answers prove nothing (a put that failed may have happened), so
//! what a watch told is compared with the history itself, read from the cluster when all is well again.

use crate::patience::{PATIENCE, on_both};
use crate::server::{BOTH, Kind};
use crate::stalls::Stalls;
use crate::watch::{changes, client};
use crate::watch_cluster::Cluster;
use meerkat_client::{Changes, Client, Keys, Revision, Watch, WatchStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a fault is tried until a watch is back within the promised bound.
const ATTEMPTS: u32 = 3;
/// A machine that let nothing run for this long may keep a member from answering in time.
const STALL: Duration = Duration::from_millis(500);

/// What befalls the member that serves the watch.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    BlackHole,
}

impl Fault {
    /// The promised bound on being without a member, with the time to notice it.
    fn promised(self) -> Duration {
        match self {
            Fault::Kill => Duration::from_secs(2),
            Fault::Freeze | Fault::BlackHole => Duration::from_secs(5),
        }
    }

    /// Too long on any machine, however busy.
    fn bearable(self) -> Duration {
        3 * self.promised()
    }

    fn begin(self, cluster: &mut Cluster, index: usize) {
        match self {
            Fault::Kill => cluster.kill(index),
            Fault::Freeze => cluster.pause(index),
            Fault::BlackHole => cluster.cut(index),
        }
    }

    fn end(self, cluster: &mut Cluster, index: usize) {
        match self {
            Fault::Kill => cluster.revive(index),
            Fault::Freeze => cluster.resume(index),
            Fault::BlackHole => cluster.mend(index),
        }
    }
}

/// Three members, a writer through one client and a watch through another.
struct Scene {
    cluster: Cluster,
    watcher: Client,
    watch: Watch,
    first: Revision,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<()>,
    told: Vec<Changes>,
}

impl Scene {
    async fn new(kind: Kind) -> Scene {
        let cluster = Cluster::start(kind, 3).await;
        let watcher = client(&cluster).await;
        let first = watcher.put("w/start", "").await.expect("a put").revision.next();
        let watch = watcher.watch(Keys::prefix("w/")).from(first).start();
        watch.live().await;
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(write(client(&cluster).await, stop.clone()));
        Scene { cluster, watcher, watch, first, stop, writer, told: Vec::new() }
    }

    /// The member that serves the watch. There may be none for a moment: on a busy machine a fault is
    /// followed by elections that have nothing to do with the client.
    async fn serving(&mut self) -> usize {
        let is_served = |status: &WatchStatus| status.endpoint.is_some();
        let status = self.listen_until("a member serves the watch", is_served).await;
        self.cluster.index_of(&status.endpoint.expect("just seen"))
    }

    /// Takes what the watch tells for a while.
    async fn listen(&mut self, time: Duration) {
        let deadline = tokio::time::Instant::now() + time;
        while let Ok(next) = tokio::time::timeout_at(deadline, self.watch.next()).await {
            self.told.push(next.expect("the watch goes on").expect("no error"));
        }
    }

    /// Listens until the watch is as it should be, which it tells then.
    async fn listen_until(&mut self, what: &str, is: impl Fn(&WatchStatus) -> bool) -> WatchStatus {
        let since = Instant::now();
        loop {
            let status = self.watch.status();
            if is(&status) {
                return status;
            }
            assert!(since.elapsed() < PATIENCE, "waited in vain until {what}: {status:?}");
            self.listen(Duration::from_millis(10)).await;
        }
    }

    /// Listens until the watch has been moved to another member, and tells how long that took.
    async fn moved(&mut self, from: usize, since: Instant) -> Duration {
        let name = self.cluster.endpoints()[from].clone();
        let elsewhere = |status: &WatchStatus| {
            status.endpoint.as_deref().is_some_and(|endpoint| !endpoint.ends_with(&name))
        };
        self.listen_until("the watch is on another member", elsewhere).await;
        since.elapsed()
    }

    /// The member that serves the watch has that fault until the watch is elsewhere. How long that took.
    async fn suffer(&mut self, kind: Kind, fault: Fault) -> Duration {
        let serving = self.serving().await;
        fault.begin(&mut self.cluster, serving);
        let took = self.moved(serving, Instant::now()).await;
        println!("{kind:?}: on another member {took:?} after a {fault:?}");
        fault.end(&mut self.cluster, serving);
        assert!(took < fault.bearable(), "too slow: {kind:?}, {fault:?}: {took:?}");
        took
    }

    /// Ends the writer, and compares what was told with what happened.
    async fn judge(mut self, kind: Kind, fault: &str) -> WatchStatus {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.await.expect("the writer");
        let end = self.watcher.put("w/end", "").await.expect("a put").revision;
        while self.told.last().is_none_or(|last| last.revision < end) {
            self.told.push(changes(&mut self.watch).await);
        }
        let mut again = self.watcher.watch(Keys::prefix("w/")).from(self.first).start();
        let mut history = Vec::new();
        while history.last().is_none_or(|last: &Changes| last.revision < end) {
            history.push(changes(&mut again).await);
        }
        let revisions = |all: &[Changes]| all.iter().map(|one| one.revision.get()).collect::<Vec<_>>();
        assert_eq!(revisions(&self.told), revisions(&history), "{}: {kind:?}, {fault}", kind.breach());
        assert!(self.told == history, "{}: {kind:?}, {fault}: the events differ", kind.breach());
        let status = self.watch.status();
        println!("{kind:?}, {fault}: {} revisions, all of them once; {status:?}", history.len());
        status
    }
}

async fn write(client: Client, stop: Arc<AtomicBool>) {
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let put = client.put(format!("w/{}", number % 7), number.to_string());
        // Outcomes are judged by the history alone.
        drop(put.timeout(Duration::from_millis(500)).await);
        number += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The bound is kept unless the machine stands still just then, which it does not do time and again.
async fn check(kind: Kind, fault: Fault) -> WatchStatus {
    let mut scene = Scene::new(kind).await;
    for attempt in 1..=ATTEMPTS {
        scene.listen(Duration::from_millis(300)).await;
        let took = scene.suffer(kind, fault).await;
        scene.listen(Duration::from_millis(500)).await;
        scene.cluster.wait_until_ready().await;
        if took < fault.promised() {
            break;
        }
        assert!(
            attempt < ATTEMPTS,
            "too slow: {kind:?}, {fault:?}: never within its bound, at last {took:?}"
        );
    }
    scene.judge(kind, &format!("{fault:?}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_a_watch_is_back_within_two_seconds() {
    for kind in BOTH {
        let status = check(kind, Fault::Kill).await;
        // More than once if the election after a leader's death takes long.
        assert!(1 <= status.resumes, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_freeze_a_watch_is_back_within_five_seconds() {
    for kind in BOTH {
        check(kind, Fault::Freeze).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_black_hole_a_watch_is_back_within_five_seconds() {
    for kind in BOTH {
        check(kind, Fault::BlackHole).await;
    }
}

/// The member that serves the watch lives, and knows no leader. That is not an error for the watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_only_makes_a_watch_wait() {
    for kind in BOTH {
        let mut scene = Scene::new(kind).await;
        scene.listen(Duration::from_millis(300)).await;
        let serving = scene.serving().await;
        let others: Vec<usize> = (0..3).filter(|index| *index != serving).collect();
        for other in &others {
            scene.cluster.kill(*other);
        }
        scene.listen_until("no member without a leader serves", |status| status.endpoint.is_none()).await;
        scene.listen(Duration::from_secs(2)).await;
        let alone = scene.watch.status();
        assert_eq!(alone.endpoint, None, "{kind:?}: a member without a leader serves again: {alone:?}");
        for other in &others {
            scene.cluster.revive(*other);
        }
        scene.cluster.wait_until_ready().await;
        let status = scene.judge(kind, "majority lost").await;
        assert!(1 <= status.resumes, "{status:?}");
    }
}

/// One fault after another on whatever member serves the watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_outlives_many_faults_in_a_row() {
    for kind in BOTH {
        let mut scene = Scene::new(kind).await;
        for fault in [Fault::Kill, Fault::Freeze, Fault::BlackHole].repeat(2) {
            scene.listen(Duration::from_millis(200)).await;
            scene.suffer(kind, fault).await;
            scene.cluster.wait_until_ready().await;
        }
        scene.judge(kind, "six faults").await;
    }
}

/// A member that works is not left for being quiet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_is_not_called_dead() {
    on_both(async |kind| {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        let now = client.put("a", "").await.expect("a put").revision;
        let watches = [
            client.watch("a").start(),
            // Keeps the member from answering requests for progress.
            client.watch("a").from(Revision::new(now.get() + 1_000)).start(),
        ];
        for watch in &watches {
            watch.live().await;
        }
        let stalls = Stalls::measure();
        tokio::time::sleep(Duration::from_secs(8)).await;
        let stalled = stalls.longest();
        let forgiven = u64::from(STALL <= stalled);
        for watch in &watches {
            let status = watch.status();
            assert!(status.resumes <= forgiven, "{kind:?}: {status:?}, stalled {stalled:?}");
        }
    })
    .await;
}
