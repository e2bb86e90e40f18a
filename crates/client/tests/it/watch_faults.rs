//! Watches while members are killed, frozen, cut off and outvoted: nothing is lost, repeated or
//! reordered, and the watch is back within its bound.
//!
//! A writer goes on all the time. Its own answers prove nothing (a put that failed may have happened), so
//! what a watch told is compared with the history itself, read from the cluster when all is well again.

use crate::server::{BOTH, Kind};
use crate::watch::{changes, client};
use crate::watch_cluster::Cluster;
use meerkat_client::{Changes, Client, Keys, Revision, Watch, WatchStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The promised bounds on being without a member, with the time to notice it.
const AFTER_A_KILL: Duration = Duration::from_secs(2);
const AFTER_A_BLACK_HOLE: Duration = Duration::from_secs(5);

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
        let since = Instant::now();
        loop {
            let status = self.watch.status();
            if let Some(endpoint) = &status.endpoint {
                return self.cluster.index_of(endpoint);
            }
            assert!(since.elapsed() < AFTER_A_BLACK_HOLE, "no member serves the watch: {status:?}");
            self.listen(Duration::from_millis(10)).await;
        }
    }

    /// Takes what the watch tells for a while.
    async fn listen(&mut self, time: Duration) {
        let deadline = tokio::time::Instant::now() + time;
        while let Ok(next) = tokio::time::timeout_at(deadline, self.watch.next()).await {
            self.told.push(next.expect("the watch goes on").expect("no error"));
        }
    }

    /// Listens until the watch has been moved to another member, and tells how long that took.
    async fn moved(&mut self, from: usize, since: Instant) -> Duration {
        let name = self.cluster.endpoints()[from].clone();
        let elsewhere = |status: &WatchStatus| {
            status.endpoint.as_deref().is_some_and(|endpoint| !endpoint.ends_with(&name))
        };
        while !elsewhere(&self.watch.status()) {
            assert!(since.elapsed() < Duration::from_secs(30), "{:?}", self.watch.status());
            self.listen(Duration::from_millis(10)).await;
        }
        since.elapsed()
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
        assert_eq!(revisions(&self.told), revisions(&history), "{kind:?}, {fault}");
        assert!(self.told == history, "{kind:?}, {fault}: the events differ");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_a_watch_is_back_within_two_seconds() {
    for kind in BOTH {
        let mut scene = Scene::new(kind).await;
        scene.listen(Duration::from_millis(300)).await;
        let serving = scene.serving().await;
        scene.cluster.kill(serving);
        let took = scene.moved(serving, Instant::now()).await;
        println!("{kind:?}: on another member {took:?} after kill -9");
        assert!(took < AFTER_A_KILL, "{kind:?}: {took:?}");
        scene.cluster.revive(serving);
        scene.cluster.wait_until_ready().await;
        let status = scene.judge(kind, "kill -9").await;
        // More than once if the election after a leader's death takes long.
        assert!(1 <= status.resumes, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_freeze_a_watch_is_back_within_five_seconds() {
    for kind in BOTH {
        let mut scene = Scene::new(kind).await;
        scene.listen(Duration::from_millis(300)).await;
        let serving = scene.serving().await;
        scene.cluster.pause(serving);
        let took = scene.moved(serving, Instant::now()).await;
        println!("{kind:?}: on another member {took:?} after SIGSTOP");
        scene.cluster.resume(serving);
        assert!(took < AFTER_A_BLACK_HOLE, "{kind:?}: {took:?}");
        scene.listen(Duration::from_millis(500)).await;
        scene.cluster.wait_until_ready().await;
        scene.judge(kind, "SIGSTOP").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_black_hole_a_watch_is_back_within_five_seconds() {
    for kind in BOTH {
        let mut scene = Scene::new(kind).await;
        scene.listen(Duration::from_millis(300)).await;
        let serving = scene.serving().await;
        scene.cluster.cut(serving);
        let took = scene.moved(serving, Instant::now()).await;
        println!("{kind:?}: on another member {took:?} after a black hole");
        scene.cluster.mend(serving);
        assert!(took < AFTER_A_BLACK_HOLE, "{kind:?}: {took:?}");
        scene.listen(Duration::from_millis(500)).await;
        scene.judge(kind, "black hole").await;
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
        scene.listen(Duration::from_secs(6)).await;
        let alone = scene.watch.status();
        assert_eq!(alone.endpoint, None, "{kind:?}: a member without a leader still serves: {alone:?}");
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
        for round in 0..6 {
            scene.listen(Duration::from_millis(200)).await;
            let serving = scene.serving().await;
            match round % 3 {
                0 => scene.cluster.kill(serving),
                1 => scene.cluster.pause(serving),
                _ => scene.cluster.cut(serving),
            }
            let took = scene.moved(serving, Instant::now()).await;
            println!("{kind:?}: round {round}, moved after {took:?}");
            assert!(took < AFTER_A_BLACK_HOLE, "{kind:?}, round {round}: {took:?}");
            match round % 3 {
                0 => scene.cluster.revive(serving),
                1 => scene.cluster.resume(serving),
                _ => scene.cluster.mend(serving),
            }
            scene.cluster.wait_until_ready().await;
        }
        scene.judge(kind, "six faults").await;
    }
}

/// A member that works is not left for being quiet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_is_not_called_dead() {
    for kind in BOTH {
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
        tokio::time::sleep(Duration::from_secs(8)).await;
        for watch in &watches {
            let status = watch.status();
            assert_eq!(status.resumes, 0, "{kind:?}: {status:?}");
        }
    }
}
