//! Backups from the outside: ours read by etcd, etcd's read by us, and whatever is damaged by nobody.

use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::{Running, clean, etcd_program, free_port, meerkat, run, stderr, stdout, wait_until};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::KeyValue;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tonic::transport::Channel;

/// A member of a cluster of ours.
pub struct Member {
    name: String,
    pub endpoint: String,
    pub peer: String,
    data: PathBuf,
    process: Option<Running>,
}

impl Member {
    pub fn new(name: &str, dir: &Path) -> Member {
        Member {
            name: name.to_owned(),
            endpoint: format!("127.0.0.1:{}", free_port()),
            peer: format!("http://127.0.0.1:{}", free_port()),
            data: dir.join(name),
            process: None,
        }
    }

    pub fn start(&mut self, cluster: &str, state: &str) {
        let client = format!("http://{}", self.endpoint);
        let child = meerkat()
            .args(["serve", "--name", &self.name, "--initial-cluster-state", state])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &self.peer, "--initial-advertise-peer-urls", &self.peer])
            // The least work for a password that there is.
            .args(["--initial-cluster", cluster, "--log-level=error", "--bcrypt-cost=4", "--data-dir"])
            .arg(&self.data)
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        self.process = Some(Running(child));
    }

    pub fn ready(&self) {
        let healthy = || {
            run(meerkat().args(["endpoint", "health", "--endpoints", &self.endpoint]), b"").status.success()
        };
        wait_until("the member serves", healthy);
    }

    pub fn alone(dir: &Path) -> Member {
        let mut member = Member::new("solo", dir);
        member.start(&format!("solo={}", member.peer), "new");
        member.ready();
        member
    }

    pub fn restore(&self, file: &Path, cluster: &str, flags: &[&str]) -> Output {
        run(
            meerkat()
                .args(["snapshot", "restore", "--name", &self.name, "--initial-cluster", cluster])
                .args(["--initial-advertise-peer-urls", &self.peer, "--initial-cluster-token=again"])
                .args(flags)
                .arg("--data-dir")
                .arg(&self.data)
                .arg(file),
            b"",
        )
    }
}

pub fn ok(output: Output) -> String {
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

pub async fn dial(endpoint: &str) -> Channel {
    Channel::from_shared(format!("http://{endpoint}")).expect("an address").connect().await.expect("a member")
}

async fn kv(endpoint: &str) -> KvClient<Channel> {
    KvClient::new(dial(endpoint).await).max_decoding_message_size(usize::MAX)
}

/// Every key at a revision (0: now), and the store's revision.
pub async fn all(endpoint: &str, revision: i64) -> (i64, Vec<KeyValue>) {
    let request =
        pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), revision, ..Default::default() };
    let answer = kv(endpoint).await.range(request).await.expect("a range").into_inner();
    (answer.header.expect("a header").revision, answer.kvs().to_vec())
}

pub async fn put(endpoint: &str, key: &str, value: &[u8], lease: i64) -> i64 {
    let request = pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_vec().into(),
        lease,
        ..Default::default()
    };
    kv(endpoint).await.put(request).await.expect("a put").into_inner().header.expect("a header").revision
}

/// Puts, overwrites, deletions, two events of one key in one revision, leases, a large value, and a
/// compaction in the middle of it.
pub async fn fill(endpoint: &str) {
    for (id, ttl) in [(77, 600), (78, 3_600)] {
        let grant = pb::LeaseGrantRequest { id, ttl };
        LeaseClient::new(dial(endpoint).await).lease_grant(grant).await.expect("a lease");
    }
    let mut kv = kv(endpoint).await;
    for round in 0..30 {
        let ops = (0..100).map(|n| pb::PutRequest {
            key: format!("many/{:05}", round * 70 + n).into(),
            value: vec![b'v'; 20 + n].into(),
            lease: if n == 7 { 77 } else { 0 },
            ..Default::default()
        });
        let success =
            ops.map(|put| pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) });
        let txn = pb::TxnRequest { success: success.collect(), ..Default::default() };
        kv.txn(txn).await.expect("a transaction");
    }
    let range = |first: &str, end: &str| pb::DeleteRangeRequest {
        key: first.to_owned().into(),
        range_end: end.to_owned().into(),
        ..Default::default()
    };
    kv.delete_range(range("many/00100", "many/00200")).await.expect("a deletion");
    let revision = put(endpoint, "large", &vec![b'x'; 300_000], 78).await;
    let compact = pb::CompactionRequest { revision: revision - 3, physical: true };
    kv.compact(compact).await.expect("a compaction");
    let twice = [
        pb::request_op::Request::RequestDeleteRange(range("many/00300", "many/00310")),
        pb::request_op::Request::RequestPut(pb::PutRequest {
            key: "many/00311".into(),
            ..Default::default()
        }),
    ];
    let success = twice.into_iter().map(|request| pb::RequestOp { request: Some(request) }).collect();
    kv.txn(pb::TxnRequest { success, ..Default::default() }).await.expect("a transaction");
    put(endpoint, "binary\0key\u{7f}", b"\0\xff", 0).await;
    kv.delete_range(range("large", "")).await.expect("a deletion");
    put(endpoint, "large", b"small again", 77).await;
}

pub async fn ttl(endpoint: &str, id: i64) -> (i64, Vec<Vec<u8>>) {
    let ask = pb::LeaseTimeToLiveRequest { id, keys: true };
    let answer = LeaseClient::new(dial(endpoint).await).lease_time_to_live(ask).await.expect("a lease");
    let answer = answer.into_inner();
    let mut keys: Vec<Vec<u8>> = answer.keys.iter().map(|key| key.to_vec()).collect();
    keys.sort();
    (answer.granted_ttl, keys)
}

/// What `etcdctl` 3.5 says of a file, and what we say; as `etcdutl` 3.6 we count the keys that exist, and name
/// the version of the layout.
fn check_status(file: &Path, keys: usize, version: &str) {
    let say = |mut tool: Command, format: &str| {
        ok(run(tool.args(["snapshot", "status", "-w", format]).arg(file), b""))
    };
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let mut expected = json(&say(etcdctl(), "json"));
    expected["totalKey"] = keys.into();
    expected["version"] = version.into();
    assert_eq!(json(&say(meerkat(), "json")), expected);
    let simple = say(etcdctl(), "simple");
    let [hash, revision, _, size] = simple.trim_end().split(", ").collect::<Vec<_>>()[..] else {
        panic!("{simple}");
    };
    assert_eq!(say(meerkat(), "simple"), format!("{hash}, {revision}, {keys}, {size}, {version}\n"));
    let fields = say(etcdctl(), "fields");
    let line = |line: &str| {
        if line.starts_with("\"Keys\"") { format!("\"Keys\" : {keys}\n") } else { format!("{line}\n") }
    };
    let expected: String = fields.lines().map(line).collect();
    assert_eq!(say(meerkat(), "fields"), format!("{expected}\"Version\" : {version}\n"));
    let table = say(meerkat(), "table");
    assert!(table.contains("| TOTAL SIZE | VERSION |") && table.contains(version), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_taken_under_load_makes_a_new_cluster_with_the_same_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Member::alone(dir.path());
    fill(&source.endpoint).await;
    let stop = Arc::new(AtomicBool::new(false));
    let written: Arc<[AtomicU64; 4]> = Arc::default();
    let writers = (0..4).map(|writer| {
        let (endpoint, stop, written) = (source.endpoint.clone(), stop.clone(), written.clone());
        tokio::spawn(async move {
            let mut kv = kv(&endpoint).await;
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let key = format!("load/{writer}/{}", n % 50);
                let put =
                    pb::PutRequest { key: key.into(), value: n.to_string().into(), ..Default::default() };
                kv.put(put).await.expect("a put");
                written[writer].fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let all_write_on = || {
        let before: Vec<u64> = written.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let has = |(count, before): (&AtomicU64, &u64)| *before < count.load(Ordering::Relaxed);
        wait_until("all write on", || written.iter().zip(&before).all(has));
    };
    all_write_on();
    let file = dir.path().join("backup.db");
    let save = meerkat().args(["snapshot", "save", "--endpoints", &source.endpoint]).arg(&file).output();
    ok(save.expect("it runs"));
    all_write_on();
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("a writer");
    }
    let status = ok(run(meerkat().args(["snapshot", "status", "-w", "json"]).arg(&file), b""));
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let revision = status["revision"].as_i64().expect("a number");
    let (now, saved) = all(&source.endpoint, revision).await;
    assert!(revision < now, "written on after the backup");
    restored_cluster_agrees(dir.path(), &file, revision, &saved).await;
    bumped_store_begins_compacted(dir.path(), &file, revision, &saved).await;
}

async fn restored_cluster_agrees(dir: &Path, file: &Path, revision: i64, saved: &[KeyValue]) {
    let mut members: Vec<Member> = ["r1", "r2", "r3"].iter().map(|name| Member::new(name, dir)).collect();
    let rows = members.iter().map(|member| format!("{}={}", member.name, member.peer));
    let cluster = rows.collect::<Vec<_>>().join(",");
    for member in &mut members {
        let restored = member.restore(file, &cluster, &["--bump-revision=0"]);
        assert_eq!(stderr(&restored).matches("added member").count(), 3, "{}", stderr(&restored));
        ok(restored);
        let again = member.restore(file, &cluster, &[]);
        assert!(stderr(&again).contains("is not empty"), "{}", stderr(&again));
        member.start(&cluster, "new");
    }
    for member in &members {
        member.ready();
        let (now, found) = all(&member.endpoint, revision).await;
        assert!(found == saved, "{} has other keys", member.name);
        assert_eq!(now, revision, "nothing happened since");
        assert_eq!(ttl(&member.endpoint, 78).await.0, 3_600);
    }
    let first = members[0].endpoint.clone();
    let mut watch = WatchClient::new(dial(&members[1].endpoint).await);
    let create =
        pb::WatchCreateRequest { key: "new".into(), start_revision: revision + 1, ..Default::default() };
    let create =
        pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
    let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
    let mut events = watch.watch(requests).await.expect("a watch").into_inner();
    assert!(events.message().await.expect("an answer").expect("an answer").created);
    assert_eq!(put(&first, "new", b"v", 0).await, revision + 1);
    let told = events.message().await.expect("an event").expect("an event");
    assert_eq!(told.events[0].kv.as_ref().expect("a key").mod_revision, revision + 1);
    let hashes = ok(run(
        meerkat()
            .args(["endpoint", "hashkv", "--cluster", "-w", "json", "--endpoints", &first])
            .arg("--rev")
            .arg((revision + 1).to_string()),
        b"",
    ));
    let hashes: serde_json::Value = serde_json::from_str(&hashes).expect("JSON");
    let hash = |n: usize| hashes[n]["HashKV"]["hash"].as_u64().expect("a hash");
    assert!(hash(0) == hash(1) && hash(1) == hash(2), "{hashes}");
    a_fourth_joins(dir, &first, &cluster, revision, saved).await;
}

/// It has an empty directory, and what was restored is in no log.
async fn a_fourth_joins(dir: &Path, first: &str, cluster: &str, revision: i64, saved: &[KeyValue]) {
    let mut fourth = Member::new("r4", dir);
    let peer = format!("--peer-urls={}", fourth.peer);
    wait_until("a member may be added", || {
        run(meerkat().args(["member", "add", "r4", &peer, "--endpoints", first]), b"").status.success()
    });
    fourth.start(&format!("{cluster},r4={}", fourth.peer), "existing");
    fourth.ready();
    assert!(all(&fourth.endpoint, revision).await.1 == saved, "the fourth has other keys");
}

async fn bumped_store_begins_compacted(dir: &Path, file: &Path, revision: i64, saved: &[KeyValue]) {
    let mut member = Member::new("bumped", dir);
    let cluster = format!("bumped={}", member.peer);
    ok(member.restore(file, &cluster, &[]));
    member.start(&cluster, "new");
    member.ready();
    let (now, found) = all(&member.endpoint, 0).await;
    assert_eq!(now, revision + 1_000_000_000);
    assert!(found == saved, "other keys");
    let old = pb::RangeRequest { key: "large".into(), revision: revision + 5, ..Default::default() };
    let refusal = kv(&member.endpoint).await.range(old).await.expect_err("compacted");
    assert!(refusal.message().contains("compacted"), "{refusal}");
    assert_eq!(put(&member.endpoint, "next", b"v", 0).await, now + 1);
    // Times of restored revisions are not known; asking for them is answered all the same.
    ok(run(meerkat().args(["get", "", "--prefix", "--times", "--endpoints", &member.endpoint]), b""));
}

/// What is streamed counts down to its end, in small pieces, and closes with a checksum.
async fn check_stream(endpoint: &str, file: &[u8]) {
    let mut client = MaintenanceClient::new(dial(endpoint).await);
    let mut pieces = client.snapshot(pb::SnapshotRequest {}).await.expect("a snapshot").into_inner();
    let (mut all, mut last) = (Vec::new(), pb::SnapshotResponse::default());
    while let Some(piece) = pieces.message().await.expect("a piece") {
        assert!(piece.blob.len() <= 32 << 10 && !piece.version.is_empty());
        all.extend_from_slice(&piece.blob);
        let left = file.len().saturating_sub(32 + all.len());
        assert_eq!(piece.remaining_bytes, left as u64);
        last = piece;
    }
    assert_eq!((last.blob.len(), all.len() % 4096), (32, 32));
    assert!(all == file, "the store has not changed, and neither has its snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_cut_or_touched_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Member::alone(dir.path());
    fill(&source.endpoint).await;
    let file = dir.path().join("backup.db");
    ok(run(meerkat().args(["snapshot", "save", "--endpoints", &source.endpoint]).arg(&file), b""));
    let good = fs::read(&file).expect("saved");
    check_stream(&source.endpoint, &good).await;
    let cut = dir.path().join("cut.db");
    let target = Member::new("target", dir.path());
    let cluster = format!("target={}", target.peer);
    let check = |bytes: &[u8], flags: &[&str], expected: &str| {
        fs::write(&cut, bytes).expect("written");
        let output = target.restore(&cut, &cluster, flags);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expected), "{said:?} should contain {expected:?}");
        assert!(!target.data.join("member").exists() && !target.data.join("restoring").exists());
    };
    check(&good[..good.len() - 100], &[], "snapshot missing hash but --skip-hash-check=false");
    check(&good[..good.len() - 32], &[], "snapshot missing hash but --skip-hash-check=false");
    check(&good[..good.len() - 4096], &[], "Error: expected sha256 ");
    check(&good[..good.len() - 4096], &["--skip-hash-check"], "is cut short");
    check(b"not a snapshot", &["--skip-hash-check"], "is not a bbolt database");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    check(&flipped, &[], "Error: expected sha256 ");
    // A page that says it is another one.
    let mut flipped = good.clone();
    flipped[5 * 4096] ^= 1;
    check(&flipped, &["--skip-hash-check"], "is damaged: page 5 says that it is page 4");
    let output = run(meerkat().args(["snapshot", "status"]).arg(&cut), b"");
    assert!(stderr(&output).contains("is damaged"), "{}", stderr(&output));
    // A member that goes away in the middle leaves no file of that name.
    let missing = dir.path().join("never.db");
    let output = run(meerkat().args(["snapshot", "save", "--endpoints", "127.0.0.1:1"]).arg(&missing), b"");
    assert!(!output.status.success() && !missing.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn etcds_snapshot_becomes_a_store_of_ours() {
    if !etcd_is_here() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start();
    fill(&etcd.endpoint).await;
    let file = dir.path().join("etcd.db");
    ok(run(etcdctl().args(["--endpoints", &etcd.endpoint, "snapshot", "save"]).arg(&file), b""));
    check_status(&file, all(&etcd.endpoint, 0).await.1.len(), "");
    let mut member = Member::new("imported", dir.path());
    let cluster = format!("imported={}", member.peer);
    ok(member.restore(&file, &cluster, &["--bump-revision=0"]));
    member.start(&cluster, "new");
    member.ready();
    let (now, theirs) = all(&etcd.endpoint, 0).await;
    for revision in [0, now - 1, now - 2, now - 3] {
        let (theirs, ours) = (all(&etcd.endpoint, revision).await, all(&member.endpoint, revision).await);
        assert!(ours == theirs, "at {revision}: {} and {} keys", ours.1.len(), theirs.1.len());
    }
    assert!(2_000 < theirs.len());
    for lease in [77, 78] {
        assert_eq!(ttl(&member.endpoint, lease).await, ttl(&etcd.endpoint, lease).await);
    }
}

/// Restores a file with etcd's tool and starts etcd on it: where it will serve.
pub fn served_by_etcd(dir: &Path, file: &Path) -> (String, Running) {
    let data = dir.join("etcd");
    let (endpoint, peer) =
        (format!("127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
    let cluster = format!("theirs={peer}");
    ok(run(
        etcdctl()
            .args(["snapshot", "restore", "--name=theirs", "--initial-cluster", &cluster])
            .args(["--initial-advertise-peer-urls", &peer, "--data-dir"])
            .arg(&data)
            .arg(file),
        b"",
    ));
    let client = format!("http://{endpoint}");
    let program = etcd_program("etcd").expect("checked before");
    let child = clean(Command::new(program))
        .args(["--name=theirs", "--log-level=error", "--initial-cluster", &cluster])
        .args(["--initial-advertise-peer-urls", &peer, "--listen-peer-urls", &peer])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--data-dir"])
        .arg(&data)
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts");
    (endpoint, Running(child))
}

#[tokio::test(flavor = "multi_thread")]
async fn our_snapshot_is_served_by_etcd() {
    if !etcd_is_here() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let source = Member::alone(dir.path());
    fill(&source.endpoint).await;
    let file = dir.path().join("ours.db");
    ok(run(etcdctl().args(["--endpoints", &source.endpoint, "snapshot", "save"]).arg(&file), b""));
    check_status(&file, all(&source.endpoint, 0).await.1.len(), "3.6.0");
    let (endpoint, _etcd) = served_by_etcd(dir.path(), &file);
    wait_until("etcd serves", || {
        run(meerkat().args(["endpoint", "health", "--endpoints", &endpoint]), b"").status.success()
    });
    let now = all(&source.endpoint, 0).await.0;
    for revision in [0, now - 1, now - 2] {
        let (ours, theirs) = (all(&source.endpoint, revision).await, all(&endpoint, revision).await);
        assert!(ours == theirs, "at {revision}: {} and {} keys", ours.1.len(), theirs.1.len());
    }
    for lease in [77, 78] {
        assert_eq!(ttl(&endpoint, lease).await, ttl(&source.endpoint, lease).await);
    }
    // What etcd does to its pages when nearly all rows go: it must find our tree in order.
    let mut kv = kv(&endpoint).await;
    let delete = pb::DeleteRangeRequest { key: "many".into(), range_end: "n".into(), ..Default::default() };
    let deleted = kv.delete_range(delete).await.expect("a deletion").into_inner();
    let revision = deleted.header.expect("a header").revision;
    kv.compact(pb::CompactionRequest { revision, physical: true }).await.expect("a compaction");
    assert!(put(&endpoint, "after", b"v", 0).await == revision + 1);
}
