//! A member that slept through more than the log keeps catches up by snapshot, under load.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::scenario::snapshot::{Plan, run};

#[test]
fn a_member_behind_a_purged_log_catches_up_by_snapshot_under_load() {
    let (writes, budget) = if long_forms_wanted() { (200_000, 900) } else { (30_000, 120) };
    let plan = Plan { product: Product::Meerkat, writes, value_bytes: 256, rss_max_bytes: 512 << 20 };
    run_test("snapshot", Duration::from_secs(budget), async { run(&plan).await });
}
