//! Random operations, reopens and crashes, against the simplest log there is.

use crate::log_driver::{append, entries, id, open, read_all};
use crate::sim_disk::SimDisk;
use meerkat_raft::log_store::{LogOptions, LogStore};
use meerkat_raft::type_config::{Entry, LogId, Vote};
use meerkat_types::{ClusterId, MemberId};
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const SEEDS: u64 = 60;
const STEPS: u64 = 120;

#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    /// Every position since the last step that was certainly synced: a crash may go back to any.
    committed: Vec<Option<LogId>>,
    term: u64,
}

impl Model {
    fn last(&self) -> Option<LogId> {
        self.entries.last().map(|entry| entry.log_id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(1, |last| last.index + 1)
    }

    fn synced(&mut self) {
        let newest = self.committed.last().copied().flatten();
        self.committed = vec![newest];
    }
}

async fn step(log: &mut LogStore, model: &mut Model, rng: &mut StdRng) {
    match rng.random_range(0..10) {
        0..5 => {
            model.term += rng.random_range(0..2_u64);
            let new = entries(model.term, model.next()..=model.next() + rng.random_range(0..8_u64));
            append(log, new.clone()).await.expect("append");
            model.entries.extend(new);
            model.synced();
        }
        5 => {
            let keep = rng.random_range(0..=model.entries.len());
            let last = keep.checked_sub(1).map(|i| model.entries[i].log_id).or(model.purged);
            log.truncate_after(last).await.expect("truncate");
            model.entries.truncate(keep);
            model.term += 1;
            model.synced();
        }
        6 => {
            let upto = if model.entries.is_empty() || rng.random_bool(0.1) {
                model.term += 1;
                id(model.term, model.next() + rng.random_range(0..20_u64))
            } else {
                model.entries[rng.random_range(0..model.entries.len())].log_id
            };
            log.purge(upto).await.expect("purge");
            log.sync_barrier().await.expect("barrier");
            model.entries.retain(|entry| upto.index < entry.log_id.index);
            model.purged = Some(upto);
            model.synced();
        }
        7 => {
            model.term += 1;
            let vote = Vote::new(model.term, MemberId(1));
            log.save_vote(&vote).await.expect("vote");
            model.vote = Some(vote);
            model.synced();
        }
        _ => {
            let committed = model.last();
            log.save_committed(committed).await.expect("committed");
            model.committed.push(committed);
        }
    }
}

async fn check(log: &mut LogStore, model: &mut Model, after_crash: bool, what: &str) {
    assert_eq!(read_all(log).await.expect("entries"), model.entries, "{what}");
    let state = log.get_log_state().await.expect("log state");
    assert_eq!((state.last_purged_log_id, state.last_log_id), (model.purged, model.last()), "{what}");
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.expect("vote"), model.vote, "{what}");
    let committed = log.read_committed().await.expect("committed");
    if after_crash {
        assert!(model.committed.contains(&committed), "{what}: {committed:?}");
        model.committed = vec![committed];
    } else {
        assert_eq!(Some(&committed), model.committed.last(), "{what}");
    }
}

async fn run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = LogOptions {
        segment_bytes: rng.random_range(512..4096),
        cache_bytes: rng.random_range(0..3000),
        ..LogOptions::new("unused", ClusterId(1), MemberId(2))
    };
    let mut model = Model { committed: vec![None], ..Model::default() };
    let mut disk = SimDisk::default();
    let mut log = open(&disk, options.clone()).expect("open");
    for i in 0..STEPS {
        let what = format!("seed {seed} step {i}");
        step(&mut log, &mut model, &mut rng).await;
        if rng.random_bool(0.1) {
            drop(log);
            log = open(&disk, options.clone()).unwrap_or_else(|err| panic!("{what}: {err}"));
            check(&mut log, &mut model, false, &what).await;
        } else if rng.random_bool(0.1) {
            disk = disk.crash_keeping_sectors(|| rng.random_bool(0.5));
            log = open(&disk, options.clone()).unwrap_or_else(|err| panic!("{what}: {err}"));
            check(&mut log, &mut model, true, &what).await;
        } else {
            check(&mut log, &mut model, false, &what).await;
        }
    }
}

#[tokio::test]
async fn the_log_agrees_with_a_plain_list_through_reopens_and_crashes() {
    for seed in 0..SEEDS {
        run(seed).await;
    }
}
