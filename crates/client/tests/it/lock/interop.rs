//! `etcdctl lock` and this client in one line.

use super::{SECOND, acquire, session};
use crate::etcdctl::Etcdctl;
use crate::patience::within;
use crate::server::{BOTH, Cluster};
use crate::session::until_count;
use meerkat_client::Lock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_and_this_client_exclude_each_other() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = session(&client).await;

        // It holds, this waits.
        let mut theirs = Etcdctl::start(&cluster, &["lock", "l"]);
        let key = theirs.line().await;
        assert!(key.starts_with("l/"), "{kind:?}: {key}");
        assert!(Lock::new(&session, "l").try_acquire().await.expect("an answer").is_none(), "{kind:?}");
        let ours = acquire(&session, "l");
        until_count(&client, "l/", 2).await;
        tokio::time::sleep(SECOND / 2).await;
        assert!(!ours.is_finished(), "{kind:?}: two holders");
        let held = client.get(key.clone()).await.expect("a get").kvs[0].clone();
        theirs.interrupt().await;
        let guard = within("ours", ours).await.expect("a task").expect("the lock");
        assert!(held.created < guard.token(), "{kind:?}");

        // This holds, it waits.
        let mut theirs = Etcdctl::start(&cluster, &["lock", "l"]);
        until_count(&client, "l/", 2).await;
        assert!(theirs.is_silent(SECOND).await, "{kind:?}: two holders");
        guard.release().await.expect("released");
        assert!(theirs.line().await.starts_with("l/"), "{kind:?}");
        theirs.interrupt().await;
    }
}
