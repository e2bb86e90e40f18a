//! Jumps of the wall clock do not matter.

use std::time::Duration;

use meerkat_chaos::scenario::{clocks, run_test};

#[test]
fn nothing_comes_of_wall_clocks_that_jump_by_seconds_and_by_years() {
    let seed = crate::seed(1);
    if let Some(report) = run_test("clock jumps", Duration::from_secs(60), clocks::run(2, seed)) {
        println!("clock jumps: {report:?}");
        assert!(100 < report.jumps && report.ended == 2, "{report:?}");
    }
}
