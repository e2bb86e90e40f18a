//! What watches promise while nothing breaks: on etcd and on Meerkat alike.

use crate::patience::{PATIENCE, within};
use crate::server::{BOTH, Kind};
use crate::watch_cluster::Cluster;
use meerkat_client::watch::WatchPhase;
use meerkat_client::{Changes, Client, EventKind, Keys, Op, Revision, Watch, WatchError};
use std::time::Duration;

/// The next item, with a bound on how long it may take.
pub async fn next(watch: &mut Watch) -> Option<Result<Changes, WatchError>> {
    let wait = tokio::time::timeout(PATIENCE, watch.next());
    wait.await.unwrap_or_else(|_| panic!("nothing came: {:?}", watch.status()))
}

pub async fn changes(watch: &mut Watch) -> Changes {
    next(watch).await.expect("the watch is not over").expect("no error")
}

/// Keys and values in words: `a=1` for a put, `-a` for a delete, with what was there before in brackets.
fn words(changes: &Changes) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let word = |event: &meerkat_client::Event| {
        let previous = event.previous.as_ref().map_or(String::new(), |kv| format!(" [{}]", text(&kv.value)));
        match &event.kind {
            EventKind::Put(kv) => format!("{}={}{previous}", text(&kv.key), text(&kv.value)),
            EventKind::Delete { key, .. } => format!("-{}{previous}", text(key)),
        }
    };
    changes.events.iter().map(word).collect()
}

pub async fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.endpoints()).await.expect("to connect")
}

#[test]
fn a_watch_may_be_sent_to_another_thread_and_moved_while_it_is_polled() {
    fn holds<T: Send + Sync + Unpin>() {}
    holds::<Watch>();
}

async fn put(client: &Client, key: &'static str, value: &'static str) -> Revision {
    client.put(key, value).await.expect("a put").revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_come_whole_in_order_and_as_asked_for() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        let first = put(&client, "n/a", "0").await;

        let mut plain = client.watch(Keys::prefix("n/")).start();
        let mut past = client.namespace("n/").watch(Keys::all()).from(first).previous().start();
        let mut puts = client.watch("n/a").only_puts().start();
        let mut deletes = client.watch("n/a").only_deletes().start();
        for watch in [&plain, &past, &puts, &deletes] {
            watch.live().await;
            assert_eq!(watch.status().phase, WatchPhase::Live, "{kind:?}");
        }

        put(&client, "other", "0").await;
        put(&client, "n/a", "1").await;
        let ops = [Op::put("n/a", "2"), Op::put("n/b", "2"), Op::put("other", "2")];
        let both = client.txn().then(ops).await.expect("a txn").revision;
        client.delete("n/a").await.expect("a delete");

        assert_eq!(words(&changes(&mut plain).await), ["n/a=1"]);
        let whole = changes(&mut plain).await;
        assert_eq!((whole.revision, words(&whole)), (both, vec!["n/a=2".into(), "n/b=2".into()]));
        assert_eq!(words(&changes(&mut plain).await), ["-n/a"]);

        let mut told = Vec::new();
        for _ in 0..4 {
            told.push(words(&changes(&mut past).await).join(" "));
        }
        assert_eq!(told, ["a=0", "a=1 [0]", "a=2 [1] b=2", "-a [2]"], "{kind:?}");
        assert_eq!(words(&changes(&mut puts).await), ["n/a=1"]);
        assert_eq!(words(&changes(&mut puts).await), ["n/a=2"]);
        assert_eq!(words(&changes(&mut deletes).await), ["-n/a"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_start_is_told_once_with_what_to_do() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        let first = put(&client, "a", "0").await;
        for _ in 0..9 {
            put(&client, "a", "1").await;
        }
        let oldest = put(&client, "a", "2").await;
        client.compact(oldest).await.expect("a compaction");

        let mut late = client.watch("a").from(first).start();
        match next(&mut late).await {
            Some(Err(error @ WatchError::Compacted { oldest: told, next })) => {
                assert_eq!((told, next), (oldest, first), "{kind:?}");
                assert!(error.to_string().contains("list the keys again"), "{error}");
            }
            other => panic!("{kind:?}: {other:?}"),
        }
        assert!(next(&mut late).await.is_none(), "{kind:?}");
        assert_eq!(late.status().phase, WatchPhase::Ended);

        // The oldest revision itself can be watched, and so the advice works.
        let mut in_time = client.watch("a").from(oldest).start();
        assert_eq!(changes(&mut in_time).await.revision, oldest);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_told_with_its_reason() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        for (keys, reason) in [
            (Keys::one(""), "etcdserver: key is not provided"),
            (Keys::span("b", "a"), "mvcc: watcher range is empty"),
        ] {
            let mut watch = client.watch(keys).start();
            match next(&mut watch).await {
                Some(Err(WatchError::Refused(error))) => assert_eq!(error.message(), reason),
                other => panic!("{kind:?}: {other:?}"),
            }
            assert!(next(&mut watch).await.is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_watch_is_cancelled_at_the_member() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        let kept = client.watch("a").start();
        let watches: Vec<Watch> = (0..50).map(|i| client.watch(format!("k{i}")).start()).collect();
        for watch in watches.iter().chain([&kept]) {
            watch.live().await;
        }
        let count = || cluster.metric(0, "etcd_debugging_mvcc_watcher_total");
        assert_eq!(count().await, 51.0, "{kind:?}");
        drop(watches);
        let all_but_one = async {
            while count().await != 1.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("watches are cancelled", all_but_one).await;
        assert_eq!(kept.status().phase, WatchPhase::Live);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_say_how_far_a_quiet_watch_has_come() {
    // Not on etcd 3.5.1, whose marks come every ten minutes or cannot be believed.
    let cluster = Cluster::start(Kind::Meerkat, 1).await;
    let client = client(&cluster).await;
    let mut quiet = client.watch("quiet").marks().start();
    let plain = client.watch("quiet").start();
    quiet.live().await;
    plain.live().await;
    let moved = put(&client, "busy", "1").await;
    let mark = changes(&mut quiet).await;
    assert_eq!((mark.revision, mark.events.len()), (moved, 0));
    // Without marks too a quiet watch moves on, so that a compaction does not catch it.
    let mut monitor = plain.monitor();
    let moved_on = monitor.wait_for(|status| status.next == Some(moved.next()));
    let waited = tokio::time::timeout(PATIENCE, moved_on).await;
    assert!(waited.is_ok_and(|seen| seen.is_ok()), "{:?}", plain.status());
}

/// 2,000 revisions of 8 KiB are more than a buffer of 4 may hold, and more than a socket does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_parked_loses_nothing_and_holds_up_nobody() {
    const PUTS: usize = 2_000;
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = client(&cluster).await;
        let mut slow = client.watch("k").buffer(4).start();
        let mut quick = client.watch("k").start();
        slow.live().await;
        quick.live().await;
        let writer = client.clone();
        let writing = tokio::spawn(async move {
            let mut revisions = Vec::new();
            for _ in 0..PUTS {
                revisions.push(writer.put("k", vec![7; 8 << 10]).await.expect("a put").revision);
            }
            revisions
        });
        let mut seen = Vec::new();
        while seen.len() < PUTS {
            seen.push(changes(&mut quick).await.revision);
        }
        let written = writing.await.expect("the writer");
        assert_eq!(seen, written, "{kind:?}");

        let parked = slow.status();
        assert_eq!(parked.phase, WatchPhase::Parked, "{kind:?}: {parked:?}");
        assert_eq!(parked.last, None);
        // The member has let go of it: back-pressure does not pile up there either.
        assert_eq!(cluster.metric(0, "etcd_debugging_mvcc_watcher_total").await, 1.0, "{kind:?}");

        let mut late = Vec::new();
        while late.len() < PUTS {
            late.push(changes(&mut slow).await.revision);
        }
        assert_eq!(late, written, "{kind:?}");
        let status = slow.status();
        println!("{kind:?}: parked {} times for {PUTS} revisions", status.parked);
        assert_eq!(status.resumes, 0);
    }
}
