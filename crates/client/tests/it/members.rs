//! Members and maintenance on real servers.

use crate::server::{BOTH, Cluster, Kind};
use futures::StreamExt;
use meerkat_client::cluster::Member;
use meerkat_client::maintenance::AlarmKind;
use meerkat_client::{Client, EtcdError, Fate, MemberId};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_tell_about_themselves() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 3).await;
        let client = cluster.client_when_ready().await;
        let members = cluster.published(&client).await;
        assert_eq!(members.len(), 3, "{kind:?}");
        let mut leaders = 0;
        for url in cluster.urls() {
            let status = client.maintenance().at(&url).status().await.expect("a status");
            let member = members.iter().find(|member| member.id == status.member).expect("a known member");
            assert_eq!(member.client_urls, [url], "{kind:?}");
            leaders += usize::from(status.leader == Some(status.member));
        }
        assert_eq!(leaders, 1, "{kind:?}");
        assert_eq!(client.maintenance().alarms().await.expect("alarms"), []);
        let unknown = client.maintenance().at("http://127.0.0.1:1").status().await.expect_err("no endpoint");
        assert_eq!(unknown.fate(), Fate::Refused);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_learns_its_endpoints_from_one_member() {
    for kind in BOTH {
        let mut cluster = Cluster::start(kind, 3).await;
        drop(cluster.client_when_ready().await);
        let client = Client::connect([cluster.members[0].url.clone()]).await.expect("a connection");
        assert_eq!(client.endpoints().len(), 1);
        // Asked of this very member, so that it knows what it is about to tell.
        cluster.published(&client).await;
        client.cluster().sync().await.expect("a list");
        let mut learned: Vec<_> = client.endpoints().iter().map(ToString::to_string).collect();
        learned.sort();
        let mut wanted = cluster.urls();
        wanted.sort();
        assert_eq!(learned, wanted, "{kind:?}");
        // The only endpoint it was given dies; those it learned serve.
        cluster.members[0].kill();
        client.get("k").timeout(Duration::from_secs(30)).await.expect("a get from another member");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_looked_after_in_full() {
    let cluster = Cluster::start(Kind::Etcd, 3).await;
    let client = cluster.client_when_ready().await;
    let (leader, other) = cluster.leader_and_another(&client).await;
    let maintenance = client.maintenance();

    let written = client.put("k", "v").await.expect("a put").revision;
    cluster.wait_until_level(&client, written).await;
    let hashes = futures::future::join_all(cluster.urls().iter().map(|url| {
        let at = maintenance.at(url);
        async move { at.hash_kv(None).await.expect("a hash").hash }
    }))
    .await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
    maintenance.at(&cluster.members[other].url).defragment().await.expect("defragmented");

    let mut snapshot = maintenance.snapshot().await.expect("a snapshot");
    let mut bytes = 0;
    while let Some(piece) = snapshot.next().await {
        bytes += piece.expect("a piece").len();
    }
    assert!(bytes % 512 == 32 && 4096 < bytes, "a store and its hash: {bytes}");

    let target = maintenance.at(&cluster.members[other].url).status().await.expect("a status").member;
    // Whoever is asked first, the leader is found.
    maintenance.move_leader(target).await.expect("moved");
    let (now, _) = cluster.leader_and_another(&client).await;
    assert_eq!((now, leader == now), (other, false));

    let member = maintenance.at(&cluster.members[0].url).status().await.expect("a status").member;
    let mut alarm =
        maintenance.raise_alarm(meerkat_client::maintenance::Alarm::new(member, AlarmKind::NoSpace)).await;
    let raised = alarm.as_mut().expect("raised").pop().expect("one alarm");
    let full = client.put("k", "v").await.expect_err("no space");
    // etcd says the same of a put that it has applied.
    assert_eq!((full.fate(), full.etcd()), (Fate::Unknown, Some(EtcdError::NoSpace)));
    maintenance.clear_alarm(raised).await.expect("cleared");
    client.put("k", "v").await.expect("space again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_on_etcd() {
    let cluster = Cluster::start(Kind::Etcd, 1).await;
    let client = cluster.client_when_ready().await;
    let members = client.cluster();
    let learner = members.add_learner(["http://127.0.0.1:1"]).await.expect("added");
    assert!(learner.learner && learner.name.is_empty());
    let early = members.promote(learner.id).await.expect_err("not in sync");
    assert_eq!((early.fate(), early.etcd()), (Fate::Refused, Some(EtcdError::LearnerNotReady)));
    // etcd 3.5 drops a change that comes too soon after another and lets its caller wait: such a call
    // is rightly answered "unknown", and then one looks.
    let moved = |member: &Member| member.peer_urls == ["http://127.0.0.1:2"];
    let mut tries = 0;
    while !members.members().await.expect("a list").iter().any(moved) {
        tries += 1;
        assert!(tries < 6, "the member was not updated");
        match members.update(learner.id, ["http://127.0.0.1:2"]).await {
            Ok(listed) => assert!(listed.iter().any(moved)),
            Err(error) => assert_eq!(error.fate(), Fate::Unknown, "{error}"),
        }
    }
    while members.members().await.expect("a list").len() != 1 {
        tries += 1;
        assert!(tries < 12, "the member was not removed");
        match members.remove(learner.id).await {
            Ok(left) => assert_eq!(left.len(), 1),
            Err(error) => assert_eq!(error.fate(), Fate::Unknown, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_not_there_is_not_removed() {
    let cluster = Cluster::start(Kind::Etcd, 1).await;
    let client = cluster.client_when_ready().await;
    let unknown = client.cluster().remove(MemberId(77)).await.expect_err("unknown");
    assert_eq!((unknown.fate(), unknown.etcd()), (Fate::Refused, Some(EtcdError::MemberNotFound)));
}
