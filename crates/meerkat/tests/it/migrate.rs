//! A live etcd carried over to Meerkat, judged by what the destination's own history says.

use crate::authority::Authority;
use crate::etcd::{Etcd, etcd_is_here};
use crate::member::Place;
use crate::process::{Running, meerkat, run, stderr, stdout, wait_until};
use crate::snapshot::{Member, all, dial, fill, put, ttl};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::event::EventType;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITERS: usize = 3;

fn migration(from: &str, to: &str) -> Command {
    let mut command = meerkat();
    command.args(["migrate", "--from", from, "--to", to]);
    command
}

/// Counts up in a key of its own, deleting it now and then, until told to stop. Gives the last number.
async fn count_up(endpoint: String, writer: usize, stop: Arc<AtomicBool>) -> u64 {
    let mut kv = KvClient::new(dial(&endpoint).await);
    for n in 1.. {
        let key = format!("count/{writer}");
        let value = n.to_string();
        let put = pb::PutRequest { key: key.clone().into(), value: value.into(), ..Default::default() };
        kv.put(put).await.expect("a put");
        if n % 10 == 0 {
            let delete = pb::DeleteRangeRequest { key: key.into(), ..Default::default() };
            kv.delete_range(delete).await.expect("a deletion");
        }
        if stop.load(Ordering::Relaxed) {
            return n;
        }
    }
    0
}

/// Every number that each writer's key had at an endpoint, in order; a deletion is none.
async fn numbers(endpoint: &str) -> BTreeMap<String, Vec<Option<u64>>> {
    let create = pb::WatchCreateRequest {
        key: "count/".into(),
        range_end: "count0".into(),
        start_revision: 2,
        ..Default::default()
    };
    let create =
        pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
    let requests = futures::StreamExt::chain(futures::stream::iter([create]), futures::stream::pending());
    let mut stream =
        WatchClient::new(dial(endpoint).await).watch(requests).await.expect("a watch").into_inner();
    let mut found: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
    let newest = put(endpoint, "count/~last", b"0", 0).await;
    loop {
        let told = stream.message().await.expect("events").expect("events");
        for event in told.events {
            let kv = event.kv.clone().expect("a key");
            if kv.mod_revision == newest {
                return found;
            }
            let number = std::str::from_utf8(&kv.value).expect("a number").parse().ok();
            let number = number.filter(|_| event.r#type() == EventType::Put);
            found.entry(String::from_utf8_lossy(&kv.key).into_owned()).or_default().push(number);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_etcd_is_carried_over_with_every_change_once_also_by_a_migration_that_was_killed() {
    if !etcd_is_here() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start();
    let target = Member::alone(dir.path());
    fill(&etcd.endpoint).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(count_up(etcd.endpoint.clone(), writer, stop.clone())))
        .collect();
    // Killed in the copy and while it follows, it goes on each time.
    for pause in [150, 1_500] {
        let child = migration(&etcd.endpoint, &target.endpoint).stdout(Stdio::null()).spawn();
        let killed = Running(child.expect("the binary starts"));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        drop(killed);
    }
    let child = migration(&etcd.endpoint, &target.endpoint).stdout(Stdio::piped()).spawn();
    let mut following = Running(child.expect("the binary starts"));
    let grant = pb::LeaseGrantRequest { id: 79, ttl: 900 };
    LeaseClient::new(dial(&etcd.endpoint).await).lease_grant(grant).await.expect("a lease");
    put(&etcd.endpoint, "leased", b"later", 79).await;
    LeaseClient::new(dial(&etcd.endpoint).await)
        .lease_revoke(pb::LeaseRevokeRequest { id: 78 })
        .await
        .expect("a lease ends");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut last = Vec::new();
    for writer in writers {
        last.push(writer.await.expect("a writer"));
    }
    following.signal("INT");
    assert!(following.wait().success(), "the migration ends when it is told to");
    compare(&etcd.endpoint, &target.endpoint).await;
    for (writer, last) in last.into_iter().enumerate() {
        check_numbers(&numbers(&target.endpoint).await[&format!("count/{writer}")], last);
    }
    let again = run(migration(&etcd.endpoint, &target.endpoint).arg("--until-caught-up"), b"");
    assert!(!again.status.success() && stderr(&again).contains("it must be empty"), "{}", stderr(&again));
}

/// Keys, values and leases are the same on both sides.
async fn compare(source: &str, target: &str) {
    let content = |kvs: Vec<meerkat_proto::pb::mvcc::KeyValue>| {
        kvs.into_iter().map(|kv| (kv.key, kv.value, kv.lease)).collect::<Vec<_>>()
    };
    let (theirs, ours) = (content(all(source, 0).await.1), content(all(target, 0).await.1));
    assert!(theirs == ours, "{} and {} keys", theirs.len(), ours.len());
    for lease in [77, 79] {
        assert_eq!(ttl(target, lease).await, ttl(source, lease).await, "lease {lease}");
    }
    wait_until("the lease that ended has ended there too", || {
        let list = run(meerkat().args(["lease", "list", "--endpoints", target]), b"");
        stdout(&list).contains("found 2 leases")
    });
}

/// From the first number that was copied on: each once, none left out, and deletions where they were.
fn check_numbers(found: &[Option<u64>], last: u64) {
    let first = found.iter().flatten().next().copied().expect("numbers");
    let mut expected = Vec::new();
    for n in first..=last {
        expected.push(Some(n));
        if n % 10 == 0 {
            expected.push(None);
        }
    }
    assert_eq!(found, expected, "of {last}");
    assert!(first < last, "something was carried after the copy");
}

/// A member with TLS, its flags beside that given.
fn encrypted(directory: &Path, ca: &Authority, more: &[String]) -> (crate::member::Member, String) {
    let place = Place::new();
    let pair = ca.issue("member", &["localhost", "127.0.0.1"]);
    let mut flags = vec![
        format!("--data-dir={}", directory.join(&place.peer).display()),
        format!("--listen-client-urls=https://{}", place.client),
        format!("--advertise-client-urls=https://{}", place.client),
        format!("--listen-peer-urls=http://{}", place.peer),
        format!("--initial-advertise-peer-urls=http://{}", place.peer),
        format!("--initial-cluster=default=http://{}", place.peer),
        format!("--cert-file={}", pair.cert),
        format!("--key-file={}", pair.key),
    ];
    flags.extend_from_slice(more);
    (crate::member::Member::start(directory, &flags).ready(), place.client)
}

#[test]
fn clusters_with_certificates_and_users_are_reached_from_either_side() {
    let directory = tempfile::tempdir().expect("a directory");
    let (here, there) = (Authority::new(directory.path(), "here"), Authority::new(directory.path(), "there"));
    let (source, from) = encrypted(directory.path(), &here, &[]);
    let prove = [format!("--trusted-ca-file={}", there.file), "--client-cert-auth".to_owned()];
    let (target, to) = encrypted(directory.path(), &there, &prove);
    let own = there.issue("migration", &[]);
    let ask = |at: &str, with: &[String], args: &[&str]| {
        let mut command = meerkat();
        command.args(["--endpoints", at, "--command-timeout=60s"]).args(with).args(args);
        let output = run(&mut command, b"");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    let at_source = [format!("--cacert={}", here.file)];
    ask(&from, &at_source, &["put", "key", "carried"]);
    ask(&from, &at_source, &["user", "add", "root:secret"]);
    ask(&from, &at_source, &["user", "grant-role", "root", "root"]);
    ask(&from, &at_source, &["auth", "enable"]);
    let mut command = migration(&from, &to);
    command.args([format!("--from-cacert={}", here.file), "--from-user=root:secret".to_owned()]);
    command.args([format!("--to-cacert={}", there.file), format!("--to-cert={}", own.cert)]);
    command.args([format!("--to-key={}", own.key), "--until-caught-up".to_owned()]);
    let carried = run(&mut command, b"");
    assert!(carried.status.success(), "{}", stderr(&carried));
    let at_target =
        [format!("--cacert={}", there.file), format!("--cert={}", own.cert), format!("--key={}", own.key)];
    assert_eq!(ask(&to, &at_target, &["get", "key", "--print-value-only"]), "carried\n");
    source.stop();
    target.stop();
}
