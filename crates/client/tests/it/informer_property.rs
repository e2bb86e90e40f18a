//! Whatever happens between an informer and its source, what it shows is true.
//!
//! Each seed is a life: a store that is written to and compacted, a source that fails, repeats itself
//! and forgets, readers that look at the cache at every turn, and handlers of every pace that come
//! when they like. The clock is Tokio's and moves only when all wait, so minutes take microseconds.
//! `MEERKAT_INFORMER_SEED` runs one seed, `MEERKAT_INFORMER_SEEDS` that many.

mod harm;
mod judge;
mod world;

use bytes::Bytes;
use judge::{Seen, Told};
use meerkat_client::informer::{Delta, Informer, Phase};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use world::{Lie, Source, World};

const SEEDS: u64 = 3_000;
const KEYS: u8 = 7;

/// All that was seen in one life.
struct Life {
    world: Arc<Mutex<World>>,
    looks: Vec<Seen>,
    handlers: Vec<Vec<Told>>,
    last: i64,
    relists: u64,
    left_out: u64,
}

impl Life {
    fn verdict(&self) -> Result<(), String> {
        let world = self.world.lock();
        for seen in &self.looks {
            judge::cache(&world, seen)?;
        }
        for (number, told) in self.handlers.iter().enumerate() {
            judge::handler(&world, told, self.last).map_err(|error| format!("handler {number}: {error}"))?;
        }
        Ok(())
    }
}

fn live(seed: u64, lie: Option<Lie>) -> Life {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(life(seed, lie))
}

async fn life(seed: u64, lie: Option<Lie>) -> Life {
    let mut draws = StdRng::seed_from_u64(seed);
    let world = Arc::new(Mutex::new(World::new()));
    write_some(&world, &mut draws, 10);
    let informer = Informer::from_source(Source::new(&world, seed, lie))
        .decode(judge::decode)
        .indexer(judge::INDEX, |object| judge::index(&object.value))
        .page_size(draws.random_range(1..5))
        .seed(seed)
        .start();
    let observer = observe(&informer);
    let mut handlers = Vec::new();
    for _ in 0..draws.random_range(20..60) {
        if handlers.len() < 4 && draws.random_bool(0.1) {
            handlers.push(follow(&informer, draws.random()));
        }
        write_some(&world, &mut draws, 3);
        if draws.random_bool(0.06) {
            world.lock().compact();
        }
        let pause = if draws.random_bool(0.1) { 3_000 } else { 120 };
        tokio::time::sleep(Duration::from_millis(draws.random_range(0..pause))).await;
    }
    handlers.push(follow(&informer, draws.random()));
    world.lock().troubled = false;
    let last = world.lock().current();
    let goal = informer.wait_for_revision(meerkat_client::Revision::new(last));
    tokio::time::timeout(Duration::from_secs(600), goal).await.expect("it catches up").expect("it runs");
    let relists = informer.status().relists();
    informer.stop().await;
    let last = informer.store().revision().expect("it has listed").get();
    let mut told = Vec::new();
    let mut left_out = 0;
    for handler in handlers {
        let (one, skipped) = handler.await.expect("no panic");
        told.push(one);
        left_out += skipped;
    }
    Life { world, looks: observer.await.expect("no panic"), handlers: told, last, relists, left_out }
}

/// Up to `most` transactions.
fn write_some(world: &Mutex<World>, draws: &mut StdRng, most: u32) {
    for _ in 0..draws.random_range(0..=most) {
        let mut keys: Vec<u8> = (0..KEYS).collect();
        let writes = (0..draws.random_range(0..4)).map(|_| {
            let key = keys.remove(draws.random_range(0..keys.len()));
            let value = match draws.random_range(0..10) {
                0..3 => None,
                3 => Some(Bytes::from(format!("!{}", draws.random::<u16>()))),
                _ => Some(Bytes::from(format!("{:x}", draws.random::<u16>()))),
            };
            (Bytes::from(format!("key/{key}")), value)
        });
        let writes: Vec<_> = writes.collect();
        // Without writes it is a revision of some other range.
        world.lock().commit(&writes);
    }
}

/// Looks at the cache whenever the informer says that something is new, and at other times.
fn observe(informer: &Informer<String>) -> JoinHandle<Vec<Seen>> {
    let (store, mut monitor) = (informer.store(), informer.monitor());
    tokio::spawn(async move {
        let mut looks = Vec::new();
        loop {
            looks.push(Seen::of(&store.snapshot()));
            if monitor.borrow_and_update().phase == Phase::Stopped || monitor.changed().await.is_err() {
                return looks;
            }
        }
    })
}

/// A handler of some pace, and what it was told. Also says how many states it was not told.
fn follow(informer: &Informer<String>, seed: u64) -> JoinHandle<(Vec<Told>, u64)> {
    let mut draws = StdRng::seed_from_u64(seed);
    let mut wanted = informer.subscription().queue(*[0, 1, 5, 1024].choose(&mut draws).expect("four"));
    if draws.random_bool(0.3) {
        wanted = wanted.resync(Duration::from_millis(draws.random_range(0..4_000)));
    }
    let slowness = *[0, 0, 30, 400].choose(&mut draws).expect("four");
    let mut subscription = wanted.start();
    tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(delta) = subscription.next().await {
            told.push(Told::of(&delta));
            if 0 < slowness {
                tokio::time::sleep(Duration::from_millis(draws.random_range(0..slowness))).await;
            }
        }
        (told, subscription.left_out())
    })
}

fn seeds() -> std::ops::Range<u64> {
    let from_environment = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match from_environment("MEERKAT_INFORMER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("MEERKAT_INFORMER_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn the_cache_equals_a_list_at_the_revision_it_claims_and_no_handler_misses_an_end() {
    let (mut looks, mut told, mut relists, mut unseen, mut left_out) = (0, 0, 0, 0, 0);
    for seed in seeds() {
        let life = live(seed, None);
        if let Err(error) = life.verdict() {
            panic!("{error}\nrepeat with MEERKAT_INFORMER_SEED={seed}");
        }
        looks += life.looks.len();
        relists += life.relists;
        left_out += life.left_out;
        for one in life.handlers.iter().flatten() {
            told += 1;
            unseen += usize::from(matches!(one, Told::Gone { unseen: true, .. }));
        }
    }
    println!(
        "{looks} looks, {told} told, {unseen} deletes unseen, {relists} relists, {left_out} states left out"
    );
    // A run in which nothing went wrong shows nothing.
    if seeds().count() as u64 == SEEDS {
        assert!(SEEDS < relists && SEEDS / 10 < unseen as u64 && SEEDS < left_out);
    }
}

#[test]
fn the_judge_finds_every_source_that_lies() {
    let lies = [Lie::LostRevision, Lie::TornRevision, Lie::ShortList, Lie::FalseMark, Lie::LoosePages];
    for lie in lies {
        let found = (0..60).filter(|seed| live(*seed, Some(lie)).verdict().is_err()).count();
        println!("{lie:?}: found in {found} of 60 lives");
        assert!(0 < found, "{lie:?} went unnoticed");
    }
}

/// What a broken informer would show: each of these, done to a good life, must be found.
#[test]
fn the_judge_finds_every_way_to_show_something_wrong() {
    for (name, harm) in harm::HARMS {
        let mut done = 0;
        for seed in 0..40 {
            let mut life = live(seed, None);
            assert_eq!(life.verdict(), Ok(()), "seed {seed}");
            if harm(&mut life) {
                done += 1;
                assert!(life.verdict().is_err(), "seed {seed}: {name}, and nobody noticed");
            }
        }
        assert!(0 < done, "{name}: could not be done to any life");
    }
}

#[test]
fn a_handler_that_never_reads_holds_up_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let world = Arc::new(Mutex::new(World::new()));
        world.lock().troubled = false;
        let informer = Informer::from_source(Source::new(&world, 1, None)).text().start();
        let stuck = informer.subscribe();
        let mut quick = informer.subscribe();
        for round in 0..5_000 {
            world.lock().commit(&[(Bytes::from_static(b"key"), Some(format!("{round}").into()))]);
        }
        let mut last = String::new();
        while last != "4999" {
            let delta = tokio::time::timeout(Duration::from_secs(60), quick.next()).await;
            if let Some(Delta::Updated { new, .. } | Delta::Added(new)) = delta.expect("in time") {
                last.clone_from(&new.value);
            }
        }
        assert!(stuck.backlog() <= 1_025, "{} changes are kept for it", stuck.backlog());
    });
}
