//! A member whose disk changed a byte is found, and a check that could not be made does not count.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::request_op::Request as Op;
use meerkat_proto::pb::etcdserver::{
    AlarmType, CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, RangeRequest, RequestOp, TxnRequest,
};

use super::{BUDGET, WITHIN, alarms, broken, calm, check, http_get, put, until};

const FOUND_WITHIN: Duration = Duration::from_secs(30);
const KEYS: usize = 60;
/// Above what is kept beside its key, so that values have files of their own.
const VALUE_BYTES: usize = 4_000;

fn files_under(dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { files_under(&path, found)? } else { found.push(path) }
    }
    Ok(())
}

/// Changes one bit in the middle of the largest file of values.
fn flip_a_bit(data_dir: &Path) -> Result<PathBuf, Failure> {
    let mut files = Vec::new();
    files_under(data_dir, &mut files)?;
    let blobs = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "blob"));
    let largest = blobs.max_by_key(|path| fs::metadata(path).map_or(0, |found| found.len()));
    let path = largest.ok_or_else(|| Failure::harness("no file of values"))?;
    let mut bytes = fs::read(&path)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes)?;
    Ok(path)
}

async fn member_id(endpoint: &Endpoint) -> Result<u64, Failure> {
    Ok(endpoint.status(WITHIN).await.map_err(broken)?.header.unwrap_or_default().member_id)
}

/// All that changes is refused by this member, by whomever it was noticed.
async fn refuses_changes(endpoint: &Endpoint) -> Result<(), Failure> {
    endpoint.linearizable_probe(WITHIN).await.map_err(broken)?;
    let delete = DeleteRangeRequest { key: "k1".into(), ..DeleteRangeRequest::default() };
    let deletes = RequestOp { request: Some(Op::RequestDeleteRange(delete.clone())) };
    let txn = TxnRequest { success: vec![deletes], ..TxnRequest::default() };
    let newest = RangeRequest { key: "k1".into(), ..RangeRequest::default() };
    let newest = endpoint.range(newest, WITHIN).await.map_err(broken)?.header.unwrap_or_default().revision;
    for (what, answer) in [
        ("a put", put(endpoint, "k", 1).await.map(drop)),
        ("a delete", endpoint.delete(delete, WITHIN).await.map(drop)),
        ("a transaction", endpoint.txn(txn, WITHIN).await.map(drop)),
        ("a lease", endpoint.lease_grant(LeaseGrantRequest { ttl: 60, id: 1 }, WITHIN).await.map(drop)),
        ("a compaction", {
            endpoint.compact(CompactionRequest { revision: newest, physical: false }, WITHIN).await.map(drop)
        }),
    ] {
        let corrupt =
            |status: tonic::Status| (status.code(), status.message() == EtcdError::Corrupt.message());
        check(answer.map_err(corrupt) == Err((tonic::Code::DataLoss, true)), format!("{what} is taken"))?;
    }
    Ok(())
}

async fn fill(endpoint: &Endpoint) -> Result<(), Failure> {
    for n in 0..KEYS {
        put(endpoint, &format!("k{n}"), VALUE_BYTES).await.map_err(broken)?;
    }
    Ok(())
}

#[test]
fn a_byte_that_a_disk_changed_is_found_within_seconds_and_changes_stop() {
    run_test("a changed byte", BUDGET, async {
        let spec = calm(Product::Meerkat, 3).with_flags(&["--experimental-corrupt-check-time=500ms"]);
        let mut cluster = Cluster::start(&spec).await?;
        let leader = cluster.leader(WITHIN).await?;
        let endpoint = cluster.members()[leader].endpoint().clone();
        fill(&endpoint).await?;
        let victim = (leader + 1) % 3;
        let id = member_id(cluster.members()[victim].endpoint()).await?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        check(alarms(&endpoint).await?.is_empty(), "equal members are accused")?;
        // A stop in order, so that all is in its files.
        cluster.member(victim).stop(WITHIN)?;
        flip_a_bit(cluster.members()[victim].data_dir())?;
        cluster.member(victim).start()?;
        let took = until("the member is accused", FOUND_WITHIN, async || {
            let alarms = alarms(&endpoint).await?;
            Ok(alarms.iter().any(|on| on.member_id == id && on.alarm == i32::from(AlarmType::Corrupt)))
        })
        .await?;
        println!("found in {took:?} after the start");
        check(alarms(&endpoint).await?.len() == 1, "others are accused too")?;
        for member in cluster.members() {
            refuses_changes(member.endpoint()).await?;
        }
        let read = RangeRequest { key: "k1".into(), ..RangeRequest::default() };
        check(endpoint.range(read, WITHIN).await.map_err(broken)?.count == 1, "a read is not answered")?;
        let ready = http_get(cluster.members()[leader].client_port(), "/readyz")?;
        check(ready.contains("503") && ready.contains("[-]data_corruption failed"), ready)?;
        cluster.finish()
    });
}

#[test]
fn a_member_that_compares_itself_when_it_starts_finds_its_own_damage() {
    run_test("the initial check", BUDGET, async {
        let spec = calm(Product::Meerkat, 3);
        let mut cluster = Cluster::start(&spec).await?;
        let leader = cluster.leader(WITHIN).await?;
        let endpoint = cluster.members()[leader].endpoint().clone();
        fill(&endpoint).await?;
        let victim = (leader + 1) % 3;
        cluster.member(victim).stop(WITHIN)?;
        flip_a_bit(cluster.members()[victim].data_dir())?;
        cluster.member(victim).start_altered(&[], &["--experimental-initial-corrupt-check".to_owned()])?;
        until("the alarm is on", FOUND_WITHIN, async || Ok(!alarms(&endpoint).await?.is_empty())).await?;
        for member in cluster.members() {
            refuses_changes(member.endpoint()).await?;
        }
        cluster.finish()
    });
}

#[test]
fn a_comparison_after_a_compaction_finds_damage_and_the_whole_cluster_refuses_changes() {
    run_test("the check after a compaction", BUDGET, async {
        let spec = calm(Product::Meerkat, 3).with_flags(&[
            "--experimental-compact-hash-check-enabled=true",
            "--experimental-compact-hash-check-time=500ms",
        ]);
        let mut cluster = Cluster::start(&spec).await?;
        let leader = cluster.leader(WITHIN).await?;
        let endpoint = cluster.members()[leader].endpoint().clone();
        fill(&endpoint).await?;
        let victim = (leader + 1) % 3;
        let id = member_id(cluster.members()[victim].endpoint()).await?;
        cluster.member(victim).stop(WITHIN)?;
        flip_a_bit(cluster.members()[victim].data_dir())?;
        cluster.member(victim).start()?;
        let damaged = cluster.members()[victim].endpoint().clone();
        until("the member is back", FOUND_WITHIN, async || {
            Ok(damaged.linearizable_probe(WITHIN).await.is_ok())
        })
        .await?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        check(alarms(&endpoint).await?.is_empty(), "it is compared although nothing was compacted")?;
        let read = RangeRequest { key: "k1".into(), ..RangeRequest::default() };
        let newest = endpoint.range(read.clone(), WITHIN).await.map_err(broken)?.header.unwrap_or_default();
        // Below all that is kept, so that what is damaged stays.
        let compact = CompactionRequest { revision: newest.revision - KEYS as i64, physical: true };
        endpoint.compact(compact, WITHIN).await.map_err(broken)?;
        until("the member is accused", FOUND_WITHIN, async || {
            let alarms = alarms(&endpoint).await?;
            Ok(alarms.iter().any(|on| on.member_id == id && on.alarm == i32::from(AlarmType::Corrupt)))
        })
        .await?;
        check(alarms(&endpoint).await?.len() == 1, "others are accused too")?;
        for member in cluster.members() {
            refuses_changes(member.endpoint()).await?;
            let read = member.endpoint().range(read.clone(), WITHIN).await;
            check(
                read.is_ok() || member.client_port() == cluster.members()[victim].client_port(),
                "no reads",
            )?;
            let health = http_get(member.client_port(), "/health")?;
            check(health.contains("503") && health.contains("ALARM CORRUPT"), health)?;
        }
        cluster.finish()
    });
}

#[test]
fn etcd_13766_a_check_whose_call_failed_is_counted_as_failed_and_not_as_passed() {
    run_test("a check that failed", BUDGET, async {
        let mut cluster = Cluster::start(&calm(Product::Meerkat, 3)).await?;
        let leader = cluster.leader(WITHIN).await?;
        let port = cluster.members()[leader].client_port();
        let count = |result: &str| -> Result<u64, Failure> {
            let name = format!("meerkat_corruption_checks_total{{result=\"{result}\"}} ");
            let metrics = http_get(port, "/metrics")?;
            let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
            line.and_then(|number| number.trim().parse().ok())
                .ok_or_else(|| Failure::broken(format!("there is no metric {name}")))
        };
        until("a check passes", FOUND_WITHIN, async || Ok(0 < count("passed")?)).await?;
        cluster.member((leader + 1) % 3).kill()?;
        let failed = count("failed")?;
        until("a check fails", FOUND_WITHIN, async || Ok(failed < count("failed")?)).await?;
        let passed = count("passed")?;
        let failed = count("failed")?;
        until("another fails", FOUND_WITHIN, async || Ok(failed < count("failed")?)).await?;
        check(count("passed")? == passed, "a check passed without one of the members")?;
        check(count("found")? == 0, "a member that is away is accused")?;
        cluster.finish()
    });
}
