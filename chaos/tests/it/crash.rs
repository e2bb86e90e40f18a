//! `kill -9` of random members under load loses nothing.

use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Product;
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::crash::{Plan, run};
use meerkat_chaos::scenario::run_test;

fn plan(product: Product, kills: usize) -> Plan {
    let seed = std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    Plan { product, kills, seed, report: None, flags: Vec::new() }
}

#[test]
fn no_acknowledged_write_is_lost_when_members_are_killed_at_random() {
    let (kills, budget) = if long_forms_wanted() { (500, 2_400) } else { (50, 240) };
    let story =
        run_test("crash", Duration::from_secs(budget), async { run(&plan(Product::Meerkat, kills)).await });
    if let Some(story) = story {
        let killed: usize = story.faults("kill").map(|blow| blow.members.len()).sum();
        let leaders = story.faults("kill").filter(|blow| blow.what.contains("(leader)")).count();
        println!("crash: {killed} killed, {leaders} times the leader among them");
        assert!(kills <= killed && 0 < leaders, "{killed} killed, {leaders} leaders");
    }
}

#[test]
fn the_same_run_passes_on_etcd_so_the_harness_itself_is_sound() {
    let (name, first) = ("crash control", plan(Product::Etcd, 6));
    run_test(name, Duration::from_secs(240), async {
        with_some_seed(name, first.seed, async |seed| run(&Plan { seed, ..first.clone() }).await).await
    });
}
