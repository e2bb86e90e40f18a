//! Watchers of members that are killed and paused at random are sent exactly what happened.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::scenario::watch_crash::{Plan, run};

fn plan(product: Product, seconds: u64) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Plan { product, lasting: Duration::from_secs(seconds), seed, strikes: true }
}

#[test]
fn every_watcher_is_sent_exactly_what_happened_when_members_are_killed_at_random() {
    let (seconds, budget) = if long_forms_wanted() { (120, 600) } else { (15, 120) };
    let report = run_test("watch crash", Duration::from_secs(budget), async {
        run(&plan(Product::Meerkat, seconds)).await
    });
    if let Some(report) = report {
        assert!(0 < report.kills && 0 < report.compactions, "{report:?}");
        assert!(report.watchers < report.connections && 0 < report.marks, "{report:?}");
    }
}

#[test]
fn etcd_passes_the_same_run_so_the_harness_itself_is_sound() {
    let (name, first) = ("watch crash control", plan(Product::Etcd, 10));
    let report = run_test(name, Duration::from_secs(180), async {
        with_some_seed(name, first.seed, async |seed| run(&Plan { seed, ..first }).await).await
    });
    if let Some(report) = report {
        assert!(0 < report.events, "{report:?}");
    }
}
