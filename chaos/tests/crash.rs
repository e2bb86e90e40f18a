//! `kill -9` of random members under load loses nothing.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::crash::{Plan, run};
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, kills: usize) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Plan { product, kills, seed, flags: Vec::new() }
}

#[test]
fn no_acknowledged_write_is_lost_when_members_are_killed_at_random() {
    let (kills, budget) = if long_forms_wanted() { (500, 2_400) } else { (50, 240) };
    let report =
        run_test("crash", Duration::from_secs(budget), async { run(&plan(Product::Meerkat, kills)).await });
    if let Some(report) = report {
        println!("crash: {report:?}");
        assert!(kills <= report.kills && 0 < report.leaders_killed, "{report:?}");
    }
}

#[test]
fn the_same_run_passes_on_etcd_so_the_harness_itself_is_sound() {
    if let Some(report) =
        run_test("crash control", Duration::from_secs(90), async { run(&plan(Product::Etcd, 6)).await })
    {
        println!("crash control: {report:?}");
    }
}
