//! Meerkat and real etcd answer the same random requests in the same way, and so they do for those that
//! kube-apiserver sends.

mod kube;

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::differential::{Plan, run};
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::run_test;

const REQUESTS: usize = 6_000;
const BUDGET: Duration = Duration::from_secs(150);

/// A fixed seed, so that a red run is red again; another one through the environment.
fn seed() -> u64 {
    std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_240_517)
}

#[test]
fn meerkat_answers_every_kv_request_as_etcd_does() {
    run_test("differential", BUDGET, async {
        run(&Plan { seed: seed(), requests: REQUESTS, product: Product::Meerkat }).await
    });
}

#[test]
fn etcd_answers_as_etcd_does_so_the_comparison_itself_is_sound() {
    run_test("differential control", BUDGET, async {
        let plan = Plan { seed: seed() + 1, requests: 5_000, product: Product::Etcd };
        let report = run(&plan).await?;
        if report.allowed != 0 {
            return Err(Failure::harness("etcd differs from itself"));
        }
        Ok(())
    });
}
