//! Very many watchers on one member: created, kept and served.

use std::time::Duration;

use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::scenario::watch_many::{Plan, run};

#[test]
fn each_of_very_many_watchers_is_given_its_events_once() {
    let (plan, budget) = Plan::for_suite(Product::Meerkat);
    run_test("watch many", budget, async { run(&plan).await });
}

#[test]
fn etcd_serves_many_watchers_too_so_the_harness_itself_is_sound() {
    let (plan, budget) = Plan::for_suite(Product::Etcd);
    let plan = Plan { watchers_per_stream: 50, event_p99_max: Duration::from_secs(10), ..plan };
    run_test("watch many control", budget, async { run(&plan).await });
}
