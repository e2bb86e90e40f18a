//! Ten thousand watches of one client.

use crate::heap;
use crate::server::BOTH;
use crate::watch::{changes, client};
use crate::watch_cluster::Cluster;
use meerkat_client::{Op, Watch};
use std::time::Instant;

const WATCHES: usize = 10_000;
/// What one watch may take on this process's heap, its share of the streams included.
const BYTES_EACH_MAX: usize = 2 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watches_work_in_one_client() {
    for kind in BOTH {
        let mut cluster = Cluster::start(kind, 3).await;
        let client = client(&cluster).await;
        client.put("start", "").await.expect("a put");
        let before = heap::bytes();
        let began = Instant::now();
        let mut watches: Vec<Watch> =
            (0..WATCHES).map(|number| client.watch(format!("k/{number}")).start()).collect();
        for watch in &watches {
            watch.live().await;
        }
        let created = began.elapsed();
        let each = heap::bytes().saturating_sub(before) / WATCHES;
        println!("{kind:?}: {WATCHES} watches live after {created:?}, {each} bytes of heap each");
        assert!(each < BYTES_EACH_MAX, "{each} bytes for each watch");

        tell_all(&client, &mut watches, "1").await;

        // All of them move.
        let serving = watches[0].status().endpoint.expect("a member");
        let serving = cluster.index_of(&serving);
        let killed = Instant::now();
        cluster.kill(serving);
        let mut gaps = Vec::new();
        for watch in &watches {
            let mut monitor = watch.monitor();
            let moved = monitor.wait_for(|status| 0 < status.resumes && status.endpoint.is_some());
            let status = moved.await.expect("the watch is there").clone();
            gaps.extend(status.last_gap);
        }
        gaps.sort();
        let (half, last) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("{kind:?}: all moved {:?} after a kill; gaps p50 {half:?}, max {last:?}", killed.elapsed());
        cluster.revive(serving);
        cluster.wait_until_ready().await;
        tell_all(&client, &mut watches, "2").await;
        for (number, watch) in watches.iter().enumerate() {
            assert!(1 <= watch.status().resumes, "watch {number}: {:?}", watch.status());
        }
    }
}

/// Every watch hears exactly of its own key.
async fn tell_all(client: &meerkat_client::Client, watches: &mut [Watch], value: &'static str) {
    for first in (0..WATCHES).step_by(100) {
        let puts = (first..first + 100).map(|number| Op::put(format!("k/{number}"), value));
        client.txn().then(puts).await.expect("a txn");
    }
    for (number, watch) in watches.iter_mut().enumerate() {
        let told = changes(watch).await;
        let key = format!("k/{number}");
        assert_eq!(told.events.len(), 1);
        let is_own = matches!(&told.events[0].kind,
            meerkat_client::EventKind::Put(kv) if kv.key == key.as_bytes() && kv.value == value.as_bytes());
        assert!(is_own, "{key}: {told:?}");
    }
}
