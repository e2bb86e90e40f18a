//! Thousands of schedules drawn by chance. One that fails is made as short as it gets, and printed
//! with the line that repeats it.

use crate::schedule::{Action, Schedule};
use crate::world::Seen;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SCHEDULES: u64 = 12_000;

#[test]
fn no_event_is_lost_repeated_or_reordered_in_twelve_thousand_schedules() {
    let seeds = match std::env::var("MEERKAT_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("MEERKAT_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 1..SCHEDULES + 1,
    };
    let mut all = Vec::new();
    for seed in seeds {
        let schedule = Schedule::draw(seed);
        match catch_unwind(AssertUnwindSafe(|| schedule.run())) {
            Ok(seen) => all.push(seen),
            Err(_) => report(seed, schedule),
        }
    }
    if 1 < all.len() {
        expect_enough(&all);
    }
}

/// Schedules in which nothing happens would prove nothing.
fn expect_enough(all: &[Seen]) {
    let sum = |pick: fn(&Seen) -> usize| all.iter().map(pick).sum::<usize>();
    let least = |what: &str, number: usize, least: usize| {
        assert!(least <= number, "{what}: only {number} in {} schedules", all.len());
    };
    least("events told", sum(|seen| seen.told.events), 50_000);
    least("events left out on streams that coalesce", sum(|seen| seen.told.skipped), 5_000);
    least("marks of one watcher", sum(|seen| seen.told.marks), 1_000);
    least("marks of a stream", sum(|seen| seen.told.stream_marks), 1_000);
    least("watchers told of compaction", sum(|seen| seen.told.compacted), 1_000);
    least("watchers ended rather than late", sum(|seen| seen.told.fell_behind), 300);
    least("watchers that fell behind", sum(|seen| seen.counts.fell_behind as usize), 2_000);
    least("watchers that caught up", sum(|seen| seen.counts.caught_up as usize), 5_000);
    least("reads of history", sum(|seen| seen.counts.history_reads as usize), 10_000);
    least("queues given back", sum(|seen| seen.counts.set_back as usize), 500);
    least("streams cut", sum(|seen| seen.counts.cut as usize), 10);
}

fn report(seed: u64, schedule: Schedule) -> ! {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let short = shorten(schedule);
    std::panic::set_hook(hook);
    eprintln!("{:?}", short.config);
    short.actions.iter().for_each(|action| eprintln!("  {:?}", action.kind));
    eprintln!(
        "repeat with: MEERKAT_SEED={seed} cargo test --release -p meerkat-watch --test interleavings random"
    );
    short.run();
    panic!("seed {seed} failed once, and not again");
}

/// Leaves out runs of actions, long ones first, as long as what is left still fails.
fn shorten(mut schedule: Schedule) -> Schedule {
    let mut run = schedule.actions.len() / 2;
    while 0 < run {
        let mut first = 0;
        while first < schedule.actions.len() {
            let end = (first + run).min(schedule.actions.len());
            let rest: Vec<Action> = [&schedule.actions[..first], &schedule.actions[end..]].concat();
            let shorter = schedule.with(rest);
            if catch_unwind(AssertUnwindSafe(|| shorter.run())).is_err() {
                schedule = shorter;
            } else {
                first = end;
            }
        }
        run /= 2;
    }
    schedule
}
