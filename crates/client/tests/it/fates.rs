//! What is sent again and what is not, counted by a server that fails on purpose.

use crate::fake::{Fake, Reply, healthy};
use meerkat_client::{Client, Compare, EtcdError, Fate, Op, Revision};
use meerkat_proto::pb::etcdserver as pb;
use std::future::IntoFuture;
use std::time::Duration;

/// A client of a fake whose first answers to `method` are `first`, and then `rest` for ever.
async fn client_of(method: &'static str, first: Vec<Reply>, rest: Reply) -> (Client, Fake) {
    let fake = Fake::start(move |called, before| match called {
        "Status" => healthy(),
        called if called == method => first.get(before).unwrap_or(&rest).clone(),
        _ => Reply::etcd(EtcdError::UnknownMethod),
    })
    .await;
    let client = Client::connect([fake.url.clone()]).await.expect("a connection");
    (client, fake)
}

fn done(succeeded: bool) -> Reply {
    let header = Some(pb::ResponseHeader { revision: 7, ..Default::default() });
    Reply::of(&pb::TxnResponse { header, succeeded, responses: Vec::new() })
}

#[tokio::test]
async fn a_put_is_sent_once_when_its_outcome_is_not_known() {
    for reply in [Reply::etcd(EtcdError::Timeout), Reply::etcd(EtcdError::Stopped), Reply::Cut] {
        let (client, fake) =
            client_of("Put", vec![reply.clone()], Reply::of(&pb::PutResponse::default())).await;
        let error = client.put("k", "v").await.expect_err("unknown");
        assert_eq!((error.fate(), fake.calls("Put")), (Fate::Unknown, 1), "{reply:?}: {error}");
    }
}

#[tokio::test]
async fn a_put_that_was_certainly_not_taken_is_sent_again() {
    for error in [EtcdError::TooManyRequests, EtcdError::NoLeader] {
        let replies = vec![Reply::etcd(error), Reply::etcd(error)];
        let (client, fake) = client_of("Put", replies, Reply::of(&pb::PutResponse::default())).await;
        client.put("k", "v").await.expect("taken at last");
        assert_eq!(fake.calls("Put"), 3, "{error:?}");
    }
}

#[tokio::test]
async fn a_get_is_sent_until_it_is_answered() {
    let replies = vec![
        Reply::etcd(EtcdError::Timeout),
        Reply::Cut,
        Reply::etcd(EtcdError::LeaderChanged),
        Reply::etcd(EtcdError::ContextDeadlineExceeded),
    ];
    let (client, fake) = client_of("Range", replies, Reply::of(&pb::RangeResponse::default())).await;
    client.get("k").await.expect("answered at last");
    assert_eq!(fake.calls("Range"), 5);
}

#[tokio::test]
async fn a_guarded_transaction_is_sent_again_and_its_success_is_its_own() {
    let (client, fake) =
        client_of("Txn", vec![Reply::Cut, Reply::etcd(EtcdError::Timeout)], done(true)).await;
    let guard = Compare::key("k").mod_revision().equals(Revision::new(5));
    let answer = client.txn().when([guard]).then([Op::put("k", "v")]).await.expect("done once");
    assert!(answer.succeeded);
    assert_eq!(fake.calls("Txn"), 3);
}

#[tokio::test]
async fn a_guarded_transaction_that_fails_after_a_doubtful_attempt_is_unknown() {
    let guard = || Compare::key("k").mod_revision().equals(Revision::new(5));
    let (client, fake) = client_of("Txn", vec![Reply::Cut], done(false)).await;
    let error = client.txn().when([guard()]).then([Op::put("k", "v")]).await.expect_err("unknown");
    assert_eq!((error.fate(), fake.calls("Txn")), (Fate::Unknown, 2), "{error}");
    // Without a doubtful attempt before it, "no" is just "no".
    let (client, _fake) = client_of("Txn", vec![Reply::etcd(EtcdError::TooManyRequests)], done(false)).await;
    let answer = client.txn().when([guard()]).then([Op::put("k", "v")]).await.expect("an answer");
    assert!(!answer.succeeded);
}

#[tokio::test]
async fn a_transaction_whose_guard_can_come_back_is_sent_once() {
    let guards = [
        Compare::key("k").missing(),
        Compare::key("k").version().equals(3),
        Compare::key("k").value().equals("x"),
        Compare::key("other").mod_revision().equals(Revision::new(5)),
        Compare::key("k").mod_revision().less(Revision::new(5)),
        Compare::key("k").create_revision().equals(Revision::new(5)),
    ];
    for guard in guards {
        let text = format!("{guard:?}");
        let (client, fake) = client_of("Txn", vec![Reply::Cut], done(true)).await;
        let error = client.txn().when([guard]).then([Op::put("k", "v")]).await.expect_err("unknown");
        assert_eq!((error.fate(), fake.calls("Txn")), (Fate::Unknown, 1), "{text}");
    }
    // A write in the other branch would happen when the repetition finds the guard broken.
    let (client, fake) = client_of("Txn", vec![Reply::Cut], done(true)).await;
    let guard = Compare::key("k").mod_revision().equals(Revision::new(5));
    let both = client.txn().when([guard]).then([Op::put("k", "v")]).otherwise([Op::put("l", "v")]);
    assert_eq!(both.await.expect_err("unknown").fate(), Fate::Unknown);
    assert_eq!(fake.calls("Txn"), 1);
}

#[tokio::test]
async fn a_lease_whose_grant_was_in_doubt_is_found_again() {
    let fake = Fake::start(|method, before| match (method, before) {
        ("Status", _) => healthy(),
        ("LeaseGrant", 0) => Reply::Cut,
        ("LeaseGrant", _) => Reply::etcd(EtcdError::LeaseExist),
        ("LeaseTimeToLive", _) => {
            Reply::of(&pb::LeaseTimeToLiveResponse { ttl: 9, granted_ttl: 10, ..Default::default() })
        }
        _ => Reply::Hang,
    })
    .await;
    let client = Client::connect([fake.url.clone()]).await.expect("a connection");
    let granted = client.leases().grant(Duration::from_secs(10)).await.expect("ours");
    assert_eq!((granted.ttl, fake.calls("LeaseGrant")), (Duration::from_secs(10), 2));
    // Under a name that somebody else may have chosen too, nobody can tell whose it is.
    let fake = Fake::start(|method, before| match (method, before) {
        ("Status", _) => healthy(),
        ("LeaseGrant", 0) => Reply::Cut,
        _ => Reply::etcd(EtcdError::LeaseExist),
    })
    .await;
    let client = Client::connect([fake.url.clone()]).await.expect("a connection");
    let id = meerkat_client::LeaseId::from_wire(5).expect("not zero");
    let error = client.leases().grant(Duration::from_secs(10)).id(id).await.expect_err("unknown");
    assert_eq!(error.fate(), Fate::Unknown, "{error}");
}

#[tokio::test]
async fn no_call_outlives_its_time() {
    let (client, _fake) = client_of("Put", vec![], Reply::Hang).await;
    let start = std::time::Instant::now();
    let error = client.put("k", "v").timeout(Duration::from_millis(200)).await.expect_err("hangs");
    assert!(start.elapsed() < Duration::from_secs(5), "too slow: {:?}", start.elapsed());
    assert_eq!(error.fate(), Fate::Unknown);
    let error = client.put("k", "v").timeout(Duration::ZERO).await.expect_err("no time");
    assert_ne!(error.fate(), Fate::Refused);
    let forever = tokio::time::timeout(
        Duration::from_millis(100),
        client.put("k", "v").timeout(Duration::MAX).into_future(),
    );
    assert!(forever.await.is_err(), "still waiting, and no clock overflowed");
}

#[tokio::test]
async fn a_member_without_a_leader_is_left_for_one_that_has_one() {
    let cut_off = Fake::start(|method, _| match method {
        "Status" => Reply::of(&pb::StatusResponse::default()),
        _ => Reply::etcd(EtcdError::NoLeader),
    })
    .await;
    let good = Fake::start(|method, _| match method {
        "Status" => healthy(),
        _ => Reply::of(&pb::PutResponse::default()),
    })
    .await;
    let client = Client::connect([cut_off.url.clone(), good.url.clone()]).await.expect("a connection");
    for _ in 0..20 {
        client.put("k", "v").await.expect("the other one takes it");
    }
    assert_eq!(good.calls("Put"), 20);
    assert!(cut_off.calls("Put") <= 1, "asked {} times", cut_off.calls("Put"));
}
