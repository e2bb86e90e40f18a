//! One commit whose request or answer is lost on the way to the only member: what the library says
//! became of it is what the store shows, and its effect is there exactly once.

use super::lossy::{Fault, MARK, Road};
use super::{SECOND, number};
use crate::server::{BOTH, Cluster, Kind};
use meerkat_client::stm::Committed;
use meerkat_client::{Client, Config, Fate, Stm, StmError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// More often than a request is sent before its time is over.
const ALWAYS: u32 = u32::MAX;

/// A member, reached directly by the test and over a road by the transaction under test.
struct Scene {
    kind: Kind,
    _cluster: Cluster,
    direct: Client,
    road: Arc<Road>,
    stm: Stm,
    runs: Arc<AtomicU32>,
}

impl Scene {
    async fn new(kind: Kind, witness: Option<&'static str>) -> Scene {
        let cluster = Cluster::start(kind, 1).await;
        let direct = cluster.client_when_ready().await;
        direct.put("n", "0").await.expect("a put");
        let (_, port) = cluster.members[0].url.rsplit_once(':').expect("a port");
        let road = Road::to(port.parse().expect("a number")).await;
        // Short, as some requests are lost until their time is over.
        let config = Config::new([road.url.clone()]).request_timeout(4 * SECOND);
        let client = Client::connect_with(config).await.expect("a connection");
        let stm = witness.into_iter().fold(Stm::new(&client), Stm::witness);
        Scene { kind, _cluster: cluster, direct, road: Arc::new(road), stm, runs: Arc::default() }
    }

    /// Adds one to the number, in a commit that the road knows. From its second run on nothing is lost
    /// any more, and what was late arrives before anything is read.
    async fn add(&self) -> Result<Committed<()>, StmError> {
        self.runs.store(0, Ordering::SeqCst);
        let added = self.stm.run(|tx| {
            let (road, again) = (self.road.clone(), 0 < self.runs.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move {
                if again {
                    road.release().await;
                }
                let was = number(tx, "n").await?;
                tx.put("n", (was + 1).to_string());
                tx.put("mark", MARK);
                Ok(())
            })
        });
        added.await
    }

    /// The number, how often it was written since it was zero, and when.
    async fn counted(&self) -> (String, i64, meerkat_client::Revision) {
        let kv = self.direct.get("n").await.expect("a get").kvs[0].clone();
        (String::from_utf8_lossy(&kv.value).into_owned(), kv.version - 1, kv.modified)
    }

    /// One success, after this many runs of the body, and one effect, at the revision it was said to have.
    async fn check_done_once(&self, done: Result<Committed<()>, StmError>, attempts: u32) {
        let kind = self.kind;
        let done = done.unwrap_or_else(|error| panic!("{kind:?}: {error}, fate {:?}", error.fate()));
        assert_eq!((done.attempts, self.runs.load(Ordering::SeqCst)), (attempts, attempts), "{kind:?}");
        assert_eq!(self.counted().await, ("1".to_owned(), 1, done.revision), "{kind:?}");
        // Nothing is left behind that the next transaction stumbles over.
        self.road.release().await;
        let next = self.add().await.expect("a commit");
        assert_eq!(next.attempts, 1, "{kind:?}");
        assert_eq!(self.counted().await, ("2".to_owned(), 2, next.revision), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_happened_and_whose_answer_is_lost_is_a_success_by_its_witness() {
    for kind in BOTH {
        // Lost once, the repetition meets its own effect; lost always, there is not even that to go by.
        for count in [1, ALWAYS] {
            let scene = Scene::new(kind, Some("witness")).await;
            scene.road.strike(Fault::AnswerLost, count);
            let done = scene.add().await;
            let struck = scene.road.toll().struck;
            assert!(if count == 1 { struck == 1 } else { 1 < struck }, "{kind:?}: {struck} answers lost");
            scene.check_done_once(done, 1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_request_is_lost_is_sent_again_and_after_its_time_run_again() {
    for kind in BOTH {
        for (count, attempts) in [(1, 1), (ALWAYS, 2)] {
            let scene = Scene::new(kind, Some("witness")).await;
            scene.road.strike(Fault::RequestLost, count);
            let done = scene.add().await;
            assert!(0 < scene.road.toll().struck, "{kind:?}: nothing was lost");
            scene.check_done_once(done, attempts).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_it_was_called_off_does_nothing() {
    for kind in BOTH {
        let scene = Scene::new(kind, Some("witness")).await;
        scene.road.strike(Fault::RequestLate, ALWAYS);
        let done = scene.add().await;
        let toll = scene.road.toll();
        assert!(0 < toll.answered && toll.over == toll.struck, "{kind:?}: {toll:?}");
        scene.check_done_once(done, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_witness_a_commit_whose_answer_is_lost_is_in_doubt() {
    for kind in BOTH {
        let scene = Scene::new(kind, None).await;
        scene.road.strike(Fault::AnswerLost, 1);
        let error = scene.add().await.expect_err("no answer");
        assert_eq!((error.fate(), scene.road.toll().struck), (Fate::Unknown, 1), "{kind:?}: {error}");
        assert_eq!(scene.runs.load(Ordering::SeqCst), 1, "{kind:?}: it must not be run again");
        let (number, writes, _) = scene.counted().await;
        assert_eq!((number.as_str(), writes), ("1", 1), "{kind:?}");
    }
}

/// The guard on the number makes a repetition harmless; without what it read it has no guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_witness_a_commit_whose_request_is_lost_is_sent_again() {
    for kind in BOTH {
        let scene = Scene::new(kind, None).await;
        scene.road.strike(Fault::RequestLost, 1);
        let done = scene.add().await;
        assert_eq!(scene.road.toll().struck, 1, "{kind:?}");
        scene.check_done_once(done, 1).await;
    }
}
