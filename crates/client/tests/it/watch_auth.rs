//! Watches of a cluster that asks who one is.

use crate::server::Kind;
use crate::watch::{changes, next};
use crate::watch_cluster::Cluster;
use meerkat_client::auth::Access;
use meerkat_client::watch::WatchPhase;
use meerkat_client::{Client, Config, Keys, WatchError};

/// A user `root`, and a user `reader` who may read what is below `r/`.
async fn lock_up(cluster: &Cluster) {
    let admin = Client::connect(cluster.endpoints()).await.expect("to connect");
    let auth = admin.auth();
    auth.role_add("root").await.expect("a role");
    auth.user_add("root", "secret").await.expect("a user");
    auth.user_grant_role("root", "root").await.expect("a grant");
    auth.role_add("reader").await.expect("a role");
    auth.role_grant("reader", Access::Read, Keys::prefix("r/")).await.expect("a permission");
    auth.user_add("reader", "open").await.expect("a user");
    auth.user_grant_role("reader", "reader").await.expect("a grant");
    auth.enable().await.expect("to enable");
}

async fn login(cluster: &Cluster, user: &str, password: &str) -> Client {
    let config = Config::new(cluster.endpoints()).user(user, password);
    Client::connect_with(config).await.expect("to log in")
}

/// A restarted etcd 3.5.1 knows no token, and answers creations with "permission denied", as if the user
/// had been wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_token_is_renewed_and_a_denial_is_told() {
    let mut cluster = Cluster::start(Kind::Etcd, 1).await;
    lock_up(&cluster).await;
    let root = login(&cluster, "root", "secret").await;
    let reader = login(&cluster, "reader", "open").await;

    let mut old = reader.watch(Keys::prefix("r/")).start();
    old.live().await;
    assert_eq!(old.status().phase, WatchPhase::Live);
    let mut denied = reader.watch("s/a").start();
    match next(&mut denied).await {
        Some(Err(WatchError::Refused(error))) => {
            assert_eq!(error.message(), "etcdserver: permission denied");
        }
        other => panic!("{other:?}"),
    }

    cluster.kill(0);
    cluster.revive(0);
    cluster.wait_until_ready().await;
    let mut new = reader.watch("r/a").start();
    new.live().await;
    assert_eq!(new.status().phase, WatchPhase::Live, "{:?}", new.status());
    root.put("r/a", "1").await.expect("a put");
    assert_eq!(changes(&mut old).await, changes(&mut new).await);
    assert!(1 <= old.status().resumes, "{:?}", old.status());
}
