//! Watches of the client library lose, repeat and reorder nothing, whatever happens to members, and
//! go on in time.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::client_failover::{Library, Plan, run};
use meerkat_chaos::scenario::client_moves;
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, faults: usize) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Plan { product, library: Library::Meerkat, faults, lasting: None, seed }
}

#[test]
fn no_event_is_lost_repeated_or_reordered_and_watches_resume_in_time_whatever_fails() {
    let (faults, budget) = if long_forms_wanted() { (1_000, 7_200) } else { (50, 300) };
    let report = run_test("client failover", Duration::from_secs(budget), async {
        run(&plan(Product::Meerkat, faults)).await
    });
    if let Some(report) = report {
        assert_eq!(report.faults, faults);
        assert_eq!((report.tally.lost, report.tally.repeated, report.tally.reordered), (0, 0, 0));
        assert!(faults <= report.times.len() && 0 < report.resumes, "too few watches were met: {report}");
    }
}

#[test]
fn the_same_client_on_etcd_passes_the_same_run() {
    let (name, first) = ("client failover on etcd", plan(Product::Etcd, 18));
    let report = run_test(name, Duration::from_secs(300), async {
        with_some_seed(name, first.seed, async |seed| run(&Plan { seed, ..first.clone() }).await).await
    });
    if let Some(report) = report {
        assert_eq!(report.tally.lost, 0);
    }
}

#[test]
fn a_watch_on_a_member_cut_off_from_the_majority_moves_to_a_healthy_one() {
    let moved = run_test("client cut off", Duration::from_secs(90), async {
        client_moves::leave_a_member_that_is_cut_off(Product::Meerkat).await
    });
    if let Some(moved) = moved {
        assert_ne!(moved.from, moved.to);
    }
}

#[test]
fn a_hundred_clients_of_a_killed_member_do_not_all_land_on_one_other_at_once() {
    let clients = 100;
    let spread = run_test("client spread", Duration::from_secs(90), async {
        client_moves::spread(Product::Meerkat, clients).await
    });
    if let Some(spread) = spread {
        assert_eq!(spread.landed.iter().sum::<usize>(), clients);
        // Drawn by a fair coin, fewer than 25 of 100 come about once in five million runs.
        assert!(spread.landed[1..].iter().all(|landed| 25 <= *landed), "{:?}", spread.landed);
        let (first, last) = (spread.times.iter().min(), spread.times.iter().max());
        let over = last.zip(first).map(|(last, first)| *last - *first).unwrap_or_default();
        assert!(Duration::from_millis(20) <= over, "all at once: within {over:?}");
    }
}
