//! Watchers of one stream do not hold each other up.

use crate::every_order::at;
use meerkat_types::{Event, EventBatch, EventKind, Filter, HistoryAnswer, KeyRange, KeyValue, Revision};
use meerkat_watch::{
    Core, Encoded, Horizon, Meter, Out, Refused, SlowPolicy, Standing, Step, StreamId, StreamOptions,
    WatchConfig, WatchRequest, WatchStart,
};
use std::sync::Arc;
use std::task::Waker;

/// Revisions before the ring, and in it.
const HISTORY: i64 = 2_000;

fn batch(revision: i64) -> EventBatch {
    let revision = Revision::new(revision);
    let kv = KeyValue {
        key: "a".into(),
        value: "value".into(),
        created: revision,
        modified: revision,
        version: 1,
        lease: None,
    };
    let events = [Event { kind: EventKind::Put(kv), previous: None }].into();
    EventBatch { revision, stamp_ms: 0, events }
}

fn request(start: WatchStart) -> WatchRequest {
    WatchRequest {
        id: None,
        range: KeyRange::prefix(b"a"),
        start,
        filter: Filter::default(),
        previous: false,
        fragment: false,
        progress: false,
    }
}

fn publish(core: &mut Core, meter: &Arc<Meter>, revision: i64) {
    core.publish(&Encoded::new(batch(revision), meter));
}

fn horizon(core: &Core) -> Horizon {
    Horizon { current: core.frontier(), oldest: None }
}

/// Reads everything that is queued; says which revisions which watcher was told.
fn take(core: &mut Core, stream: StreamId) -> Vec<(i64, i64)> {
    let mut out = Vec::new();
    let _ = core.take(stream, usize::MAX, Waker::noop(), &mut out);
    let told = out.iter().filter_map(|out| match out {
        Out::Events(delivery) => Some(delivery),
        Out::Control(_) => None,
    });
    told.flat_map(|one| one.batches().map(|batch| (one.spec.id.get(), batch.revision().get()))).collect()
}

#[test]
fn one_who_starts_far_back_neither_makes_his_neighbours_late_nor_keeps_them_waiting() {
    let config = WatchConfig { ring_bytes: 20_000, scan_events: 500, ..WatchConfig::default() };
    let meter = Arc::new(Meter::default());
    let mut core = Core::new(config, Revision::EMPTY_STORE, meter.clone());
    for revision in 2..=HISTORY {
        publish(&mut core, &meter, revision);
    }
    let options = StreamOptions { slow: SlowPolicy::Cancel, ..StreamOptions::default() };
    let stream = core.open(options);
    for start in [at(2), WatchStart::Live, at(HISTORY - 2)] {
        let horizon = horizon(&core);
        core.register(stream, request(start), horizon);
    }
    take(&mut core, stream);
    let step = core.step(horizon(&core));
    let Step::Read(query) = step else { panic!("the first one needs history, and not {step:?}") };
    assert_eq!(query.first, Revision::new(2));
    let told = take(&mut core, stream);
    assert_eq!(
        told,
        [(2, HISTORY - 2), (2, HISTORY - 1), (2, HISTORY)],
        "the ring has what the third is owed"
    );

    // A whole read is queued, and the live one is still told.
    let batches: Vec<EventBatch> = (2..502).map(batch).collect();
    core.deal(&query, HistoryAnswer { batches, next: Revision::new(502) });
    publish(&mut core, &meter, HISTORY + 1);
    let told = take(&mut core, stream);
    for watcher in [1, 2] {
        assert!(told.contains(&(watcher, HISTORY + 1)), "watcher {watcher} is level");
    }
    let (_, reports) = core.report(0).expect("a stream");
    let standings: Vec<Standing> = reports.iter().map(|report| report.standing).collect();
    assert_eq!(standings, [Standing::CatchingUp, Standing::Synced, Standing::Synced]);
}

#[test]
fn keys_of_watchers_are_bounded_in_memory_and_freed_with_them() {
    let config = WatchConfig { keys_bytes: 100, ..WatchConfig::default() };
    let mut core = Core::new(config, Revision::EMPTY_STORE, Arc::default());
    let long = |core: &mut Core| {
        let stream = core.open(StreamOptions::default());
        let key = meerkat_types::Key::new(vec![b'k'; 60].into()).expect("not empty");
        let horizon = horizon(core);
        core.register(
            stream,
            WatchRequest { range: KeyRange::One(key), ..request(WatchStart::Live) },
            horizon,
        );
        let mut out = Vec::new();
        let _ = core.take(stream, usize::MAX, Waker::noop(), &mut out);
        let refused =
            matches!(out.as_slice(), [Out::Control(meerkat_watch::Control::Refused(Refused::OutOfMemory))]);
        (stream, refused)
    };
    let (first, refused) = long(&mut core);
    assert!(!refused);
    assert!(long(&mut core).1, "two would be too much");
    core.close(first);
    assert!(!long(&mut core).1, "there is room again");
}
