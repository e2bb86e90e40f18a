//! Clients and watchers come and go: nothing is left of them, and no member grows. The long form
//! is the scenario `soak` of `meerkat-chaos run`.

use std::time::{Duration, Instant};

use meerkat_chaos::Failure;
use meerkat_chaos::checker::flat::{self, Bound, Demand};
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::{Contact, Roster};
use meerkat_chaos::record::{Trace, Verdict};
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::workload::Setting;
use meerkat_chaos::workload::churn;

const LASTING: Duration = Duration::from_secs(60);

/// In a minute memory finds its level at best: half as much again, and caches that fill.
const SHORT: Demand = Demand {
    warm_up: Duration::from_secs(15),
    at_least: Duration::from_secs(30),
    memory: Bound { share: 0.50, constant: 64.0 * 1024.0 * 1024.0 },
    files: Bound { share: 0.10, constant: 16.0 },
};

#[test]
fn nothing_is_left_of_clients_and_watchers_that_went() {
    let Some((verdicts, flat)) = run_test("churn", Duration::from_secs(240), run()) else { return };
    for verdict in &verdicts {
        assert!(verdict.findings.is_empty(), "{}: {:?}", verdict.promise, verdict.findings);
    }
    // Memory is judged below, by what a minute can show; the other two must have been judged.
    assert!(verdicts.iter().filter(|verdict| 500 < verdict.judged).count() >= 2, "{verdicts:?}");
    assert!(0 < flat.judged && flat.findings.is_empty(), "{:?}", flat.findings);
    println!("{}", flat.levels.join("\n"));
}

async fn run() -> Result<(Vec<Verdict>, flat::Judgement), Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 3)).await?;
    let began = Instant::now();
    let roster = Roster::default();
    let contacts = cluster.endpoints().into_iter().enumerate();
    roster.set(contacts.map(|(member, endpoint)| Contact { member, endpoint }).collect());
    let trace = Trace::new(began);
    let setting = Setting {
        product: Product::Meerkat,
        roster,
        seed: 3,
        prefix: "churn/".to_owned(),
        began,
        trace: trace.clone(),
    };
    let visitors = churn::start(setting);
    while began.elapsed() < LASTING {
        for (number, member) in cluster.members().iter().enumerate() {
            let usage = member.usage()?;
            trace.held(number, usage.rss_bytes, usage.open_files, usage.pid);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let verdicts = visitors.finish().await?;
    cluster.finish()?;
    Ok((verdicts, flat::check(&trace.record().held, &SHORT)))
}
