//! Watchers of Meerkat and of real etcd hear the same.

use std::time::Duration;

use meerkat_chaos::differential::watch::{Plan, fragment, late, run};
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;

const STEPS: usize = 1_000;
/// Many times what it takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(240);

fn compare(name: &str, product: Product, members: usize) {
    let plan = Plan { seed: crate::seed(20_240_517) + members as u64, steps: STEPS, members, product };
    run_test(name, BUDGET, async { Box::pin(run(&plan)).await });
}

#[test]
fn watchers_of_one_member_hear_what_they_would_hear_from_etcd() {
    compare("watch differential", Product::Meerkat, 1);
}

#[test]
fn watchers_of_three_members_hear_what_they_would_hear_from_etcd() {
    compare("watch differential, three members", Product::Meerkat, 3);
}

#[test]
fn etcd_says_what_etcd_says_so_the_comparison_itself_is_sound() {
    compare("watch differential control", Product::Etcd, 1);
}

#[test]
fn three_etcds_say_what_three_etcds_say_so_the_comparison_itself_is_sound() {
    compare("watch differential control, three members", Product::Etcd, 3);
}

#[test]
fn a_large_revision_is_cut_only_for_watchers_that_asked_for_it() {
    run_test("watch fragments", BUDGET, async { fragment::run(Product::Meerkat).await });
}

#[test]
fn etcd_cuts_a_large_revision_so_the_comparison_of_pieces_is_sound() {
    run_test("watch fragments control", BUDGET, async { fragment::run(Product::Etcd).await });
}

#[test]
fn late_watchers_of_a_long_history_are_given_what_etcd_gives_them() {
    run_test("watch late", BUDGET, async { late::run(Product::Meerkat).await });
}

#[test]
fn etcd_gives_late_watchers_what_etcd_gives_them_so_that_comparison_is_sound() {
    run_test("watch late control", BUDGET, async { late::run(Product::Etcd).await });
}
