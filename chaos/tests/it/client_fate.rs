//! What the client library says became of a write is what the store says.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::failover::fate::Told;
use meerkat_chaos::scenario::client_fate::{Plan, Report, run};
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, faults: usize) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Plan { product, faults, seed }
}

/// The run itself holds every call against the store; this says that there was something to hold.
fn assert_put_to_the_test(report: &Report) {
    assert!(0 < report.told(Told::Done).calls, "{report}");
    assert_eq!(report.told(Told::Done).calls, report.told(Told::Done).happened, "{report}");
    for never in [Told::Refused, Told::NotDone, Told::GuardBroken] {
        assert_eq!(report.told(never).happened, 0, "{never:?}: {report}");
    }
    assert!(0 < report.told(Told::Refused).calls && 0 < report.told(Told::GuardBroken).calls, "{report}");
    assert!(0 < report.told(Told::Unknown).out_of_time, "no call was ever in doubt: {report}");
}

#[test]
fn a_write_cut_short_by_a_failing_leader_is_unknown_and_never_falsely_failed() {
    let (faults, budget) = if long_forms_wanted() { (300, 2_400) } else { (24, 200) };
    let report = run_test("client fate", Duration::from_secs(budget), async {
        run(&plan(Product::Meerkat, faults)).await
    });
    if let Some(report) = report {
        assert_put_to_the_test(&report);
    }
}

#[test]
fn the_same_holds_on_etcd() {
    let (name, first) = ("client fate on etcd", plan(Product::Etcd, 12));
    let report = run_test(name, Duration::from_secs(300), async {
        with_some_seed(name, first.seed, async |seed| run(&Plan { seed, ..first }).await).await
    });
    if let Some(report) = report {
        assert_put_to_the_test(&report);
    }
}
