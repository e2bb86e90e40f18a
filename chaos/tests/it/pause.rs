//! A leader stopped with SIGSTOP is replaced, and never answers from the past once it wakes.

use std::time::Duration;

use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::pause::{Plan, run};
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, pause: Duration) -> Plan {
    Plan { product, pause, rounds: 1, serve_within: Duration::from_secs(2) }
}

#[test]
fn a_paused_leader_is_replaced_within_two_seconds_and_never_serves_a_stale_read() {
    // A paused member that answered no read at all proves nothing, and fails the run.
    run_test("pause", Duration::from_secs(60), async {
        run(&plan(Product::Meerkat, Duration::from_secs(10))).await
    });
}

#[test]
fn etcd_passes_the_same_pause_so_the_harness_itself_is_sound() {
    run_test("pause control", Duration::from_secs(60), async {
        let plan =
            Plan { serve_within: Duration::from_secs(4), ..plan(Product::Etcd, Duration::from_secs(5)) };
        run(&plan).await
    });
}
