//! Sessions on real servers: what hangs on one lives and goes with it.

use crate::patience::{PATIENCE, on_both, within};
use crate::server::{BOTH, Cluster};
use meerkat_client::lease::LossReason;
use meerkat_client::{Client, Keys, Session};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

async fn count(client: &Client, prefix: &str) -> u64 {
    client.get(Keys::prefix(prefix)).count_only().await.expect("a count").count
}

/// Waits until a number of keys is there.
pub async fn until_count(client: &Client, prefix: &str, expected: u64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = count(client, prefix).await;
        if found == expected {
            return;
        }
        assert!(Instant::now() < end, "{found} keys below {prefix} instead of {expected}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lives_on_beyond_its_time_and_ends_when_closed() {
    on_both(async |kind| {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = Session::open(&client, 8 * SECOND).await.expect("a session");
        client.put("s/k", "v").lease(session.lease()).await.expect("a put");
        tokio::time::sleep(session.ttl() * 3 / 2).await;
        assert_eq!(count(&client, "s/").await, 1, "{kind:?}");
        assert_eq!(session.loss(), None, "{kind:?}");

        let other = session.clone();
        let told = tokio::spawn(async move { other.lost().await });
        session.close().await.expect("closed");
        assert_eq!(count(&client, "s/").await, 0, "{kind:?}: closing removes the keys");
        assert_eq!(told.await.expect("a task").reason, LossReason::Gone, "{kind:?}");
        session.close().await.expect("closing again is fine");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_dropped_ends_long_before_its_time() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = Session::open(&client, 600 * SECOND).await.expect("a session");
        client.put("s/k", "v").lease(session.lease()).await.expect("a put");
        let clone = session.clone();
        drop(session);
        tokio::time::sleep(SECOND / 2).await;
        assert_eq!(count(&client, "s/").await, 1, "{kind:?}: a handle is left");
        drop(clone);
        until_count(&client, "s/", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ended_by_someone_else_is_told() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = Session::open(&client, 9 * SECOND).await.expect("a session");
        client.leases().revoke(session.lease()).await.expect("revoked");
        let lost = within("the loss", session.lost()).await;
        assert_eq!((lost.id, lost.reason), (session.lease(), LossReason::Gone), "{kind:?}");
        assert_eq!(session.loss(), Some(lost));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_a_cluster_is_lost_when_its_time_is_over() {
    for kind in BOTH {
        let mut cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = Session::open(&client, 3 * SECOND).await.expect("a session");
        cluster.members[0].kill();
        let start = Instant::now();
        let lost = within("the loss", session.lost()).await;
        assert_eq!(lost.reason, LossReason::Silence, "{kind:?}");
        let took = start.elapsed();
        assert!(took < session.ttl() + 15 * SECOND, "too slow: {kind:?}: told after {took:?}");
    }
}
