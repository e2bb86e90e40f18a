//! Users and tokens on etcd, which has them.

use crate::server::{Cluster, Kind, Options};
use meerkat_client::auth::Access;
use meerkat_client::{Client, EtcdError, Fate, Keys};
use std::future::IntoFuture;
use std::time::{Duration, Instant};

async fn with_auth(options: &Options) -> Cluster {
    let cluster = Cluster::start_with(Kind::Etcd, 1, options);
    let client = cluster.client_when_ready().await;
    let auth = client.auth();
    auth.user_add("root", "secret").await.expect("added");
    auth.user_grant_role("root", "root").await.expect("granted");
    auth.role_add("reader").await.expect("added");
    auth.role_grant("reader", Access::Read, Keys::prefix("open/")).await.expect("granted");
    auth.user_add("ann", "pass").await.expect("added");
    auth.user_grant_role("ann", "reader").await.expect("granted");
    auth.enable().await.expect("enabled");
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_may_do_what_the_roles_say() {
    let cluster = with_auth(&Options::default()).await;
    let root = Client::connect_with(cluster.config().user("root", "secret")).await.expect("a login");
    root.put("open/a", "1").await.expect("a put");
    root.put("closed/a", "1").await.expect("a put");
    let ann = Client::connect_with(cluster.config().user("ann", "pass")).await.expect("a login");
    assert_eq!(ann.get(Keys::prefix("open/")).await.expect("a get").count, 1);
    let denied = ann.get("closed/a").await.expect_err("denied");
    assert_eq!((denied.fate(), denied.etcd()), (Fate::Refused, Some(EtcdError::PermissionDenied)));
    let denied = ann.put("open/a", "2").await.expect_err("denied");
    assert_eq!(denied.fate(), Fate::Refused);

    let wrong = Client::connect_with(cluster.config().user("ann", "wrong")).await.expect_err("no login");
    assert_eq!((wrong.fate(), wrong.etcd()), (Fate::Refused, Some(EtcdError::AuthFailed)));
    let nobody = Client::connect(cluster.urls()).await.expect("a connection");
    let unnamed = nobody.get("open/a").await.expect_err("no user");
    assert_eq!((unnamed.fate(), unnamed.etcd()), (Fate::Refused, Some(EtcdError::UserEmpty)));

    let auth = root.auth();
    assert!(auth.status().await.expect("a status").enabled);
    assert_eq!(auth.users().await.expect("users"), ["ann", "root"]);
    assert_eq!(auth.roles().await.expect("roles"), ["reader"]);
    assert_eq!(auth.user("ann").await.expect("a user"), ["reader"]);
    let permissions = auth.role("reader").await.expect("a role");
    assert_eq!((permissions.len(), permissions[0].access), (1, Access::Read));
    assert!(permissions[0].keys.contains(b"open/x"));
    auth.role_revoke("reader", Keys::prefix("open/")).await.expect("revoked");
    assert!(ann.get("open/a").await.is_err());
    auth.user_change_password("ann", "new").await.expect("changed");
    auth.user_revoke_role("ann", "reader").await.expect("revoked");
    auth.user_delete("ann").await.expect("deleted");
    auth.role_delete("reader").await.expect("deleted");
    auth.disable().await.expect("disabled");
    nobody.get("open/a").await.expect("nobody asks any more");
}

/// Tokens live for two seconds here; calls and keep-alives go on as if they lived for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_runs_out_is_renewed_without_anyone_noticing() {
    let options = Options { flags: vec!["--auth-token-ttl=1".to_owned()], ..Options::default() };
    let cluster = with_auth(&options).await;
    let root = Client::connect_with(cluster.config().user("root", "secret")).await.expect("a login");
    let lease = root.leases().grant(Duration::from_secs(9)).await.expect("a lease");
    let alive = root.leases().keep_alive(lease);
    let enough = Instant::now() + Duration::from_secs(7);
    while alive.status().last_ack.is_none_or(|at| at < enough) {
        // Many at once: they share one login.
        let puts = (0..20).map(|index| root.put(format!("k{index}"), "v").into_future());
        for put in futures::future::join_all(puts).await {
            put.expect("a put");
        }
        tokio::time::sleep(Duration::from_millis(2500)).await;
        assert!(alive.status().lost.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_user_works_before_and_after_auth_is_switched_on() {
    let cluster = Cluster::start_with(Kind::Etcd, 1, &Options::default());
    let plain = cluster.client_when_ready().await;
    let root = Client::connect_with(cluster.config().user("root", "secret")).await.expect("a connection");
    root.put("k", "before").await.expect("a put");
    plain.auth().user_add("root", "secret").await.expect("added");
    plain.auth().user_grant_role("root", "root").await.expect("granted");
    plain.auth().enable().await.expect("enabled");
    root.put("k", "after").await.expect("a put");
    assert_eq!(root.get("k").await.expect("a get").kvs[0].value, "after");
}
