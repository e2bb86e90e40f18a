//! Users, roles and permissions: as etcd has them, as the contract has them, and after a snapshot.

mod cases;
mod client;
mod door;
mod every_call;
mod incidents;
mod table;
mod tokens;

use std::time::Duration;

use meerkat_chaos::differential::auth::{Plan, run};
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;

const STEPS: usize = 500;
/// Many times what it takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(240);

fn compare(name: &str, product: Product, members: usize) {
    let plan = Plan { seed: crate::seed(20_261_117) + members as u64, steps: STEPS, members, product };
    run_test(name, BUDGET, async { Box::pin(run(&plan)).await });
}

#[test]
fn one_member_judges_every_request_as_etcd_does() {
    compare("auth differential", Product::Meerkat, 1);
}

#[test]
fn three_members_that_take_turns_judge_every_request_as_etcd_does() {
    compare("auth differential, three members", Product::Meerkat, 3);
}

#[test]
fn etcd_judges_as_etcd_does_so_the_comparison_itself_is_sound() {
    compare("auth differential control", Product::Etcd, 1);
}
