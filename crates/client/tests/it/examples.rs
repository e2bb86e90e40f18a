//! The examples, run as anybody would run them, against a real member.
//!
//! They are built by `cargo test` of the whole package, or by `cargo build --examples`, in the profile
//! of the test.

use crate::patience::within;
use crate::server::BOTH;
use crate::watch_cluster::Cluster;
use meerkat_client::Client;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A running example, and the lines it prints.
struct Example {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Where it was built. On CI a missing one is a failure, elsewhere it is said.
fn built(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    // A test runs from `<profile>/deps/`.
    let path = own.ancestors().nth(2)?.join("examples").join(name);
    if path.is_file() {
        return Some(path);
    }
    let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!strict, "{name} is not built: cargo build --examples -p meerkat-client");
    println!("skipped, {name} is not built: cargo build --examples -p meerkat-client");
    None
}

impl Example {
    fn run(path: &PathBuf, args: &[String]) -> Example {
        let mut child = Command::new(path)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("to start an example");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Example { child, lines }
    }

    async fn line(&mut self) -> Option<String> {
        let line = within("a line", self.lines.next_line()).await;
        line.expect("lines of text")
    }

    async fn prints(&mut self, expected: &str) {
        assert_eq!(self.line().await.as_deref(), Some(expected));
    }

    /// What Ctrl-C does.
    async fn interrupt(&mut self) {
        let id = self.child.id().expect("it still runs").to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await.expect("to run kill");
        assert!(sent.success());
    }

    async fn ends_well(mut self) {
        assert_eq!(self.line().await, None, "it prints no more");
        let ended = within("its end", self.child.wait()).await;
        assert!(ended.expect("an end").success());
    }
}

#[tokio::test]
async fn the_quickstart_writes_reads_watches_and_swaps() {
    let Some(path) = built("quickstart") else { return };
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let mut example = Example::run(&path, &cluster.endpoints());
        let lines = [
            "written",
            "read fruit/apple = green",
            "read fruit/pear = yellow",
            "watched 1 change",
            "watched 1 change",
            "swapped: true",
            "deleted 2",
        ];
        for line in lines {
            example.prints(line).await;
        }
        example.ends_well().await;
    }
}

#[tokio::test]
async fn settings_are_there_at_the_start_and_follow_the_store() {
    let Some(path) = built("config_reload") else { return };
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = Client::connect(cluster.endpoints()).await.expect("a client");
        client.put("cfg/log-level", "warn").await.expect("a put");
        let mut example = Example::run(&path, &cluster.endpoints());
        example.prints("started with 1 settings, log level warn").await;
        example.prints("set cfg/log-level to warn").await;
        client.put("cfg/log-level", "debug").await.expect("a put");
        example.prints("changed cfg/log-level from warn to debug").await;
        client.put("cfg/log-level", vec![0xff]).await.expect("a put");
        let line = example.line().await.expect("a line");
        assert!(line.starts_with("cfg/log-level is not text"), "{line}");
        client.put("cfg/log-level", "info").await.expect("a put");
        example.prints("changed cfg/log-level from debug to info").await;
        client.delete("cfg/log-level").await.expect("a delete");
        example.prints("unset cfg/log-level").await;
        example.interrupt().await;
        example.prints("stopped").await;
        example.ends_well().await;
    }
}

#[tokio::test]
async fn the_controller_makes_what_is_agree_with_what_should_be() {
    let Some(path) = built("controller") else { return };
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = Client::connect(cluster.endpoints()).await.expect("a client");
        client.put("desired/web", "3").await.expect("a put");
        client.put("actual/old", "1").await.expect("a put");
        let mut example = Example::run(&path, &cluster.endpoints());
        let mut first = [example.line().await, example.line().await].map(Option::unwrap_or_default);
        first.sort();
        assert_eq!(first, ["old is gone", "web is now 3"]);
        client.put("desired/web", "5").await.expect("a put");
        example.prints("web is now 5").await;
        // Somebody meddles.
        client.put("actual/web", "0").await.expect("a put");
        example.prints("web is now 5").await;
        client.delete("desired/web").await.expect("a delete");
        example.prints("web is gone").await;
        example.interrupt().await;
        example.prints("stopped").await;
        example.ends_well().await;
        let left = client.get(meerkat_client::Keys::prefix("actual/")).await.expect("a get");
        assert_eq!(left.count, 0);
    }
}

#[tokio::test]
async fn one_leads_and_the_next_takes_over_when_it_steps_down_or_dies() {
    let Some(path) = built("leader_election") else { return };
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = Client::connect(cluster.endpoints()).await.expect("a client");
        let candidate = |name: &str| Example::run(&path, &with(&[name], &cluster));
        let mut anna = candidate("anna");
        anna.prints("anna is a candidate").await;
        anna.prints("anna leads").await;
        let mut bert = candidate("bert");
        bert.prints("bert is a candidate").await;
        anna.interrupt().await;
        anna.prints("anna stepped down").await;
        anna.ends_well().await;
        bert.prints("bert leads").await;
        let mut carl = candidate("carl");
        carl.prints("carl is a candidate").await;
        // Killed, it cannot step down: its lease has to run out.
        bert.child.kill().await.expect("to kill it");
        carl.prints("carl leads").await;
        let reports = async {
            while client
                .get("report/latest")
                .await
                .expect("a get")
                .first()
                .is_none_or(|kv| kv.value != "carl")
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within("a report of carl's", reports).await;
        carl.interrupt().await;
        carl.prints("carl stepped down").await;
        carl.ends_well().await;
    }
}

#[tokio::test]
async fn services_come_and_go_and_followers_are_told() {
    let Some(path) = built("service_discovery") else { return };
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let mut one = Example::run(&path, &with(&["announce", "web", "10.0.0.1:80"], &cluster));
        one.prints("announced 10.0.0.1:80").await;
        let mut follower = Example::run(&path, &with(&["follow", "web"], &cluster));
        follower.prints("following web").await;
        follower.prints("up 10.0.0.1:80").await;
        let mut two = Example::run(&path, &with(&["announce", "web", "10.0.0.2:80"], &cluster));
        two.prints("announced 10.0.0.2:80").await;
        follower.prints("up 10.0.0.2:80").await;
        one.interrupt().await;
        one.prints("withdrawn 10.0.0.1:80").await;
        one.ends_well().await;
        follower.prints("down 10.0.0.1:80").await;
        // Killed, it cannot withdraw: its lease has to run out.
        two.child.kill().await.expect("to kill it");
        follower.prints("down 10.0.0.2:80").await;
        follower.interrupt().await;
        follower.ends_well().await;
    }
}

/// Arguments, with the cluster's endpoints behind them.
fn with(args: &[&str], cluster: &Cluster) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).chain(cluster.endpoints()).collect()
}
