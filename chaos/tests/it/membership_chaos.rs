//! Members come and go, and are killed while they do: nothing is lost and nobody splits off.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::control::{SEEDS, with_some_seed};
use meerkat_chaos::scenario::membership::{Plan, run};
use meerkat_chaos::scenario::run_test;

/// A fixed seed, so that a red run is red again; another one through the environment.
fn seed() -> u64 {
    std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_250_302)
}

fn change(name: &str, product: Product, lasting: Duration) {
    let (changes, lasting) =
        if long_forms_wanted() { (200, Duration::from_secs(3_600)) } else { (200, lasting) };
    let plan = Plan { product, changes, lasting, seed: seed(), report: None };
    let budget = lasting + Duration::from_secs(240);
    let report = match product {
        Product::Meerkat => run_test(name, budget, async { Box::pin(run(&plan)).await }),
        Product::Etcd => run_test(name, budget + lasting * (SEEDS as u32 - 1), async {
            with_some_seed(name, plan.seed, async |seed| Box::pin(run(&Plan { seed, ..plan.clone() })).await)
                .await
        }),
    };
    let Some(report) = report else { return };
    let changes = report.story.record.faults.len();
    println!("{name}: {changes} changes; {:?}", report.tally);
    assert!(changes >= 2, "only {changes} changes in {lasting:?}");
    assert!(0 < report.tally.added && 0 < report.tally.removed, "nobody came or nobody went");
    assert!(0 < report.tally.killed, "nobody died while a change was on its way");
}

#[test]
fn members_come_and_go_and_die_meanwhile_and_nothing_is_lost() {
    change("membership chaos", Product::Meerkat, Duration::from_secs(50));
}

#[test]
fn so_it_is_with_etcd() {
    change("membership chaos control", Product::Etcd, Duration::from_secs(20));
}
