//! Very many watchers over HTTP on one member, and one that reads nothing.

use meerkat_chaos::scenario::listwatch_many::{Plan, run};
use meerkat_chaos::scenario::run_test;

#[test]
fn each_of_ten_thousand_is_told_once_what_was_encoded_once() {
    let (plan, budget) = Plan::for_suite();
    run_test("listwatch many", budget, async { Box::pin(run(&plan)).await });
}
