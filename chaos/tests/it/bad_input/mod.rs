//! Wrong requests, garbage, strangers and misplaced directories get a clear error, and nobody
//! crashes.
//!
//! One cluster serves all the cases of a test. After each, every member must still run, answer, and
//! hold the key that was put first.

mod peer;

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::outcome::describe;
use meerkat_chaos::scenario::{run_test, settle};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::etcdserver::kv_client::KvClient;
use meerkat_proto::pb::etcdserver::{
    CompactionRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Status};

const BUDGET: Duration = Duration::from_secs(90);
const ASK_WITHIN: Duration = Duration::from_secs(10);
const READY_WITHIN: Duration = Duration::from_secs(20);
/// What a member that must not start may take to say so.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);
const KEPT: &[u8] = b"kept";

async fn start() -> Result<Cluster, Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 3).with_quick_elections()).await?;
    put(cluster.members()[0].endpoint(), KEPT, Bytes::from_static(b"kept")).await.map_err(broken)?;
    Ok(cluster)
}

fn broken(status: Status) -> Failure {
    status.into()
}

async fn put(endpoint: &Endpoint, key: &'static [u8], value: Bytes) -> Result<(), Status> {
    let request = PutRequest { key: Bytes::from_static(key), value, ..Default::default() };
    endpoint.put(request, ASK_WITHIN).await.map(|_| ())
}

/// Every member runs, answers, and still has the key.
async fn require_unharmed(cluster: &mut Cluster, after: &str) -> Result<(), Failure> {
    for index in 0..cluster.members().len() {
        if !cluster.member(index).is_running()? {
            return Err(Failure::broken(format!("after {after}: {}", cluster.members()[index].tail())));
        }
        let request = RangeRequest { key: Bytes::from_static(KEPT), ..Default::default() };
        let answer = cluster.members()[index].endpoint().range(request, ASK_WITHIN).await;
        let answer =
            answer.map_err(|status| Failure::broken(format!("after {after}: {}", describe(&status))))?;
        if answer.kvs().len() != 1 {
            return Err(Failure::broken(format!("after {after} the first key is gone")));
        }
    }
    Ok(())
}

fn require_refusal(what: &str, answer: Result<(), Status>, code: Code, words: &str) -> Result<(), Failure> {
    match answer {
        Err(status) if status.code() == code && status.message().starts_with(words) => Ok(()),
        Err(status) => Err(Failure::broken(format!("{what}: {}, not {code:?}: {words}", describe(&status)))),
        Ok(()) => Err(Failure::broken(format!("{what} was accepted"))),
    }
}

#[test]
fn wrong_requests_get_the_errors_that_etcd_clients_know() {
    run_test("wrong requests", BUDGET, async {
        let mut cluster = start().await?;
        for endpoint in cluster.endpoints() {
            wrong_sizes(&endpoint).await?;
            wrong_revisions(&endpoint).await?;
        }
        require_unharmed(&mut cluster, "wrong requests").await?;
        cluster.finish()
    });
}

async fn wrong_sizes(endpoint: &Endpoint) -> Result<(), Failure> {
    let large = |length| Bytes::from(vec![b'x'; length]);
    let answer = put(endpoint, b"large", large(1_600_000)).await;
    require_refusal(
        "a request over 1.5 MiB",
        answer,
        Code::InvalidArgument,
        "etcdserver: request is too large",
    )?;
    let answer = put(endpoint, b"large", large(2_200_000)).await;
    let words = "grpc: received message larger than max (";
    require_refusal("a message over 2 MiB", answer, Code::ResourceExhausted, words)?;
    let answer = put(endpoint, b"", Bytes::new()).await;
    require_refusal("an empty key", answer, Code::InvalidArgument, "etcdserver: key is not provided")?;
    let operation = |number: usize| {
        let key = format!("op/{number}").into_bytes().into();
        RequestOp { request: Some(request_op::Request::RequestPut(PutRequest { key, ..Default::default() })) }
    };
    let request = TxnRequest { success: (0..129).map(operation).collect(), ..Default::default() };
    let answer = endpoint.txn(request, ASK_WITHIN).await.map(|_| ());
    let words = "etcdserver: too many operations in txn request";
    require_refusal("129 operations", answer, Code::InvalidArgument, words)
}

async fn wrong_revisions(endpoint: &Endpoint) -> Result<(), Failure> {
    put(endpoint, b"moving", Bytes::from_static(b"on")).await.map_err(broken)?;
    put(endpoint, b"moving", Bytes::from_static(b"and on")).await.map_err(broken)?;
    let current = endpoint.linearizable_probe(ASK_WITHIN).await.map_err(broken)?;
    let read_at = |revision| {
        let request = RangeRequest { key: Bytes::from_static(KEPT), revision, ..Default::default() };
        async move { endpoint.range(request, ASK_WITHIN).await.map(|_| ()) }
    };
    let future = "etcdserver: mvcc: required revision is a future revision";
    require_refusal("a future read", read_at(current + 1_000).await, Code::OutOfRange, future)?;
    let compact = |revision| endpoint.compact(CompactionRequest { revision, physical: true }, ASK_WITHIN);
    let answer = compact(current + 1_000).await.map(|_| ());
    require_refusal("a future compaction", answer, Code::OutOfRange, future)?;
    compact(current).await.map_err(broken)?;
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    require_refusal("a compacted read", read_at(current - 1).await, Code::OutOfRange, compacted)?;
    let answer = compact(current).await.map(|_| ());
    require_refusal("a repeated compaction", answer, Code::OutOfRange, compacted)
}

#[test]
fn garbage_on_the_client_and_peer_ports_harms_nobody() {
    run_test("garbage", BUDGET, async {
        let mut cluster = start().await?;
        let ports: Vec<u16> =
            cluster.members().iter().flat_map(|member| [member.client_port(), member.peer_port()]).collect();
        for port in ports {
            for garbage in kinds_of_garbage() {
                throw(port, &garbage).await?;
            }
        }
        require_unharmed(&mut cluster, "garbage").await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// Plain noise, a bad text request, a request for nothing, and HTTP/2 that goes wrong in several
/// ways: a frame of a false length, headers that cannot be decoded, a message cut short.
fn kinds_of_garbage() -> Vec<Vec<u8>> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let noise: Vec<u8> =
        (0..64 * 1024_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let long_frame = [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1];
    let bad_headers = [0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    vec![
        noise,
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n".to_vec(),
        b"POST /etcdserverpb.KV/Put HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc".to_vec(),
        vec![0; 100],
        [preface.as_slice(), &settings, &long_frame].concat(),
        [preface.as_slice(), &settings, &bad_headers].concat(),
        preface[..10].to_vec(),
    ]
}

/// Sends it, takes whatever comes back for a moment, and hangs up.
async fn throw(port: u16, garbage: &[u8]) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    // The other side may hang up in the middle, as it should.
    let _refused = stream.write_all(garbage).await.is_err();
    let mut answer = vec![0; 4096];
    let _silence = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut answer)).await.is_err();
    Ok(())
}

#[test]
fn a_peer_of_another_cluster_is_kept_out() {
    run_test("another cluster", BUDGET, async {
        let mut cluster = start().await?;
        cluster.member(0).kill()?;
        // The same addresses under another token: another cluster, as far as ids are concerned.
        let foreign_dir = cluster.dir().join("foreign.data");
        cluster.member(0).start_changed(&[
            "--initial-cluster-token=another".to_owned(),
            format!("--data-dir={}", foreign_dir.display()),
        ])?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let served = cluster.members()[0].endpoint().linearizable_probe(Duration::from_secs(2)).await;
        if let Ok(revision) = served {
            return Err(Failure::broken(format!(
                "a stranger serves the cluster's data at revision {revision}"
            )));
        }
        require_words(&cluster, 0, 0, &["cluster"])?;
        for index in [1, 2] {
            put(cluster.members()[index].endpoint(), b"meanwhile", Bytes::new()).await.map_err(broken)?;
        }
        cluster.member(0).kill()?;
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "a stranger").await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// What a member printed since `from` has all these words on one line.
fn require_words(cluster: &Cluster, index: usize, from: usize, words: &[&str]) -> Result<(), Failure> {
    let member = &cluster.members()[index];
    let printed = member.printed()?;
    let fresh = printed.get(from..).unwrap_or_default().to_lowercase();
    if fresh.lines().any(|line| words.iter().all(|word| line.contains(word))) {
        return Ok(());
    }
    Err(Failure::broken(format!("no line says {words:?}: {}", member.tail())))
}

/// Starts a member that must refuse to run, and requires a failed exit and a line with these words.
async fn require_refused_start(
    cluster: &mut Cluster,
    index: usize,
    changes: &[String],
    words: &[&str],
) -> Result<(), Failure> {
    let from = cluster.members()[index].printed()?.len();
    cluster.member(index).start_changed(changes)?;
    let status = cluster.member(index).wait_for_exit(REFUSED_WITHIN).map_err(|failure| {
        Failure::broken(format!("the member should have refused to start ({words:?}): {failure}"))
    })?;
    if status.code().is_none_or(|code| code == 0) {
        return Err(Failure::broken(format!("ended with {status}: {}", cluster.members()[index].tail())));
    }
    require_words(cluster, index, from, words)
}

#[test]
fn a_data_dir_of_another_member_is_refused() {
    run_test("another member's data", BUDGET, async {
        let mut cluster = start().await?;
        cluster.member(0).kill()?;
        cluster.member(1).kill()?;
        let other = format!("--data-dir={}", cluster.members()[1].data_dir().display());
        require_refused_start(&mut cluster, 0, &[other], &["belongs to member"]).await?;
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "another member's data directory").await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// Puts a directory out of the way while something runs, and back in its place afterwards.
async fn without_dir(
    dir: &std::path::Path,
    run: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let moved = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::rename(from, to).map_err(|error| Failure::harness(format!("{}: {error}", from.display())))
    };
    let aside = dir.with_extension("aside");
    moved(dir, &aside)?;
    run.await?;
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|error| Failure::harness(error.to_string()))?;
    }
    moved(&aside, dir)
}

/// An empty log would vote again where the lost one had voted, and lack what it had acknowledged.
#[test]
fn a_member_whose_log_is_lost_refuses_to_start() {
    run_test("lost log", BUDGET, async {
        let mut cluster = start().await?;
        cluster.member(0).kill()?;
        let wal = cluster.members()[0].data_dir().join("member/wal");
        let refused = require_refused_start(&mut cluster, 0, &[], &["there is no log"]);
        without_dir(&wal, refused).await?;
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "a lost log").await?;
        cluster.finish()
    });
}

/// The cluster knows a member's data directory from when the member has made itself known.
async fn wait_until_published(cluster: &Cluster, index: usize) -> Result<(), Failure> {
    let patience = Patience::of("the member makes itself known", READY_WITHIN);
    while !cluster.members()[index].printed()?.contains("published local member to cluster") {
        patience.pause(Duration::from_millis(20), cluster.members()[index].tail()).await?;
    }
    patience.came().map(drop)
}

/// The same member with an empty disk could help to elect a leader that lacks acknowledged writes.
#[test]
fn a_member_whose_disk_was_wiped_is_disowned_and_stops() {
    run_test("wiped disk", BUDGET, async {
        let mut cluster = start().await?;
        wait_until_published(&cluster, 0).await?;
        cluster.member(0).kill()?;
        let dir = cluster.members()[0].data_dir().to_owned();
        let refused = require_refused_start(&mut cluster, 0, &[], &["known with another data directory"]);
        without_dir(&dir, refused).await?;
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "a wiped disk").await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// With the majority gone, the last member says so at once where it is asked to.
#[test]
fn a_member_without_a_majority_knows_no_leader() {
    run_test("no majority", BUDGET, async {
        let mut cluster = start().await?;
        cluster.member(0).kill()?;
        cluster.member(1).kill()?;
        let url = format!("http://127.0.0.1:{}", cluster.members()[2].client_port());
        let mut client = KvClient::connect(url).await.map_err(|error| Failure::harness(error.to_string()))?;
        // Until a silent leader no longer counts.
        let (began, mut answer) = (Instant::now(), Ok(()));
        while answer.is_ok() && began.elapsed() < READY_WITHIN {
            let mut request = tonic::Request::new(RangeRequest {
                key: Bytes::from_static(KEPT),
                serializable: true,
                ..Default::default()
            });
            request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
            answer = client.range(request).await.map(|_| ());
        }
        require_refusal("hasleader", answer, Code::Unavailable, "etcdserver: no leader")?;
        let request =
            RangeRequest { key: Bytes::from_static(KEPT), serializable: true, ..Default::default() };
        let local = cluster.members()[2].endpoint().range(request, ASK_WITHIN).await.map_err(broken)?;
        if local.kvs().len() != 1 {
            return Err(Failure::broken("a serializable read needs no majority".to_owned()));
        }
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "a lost majority").await?;
        cluster.finish()
    });
}

#[test]
fn a_data_dir_of_a_newer_format_is_refused_and_left_as_it_is() {
    run_test("newer format", BUDGET, async {
        let mut cluster = start().await?;
        cluster.member(0).kill()?;
        let member_dir = cluster.members()[0].data_dir().join("member");
        let identity = member_dir.join("identity");
        with_bytes_changed(
            &identity,
            |bytes| {
                let text = String::from_utf8_lossy(bytes).replacen("meerkat-format 1", "meerkat-format 9", 1);
                *bytes = text.into_bytes();
            },
            async { require_refused_start(&mut cluster, 0, &[], &["format 9"]).await },
        )
        .await?;
        let segment = newest_segment(&member_dir.join("wal"))?;
        with_bytes_changed(&segment, |bytes| bytes[8] = 9, async {
            require_refused_start(&mut cluster, 0, &[], &["format version 9"]).await
        })
        .await?;
        cluster.revive(READY_WITHIN).await?;
        require_unharmed(&mut cluster, "a newer format").await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// Changes a file, runs something, requires that the file was left alone, and changes it back.
async fn with_bytes_changed(
    path: &std::path::Path,
    change: impl FnOnce(&mut Vec<u8>),
    meanwhile: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let original = std::fs::read(path)?;
    let mut changed = original.clone();
    change(&mut changed);
    if changed == original {
        return Err(Failure::harness(format!("{} is not laid out as expected", path.display())));
    }
    std::fs::write(path, &changed)?;
    meanwhile.await?;
    if std::fs::read(path)? != changed {
        return Err(Failure::broken(format!(
            "{} was written to by a member that refused it",
            path.display()
        )));
    }
    Ok(std::fs::write(path, original)?)
}

fn newest_segment(dir: &std::path::Path) -> Result<std::path::PathBuf, Failure> {
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
