//! Leases on real servers.

use crate::fake::{self, Fake, Reply};
use crate::patience::{PATIENCE, until, within};
use crate::server::{BOTH, Cluster, Kind};
use meerkat_client::lease::{KeepAlive, LossReason};
use meerkat_client::{Client, EtcdError, Fate, LeaseId};
use meerkat_proto::pb::etcdserver as pb;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

async fn leases_are_granted_told_and_revoked(client: &Client) {
    let leases = client.leases();
    let granted = leases.grant(60 * SECOND).await.expect("a lease");
    assert_eq!(granted.ttl, 60 * SECOND);
    let chosen = LeaseId::from_wire(4711).expect("not zero");
    assert_eq!(leases.grant(30 * SECOND).id(chosen).await.expect("a lease").id, chosen);
    let again = leases.grant(30 * SECOND).id(chosen).await.expect_err("it exists");
    assert_eq!((again.fate(), again.etcd()), (Fate::Refused, Some(EtcdError::LeaseExist)));
    let long = leases.grant(Duration::from_secs(9_000_000_001)).await.expect_err("too long");
    assert_eq!(long.etcd(), Some(EtcdError::LeaseTtlTooLarge));

    client.put("lease/a", "1").lease(granted.id).await.expect("a put");
    client.put("lease/b", "1").lease(granted.id).await.expect("a put");
    let left = leases.time_to_live(granted.id).with_keys().await.expect("an answer");
    assert!(left.left.expect("alive") <= 60 * SECOND);
    let mut keys = left.keys;
    keys.sort();
    assert_eq!((left.granted, keys.len(), keys[0].as_ref()), (60 * SECOND, 2, &b"lease/a"[..]));
    let all = leases.list().await.expect("a list");
    assert!(all.contains(&granted.id) && all.contains(&chosen));

    leases.revoke(granted.id).await.expect("revoked");
    assert_eq!(client.get("lease/a").await.expect("a get").count, 0);
    assert_eq!(leases.time_to_live(granted.id).await.expect("an answer").left, None);
    let unknown = leases.revoke(granted.id).await.expect_err("gone");
    assert_eq!((unknown.fate(), unknown.etcd()), (Fate::Refused, Some(EtcdError::LeaseNotFound)));
}

async fn a_kept_lease_outlives_its_time_and_a_dropped_one_does_not(client: &Client) {
    let leases = client.leases();
    let kept = leases.grant(10 * SECOND).await.expect("a lease");
    let left = leases.grant(10 * SECOND).await.expect("a lease");
    client.put("lease/kept", "1").lease(kept.id).await.expect("a put");
    client.put("lease/left", "1").lease(left.id).await.expect("a put");
    let alive = leases.keep_alive(kept);
    drop(leases.keep_alive(left));
    let end = Instant::now() + PATIENCE;
    while client.get("lease/left").await.expect("a get").count != 0 {
        assert!(Instant::now() < end, "a lease that nobody keeps runs out");
        tokio::time::sleep(SECOND / 10).await;
    }
    let gone = Instant::now();
    let goes_on = || alive.status().last_ack.is_some_and(|at| gone + 4 * SECOND < at);
    until("the kept one is renewed again", goes_on).await;
    assert_eq!(client.get("lease/kept").await.expect("a get").count, 1);
    assert!(alive.status().lost.is_none());

    leases.revoke(kept.id).await.expect("revoked");
    let lost = within("the loss", alive.lost()).await;
    assert_eq!((lost.id, lost.reason), (kept.id, LossReason::Gone));
}

async fn many_leases_share_a_stream(client: &Client) {
    let leases = client.leases();
    let mut alive = Vec::new();
    for _ in 0..200 {
        let granted = leases.grant(15 * SECOND).await.expect("a lease");
        alive.push(leases.keep_alive(granted));
    }
    // Each is renewed even after the time that it was granted.
    let granted_until = Instant::now() + 15 * SECOND;
    let is_renewed = |lease: &KeepAlive| lease.status().last_ack.is_some_and(|at| granted_until < at);
    until("all leases are renewed", || alive.iter().all(is_renewed)).await;
    for lease in &alive {
        assert!(lease.status().lost.is_none(), "{lease:?}");
    }
}

async fn check(kind: Kind) {
    let cluster = Cluster::start(kind, 1).await;
    let client = Client::connect(cluster.urls()).await.expect("a connection");
    leases_are_granted_told_and_revoked(&client).await;
    // Beside each other: both mostly wait.
    tokio::join!(
        a_kept_lease_outlives_its_time_and_a_dropped_one_does_not(&client),
        many_leases_share_a_stream(&client),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_work_on_etcd() {
    check(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_work_on_meerkat() {
    check(Kind::Meerkat).await;
}

/// The member that carries the keep-alives is killed, then another one frozen; the lease lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_alives_move_to_another_member() {
    for kind in BOTH {
        let mut cluster = Cluster::start(kind, 3).await;
        let client = cluster.client_when_ready().await;
        let granted = client.leases().grant(15 * SECOND).await.expect("a lease");
        client.put("moved", "1").lease(granted.id).await.expect("a put");
        let alive = client.leases().keep_alive(granted);
        until("it is renewed", || alive.status().last_ack.is_some()).await;
        for killed in [true, false] {
            let (leader, _) = cluster.leader_and_another(&client).await;
            if killed {
                cluster.members[leader].kill();
            } else {
                cluster.members[leader].pause();
            }
            let since = Instant::now();
            let goes_on = || alive.status().last_ack.is_some_and(|at| since + SECOND <= at);
            until("it is renewed after a fault", || goes_on() || alive.status().lost.is_some()).await;
            assert!(goes_on(), "{kind:?}: no renewal after a fault: {alive:?}");
            if killed {
                cluster.bring_back(leader, &client).await;
            } else {
                cluster.members[leader].resume();
            }
        }
        assert!(alive.status().lost.is_none());
        assert_eq!(client.get("moved").await.expect("a get").count, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_called_lost_when_no_member_answers_for_its_whole_time() {
    let mut cluster = Cluster::start(Kind::Etcd, 1).await;
    let client = cluster.client_when_ready().await;
    let granted = client.leases().grant(4 * SECOND).await.expect("a lease");
    let alive = client.leases().keep_alive(granted);
    until("it is renewed", || alive.status().last_ack.is_some()).await;
    cluster.members[0].kill();
    let lost = within("the loss", alive.lost()).await;
    assert_eq!(lost.reason, LossReason::Silence);
    let since = alive.status().last_ack.expect("acknowledged").elapsed();
    assert!(4 * SECOND <= since, "told {since:?} after the last answered sending");
    assert!(since < 20 * SECOND, "too slow: told {since:?} after the last answered sending");
}

/// An election that takes longer than the lease is to live, and an attempt that is never answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_took_long_to_be_granted_has_its_whole_time() {
    let elected = Instant::now() + 3 * SECOND;
    let server = Fake::start(move |method, before| match method {
        "Status" => fake::healthy(),
        "LeaseGrant" if before == 0 => Reply::Cut,
        "LeaseGrant" if Instant::now() < elected => Reply::etcd(EtcdError::NoLeader),
        "LeaseGrant" => Reply::of(&pb::LeaseGrantResponse { id: 7, ttl: 2, ..Default::default() }),
        _ => Reply::Hang,
    })
    .await;
    let client = Client::connect([server.url.clone()]).await.expect("a connection");
    let granted = client.leases().grant(2 * SECOND).await.expect("a lease in the end");
    assert!(2 < server.calls("LeaseGrant"));
    let since = Instant::now();
    let alive = client.leases().keep_alive(granted);
    let lost = within("the loss", alive.lost()).await;
    assert_eq!(lost.reason, LossReason::Silence);
    // From its last asking on; the answer took some of it.
    assert!(SECOND <= since.elapsed(), "lost after {:?} of its two seconds", since.elapsed());
}
