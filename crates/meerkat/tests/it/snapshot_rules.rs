//! Backups of a cluster that asks who its clients are: whoever restores one, it asks again.

use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::{meerkat, run, stderr, stdout, wait_until};
use crate::snapshot::{Member, dial, ok, served_by_etcd};
use meerkat_proto::pb::etcdserver as pb;
use pb::maintenance_client::MaintenanceClient;
use std::path::Path;
use std::process::Output;

const ROOT: &str = "--user=root:secret";
const BOB: &str = "--user=bob:hunter2";

/// What a client hears, with one of the tools.
fn tell(endpoint: &str, args: &[&str]) -> Output {
    run(meerkat().args(["--endpoints", endpoint, "--command-timeout=60s"]).args(args), b"")
}

/// Two users with passwords, one known by a certificate, a role with a range, and authentication on.
pub fn set_up(endpoint: &str) {
    let lines: [&[&str]; 11] = [
        &["put", "app/before", "v"],
        &["user", "add", "root:secret"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "writer"],
        &["role", "grant-permission", "writer", "readwrite", "app/", "app0"],
        &["role", "grant-permission", "writer", "read", "one"],
        &["role", "grant-permission", "writer", "write", "z", "--from-key"],
        &["user", "add", "bob:hunter2"],
        &["user", "grant-role", "bob", "writer"],
        &["user", "add", "cert", "--no-password"],
        &["auth", "enable"],
    ];
    for line in lines {
        ok(tell(endpoint, line));
    }
}

fn refused(endpoint: &str, args: &[&str], expected: &str) {
    let output = tell(endpoint, args);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains(expected), "{args:?}: {said:?} {}", stdout(&output));
}

/// What root sees of users and roles.
pub fn rules(endpoint: &str) -> Vec<String> {
    let lines: [&[&str]; 5] = [
        &["auth", "status"],
        &["user", "list"],
        &["role", "list"],
        &["role", "get", "writer"],
        &["user", "get", "bob"],
    ];
    lines.iter().map(|line| ok(tell(endpoint, &[&[ROOT], *line].concat()))).collect()
}

/// The rules of [`set_up`] hold there, with the same passwords, and are those of before.
pub fn holds(endpoint: &str, before: &[String]) {
    wait_until("root is let in", || tell(endpoint, &[ROOT, "get", "app/before"]).status.success());
    assert_eq!(rules(endpoint), before);
    assert!(before[0].starts_with("Authentication Status: true"), "{}", before[0]);
    refused(endpoint, &["put", "app/x", "v"], "user name is empty");
    refused(endpoint, &["get", "app/before"], "user name is empty");
    ok(tell(endpoint, &[BOB, "put", "app/x", "v"]));
    ok(tell(endpoint, &[BOB, "put", "zebra", "v"]));
    refused(endpoint, &[BOB, "put", "one", "v"], "permission denied");
    refused(endpoint, &[BOB, "put", "app0", "v"], "permission denied");
    refused(endpoint, &["--user=bob:secret", "put", "app/x", "v"], "authentication failed");
    refused(endpoint, &["--user=cert:", "get", "app/x"], "authentication failed");
    ok(tell(endpoint, &[ROOT, "put", "app0", "v"]));
}

fn save(endpoint: &str, file: &Path) {
    let saved = run(meerkat().args(["snapshot", "save", ROOT, "--endpoints", endpoint]).arg(file), b"");
    ok(saved);
}

#[test]
fn a_restored_cluster_asks_who_its_clients_are_and_so_does_etcd() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Member::alone(dir.path());
    set_up(&source.endpoint);
    let file = dir.path().join("backup.db");
    let nobody = run(
        meerkat().args(["snapshot", "save", "--endpoints", &source.endpoint]).arg(dir.path().join("no.db")),
        b"",
    );
    assert!(!nobody.status.success(), "a backup has the hashes of passwords");
    save(&source.endpoint, &file);
    let before = rules(&source.endpoint);
    let mut member = Member::new("restored", dir.path());
    let cluster = format!("restored={}", member.peer);
    let said = ok(member.restore(&file, &cluster, &[]));
    assert!(said.contains("Authentication is on, with 3 users and 1 roles"), "{said}");
    member.start(&cluster, "new");
    holds(&member.endpoint, &before);
    // Its rules go on from where they were.
    ok(tell(&member.endpoint, &[ROOT, "user", "add", "eve:pass"]));
    assert_ne!(rules(&member.endpoint)[0], before[0]);
    if etcd_is_here() {
        let (endpoint, _etcd) = served_by_etcd(dir.path(), &file);
        holds(&endpoint, &before);
        ok(tell(&endpoint, &[ROOT, "role", "revoke-permission", "writer", "app/", "app0"]));
        refused(&endpoint, &[BOB, "put", "app/x", "v"], "permission denied");
    }
}

#[test]
fn etcds_users_and_roles_become_ours() {
    if !etcd_is_here() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start();
    set_up(&etcd.endpoint);
    let file = dir.path().join("etcd.db");
    ok(run(etcdctl().args(["--endpoints", &etcd.endpoint, ROOT, "snapshot", "save"]).arg(&file), b""));
    let before = rules(&etcd.endpoint);
    let mut member = Member::new("imported", dir.path());
    let cluster = format!("imported={}", member.peer);
    ok(member.restore(&file, &cluster, &["--bump-revision=0"]));
    member.start(&cluster, "new");
    holds(&member.endpoint, &before);
}

async fn raise(endpoint: &str, member_id: u64, alarm: pb::AlarmType) {
    let request = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Activate.into(),
        member_id,
        alarm: alarm.into(),
    };
    MaintenanceClient::new(dial(endpoint).await).alarm(request).await.expect("an alarm");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_about_the_data_is_restored_and_one_about_a_lost_members_room_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Member::alone(dir.path());
    ok(tell(&source.endpoint, &["put", "key", "value"]));
    raise(&source.endpoint, 7, pb::AlarmType::Nospace).await;
    raise(&source.endpoint, 8, pb::AlarmType::Corrupt).await;
    let both = ok(tell(&source.endpoint, &["alarm", "list"]));
    let file = dir.path().join("backup.db");
    ok(run(meerkat().args(["snapshot", "save", "--endpoints", &source.endpoint]).arg(&file), b""));
    let mut member = Member::new("restored", dir.path());
    let cluster = format!("restored={}", member.peer);
    let said = ok(member.restore(&file, &cluster, &[]));
    assert!(said.contains("The alarm CORRUPT of member 8 is on"), "{said}");
    assert!(said.contains("The alarm NOSPACE of member 7 is left out"), "{said}");
    member.start(&cluster, "new");
    wait_until("it serves", || tell(&member.endpoint, &["get", "key"]).status.success());
    assert_eq!(ok(tell(&member.endpoint, &["alarm", "list"])), "memberID:8 alarm:CORRUPT \n");
    refused(&member.endpoint, &["put", "key", "v"], "corrupt cluster");
    ok(tell(&member.endpoint, &["alarm", "disarm"]));
    ok(tell(&member.endpoint, &["put", "key", "v"]));
    if etcd_is_here() {
        let (endpoint, _etcd) = served_by_etcd(dir.path(), &file);
        wait_until("etcd serves", || tell(&endpoint, &["get", "key"]).status.success());
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&ok(tell(&endpoint, &["alarm", "list"]))), lines(&both));
    }
}
