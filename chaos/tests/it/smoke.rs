//! Three minutes of every fault that this machine can make, under all workloads at once.

use std::path::PathBuf;
use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::run::command::{Request, run};
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::run_test;

/// The scenario's own length, unless a shorter control is enough.
fn request(target: Product, minutes: u64, report: &str) -> Request {
    let seed = crate::seed(1);
    Request {
        scenario: "smoke".to_owned(),
        length: Some(Duration::from_secs(60 * minutes)),
        seed,
        target,
        driver: "local".to_owned(),
        report: Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(report)),
    }
}

#[test]
fn every_promise_holds_under_every_fault() {
    let minutes = if long_forms_wanted() { 15 } else { 3 };
    let story = run_test("smoke", Duration::from_secs(60 * minutes + 240), async {
        run(&request(Product::Meerkat, minutes, "smoke.html")).await
    });
    if let Some(story) = story {
        assert!(10 < story.record.faults.len(), "{:?}", story.record.faults);
        let idle: Vec<_> = story.verdicts.iter().filter(|verdict| verdict.judged == 0).collect();
        assert!(idle.is_empty(), "nothing was judged: {idle:?}");
        assert!(1 < story.record.leaders.len(), "{:?}", story.record.leaders);
    }
}

#[test]
fn etcd_passes_the_same_run_so_the_harness_itself_is_sound() {
    let (name, first) = ("smoke control", request(Product::Etcd, 1, "smoke-etcd.html"));
    let story = run_test(name, Duration::from_secs(600), async {
        with_some_seed(name, first.seed, async |seed| run(&Request { seed, ..first.clone() }).await).await
    });
    if let Some(story) = story {
        assert!(3 < story.record.faults.len(), "{:?}", story.record.faults);
    }
}
