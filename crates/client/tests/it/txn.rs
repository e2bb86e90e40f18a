//! Transactions on real servers.

use crate::server::{BOTH, Cluster};
use bytes::Bytes;
use meerkat_client::{Client, Compare, EtcdError, Fate, Keys, Op, OpResult, Revision};

async fn holds(client: &Client, compare: Compare) -> bool {
    client.txn().when([compare]).otherwise([Op::get("t/k")]).await.expect("a txn").succeeded
}

async fn every_comparison_means_what_it_says(client: &Client) {
    let first = client.put("t/k", "m").await.expect("a put").revision;
    let second = client.put("t/k", "m").await.expect("a put").revision;
    let table = [
        (Compare::key("t/k").version().equals(2), true),
        (Compare::key("t/k").version().greater(2), false),
        (Compare::key("t/k").create_revision().equals(first), true),
        (Compare::key("t/k").mod_revision().equals(second), true),
        (Compare::key("t/k").mod_revision().less(second), false),
        (Compare::key("t/k").value().equals("m"), true),
        (Compare::key("t/k").value().greater("a"), true),
        (Compare::key("t/k").value().not_equals("m"), false),
        (Compare::key("t/k").lease().equals(None), true),
        (Compare::key("t/k").exists(), true),
        (Compare::key("t/k").missing(), false),
        (Compare::key("t/none").missing(), true),
        (Compare::key("t/none").value().not_equals("m"), false),
        (Compare::keys(Keys::prefix("t/")).version().greater(1), true),
    ];
    for (compare, wanted) in table {
        let text = format!("{compare:?}");
        assert_eq!(holds(client, compare).await, wanted, "{text}");
    }
}

async fn a_transaction_answers_for_each_operation(client: &Client) {
    let done = client
        .txn()
        .when([Compare::key("t/seat").missing()])
        .then([
            Op::put("t/seat", "mine"),
            client.get("t/seat").into(),
            client.delete("t/k").previous().into(),
            Op::txn(client.txn().when([Compare::key("t/seat").missing()]).then([Op::get("t/seat")])),
        ])
        .otherwise([Op::get("t/seat")])
        .await
        .expect("a txn");
    assert!(done.succeeded);
    let [OpResult::Put(put), OpResult::Get(got), OpResult::Delete(gone), OpResult::Txn(inner)] =
        &done.results[..]
    else {
        panic!("four answers: {:?}", done.results);
    };
    assert_eq!((put.revision, got.kvs[0].value.as_ref()), (done.revision, &b"mine"[..]));
    assert_eq!((gone.deleted, gone.previous.len()), (1, 1));
    assert!(inner.succeeded, "all comparisons are made on the state before");

    let taken = client
        .txn()
        .when([Compare::key("t/seat").create_revision().equals(Revision::new(0))])
        .then([Op::put("t/seat", "yours")])
        .otherwise([Op::get("t/seat")])
        .await
        .expect("a txn");
    assert!(!taken.succeeded);
    assert_eq!(taken.results[0].get().expect("a get").kvs[0].value, Bytes::from_static(b"mine"));
}

async fn wrong_transactions_are_refused(client: &Client) {
    let twice = client.txn().then([Op::put("t/x", "1"), Op::put("t/x", "2")]).await.expect_err("a refusal");
    assert_eq!((twice.fate(), twice.etcd()), (Fate::Refused, Some(EtcdError::DuplicateKey)));
    let empty = client.txn().then([Op::put("", "1")]).await.expect_err("a refusal");
    assert_eq!(empty.etcd(), Some(EtcdError::EmptyKey));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_behave_alike_on_both_servers() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = Client::connect(cluster.urls()).await.expect("a connection");
        every_comparison_means_what_it_says(&client).await;
        a_transaction_answers_for_each_operation(&client).await;
        wrong_transactions_are_refused(&client).await;
    }
}
