//! Clients that read nothing are felt by nobody, and are given all when they wake.

use std::time::Duration;

use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::scenario::watch_stalled::{Plan, run};

#[test]
fn a_thousand_stalled_clients_cost_bounded_memory_and_lose_nothing() {
    let (plan, budget) = Plan::for_suite(Product::Meerkat);
    run_test("watch stalled", budget, async { Box::pin(run(&plan)).await });
}

#[test]
fn etcd_serves_stalled_clients_too_so_the_harness_itself_is_sound() {
    let (plan, budget) = Plan::for_suite(Product::Etcd);
    // No bound on what etcd may hold, nor on how slow it becomes: only what its clients are given.
    let plan = Plan {
        stalled: 50,
        pairs: 1,
        window: Duration::from_secs(2),
        memory_bytes: 1 << 40,
        p99_floor: Duration::from_secs(60),
        ..plan
    };
    run_test("watch stalled control", budget, async { Box::pin(run(&plan)).await });
}
