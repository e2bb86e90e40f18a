//! What an append costs, and how many share a sync, on the real file system.
//!
//! Bounded and only loosely asserted, as machines differ; the numbers go into the ADR. To see them:
//! `cargo test --release -p meerkat-raft --test it cost -- --nocapture`.

use crate::log_driver::{CLUSTER, MEMBER, id, submit};
use meerkat_raft::log_store::{LogOptions, LogStore};
use meerkat_raft::type_config::{EncodedProposal, Entry};
use openraft::EntryPayload;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::Receiver;

const VALUE_BYTES: usize = 256;

fn proposal(index: u64) -> Entry {
    let payload = EntryPayload::Normal(EncodedProposal(vec![b'v'; VALUE_BYTES].into()));
    Entry { log_id: id(1, index), payload }
}

/// Appends `count` entries with this many in flight, each in a call of its own.
async fn measure(count: u64, in_flight: usize) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut log = LogStore::open(LogOptions::new(dir.path(), CLUSTER, MEMBER)).expect("open");
    let mut waiting: VecDeque<Receiver<io::Result<()>>> = VecDeque::new();
    let mut inside = Duration::ZERO;
    let start = Instant::now();
    for index in 1..=count {
        if waiting.len() == in_flight {
            let oldest = waiting.pop_front().expect("in flight");
            oldest.await.expect("callback").expect("append");
        }
        let entry = proposal(index);
        let before = Instant::now();
        waiting.push_back(submit(&mut log, vec![entry]).await.expect("submit"));
        inside += before.elapsed();
    }
    for done in waiting {
        done.await.expect("callback").expect("append");
    }
    let took = start.elapsed();
    let stats = log.stats();
    println!(
        "{count} appends of {VALUE_BYTES} bytes, {in_flight} in flight: {:.0} per second, {:.1} per sync, \
         {} ns in append, {:.0} us per sync",
        count as f64 / took.as_secs_f64(),
        count as f64 / stats.syncs() as f64,
        inside.as_nanos() / u128::from(count),
        stats.sync.total().as_secs_f64() * 1e6 / stats.syncs() as f64,
    );
    assert_eq!(stats.appends(), count);
    assert!(stats.syncs() <= count + 1, "never more syncs than appends");
    if in_flight > 100 {
        assert!(stats.syncs() < count / 4, "appends in flight share syncs: {}", stats.syncs());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_of_an_append_is_shared_by_those_in_flight() {
    measure(200, 1).await;
    measure(20_000, 256).await;
    measure(40_000, 4096).await;
}
