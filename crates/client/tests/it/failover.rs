//! Members that die, freeze and come back, under a client that goes on.

use crate::patience::PATIENCE;
use crate::server::{BOTH, Cluster, Kind};
use meerkat_client::{Client, Config, ErrorKind, Fate};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// A read takes longer only if the client does not look for another member.
const READ_WITHIN: Duration = Duration::from_secs(10);

async fn reads_and_writes_go_on(client: &Client, what: &str) {
    let start = Instant::now();
    client.get("k").timeout(PATIENCE).await.expect("a read is answered by another member");
    let read = start.elapsed();
    // A write may be left unknown by the fault itself; the ones after it go through.
    let mut tries = 0;
    while let Err(error) = client.put("k", "v").timeout(20 * SECOND).await {
        tries += 1;
        assert!(tries < 5 && error.fate() != Fate::Refused, "{what}: {error}");
    }
    println!("{what}: read after {read:?}, write after {:?}, {tries} unknown or not done", start.elapsed());
    assert!(read < READ_WITHIN, "too slow: {what}: a read took {read:?}");
}

async fn check(kind: Kind) {
    let mut cluster = Cluster::start(kind, 3).await;
    let client = cluster.client_when_ready().await;
    // Of its own: asking members by name must not change what the other one thinks of them.
    let asking = cluster.client_when_ready().await;
    for round in 0..3 {
        let used = cluster.index_of(&client.last_endpoint().expect("it was used"));
        // Frozen: found by the prober within its interval and timeout, on a machine that is not idle.
        cluster.members[used].pause();
        reads_and_writes_go_on(&client, &format!("{kind:?} frozen, round {round}")).await;
        assert_ne!(cluster.index_of(&client.last_endpoint().expect("used")), used);
        cluster.members[used].resume();
        let used = cluster.index_of(&client.last_endpoint().expect("it was used"));
        cluster.members[used].kill();
        reads_and_writes_go_on(&client, &format!("{kind:?} killed, round {round}")).await;
        cluster.bring_back(used, &asking).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_etcd_survives_frozen_and_killed_members() {
    check(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_meerkat_survives_frozen_and_killed_members() {
    check(Kind::Meerkat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_writes_fail_honestly_and_local_reads_work() {
    for kind in BOTH {
        let mut cluster = Cluster::start(kind, 3).await;
        let client = cluster.client_when_ready().await;
        let put = client.put("k", "before").await.expect("a put");
        // Whichever member survives has it.
        cluster.wait_until_level(&client, put.revision).await;
        let (leader, other) = cluster.leader_and_another(&client).await;
        cluster.members[leader].kill();
        cluster.members[other].kill();
        let put = client.put("k", "after").timeout(3 * SECOND).await.expect_err("no majority");
        assert_ne!(put.fate(), Fate::Refused, "{kind:?}: {put}");
        let read = client.get("k").timeout(3 * SECOND).await.expect_err("no majority");
        assert_eq!(read.fate(), Fate::NotDone, "{kind:?}: {read}");
        let local = client.get("k").serializable().timeout(PATIENCE).await.expect("a local read");
        assert_eq!(local.kvs[0].value, "before", "{kind:?}");
        cluster.members[leader].restart();
        cluster.members[other].restart();
        let end = Instant::now() + PATIENCE;
        while let Err(error) = client.put("k", "again").await {
            assert!(Instant::now() < end, "{kind:?}: the majority is back: {error}");
        }
        assert_eq!(client.get("k").await.expect("a get").kvs[0].value, "again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_done_when_nobody_is_there() {
    let nowhere = ["127.0.0.1:1", "127.0.0.1:2"];
    let error = Client::connect(nowhere).await.expect_err("nobody there");
    assert_eq!((error.fate(), error.kind()), (Fate::NotDone, ErrorKind::Unreachable), "{error}");
    let client = Client::connect_with(Config::new(nowhere).lazy()).await.expect("lazily");
    // A deadline in the middle of an attempt to connect leaves the client in doubt; that is rare, and
    // never three times in a row.
    let mut fates = Vec::new();
    for _ in 0..3 {
        let put = client.put("k", "v").timeout(SECOND).await.expect_err("nobody there");
        fates.push((put.fate(), put.kind()));
    }
    assert!(fates.contains(&(Fate::NotDone, ErrorKind::Unreachable)), "{fates:?}");
    assert!(fates.iter().all(|(fate, _)| *fate != Fate::Refused), "{fates:?}");
    let get = client.get("k").timeout(SECOND).await.expect_err("nobody there");
    assert_eq!(get.fate(), Fate::NotDone, "{get}");
    assert!(Client::connect(Vec::<String>::new()).await.is_err());
}

/// A leader that freezes with a write in hand: the answer is "unknown", and the store decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_times_out_in_a_frozen_member_is_unknown() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        cluster.members[0].pause();
        let put = client.put("k", "v").timeout(SECOND / 2).await.expect_err("frozen");
        cluster.members[0].resume();
        assert_eq!((put.fate(), put.kind()), (Fate::Unknown, ErrorKind::Deadline), "{kind:?}: {put}");
    }
}
