//! Every workload of composed runs on a healthy cluster and through the loss of a leader: all go on,
//! all judge something, none finds anything. But for `churn`, which takes minutes to judge anything
//! and has a test of its own; and but for `lease` on etcd, which is known to end living leases.

use std::time::{Duration, Instant};

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::{Contact, Roster};
use meerkat_chaos::record::Trace;
use meerkat_chaos::record::trace::Ended;
use meerkat_chaos::scenario::control::with_some_seed;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::workload::Setting;
use meerkat_chaos::workload::catalogue;

const SEED: u64 = 40;

#[test]
fn every_workload_goes_on_through_the_loss_of_a_leader_and_finds_nothing() {
    run_test("workloads", Duration::from_secs(120), run(Product::Meerkat, SEED));
}

#[test]
fn the_same_holds_on_etcd_so_the_harness_itself_is_sound() {
    let name = "workloads control";
    run_test(name, Duration::from_secs(240), async {
        with_some_seed(name, SEED, async |seed| run(Product::Etcd, seed).await).await
    });
}

async fn run(product: Product, seed: u64) -> Result<(), Failure> {
    let seconds = std::env::var("MEERKAT_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let only = std::env::var("MEERKAT_ONLY").ok();
    let spec = ClusterSpec::new(product, 3).with_quick_elections();
    let mut cluster = Cluster::start(&spec).await?;
    let roster = Roster::default();
    let contacts = cluster.endpoints().into_iter().enumerate();
    roster.set(contacts.map(|(member, endpoint)| Contact { member, endpoint }).collect());
    let began = Instant::now();
    let trace = Trace::new(began);
    let mut workloads = Vec::new();
    for (number, name) in catalogue::ALL.iter().enumerate() {
        if *name == "churn" || (*name == "lease" && product == Product::Etcd) {
            continue;
        }
        if only.as_ref().is_some_and(|only| !only.split(',').any(|one| one == *name)) {
            continue;
        }
        let setting = Setting {
            product,
            roster: roster.clone(),
            seed: seed + number as u64,
            prefix: format!("{name}/"),
            began,
            trace: trace.clone(),
        };
        workloads.push(catalogue::by_name(name, setting).expect("a name of its own list")?);
    }
    tokio::time::sleep(Duration::from_secs(seconds) / 2).await;
    let leader = cluster.leader(Duration::from_secs(10)).await?;
    cluster.member(leader).kill()?;
    tokio::time::sleep(Duration::from_secs(seconds) / 4).await;
    cluster.revive(Duration::from_secs(20)).await?;
    tokio::time::sleep(Duration::from_secs(seconds) / 4).await;
    let finished = futures::future::join_all(workloads.into_iter().map(|workload| workload.finish())).await;
    let mut findings = Vec::new();
    // What one workload found is told, however another ended.
    let mut ended: Option<Failure> = None;
    for verdicts in finished {
        let verdicts = verdicts.unwrap_or_else(|failure| {
            ended = Some(match ended.take() {
                Some(earlier) => earlier.and(failure),
                None => failure,
            });
            Vec::new()
        });
        for verdict in verdicts {
            println!("{:10} {:6} judged: {}", verdict.workload, verdict.judged, verdict.promise);
            if verdict.judged == 0 {
                findings.push(format!("{}: nothing was judged", verdict.promise));
            }
            findings.extend(verdict.findings.iter().map(|what| format!("{}: {what}", verdict.promise)));
        }
    }
    let ops = trace.record().ops;
    let answered = ops.iter().filter(|op| op.ended == Ended::Ok).count();
    println!("{} operations, {answered} answered, in {:?}", ops.len(), began.elapsed());
    match (Failure::from_findings("every promise holds", findings), ended) {
        (Ok(()), None) => cluster.finish(),
        (Err(failure), None) | (Ok(()), Some(failure)) => Err(failure),
        (Err(found), Some(ended)) => Err(found.and(ended)),
    }
}
