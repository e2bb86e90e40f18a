//! Meerkat and real etcd answer the same random requests in the same way, and so they do for those that
//! kube-apiserver sends.

mod kube;

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::differential::{Plan, run};
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;

const SEED: u64 = 20_240_517;
const REQUESTS: usize = 6_000;
const BUDGET: Duration = Duration::from_secs(150);

#[test]
fn meerkat_answers_every_kv_request_as_etcd_does() {
    run_test("differential", BUDGET, async {
        Box::pin(run(&Plan { seed: crate::seed(SEED), requests: REQUESTS, product: Product::Meerkat })).await
    });
}

#[test]
fn etcd_answers_as_etcd_does_so_the_comparison_itself_is_sound() {
    run_test("differential control", BUDGET, async {
        let plan = Plan { seed: crate::seed(SEED) + 1, requests: 5_000, product: Product::Etcd };
        if Box::pin(run(&plan)).await?.allowed() != 0 {
            return Err(Failure::harness("etcd differs from itself"));
        }
        Ok(())
    });
}
