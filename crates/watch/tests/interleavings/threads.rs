//! The hub as it runs: real threads, real wake-ups, readers that stall, and a store that compacts and
//! is replaced meanwhile. What chance brings about here cannot be repeated; what fails here is to be
//! found again by `random`.

use crate::reader::{Reader, Told};
use crate::schedule::{draw_request, draw_writes};
use crate::store::Store;
use meerkat_fault::Mutex;
use meerkat_types::{HistoryAnswer, HistoryQuery, Revision};
use meerkat_watch::{
    History, HistoryError, Horizon, Hub, Out, SlowPolicy, StreamOptions, Taken, WatchConfig, WatchStream,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

const REVISIONS: i64 = 6_000;
const READERS: u64 = 12;

/// Far more than a run needs: a reader that is not woken is found by this.
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Clone)]
struct Shared {
    store: Arc<Mutex<Store>>,
    written: Arc<AtomicBool>,
}

impl History for Shared {
    fn horizon(&self) -> Horizon {
        self.store.lock().horizon()
    }

    fn read(&self, query: &HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        self.store.lock().read(query)
    }
}

#[test]
fn readers_on_threads_are_told_everything_and_are_always_woken() {
    let config = WatchConfig {
        ring_bytes: 30_000,
        memory_bytes: 20_000,
        outbox_items: 8,
        outbox_items_per_watcher: 2,
        stream_history_bytes: 4_000,
        scan_events: 50,
        scan_bytes: 4_000,
        ring_round: 20,
        merge_bytes: 2_000,
        keys_bytes: 100_000,
        reads_inline: false,
    };
    let hub = Hub::new(config);
    let shared = Shared { store: Arc::new(Mutex::new(Store::new())), written: Arc::default() };
    hub.set_history(Arc::new(shared.clone()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .expect("a runtime starts");
    let told = runtime.block_on(run(hub.clone(), shared));
    assert!(10_000 < told.events, "enough was told: {told:?}");
    assert!(0 < told.skipped && 0 < told.marks, "{told:?}");
    let (counts, totals) = (hub.counts(), hub.totals());
    assert!(100 < counts.fell_behind && 100 < counts.caught_up, "{counts:?}");
    assert_eq!((totals.streams, totals.memory_bytes), (0, totals.ring_bytes), "nothing stays behind");
}

async fn run(hub: Hub, shared: Shared) -> Told {
    let dispatch = tokio::spawn(dispatching(hub.clone()));
    let catch_up = tokio::spawn(catching_up(hub.clone()));
    let writer = std::thread::spawn({
        let (hub, shared) = (hub.clone(), shared.clone());
        move || write(&hub, &shared)
    });
    let readers: Vec<_> = (0..READERS)
        .map(|number| tokio::spawn(tokio::time::timeout(DEADLINE, read(hub.clone(), shared.clone(), number))))
        .collect();
    let mut told = Told::default();
    for reader in readers {
        told += reader.await.expect("no reader fails").expect("every reader comes to its end in time");
    }
    writer.join().expect("the writer does not fail");
    dispatch.abort();
    catch_up.abort();
    // An aborted task lets go of what it holds by the time it is joined.
    assert!(dispatch.await.is_err() && catch_up.await.is_err(), "tasks of the hub do not end by themselves");
    told
}

async fn dispatching(hub: Hub) {
    hub.run_dispatch().await;
}

async fn catching_up(hub: Hub) {
    hub.run_catch_up().await;
}

/// Commits and publishes; at times faster than can be told, and at times a snapshot comes in between.
fn write(hub: &Hub, shared: &Shared) {
    let mut dice = SmallRng::seed_from_u64(1);
    for at in 0..REVISIONS {
        let batch = shared.store.lock().commit(&draw_writes(&mut dice, 3_000));
        if dice.random_bool(0.004) {
            hub.jump(batch.revision);
        } else {
            hub.publish(batch);
        }
        if at % 64 == 0 {
            let back = dice.random_range(100..1_500);
            shared.store.lock().compact(Revision::new(at - back));
        }
        if at % 8 == 0 {
            std::thread::sleep(Duration::from_micros(dice.random_range(0..3_000)));
        }
    }
    shared.written.store(true, Ordering::SeqCst);
}

/// One client: makes and ends watchers while it reads, and stalls now and then.
async fn read(hub: Hub, shared: Shared, number: u64) -> Told {
    let mut dice = SmallRng::seed_from_u64(100 + number);
    let policy = [SlowPolicy::Wait, SlowPolicy::Coalesce, SlowPolicy::Cancel][number as usize % 3];
    let stream = hub.open(StreamOptions { slow: policy, ..StreamOptions::default() });
    let mut reader = Reader::new(policy, false);
    loop {
        let written = shared.written.load(Ordering::SeqCst);
        if !written {
            ask(&stream, &mut reader, &shared, &mut dice);
        } else if is_level(&reader, &shared) {
            return reader.told();
        }
        // While there is more to ask for, it looks up now and then; later nothing but the hub wakes it.
        let patience = if written { DEADLINE } else { Duration::from_millis(5) };
        if let Ok((taken, out)) = tokio::time::timeout(patience, take(&stream, &mut dice)).await {
            let frontier = hub.frontier();
            reader.read(&shared.store.lock(), frontier, &taken, &out);
            assert!(reader.ended.is_none(), "no stream is ended here: {:?}", reader.ended);
        }
        if !written && dice.random_bool(0.02) {
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..30))).await;
        }
    }
}

async fn take(stream: &WatchStream, dice: &mut SmallRng) -> (Taken, Vec<Out>) {
    let budget = [1, 1_000, 50_000][dice.random_range(0..3)];
    poll_fn(|context| {
        let mut out = Vec::new();
        match stream.take(budget, context.waker(), &mut out) {
            Taken::Parked => Poll::Pending,
            taken => Poll::Ready((taken, out)),
        }
    })
    .await
}

fn ask(stream: &WatchStream, reader: &mut Reader, shared: &Shared, dice: &mut SmallRng) {
    match dice.random_range(0..40) {
        7..12 if reader.ids().len() < 20 => {
            let request = draw_request(&shared.store.lock(), reader, dice);
            reader.expect_register(&request, None);
            stream.register(request);
        }
        2 => {
            for request in std::mem::take(&mut reader.resumes) {
                reader.expect_register(&request, None);
                stream.register(request);
            }
        }
        3 => {
            if let Some(id) = reader.ids().first().copied() {
                reader.expect_cancel(id, None);
                stream.cancel(id);
            }
        }
        4 => stream.request_progress(),
        5 | 6 => stream.tick(),
        _ => {}
    }
}

fn is_level(reader: &Reader, shared: &Shared) -> bool {
    let store = shared.store.lock();
    let end = store.current().next();
    reader.is_answered()
        && reader
            .followers()
            .filter(|follower| !follower.is_ended())
            .all(|follower| follower.missing_below(&store, end).is_none())
}
