//! Keys on real servers.

use crate::server::{BOTH, Cluster};
use meerkat_client::{Client, Error, EtcdError, Fate, Keys, Revision, SortOrder, SortTarget};

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, why: EtcdError) {
    let error = result.expect_err("a refusal");
    assert_eq!((error.fate(), error.etcd()), (Fate::Refused, Some(why)), "{error}");
}

async fn keys_are_written_read_and_deleted(client: &Client) {
    let first = client.put("kv/a", "1").previous().await.expect("a put");
    assert_eq!(first.previous, None);
    let second = client.put("kv/a", "2").previous().await.expect("a put");
    assert_eq!(second.revision, first.revision.next());
    assert_eq!(second.previous.expect("the previous one").value, "1");
    client.put("kv/b", "x").await.expect("a put");
    client.put("kv/c", "y").await.expect("a put");

    let one = client.get("kv/a").await.expect("a get");
    let kv = one.first().expect("the key");
    assert_eq!((kv.value.as_ref(), kv.version, kv.created), (&b"2"[..], 2, first.revision));
    let past = client.get("kv/a").revision(first.revision).await.expect("a get");
    assert_eq!(past.first().expect("the key").value, "1");
    let none = client.get("kv/none").await.expect("a get");
    assert_eq!((none.kvs.len(), none.count), (0, 0));

    let gone = client.delete(Keys::span("kv/a", "kv/c")).previous().await.expect("a delete");
    assert_eq!((gone.deleted, gone.previous.len()), (2, 2));
    let nothing = client.delete("kv/a").await.expect("a delete");
    assert_eq!((nothing.deleted, nothing.revision), (0, gone.revision));
}

async fn reads_can_be_cut_sorted_and_counted(client: &Client) {
    for (key, value) in [("page/a", "3"), ("page/b", "2"), ("page/c", "1")] {
        client.put(key, value).await.expect("a put");
    }
    let page = client.get(Keys::prefix("page/")).limit(2).await.expect("a get");
    assert_eq!((page.kvs.len(), page.count, page.more), (2, 3, true));
    let sorted =
        client.get(Keys::prefix("page/")).sort(SortOrder::Ascend, SortTarget::Value).await.expect("a get");
    let keys: Vec<_> = sorted.kvs.iter().map(|kv| kv.key.clone()).collect();
    assert_eq!(keys, ["page/c", "page/b", "page/a"]);
    let counted = client.get(Keys::prefix("page/")).count_only().await.expect("a get");
    assert_eq!((counted.kvs.len(), counted.count), (0, 3));
    let bare = client.get(Keys::from("page/b")).keys_only().serializable().await.expect("a get");
    assert!(bare.kvs.iter().all(|kv| kv.value.is_empty()));
    let last = sorted.kvs[0].modified;
    let recent = client.get(Keys::prefix("page/")).modified(Some(last), None).await.expect("a get");
    assert_eq!(recent.kvs.len(), 1);
    let all = client.get(Keys::all()).await.expect("a get");
    assert!(3 <= all.count);
    let empty = client.get(Keys::span("page/b", "")).await.expect("a get");
    assert_eq!(empty.count, 0, "a span of no keys is neither one key nor all");
}

async fn refusals_come_with_their_names(client: &Client) {
    refused(client.put("", "x").await, EtcdError::EmptyKey);
    refused(client.put("kv/absent", "").keep_value().await, EtcdError::KeyNotFound);
    refused(client.put("kv/absent", "x").keep_value().await, EtcdError::ValueProvided);
    let now = client.get("kv/absent").await.expect("a get").revision;
    refused(client.get("k").revision(now.next()).await, EtcdError::FutureRev);
    refused(client.compact(now.next()).await, EtcdError::FutureRev);
    let value = vec![b'x'; 1_600_000];
    refused(client.put("kv/long", value).await, EtcdError::RequestTooLarge);
}

async fn history_ends_at_a_compaction(client: &Client) {
    let first = client.put("hist", "1").await.expect("a put").revision;
    let second = client.put("hist", "2").await.expect("a put").revision;
    client.compact(second).physical().await.expect("a compaction");
    refused(client.get("hist").revision(first).await, EtcdError::Compacted);
    refused(client.compact(second).await, EtcdError::Compacted);
    assert_eq!(client.get("hist").revision(second).await.expect("a get").kvs[0].value, "2");
    assert_eq!(client.get("hist").revision(Revision::new(0)).await.expect("a get").count, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_behave_alike_on_both_servers() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = Client::connect(cluster.urls()).await.expect("a connection");
        keys_are_written_read_and_deleted(&client).await;
        reads_can_be_cut_sorted_and_counted(&client).await;
        refusals_come_with_their_names(&client).await;
        history_ends_at_a_compaction(&client).await;
    }
}
