//! What labels cost among very many objects and watchers.

use meerkat_chaos::scenario::listwatch_index::{Plan, run};
use meerkat_chaos::scenario::run_test;

#[test]
fn a_label_is_found_quickly_and_concerns_nobody_else() {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (plan, budget) = Plan::for_suite(seed);
    run_test("listwatch index", budget, async { Box::pin(run(&plan)).await });
}
