//! Leaders killed in turn on Meerkat and on etcd: writes are possible again no later here.

use std::time::Duration;

use meerkat_chaos::binary;
use meerkat_chaos::scenario::{failover_time, run_test};

#[test]
fn after_a_leader_dies_writes_are_possible_as_soon_as_on_etcd() {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    let plan = match binary::long_forms_wanted() {
        true => failover_time::Plan::full(seed),
        false => failover_time::Plan::short(seed),
    };
    let budget = Duration::from_secs(60 + 20 * plan.kills as u64);
    if let Some(report) = run_test("failover-time", budget, failover_time::run(&plan)) {
        assert_eq!((report.meerkat.len(), report.etcd.len()), (plan.kills, plan.kills));
    }
}
