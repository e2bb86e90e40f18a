//! Incidents of our peers that neither watches nor leases are needed for, one test each.
//!
//! Which incident is shown by which test, here and elsewhere, is in the README.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::record::Trace;
use meerkat_chaos::scenario::snapshot::short_log_flags;
use meerkat_chaos::scenario::{run_test, settle};
use meerkat_chaos::workload::fill;
use meerkat_chaos::workload::unique::{self, Shape};
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op,
};
use tonic::{Code, Status};

const READY_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const BUDGET: Duration = Duration::from_secs(300);

fn broken(status: Status) -> Failure {
    status.into()
}

/// 14370: a cluster of one acknowledged a write before it was on disk, and lost it in a crash.
#[test]
fn a_cluster_of_one_has_synced_what_it_acknowledged() {
    run_test("one member, killed", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_quick_elections();
        let mut cluster = Cluster::start(&spec).await?;
        let started_at =
            cluster.members()[0].endpoint().linearizable_probe(READY_WITHIN).await.map_err(broken)?;
        let shape = Shape { rest: Duration::ZERO, ..Shape::default() };
        let load = unique::start(&cluster.endpoints(), shape, 1, &Trace::new(Instant::now()));
        for round in 0..10 {
            load.wait_for_more(100 + 37 * round, READY_WITHIN).await?;
            cluster.member(0).kill()?;
            cluster.revive(READY_WITHIN).await?;
        }
        let history = load.finish().await?;
        println!("writes acknowledged, refused, unknown: {:?}", history.counts());
        settle::judge(&cluster, Product::Meerkat, &history, started_at).await?;
        cluster.finish()
    });
}

/// 18055: two snapshots that arrived in quick succession ended the member.
#[test]
fn snapshots_in_quick_succession_are_all_taken_in() {
    const SLEEPER: usize = 2;
    const SNAPSHOTS: usize = 4;
    /// The others look five times a second how much of their log can go.
    const PURGED_WITHIN: Duration = Duration::from_secs(1);
    run_test("snapshots in quick succession", BUDGET, async {
        let flags = short_log_flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let spec = ClusterSpec::new(Product::Meerkat, 3).with_quick_elections().with_flags(&flags);
        let mut cluster = Cluster::start(&spec).await?;
        let awake: Vec<_> = cluster.endpoints().into_iter().take(SLEEPER).collect();
        let (began, mut came) = (Instant::now(), 0);
        for round in 0_u64.. {
            // A member that has taken one in before it is killed needs no other while its log is kept for it.
            if came == SNAPSHOTS || Duration::from_secs(150) < began.elapsed() {
                break;
            }
            cluster.member(SLEEPER).kill()?;
            fill::write_singly(&awake, round * 6_000..(round + 1) * 6_000, 128, 64).await?;
            tokio::time::sleep(PURGED_WITHIN).await;
            cluster.member(SLEEPER).start()?;
            // No longer than until it is there: the next falls into what is left of it to do.
            came += usize::from(snapshot_comes(&mut cluster, SLEEPER, came + 1).await?);
        }
        if came < 2 {
            return Err(Failure::harness(format!("{came} snapshots are no succession")));
        }
        println!("{came} snapshots in {:?}", began.elapsed());
        cluster.wait_until_ready(READY_WITHIN).await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// Not if the others still have what the member lacks in their logs.
async fn snapshot_comes(cluster: &mut Cluster, index: usize, wanted: usize) -> Result<bool, Failure> {
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        let printed = cluster.members()[index].printed()?;
        if wanted <= printed.matches("\"installing a snapshot\"").count() {
            return Ok(true);
        }
        if !cluster.member(index).is_running()? {
            return Err(Failure::broken(format!("it ended: {}", cluster.members()[index].tail())));
        }
        if deadline < Instant::now() {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// 18667: a read of a compacted revision in a transaction refused it on some members and not on
/// others, so that they differed for ever.
#[test]
fn a_transaction_that_reads_what_is_compacted_is_refused_by_all_or_none() {
    run_test("compacted reads in transactions", BUDGET, async {
        let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 3)).await?;
        let endpoints = cluster.endpoints();
        let key = Bytes::from_static(b"k");
        let mut revision = 0;
        for _ in 0..20 {
            let put = PutRequest { key: key.clone(), ..Default::default() };
            let answer = endpoints[0].put(put, ANSWER_WITHIN).await.map_err(broken)?;
            revision = answer.header.map_or(0, |header| header.revision);
        }
        let compaction = CompactionRequest { revision, physical: true };
        endpoints[0].compact(compaction, ANSWER_WITHIN).await.map_err(broken)?;
        for round in 0..30 {
            let endpoint = &endpoints[round % endpoints.len()];
            let read = |revision| RangeRequest { key: key.clone(), revision, ..Default::default() };
            let write = PutRequest { key: key.clone(), ..Default::default() };
            let txn = |at| TxnRequest {
                success: vec![
                    RequestOp { request: Some(request_op::Request::RequestRange(read(at))) },
                    RequestOp { request: Some(request_op::Request::RequestPut(write.clone())) },
                ],
                ..Default::default()
            };
            match endpoint.txn(txn(revision - 1), ANSWER_WITHIN).await {
                Err(status) if status.code() == Code::OutOfRange => {}
                other => return Err(Failure::broken(format!("not refused: {other:?}"))),
            }
            endpoint.txn(txn(revision), ANSWER_WITHIN).await.map_err(broken)?;
        }
        let read = RangeRequest { key, ..Default::default() };
        let answer = endpoints[1].range(read, ANSWER_WITHIN).await.map_err(broken)?;
        let versions = answer.kvs().first().map_or(0, |kv| kv.version);
        if versions != 20 + 30 {
            return Err(Failure::broken(format!("{versions} writes took effect, not 50")));
        }
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// Jepsen NATS 2.12: a file cut short on one member became the truth of all.
#[test]
fn a_log_cut_short_on_one_member_costs_nothing() {
    run_test("a log cut short", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 3).with_quick_elections();
        let mut cluster = Cluster::start(&spec).await?;
        let started_at =
            cluster.members()[0].endpoint().linearizable_probe(READY_WITHIN).await.map_err(broken)?;
        let load = unique::start(&cluster.endpoints(), Shape::default(), 1, &Trace::new(Instant::now()));
        for round in 0..6_usize {
            load.wait_for_more(200, READY_WITHIN).await?;
            let victim = round % 3;
            cluster.member(victim).kill()?;
            // Begun after its death, so acknowledged by both others: from here on they have whatever was
            // acknowledged with its help. More than that no log can lose without a loss to all.
            load.wait_for_more(200, READY_WITHIN).await?;
            // Every second time all go down: then the shortened log takes part in the election.
            let others = (0..3).filter(|member| round % 2 == 1 && *member != victim);
            for member in others {
                cluster.member(member).kill()?;
            }
            let cut = cut_short(cluster.members()[victim].data_dir(), 7 + 311 * round)?;
            println!("  {} bytes cut from the log of m{victim}", cut);
            cluster.revive(READY_WITHIN).await?;
        }
        let history = load.finish().await?;
        println!("writes acknowledged, refused, unknown: {:?}", history.counts());
        settle::judge(&cluster, Product::Meerkat, &history, started_at).await?;
        cluster.finish()
    });
}

/// Cuts the newest segment of a log so many bytes before the end of what was written into it.
fn cut_short(data_dir: &Path, bytes: usize) -> Result<usize, Failure> {
    let path = newest_segment(&data_dir.join("member/wal"))?;
    let written = std::fs::read(&path)?;
    let end = written.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    // The head of the segment stays: without it the file would be another damage.
    let keep = end.saturating_sub(bytes).max(end.min(256));
    std::fs::write(&path, &written[..keep])?;
    Ok(end - keep)
}

fn newest_segment(dir: &Path) -> Result<PathBuf, Failure> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path);
        }
    }
    segments.sort();
    segments.pop().ok_or_else(|| Failure::harness(format!("no log segment in {}", dir.display())))
}
