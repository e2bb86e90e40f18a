//! Space: the quota, its alarm, and how both end; history by schedule; files rewritten beside traffic.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::lease::witness::Stalls;
use meerkat_chaos::record::lease::Span;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::{Failure, binary};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::alarm_request::AlarmAction;
use meerkat_proto::pb::etcdserver::{AlarmType, CompactionRequest, DeleteRangeRequest, RangeRequest};

use super::{BUDGET, WITHIN, alarm_request, alarms, broken, calm, check, http_get, put, until};

const VALUE_BYTES: usize = 100_000;
/// What an unaided recovery may take, once the old data is compacted.
const RECOVERS_WITHIN: Duration = Duration::from_secs(20);
/// History is kept for five seconds, and looked through now and then.
const COMPACTED_WITHIN: Duration = Duration::from_secs(40);
/// How long puts are measured before files are rewritten beside them.
const UNDISTURBED: Duration = Duration::from_secs(5);
/// By how much a put may take longer beside that than any did before.
const DISTURBED_MAX: Duration = Duration::from_secs(3);

/// Puts until there is no more room; how many fitted.
async fn fill(endpoint: &Endpoint) -> Result<usize, Failure> {
    for n in 0..500 {
        match put(endpoint, &format!("fill/{n:04}"), VALUE_BYTES).await {
            Ok(_) => {}
            Err(status) if status.message() == EtcdError::NoSpace.message() => return Ok(n),
            Err(status) => return Err(broken(status)),
        }
    }
    Err(Failure::broken("the quota has no effect"))
}

async fn delete_all_and_compact(endpoint: &Endpoint) -> Result<(), Failure> {
    let all = DeleteRangeRequest { key: "fill/".into(), range_end: "fill0".into(), prev_kv: false };
    endpoint.delete(all, WITHIN).await.map_err(broken)?;
    // At the deletion itself, as an operator would: nothing else can be written to a full cluster.
    let revision =
        endpoint.range(one("x"), WITHIN).await.map_err(broken)?.header.unwrap_or_default().revision;
    endpoint.compact(CompactionRequest { revision, physical: false }, WITHIN).await.map_err(broken)?;
    Ok(())
}

fn one(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() }
}

#[test]
fn etcd_16779_15001_a_full_cluster_takes_writes_again_after_delete_and_compaction_unaided() {
    run_test("a full cluster recovers", BUDGET, async {
        let spec = calm(Product::Meerkat, 3).with_flags(&["--quota-backend-bytes=3000000"]);
        let cluster = Cluster::start(&spec).await?;
        let first = cluster.members()[0].endpoint();
        let fitted = fill(first).await?;
        check((20..30).contains(&fitted), format!("{fitted} values of {VALUE_BYTES} bytes fit into 3 MB"))?;
        for (index, member) in cluster.members().iter().enumerate() {
            let endpoint = member.endpoint();
            check(!alarms(endpoint).await?.is_empty(), format!("member {index} knows no alarm"))?;
            let refused = put(endpoint, "small", 1).await.err();
            let no_space = refused.is_some_and(|status| status.message() == EtcdError::NoSpace.message());
            check(no_space, format!("member {index} takes a put without space"))?;
            endpoint.range(one("fill/0000"), WITHIN).await.map_err(broken)?;
            let errors = endpoint.status(WITHIN).await.map_err(broken)?.errors;
            check(errors.iter().any(|error| error.contains("alarm:NOSPACE")), format!("{errors:?}"))?;
        }
        let port = cluster.members()[1].client_port();
        let health = http_get(port, "/health")?;
        check(health.contains("503") && health.contains("ALARM NOSPACE"), health)?;
        let health = http_get(port, "/health?exclude=NOSPACE")?;
        check(health.contains("200 OK"), health)?;
        let metrics = http_get(port, "/metrics")?;
        check(metrics.contains("alarm_type=\"NOSPACE\""), "the metric of alarms has no NOSPACE")?;
        delete_all_and_compact(first).await?;
        let took = until("a put is taken again", RECOVERS_WITHIN, async || {
            Ok(put(cluster.members()[2].endpoint(), "small", 1).await.is_ok())
        })
        .await?;
        println!("recovered in {took:?} after compaction; {fitted} values had fitted");
        check(alarms(first).await?.is_empty(), "the alarm is still on")?;
        // And it is no lucky moment: as much fits as before.
        let again = fill(first).await?;
        check(fitted <= again + 2, format!("{again} values fit the second time, and {fitted} the first"))?;
        cluster.finish()
    });
}

#[test]
fn an_alarm_that_an_operator_raised_stays_until_etcdctl_disarms_it() {
    run_test("an operator's alarm", BUDGET, async {
        let etcdctl = binary::etcd()?.with_file_name("etcdctl");
        let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
        let endpoint = cluster.members()[0].endpoint();
        let id = endpoint.status(WITHIN).await.map_err(broken)?.header.unwrap_or_default().member_id;
        let raise = alarm_request(AlarmAction::Activate, id, AlarmType::Nospace);
        endpoint.alarm(raise, WITHIN).await.map_err(broken)?;
        // Several looks of the member at its own room, which it has plenty of.
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        let refused = put(endpoint, "k", 1).await.err();
        let refused = refused.is_some_and(|status| status.message() == EtcdError::NoSpace.message());
        check(refused, "the member cleared what the operator had raised")?;
        let run = |args: &[&str]| {
            let output = Command::new(&etcdctl).args(["--endpoints", endpoint.url()]).args(args).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let expected = format!("memberID:{id} alarm:NOSPACE \n");
        for (args, expected) in [
            (["alarm", "list"], expected.as_str()),
            (["alarm", "disarm"], &expected),
            (["alarm", "list"], ""),
        ] {
            let said = run(&args)?;
            check(said == expected, format!("etcdctl {args:?} says {said:?}, not {expected:?}"))?;
        }
        put(endpoint, "k", 1).await.map_err(broken)?;
        cluster.finish()
    });
}

#[test]
fn a_disk_with_too_little_room_raises_the_alarm_and_one_with_enough_clears_it() {
    run_test("a full disk", BUDGET, async {
        // More than any disk has: the member finds its own disk full.
        let huge = format!("--meerkat-disk-free-min-bytes={}", u64::MAX / 4);
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&[&huge]);
        let mut cluster = Cluster::start(&spec).await?;
        let endpoint = cluster.members()[0].endpoint().clone();
        until("the alarm is raised", WITHIN, async || Ok(!alarms(&endpoint).await?.is_empty())).await?;
        let refused = put(&endpoint, "k", 1).await.err();
        let refused = refused.is_some_and(|status| status.message() == EtcdError::NoSpace.message());
        check(refused, "a put is taken on a full disk")?;
        cluster.member(0).stop(WITHIN)?;
        cluster.member(0).start_altered(&[], &["--meerkat-disk-free-min-bytes=1".to_owned()])?;
        cluster.member(0).wait_until_ready(WITHIN).await?;
        until("a put is taken", RECOVERS_WITHIN, async || Ok(put(&endpoint, "k", 1).await.is_ok())).await?;
        cluster.finish()
    });
}

#[test]
fn history_older_than_the_retention_goes_by_itself() {
    run_test("auto compaction", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--auto-compaction-retention=5s"]);
        let cluster = Cluster::start(&spec).await?;
        let endpoint = cluster.members()[0].endpoint();
        let first = put(endpoint, "k", 1).await.map_err(broken)?.header.unwrap_or_default().revision;
        put(endpoint, "k", 2).await.map_err(broken)?;
        let old = RangeRequest { revision: first, ..one("k") };
        endpoint.range(old.clone(), WITHIN).await.map_err(broken)?;
        until("the first revision is compacted", COMPACTED_WITHIN, async || {
            match endpoint.range(old.clone(), WITHIN).await {
                Ok(_) => Ok(false),
                Err(status) if status.message() == EtcdError::Compacted.message() => Ok(true),
                Err(status) => Err(broken(status)),
            }
        })
        .await?;
        let now = endpoint.range(one("k"), WITHIN).await.map_err(broken)?;
        check(now.count == 1, "the present was compacted too")?;
        cluster.finish()
    });
}

/// Somebody who puts all the time, one after the other.
struct Writing {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<Written, tonic::Status>>,
    stalls: Stalls,
}

#[derive(Debug, Default)]
struct Written {
    puts: u64,
    slowest: Duration,
    /// How long this program itself stood still meanwhile.
    stalled: Duration,
}

impl Writing {
    fn start(endpoint: &Endpoint) -> Result<Self, Failure> {
        let (stop, writer) = (Arc::new(AtomicBool::new(false)), endpoint.apart(None)?);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut written = Written::default();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                put(&writer, "beside", 100).await?;
                written.puts += 1;
                written.slowest = written.slowest.max(began.elapsed());
            }
            Ok(written)
        });
        Ok(Self { stop, task, stalls: Stalls::start(Instant::now()) })
    }

    async fn finish(self) -> Result<Written, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let written = self.task.await.map_err(|error| Failure::harness(error.to_string()))?;
        let stalled = self.stalls.finish().await?.iter().map(Span::length).sum();
        Ok(Written { stalled, ..written.map_err(broken)? })
    }
}

#[test]
fn files_are_rewritten_while_reads_and_writes_go_on() {
    run_test("online defragmentation", BUDGET, async {
        let spec =
            ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--meerkat-write-buffer-bytes=4194304"]);
        let cluster = Cluster::start(&spec).await?;
        let endpoint = cluster.members()[0].endpoint().clone();
        for n in 0..300 {
            put(&endpoint, &format!("fill/{n:04}"), VALUE_BYTES).await.map_err(broken)?;
        }
        let size = async || Ok::<_, Failure>(endpoint.status(WITHIN).await.map_err(broken)?);
        let full = size().await?;
        check(30_000_000 < full.db_size_in_use, format!("30 MB weigh {}", full.db_size_in_use))?;
        delete_all_and_compact(&endpoint).await?;
        until("live bytes fall", WITHIN, async || Ok(size().await?.db_size_in_use < 100_000)).await?;
        let before = Writing::start(&endpoint)?;
        tokio::time::sleep(UNDISTURBED).await;
        let before = before.finish().await?;
        let beside = Writing::start(&endpoint)?;
        let began = Instant::now();
        let answer = endpoint.defragment(Duration::from_secs(60)).await.map_err(broken)?;
        let took = began.elapsed();
        let beside = beside.finish().await?;
        check(answer.header.is_none(), "the reply has a header")?;
        let after = size().await?;
        println!(
            "{} bytes became {} in {took:?}, {beside:?}; before: {before:?}",
            full.db_size, after.db_size
        );
        check(after.db_size < full.db_size / 4, format!("{} became {}", full.db_size, after.db_size))?;
        check(0 < beside.puts, "nothing was written meanwhile")?;
        let allowed = DISTURBED_MAX + before.slowest + beside.stalled;
        check(beside.slowest < allowed, format!("a put took {:?}, allowed are {allowed:?}", beside.slowest))?;
        cluster.finish()
    });
}
