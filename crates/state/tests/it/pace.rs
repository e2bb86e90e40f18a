//! A long history read in pieces: nothing is missing or twice, whatever the options; and how fast.
//! `MEERKAT_PACE_EVENTS=200000` makes a measurement of it.

use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_state::LogEntry;
use meerkat_types::{Command, HistoryQuery, Key, NewLease, NewValue, Put, Revision};
use std::time::{Duration, Instant};

/// No machine is so busy that this much takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn put(number: usize, keys: usize) -> Command {
    Command::Put(Put {
        key: Key::new(Bytes::from(format!("/registry/pods/{:08}", number * 7_919 % keys))).expect("key"),
        value: NewValue::Set(vec![b'v'; 64].into()),
        lease: NewLease::Set(None),
        want_previous: false,
    })
}

/// Reads everything in pieces, as a late watcher is served.
#[expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn read_all(rig: &Rig, with_previous: bool, newest_only: bool) -> (usize, Duration) {
    let began = Instant::now();
    let pinned = rig.reader.pin();
    let mut query = HistoryQuery {
        first: Revision::new(2),
        last: pinned.current_revision(),
        events_max: 5_000,
        bytes_max: 1 << 20,
        with_previous,
        newest_only,
    };
    let (mut events, mut last) = (0, Revision::new(1));
    while query.first <= query.last {
        let history = pinned.history(&query).expect("history");
        for batch in &history.batches {
            assert!(last < batch.revision, "each revision once, in order");
            last = batch.revision;
            events += batch.events.len();
        }
        query.first = history.next;
    }
    (events, began.elapsed())
}

#[expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn apply_all(rig: &mut Rig, entries: &[LogEntry]) -> Duration {
    let began = Instant::now();
    entries.chunks(500).for_each(|batch| drop(rig.apply(batch)));
    began.elapsed()
}

fn events_to_write() -> usize {
    let given = std::env::var("MEERKAT_PACE_EVENTS").ok();
    given.map_or(20_000, |number| number.parse().expect("MEERKAT_PACE_EVENTS is a number"))
}

#[test]
fn a_long_history_is_read_whole_in_pieces() {
    let total = events_to_write();
    for keys in [total / 200, total / 2] {
        let (mut rig, mut log) = (Rig::new(), Log::default());
        rig.machine().set_publish_events(false);
        let entries: Vec<_> = (0..total).map(|number| log.command(put(number, keys))).collect();
        println!("{keys} keys: {total} puts applied in {:?}", apply_all(&mut rig, &entries));
        for (with_previous, newest_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let (events, took) = read_all(&rig, with_previous, newest_only);
            println!(
                "{keys} keys, previous {with_previous}, newest only {newest_only}: {events} events in {took:?}"
            );
            assert_eq!(events, if newest_only { keys } else { total });
            assert!(took < PATIENCE, "too slow: {took:?}");
        }
    }
}
