//! Informers outlive the members that serve them.

use meerkat_chaos::scenario::listwatch_failover::{Plan, run};
use meerkat_chaos::scenario::{listwatch_trouble, run_test};

#[test]
fn informers_resume_elsewhere_without_loss_and_without_a_list() {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (plan, budget) = Plan::for_suite(seed);
    run_test("listwatch failover", budget, async { Box::pin(run(&plan)).await });
}

#[test]
fn who_watches_a_member_that_is_cut_off_is_sent_elsewhere_until_it_is_back() {
    run_test("listwatch cut off", listwatch_trouble::BUDGET, Box::pin(listwatch_trouble::cut_off()));
}

#[test]
fn a_store_that_was_replaced_is_noticed_by_the_tier_in_front_of_it() {
    run_test("listwatch replaced", listwatch_trouble::BUDGET, Box::pin(listwatch_trouble::replaced()));
}
