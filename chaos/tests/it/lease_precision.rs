//! Keys on leases die neither before their time nor long after it, whoever is killed or stopped.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::lease_precision::{Plan, run};
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, faults: usize) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let pauses = product == Product::Meerkat;
    Plan { product, faults, pauses, keepers: 40, checkpoint: Duration::from_secs(1), seed }
}

#[test]
fn no_key_dies_before_its_time_nor_lives_much_longer_when_leaders_are_killed_and_stopped() {
    let (faults, budget) = if long_forms_wanted() { (100, 1_800) } else { (8, 200) };
    let report = run_test("lease precision", Duration::from_secs(budget), async {
        Box::pin(run(&plan(Product::Meerkat, faults))).await
    });
    if let Some(report) = report {
        assert!(0 < report.kills && 0 < report.pauses && 0 < report.revoked, "{report:?}");
        assert!(0 < report.margins.expired_after_change, "{report:?}");
    }
}

/// Killed only: of stopped leaders it is known that they revoke what others renewed (12528).
#[test]
fn etcd_keeps_the_same_bounds_so_the_harness_itself_is_sound() {
    let (name, first) = ("lease precision control", plan(Product::Etcd, 3));
    let report = run_test(name, Duration::from_secs(300), async {
        with_some_seed(name, first.seed, async |seed| Box::pin(run(&Plan { seed, ..first })).await).await
    });
    if let Some(report) = report {
        assert!(0 < report.margins.expired, "{report:?}");
    }
}
