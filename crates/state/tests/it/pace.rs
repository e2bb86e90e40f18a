//! How fast puts are applied and history is read. A measurement: run by name, in release, on a machine at rest.

use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_state::{HistoryQuery, LogEntry};
use meerkat_types::{Command, Key, NewLease, NewValue, Put, Revision};
use std::time::{Duration, Instant};

const EVENTS: usize = 200_000;

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
    let mut events = 0;
    while query.first <= query.last {
        let history = pinned.history(&query).expect("history");
        events += history.batches.iter().map(|batch| batch.events.len()).sum::<usize>();
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

#[test]
#[ignore = "a measurement: asks for a machine at rest"]
fn two_hundred_thousand_small_events_are_read_in_well_under_a_second() {
    for keys in [1_000, 100_000] {
        let (mut rig, mut log) = (Rig::new(), Log::default());
        rig.machine().set_publish_events(false);
        let entries: Vec<_> = (0..EVENTS).map(|number| log.command(put(number, keys))).collect();
        println!("{keys} keys: {EVENTS} puts applied in {:?}", apply_all(&mut rig, &entries));
        for (with_previous, newest_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let (events, took) = read_all(&rig, with_previous, newest_only);
            println!(
                "{keys} keys, previous {with_previous}, newest only {newest_only}: {events} events in {took:?}"
            );
            assert_eq!(events, if newest_only { keys } else { EVENTS });
            assert!(with_previous || newest_only || took < Duration::from_secs(1), "{took:?}");
        }
    }
}
