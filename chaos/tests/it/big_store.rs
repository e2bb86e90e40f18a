//! A large store comes back in seconds, is compacted unfelt, and pages evenly.

use std::time::Duration;

use meerkat_chaos::scenario::big_store::{Plan, run};
use meerkat_chaos::scenario::run_test;

#[test]
fn a_large_store_is_back_in_seconds_and_compaction_and_paging_stay_cheap() {
    let (plan, budget) = Plan::for_suite();
    run_test("big store", budget.max(Duration::from_secs(60)), async { run(&plan).await });
}
