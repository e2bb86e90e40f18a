//! Elections on real servers: who leads, what it says, and that observers miss nothing of it.

use crate::etcdctl::Etcdctl;
use crate::patience::within;
use crate::server::{BOTH, Cluster};
use crate::session::until_count;
use meerkat_client::election::{ElectionError, Observe};
use meerkat_client::{Client, Election, Op, Session};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

async fn session(client: &Client) -> Session {
    Session::open(client, 30 * SECOND).await.expect("a session")
}

async fn next(observe: &mut Observe) -> String {
    let leader = within("the next leader", observe.next()).await.expect("not the end").expect("a leader");
    String::from_utf8(leader.value.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leads_says_things_and_hands_over() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let (a, b) = (session(&client).await, session(&client).await);
        let (first, second) = (Election::new(&a, "e"), Election::new(&b, "e"));
        assert_eq!(first.leader().await.expect("an answer"), None, "{kind:?}");
        let mut observe = second.observe();
        let mut leader = first.campaign("a1").await.expect("elected");
        assert_eq!(next(&mut observe).await, "a1");
        let waiting = tokio::spawn(async move { second.campaign("b1").await });
        until_count(&client, "e/", 2).await;
        leader.proclaim("a2").await.expect("said");
        assert_eq!(next(&mut observe).await, "a2");
        let known = first.leader().await.expect("an answer").expect("a leader");
        assert_eq!((known.value, known.token, &known.key), ("a2".into(), leader.token(), leader.key()));
        assert!(!waiting.is_finished(), "{kind:?}: two leaders");

        let guarded = client.txn().when([leader.holds()]).then([Op::put("r", "a")]).await.expect("an answer");
        assert!(guarded.succeeded, "{kind:?}");
        let (holds, token) = (leader.holds(), leader.token());
        leader.resign().await.expect("resigned");
        let guarded = client.txn().when([holds]).then([Op::put("r", "a")]).await.expect("an answer");
        assert!(!guarded.succeeded, "{kind:?}: a leader that resigned writes");
        let mut leader = within("the second", waiting).await.expect("a task").expect("elected");
        assert!(token < leader.token(), "{kind:?}");
        assert_eq!(next(&mut observe).await, "b1");

        client.delete(leader.key().clone()).await.expect("deleted");
        let stale = leader.proclaim("b2").await.expect_err("not the leader any more");
        assert!(matches!(stale, ElectionError::NotLeader), "{kind:?}: {stale}");
        assert!(!leader.is_held().await.expect("an answer"));
        leader.resign().await.expect("resigning from nothing is fine");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_of_a_lease_that_stands_already_says_the_new_value_and_keeps_its_place() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = session(&client).await;
        let key = format!("e/{:x}", session.lease().get());
        let stood = client.put(key, "old").lease(session.lease()).await.expect("a put");
        let leader = Election::new(&session, "e").campaign("new").await.expect("elected");
        assert_eq!(leader.token(), stood.revision, "{kind:?}: the place in line is kept");
        let said = client.get(leader.key().clone()).await.expect("a get").kvs[0].clone();
        assert_eq!((said.value, said.version, said.lease), ("new".into(), 2, Some(session.lease())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_every_value_of_every_leader_in_order() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let watcher = session(&client).await;
        let mut observe = Election::new(&watcher, "e").observe();
        let speaker = client.clone();
        let (hear, heard_once) = tokio::sync::oneshot::channel();
        let talk = tokio::spawn(async move {
            let mut heard_once = Some(heard_once);
            for turn in 0..5 {
                // Without pauses: the next leader speaks before an observer can look around.
                let session = session(&speaker).await;
                let mut leader =
                    Election::new(&session, "e").campaign(format!("{turn}.0")).await.expect("elected");
                for line in 1..20 {
                    leader.proclaim(format!("{turn}.{line}")).await.expect("said");
                }
                if let Some(heard) = heard_once.take() {
                    heard.await.expect("the observer listens");
                }
                leader.resign().await.expect("resigned");
            }
        });
        let mut heard = vec![next(&mut observe).await];
        hear.send(()).expect("the first leader waits for it");
        while heard.last().is_some_and(|last| last != "4.19") {
            heard.push(next(&mut observe).await);
        }
        talk.await.expect("the speaker");
        let all: Vec<String> =
            (0..5).flat_map(|turn| (0..20).map(move |line| format!("{turn}.{line}"))).collect();
        // The first leader led until the observer had heard something; from that on, all of it.
        let from = all.iter().position(|said| *said == heard[0]).expect("something that was said");
        assert!(from < 20, "{kind:?}: it started late: {}", heard[0]);
        assert_eq!(heard, all[from..], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_outlives_the_compaction_of_what_it_had_not_read() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = session(&client).await;
        let mut leader = Election::new(&session, "e").campaign("0").await.expect("elected");
        let mut observe = Election::new(&session, "e").observe();
        assert_eq!(next(&mut observe).await, "0");
        // More than its buffer holds, while it does not read.
        let mut revision = leader.token();
        for number in 1..=400 {
            revision = leader.proclaim(number.to_string()).await.expect("said");
        }
        client.compact(revision).await.expect("compacted");
        let mut last = 0;
        let mut heard = 0;
        while last < 400 {
            let number = next(&mut observe).await.parse::<u32>().expect("a number");
            assert!(last < number, "{kind:?}: {number} after {last}");
            (last, heard) = (number, heard + 1);
        }
        assert!(heard < 400, "{kind:?}: the compaction is meant to hide some");
        leader.proclaim("401").await.expect("said");
        assert_eq!(next(&mut observe).await, "401", "{kind:?}: it goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_and_this_client_stand_in_one_election() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = session(&client).await;
        let mut theirs = Etcdctl::start(&cluster, &["elect", "e", "theirs"]);
        assert!(theirs.line().await.starts_with("e/"), "{kind:?}");
        let election = Election::new(&session, "e");
        let mut observe = election.observe();
        assert_eq!(next(&mut observe).await, "theirs", "{kind:?}");
        let ours = tokio::spawn(async move { election.campaign("ours").await });
        until_count(&client, "e/", 2).await;
        tokio::time::sleep(SECOND / 2).await;
        assert!(!ours.is_finished(), "{kind:?}: two leaders");
        theirs.interrupt().await;
        let mut leader = within("ours", ours).await.expect("a task").expect("elected");
        assert_eq!(next(&mut observe).await, "ours", "{kind:?}");

        let mut listener = Etcdctl::start(&cluster, &["elect", "-l", "e"]);
        assert!(listener.line().await.starts_with("e/"), "{kind:?}");
        assert_eq!(listener.line().await, "ours", "{kind:?}");
        leader.proclaim("ours again").await.expect("said");
        assert!(listener.line().await.starts_with("e/"), "{kind:?}");
        assert_eq!(listener.line().await, "ours again", "{kind:?}");
    }
}
