//! A member that meets a mistake of its own ends, alone and at once; a request's mistake ends nothing.
//!
//! The list of supervised tasks is the program's own, which names it when it is given a fault point that
//! does not exist: a task that is new is broken here without a change of this file.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::checker::{acknowledged, linearizable};
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::listwatch::http::{Answered, ask};
use meerkat_chaos::record::Trace;
use meerkat_chaos::record::history::History;
use meerkat_chaos::scenario::{run_test, settle};
use meerkat_chaos::workload::unique::{self, Running, Shape};
use meerkat_proto::pb::etcdserver::{CompactionRequest, PutRequest, RangeRequest};
use serde_json::json;
use tonic::Code;

const WITHIN: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// From the panic to the end of the process.
const END_WITHIN: Duration = Duration::from_secs(1);
/// One that has not ended by then goes on in spite of its mistake.
const GOES_ON_AFTER: Duration = Duration::from_secs(10);
const VICTIM: usize = 1;
/// What a member ends with at its own mistake: docs/operations.md.
const STATUS: i32 = 70;
/// Keys that end so are those that the fault points of requests and entries look for.
const POISON: &str = "meerkat-fault-poison";

/// With flags that begin every task there is.
fn spec() -> ClusterSpec {
    let flags = [
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        "--initial-corrupt-check=true",
        "--enable-distributed-tracing=true",
        "--distributed-tracing-address=127.0.0.1:9",
    ];
    ClusterSpec::new(Product::Meerkat, 3).with_quick_elections().with_flags(&flags).with_listwatch()
}

#[test]
fn a_panic_in_any_supervised_task_ends_that_member_within_a_second_and_names_it() {
    run_test("panics in tasks", Duration::from_secs(200), async {
        let mut cluster = Cluster::start(&spec()).await?;
        let started_at = probe(&cluster, 0).await?;
        let load = unique::start(&cluster.endpoints(), Shape::default(), 1, &Trace::new(Instant::now()));
        let tasks = tasks(&mut cluster)?;
        for task in &tasks {
            let began = Instant::now();
            break_task(&mut cluster, &load, task).await.map_err(|failure| failure.during(task))?;
            println!("  {task}: {:?}", began.elapsed());
        }
        cluster.revive(WITHIN).await?;
        let history = load.finish().await?;
        judge(&cluster, &history, started_at).await?;
        println!("  {} tasks; writes (acknowledged, refused, unknown): {:?}", tasks.len(), history.counts());
        cluster.finish()
    });
}

/// Every member is asked for everything. Not whether revisions are dense: the list-watch door writes, too.
async fn judge(cluster: &Cluster, history: &History, started_at: i64) -> Result<(), Failure> {
    for member in cluster.members() {
        let state = unique::final_state(member.endpoint(), started_at).await?;
        Failure::from_findings("no acknowledged write is lost", acknowledged::check(history, &state))?;
        Failure::from_findings("reads and writes are linearizable", linearizable::check(history, &state))?;
    }
    settle::agree(cluster, Product::Meerkat).await
}

async fn probe(cluster: &Cluster, member: usize) -> Result<i64, Failure> {
    Ok(cluster.members()[member].endpoint().linearizable_probe(WITHIN).await?)
}

/// What the program names when it refuses a point that it does not have.
fn tasks(cluster: &mut Cluster) -> Result<Vec<String>, Failure> {
    let member = cluster.member(VICTIM);
    member.kill()?;
    let before = member.printed()?.len();
    member.start_with(&[("MEERKAT_FAULTS", "no such point=panic@1")])?;
    let status = member.wait_for_exit(WITHIN)?;
    let printed = member.printed()?;
    // The last line is the plain one.
    let list = printed[before..].rsplit("tasks: [").next().and_then(|rest| rest.split(']').next());
    let names = list.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned);
    let names: Vec<String> = names.collect();
    match status.code() {
        Some(1) if 20 < names.len() => Ok(names),
        _ => Err(Failure::broken(format!("ended with {status} and named {names:?}: {}", member.tail()))),
    }
}

/// A second after the start, or after so much work, but for what is over sooner.
fn pass(task: &str) -> u32 {
    match task {
        "publish" => 1,
        "compaction" => 2,
        _ => 10,
    }
}

async fn break_task(cluster: &mut Cluster, load: &Running, task: &str) -> Result<(), Failure> {
    let member = cluster.member(VICTIM);
    member.kill()?;
    let before = member.printed()?.len();
    member.start_with(&[("MEERKAT_FAULTS", &format!("{task}=panic@{}", pass(task)))])?;
    let mut pushed = Instant::now();
    let deadline = Instant::now() + WITHIN;
    let panicked = format!("fault point {task}");
    while !cluster.members()[VICTIM].printed()?[before..].contains(&panicked) {
        if deadline < Instant::now() {
            return Err(Failure::harness(format!("not reached: {}", cluster.members()[VICTIM].tail())));
        }
        if Duration::from_millis(500) < pushed.elapsed() {
            push(cluster, task).await?;
            pushed = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let member = cluster.member(VICTIM);
    let panicked = Instant::now();
    let Ok(status) = member.wait_for_exit(GOES_ON_AFTER) else {
        let tail = member.tail();
        return Err(Failure::broken(format!("it runs {GOES_ON_AFTER:?} after the panic: {tail}")));
    };
    let took = panicked.elapsed();
    let printed = member.printed()?[before..].to_owned();
    if status.code() != Some(STATUS) || !printed.contains(&format!("Error: {task} failed at ")) {
        return Err(Failure::broken(format!("ended with {status}: {}", member.tail())));
    }
    if END_WITHIN < took {
        return Err(Failure::slow(format!("ended {took:?} after the panic, allowed are {END_WITHIN:?}")));
    }
    load.wait_for_more(20, WITHIN).await
}

/// Some tasks have work only when others ask for it.
async fn push(cluster: &Cluster, task: &str) -> Result<(), Failure> {
    let leader = cluster.leader(WITHIN).await?;
    let endpoint = cluster.members()[leader].endpoint();
    match task {
        "compaction" => {
            let revision = probe(cluster, leader).await?;
            let request = CompactionRequest { revision: (revision - 50).max(1), physical: false };
            // The load may not have moved on since the last.
            let _refused = endpoint.compact(request, ANSWER_WITHIN).await.is_err();
        }
        // Only a leader asks for it.
        "read confirmation" if leader != VICTIM => {
            if let Ok(status) = cluster.members()[VICTIM].endpoint().status(ANSWER_WITHIN).await {
                let id = status.header.map_or(0, |header| header.member_id);
                // It may not have caught up yet.
                let _refused = endpoint.move_leader(id, ANSWER_WITHIN).await.is_err();
            }
        }
        _ => {}
    }
    Ok(())
}

async fn start_poisoned(cluster: &mut Cluster, point: &str) -> Result<(), Failure> {
    for member in 0..3 {
        cluster.member(member).start_with(&[("MEERKAT_FAULTS", &format!("{point}=panic@1"))])?;
    }
    cluster.wait_until_ready(WITHIN).await
}

#[test]
fn a_request_made_to_panic_at_every_member_and_every_door_ends_none() {
    run_test("panics in requests", Duration::from_secs(90), async {
        let mut cluster = Cluster::prepare(&spec())?;
        start_poisoned(&mut cluster, "poisoned_request").await?;
        let lives: Vec<Option<u32>> = cluster.members().iter().map(|member| member.pid()).collect();
        for _ in 0..3 {
            for member in cluster.members() {
                let key = Bytes::from_static(POISON.as_bytes());
                let asked = RangeRequest { key, ..Default::default() };
                let answer = member.endpoint().range(asked, ANSWER_WITHIN).await;
                require(answer.as_ref().err().map(|status| status.code()) == Some(Code::Internal), &answer)?;
                let json = format!("http://127.0.0.1:{}", member.client_port());
                // The same key, in base64.
                let body = json!({ "key": "bWVlcmthdC1mYXVsdC1wb2lzb24=" });
                require_500(&ask(&json, "POST", "/v3/kv/range", Some(&body)).await?)?;
                let object = format!("/api/v1/namespaces/default/configmaps/{POISON}");
                require_500(&ask(&member.listwatch_url(), "GET", &object, None).await?)?;
            }
        }
        for (member, life) in lives.iter().enumerate() {
            require(cluster.member(member).is_running()?, "it has ended")?;
            require(cluster.members()[member].pid() == *life, "it was started anew")?;
            let metrics = cluster.members()[member].endpoint().metrics(ANSWER_WITHIN).await?;
            let panics = metrics.get("meerkat_request_panics_total")?;
            require(panics == 9.0, panics)?;
            put(&cluster, member, "after").await?;
        }
        cluster.finish()
    });
}

fn require(fine: bool, what: impl std::fmt::Debug) -> Result<(), Failure> {
    if fine { Ok(()) } else { Err(Failure::broken(format!("{what:?}"))) }
}

fn require_500(answered: &Answered) -> Result<(), Failure> {
    require(answered.status == 500, answered)
}

async fn put(cluster: &Cluster, member: usize, key: &str) -> Result<(), Failure> {
    let request = PutRequest { key: Bytes::copy_from_slice(key.as_bytes()), ..Default::default() };
    cluster.members()[member].endpoint().put(request, WITHIN).await?;
    Ok(())
}

#[test]
fn an_entry_made_to_panic_stops_members_there_again_and_damages_nothing() {
    run_test("a panic in apply", Duration::from_secs(90), async {
        let mut cluster = Cluster::prepare(&spec())?;
        start_poisoned(&mut cluster, "poisoned_entry").await?;
        let started_at = probe(&cluster, 0).await?;
        let load = unique::start(&cluster.endpoints(), Shape::default(), 1, &Trace::new(Instant::now()));
        load.wait_for_more(200, WITHIN).await?;
        // Nobody is left to answer it.
        let poisoned = tokio::time::timeout(Duration::from_secs(2), put(&cluster, 0, POISON)).await;
        require(!matches!(poisoned, Ok(Ok(()))), "it was acknowledged")?;
        let first = stopped_at(&mut cluster).await?;
        for member in 0..3 {
            cluster.member(member).kill()?;
            cluster.member(member).start_with(&[("MEERKAT_FAULTS", "poisoned_entry=panic@1")])?;
        }
        let second = stopped_at(&mut cluster).await?;
        require(first == second, (first, second))?;
        println!("  stopped at index {first}, twice");
        for member in 0..3 {
            cluster.member(member).kill()?;
        }
        cluster.revive(WITHIN).await?;
        load.wait_for_more(20, WITHIN).await?;
        let history = load.finish().await?;
        judge(&cluster, &history, started_at).await?;
        cluster.finish()
    });
}

/// Waits until a majority has ended, and says at which entry. The third may not hear that it is agreed on.
async fn stopped_at(cluster: &mut Cluster) -> Result<u64, Failure> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let mut indexes = Vec::new();
        for member in 0..3 {
            if !cluster.member(member).is_running()? {
                let printed = cluster.members()[member].printed()?;
                indexes.push(last_index(&printed)?);
            }
        }
        if 2 <= indexes.len() {
            require(indexes.iter().all(|index| *index == indexes[0]), &indexes)?;
            return Ok(indexes[0]);
        }
        require(Instant::now() < deadline, "a majority goes on")?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In the last line that says why a member ended.
fn last_index(printed: &str) -> Result<u64, Failure> {
    let line = printed.lines().rfind(|line| line.contains("a mistake of its own") && line.starts_with('{'));
    let line: serde_json::Value = serde_json::from_str(line.unwrap_or("null"))
        .map_err(|error| Failure::broken(format!("a log line is not JSON: {error}")))?;
    match (line["failed"].as_str(), line["index"].as_u64()) {
        (Some("apply"), Some(index)) => Ok(index),
        _ => Err(Failure::broken(format!("it does not say at which entry: {line}"))),
    }
}
