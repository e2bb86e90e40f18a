//! Meerkat and real etcd answer the same about leases, and let the same keys go with them.

use std::time::Duration;

use meerkat_chaos::differential::lease::{Plan, run};
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;

const STEPS: usize = 1_500;
/// Each kind of expiry once.
const EXPIRIES: usize = 4;
/// Many times what it takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(300);

fn compare(name: &str, product: Product, members: usize) {
    let seed = crate::seed(20_240_517) + members as u64;
    let plan = Plan { seed, steps: STEPS, expiries: EXPIRIES, members, product };
    run_test(name, BUDGET, async { Box::pin(run(&plan)).await });
}

#[test]
fn one_member_answers_every_lease_request_as_etcd_does() {
    compare("lease differential", Product::Meerkat, 1);
}

#[test]
fn three_members_answer_every_lease_request_as_etcd_does() {
    compare("lease differential, three members", Product::Meerkat, 3);
}

#[test]
fn etcd_answers_as_etcd_does_so_the_comparison_itself_is_sound() {
    compare("lease differential control", Product::Etcd, 1);
}

#[test]
fn three_etcds_answer_as_three_etcds_do_so_the_comparison_itself_is_sound() {
    compare("lease differential control, three members", Product::Etcd, 3);
}
