//! Namespaces on real servers: nothing leaks in or out.

use crate::server::{BOTH, Cluster};
use meerkat_client::{Client, Compare, Keys, Op};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_a_key_space_of_its_own() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let whole = Client::connect(cluster.urls()).await.expect("a connection");
        let here = whole.namespace("ns/").namespace("here/");
        let there = whole.namespace("ns/there/");
        for client in [&here, &there, &whole] {
            client.put("k", "v").await.expect("a put");
        }
        there.put("z", "v").await.expect("a put");
        whole.put("ns/here/", "the prefix itself").await.expect("a put");

        let page = here.get(Keys::all()).await.expect("a get");
        assert_eq!(page.kvs.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), ["k"]);
        let page = here.get(Keys::from("a")).await.expect("a get");
        assert_eq!((page.count, page.kvs[0].key.as_ref()), (1, &b"k"[..]));
        let outside = whole.get(Keys::prefix("ns/")).await.expect("a get");
        assert_eq!(outside.count, 4);

        let done = here
            .txn()
            .when([Compare::key("k").exists(), Compare::keys(Keys::all()).version().equals(1)])
            .then([here.put("k", "w").previous().into(), Op::get(Keys::prefix(""))])
            .await
            .expect("a txn");
        assert!(done.succeeded);
        assert_eq!(done.results[1].get().expect("a get").kvs[0].key, "k");
        assert_eq!(whole.get("ns/here/k").await.expect("a get").kvs[0].value, "w");

        let gone = here.delete(Keys::all()).previous().await.expect("a delete");
        assert_eq!((gone.deleted, gone.previous[0].key.as_ref()), (1, &b"k"[..]));
        assert_eq!(there.get(Keys::all()).await.expect("a get").count, 2);
        assert_eq!(whole.get("k").await.expect("a get").count, 1);
    }
}
