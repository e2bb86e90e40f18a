//! Counts over many keys: buckets split, merge and survive a restart.

use crate::rig::{Log, Rig, Seed, seeds};
use bytes::Bytes;
use meerkat_types::{
    Command, Consistency, DeleteRange, Key, KeyRange, NewLease, NewValue, Put, RangeQuery, Revision,
    RevisionBounds, Sort,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn key(number: u32) -> Key {
    Key::new(Bytes::from(format!("{number:05}"))).expect("key")
}

fn span(low: u32, high: u32) -> KeyRange {
    KeyRange::Span { first: key(low), end: key(high).into_bytes() }
}

fn put(number: u32) -> Command {
    Command::Put(Put {
        key: key(number),
        value: NewValue::Set(Bytes::from_static(b"v")),
        lease: NewLease::Set(None),
        want_previous: false,
    })
}

fn query(keys: KeyRange, at: Option<Revision>, limit: Option<usize>) -> RangeQuery {
    RangeQuery {
        keys,
        at,
        limit,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: true,
        count_only: limit.is_none(),
        bounds: RevisionBounds::default(),
    }
}

#[test]
fn counts_are_right_through_splits_merges_and_restarts() {
    for seed in seeds(3) {
        let _repeat = Seed(seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut rig, mut log) = (Rig::new(), Log::default());
        rig.machine().set_publish_events(false);
        let mut live = BTreeSet::new();
        let mut remembered: Vec<(Revision, BTreeSet<u32>)> = Vec::new();
        for round in 0..40 {
            let mut entries = Vec::new();
            // Grows to some thousands, then mostly shrinks.
            for _ in 0..rng.random_range(1..600) {
                let number = rng.random_range(0..20_000);
                if rng.random_range(0..100) < if round < 25 { 99 } else { 50 } {
                    live.insert(number);
                    entries.push(log.command(put(number)));
                } else {
                    let high = number + rng.random_range(0..if round < 25 { 20 } else { 800 });
                    live.retain(|kept| !(number..high).contains(kept));
                    let delete = DeleteRange { keys: span(number, high), want_previous: false };
                    entries.push(log.command(Command::DeleteRange(delete)));
                }
            }
            rig.apply(&entries);
            remembered.push((rig.reader.current_revision(), live.clone()));
            if round % 10 == 9 {
                rig.db().flush().expect("flush");
                rig.crash();
            }
            for _ in 0..20 {
                let (low, high) = (rng.random_range(0..20_000), rng.random_range(0..20_000));
                let back = rng.random_range(0..remembered.len().min(4));
                let (at, then) = &remembered[remembered.len() - 1 - back];
                let expected = then.iter().filter(|kept| (low..high).contains(*kept)).count() as u64;
                for limit in [None, Some(1)] {
                    let answer = rig.reader.range(&query(span(low, high), Some(*at), limit)).expect("range");
                    assert_eq!(answer.count, expected, "{low}..{high} at {at} limit {limit:?}");
                }
            }
            let all = rig.reader.range(&query(KeyRange::everything(), None, None)).expect("range");
            assert_eq!(all.count, live.len() as u64);
        }
    }
}
