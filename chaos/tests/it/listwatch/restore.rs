//! A cluster restored from a backup: what was written after the backup is gone, clients that know it are
//! told 410 and list again, and nobody waits for a version to come.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher::watcher};
use kube::{Api, ResourceExt};
use meerkat_chaos::driver::Cluster;
use meerkat_chaos::listwatch::http::{self, Lines, Next};
use meerkat_chaos::listwatch::{start, wait_until_open};
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::{Failure, Patience, binary};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::kube_rs::client;

const MEMBERS: usize = 3;
const WITHIN: Duration = Duration::from_secs(40);
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const KEPT: usize = 5;

#[test]
fn after_a_restore_clients_are_told_410_and_list_again() {
    run_test("a restore under clients", Duration::from_secs(150), async {
        let mut cluster = start(MEMBERS).await?;
        let door = cluster.members()[0].listwatch_url();
        for number in 0..KEPT {
            create(&door, &format!("kept-{number}")).await?;
        }
        let mut told = follow(&cluster)?;
        until_told(&mut told, "has kept-4").await?;
        let backup = cluster.dir().join("backup.db");
        tool(&["snapshot", "save", "--endpoints", cluster.members()[0].endpoint().url(), &text(&backup)])?;
        let lost = create(&door, "lost").await?;
        until_told(&mut told, "applied lost").await?;
        let page = http::expect(&door, "GET", &format!("{COLLECTION}?limit=2"), None, &[200]).await?;
        let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();

        restore(&mut cluster, &backup).await?;
        knows_the_past(&door, lost, &token).await?;
        // kube-rs was told, began anew, and has what the backup has.
        until_told(&mut told, "init").await?;
        let again = until_told(&mut told, "ready").await?;
        let expected: Vec<String> = (0..KEPT).map(|number| format!("has kept-{number}")).collect();
        assert_eq!(again, expected, "what was written after the backup is gone");
        create(&door, "new").await?;
        until_told(&mut told, "applied new").await?;
        cluster.finish()
    });
}

/// What somebody gets who asks with what they know from before: an answer at once, and never 504.
async fn knows_the_past(door: &str, lost: u64, token: &str) -> Result<(), Failure> {
    let listed = http::expect(door, "GET", COLLECTION, None, &[200]).await?;
    assert!(lost < version(&listed)?, "the revision has jumped forward: {}", version(&listed)?);
    let at = |matching: &str| format!("{COLLECTION}?resourceVersion={lost}&resourceVersionMatch={matching}");
    http::expect(door, "GET", &at("NotOlderThan"), None, &[200]).await?;
    http::expect(door, "GET", &at("Exact"), None, &[410]).await?;
    http::expect(door, "GET", &format!("{COLLECTION}?limit=2&continue={token}"), None, &[410]).await?;
    let mut watch = Lines::begin(door, &format!("{COLLECTION}?watch=1&resourceVersion={lost}")).await?;
    match tokio::time::timeout(WITHIN, watch.next()).await {
        Ok(Ok(Next::Event(event))) if event["type"] == "ERROR" && event["object"]["code"] == 410 => Ok(()),
        next => Err(Failure::broken(format!("a watch from before the restore is told {next:?}"))),
    }
}

/// Every member from the same file, at the same addresses.
async fn restore(cluster: &mut Cluster, backup: &Path) -> Result<(), Failure> {
    let all: Vec<String> =
        cluster.members().iter().map(|member| format!("{}={}", member.name(), member.peer_url())).collect();
    for index in 0..MEMBERS {
        let member = cluster.member(index);
        member.kill()?;
        std::fs::remove_dir_all(member.data_dir())?;
    }
    for member in cluster.members() {
        tool(&[
            "snapshot",
            "restore",
            &text(backup),
            &format!("--name={}", member.name()),
            &format!("--data-dir={}", text(member.data_dir())),
            &format!("--initial-cluster={}", all.join(",")),
            &format!("--initial-advertise-peer-urls={}", member.peer_url()),
        ])?;
    }
    cluster.revive(WITHIN).await?;
    for member in 0..MEMBERS {
        wait_until_open(cluster, member).await?;
    }
    Ok(())
}

/// What a watcher of kube-rs says, in words.
fn follow(cluster: &Cluster) -> Result<mpsc::UnboundedReceiver<String>, Failure> {
    let api: Api<ConfigMap> = Api::default_namespaced(client(cluster, 0)?);
    let (says, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let words = match event {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitApply(object)) => format!("has {}", object.name_any()),
                Ok(Event::InitDone) => "ready".to_owned(),
                Ok(Event::Apply(object)) => format!("applied {}", object.name_any()),
                Ok(Event::Delete(object)) => format!("deleted {}", object.name_any()),
                // Nobody is there for a while.
                Err(_) => continue,
            };
            if says.send(words).is_err() {
                return;
            }
        }
    });
    Ok(told)
}

/// What was said before these words.
async fn until_told(told: &mut mpsc::UnboundedReceiver<String>, words: &str) -> Result<Vec<String>, Failure> {
    let mut before = Vec::new();
    let found = async {
        while let Some(said) = told.recv().await {
            if said == words {
                return true;
            }
            before.push(said);
        }
        false
    };
    match Patience::of(format!("kube-rs says {words:?}"), WITHIN).wait(found).await {
        Ok(true) => Ok(before),
        Ok(false) => {
            Err(Failure::broken(format!("kube-rs ends and never says {words:?}; it said {before:?}")))
        }
        Err(failure) => Err(failure.put(|why| format!("{why}; it said {before:?}"))),
    }
}

async fn create(door: &str, name: &str) -> Result<u64, Failure> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    version(&http::expect(door, "POST", COLLECTION, Some(&body), &[201]).await?)
}

fn version(object: &Value) -> Result<u64, Failure> {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    version.ok_or_else(|| Failure::broken(format!("no resourceVersion: {object}")))
}

fn tool(args: &[&str]) -> Result<(), Failure> {
    let output = Command::new(binary::meerkat()?).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::broken(format!("meerkat {args:?}: {}", String::from_utf8_lossy(&output.stderr))))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
