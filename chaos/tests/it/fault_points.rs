//! A member stopped at each fault point in turn comes back, and nothing is lost.

use std::time::Duration;

use meerkat_chaos::scenario::fault_points::{POINTS, Strike, run};
use meerkat_chaos::scenario::run_test;

#[test]
fn a_member_killed_at_any_fault_point_recovers_and_nothing_is_lost() {
    run_test("fault points", Duration::from_secs(400), async { run(POINTS, Strike::Kill).await });
}

fn at_the_log(strike: Strike, name: &str) {
    let points: Vec<_> = POINTS
        .iter()
        .filter(|point| ["before_log_write", "before_log_sync"].contains(&point.name))
        .copied()
        .collect();
    assert_eq!(points.len(), 2);
    run_test(name, Duration::from_secs(90), async { run(&points, strike).await });
}

#[test]
fn a_member_whose_log_fails_with_an_io_error_stops_loudly_and_recovers() {
    at_the_log(Strike::Eio, "log EIO");
}

#[test]
fn a_member_whose_disk_is_full_stops_loudly_and_recovers() {
    at_the_log(Strike::Enospc, "log ENOSPC");
}
