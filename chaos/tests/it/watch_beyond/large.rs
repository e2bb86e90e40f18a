//! Revisions of very many keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use meerkat_chaos::checker::watch_history::{Effect, Wrote};
use meerkat_chaos::checker::watch_properties::STRICT;
use meerkat_chaos::outcome::Outcome;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::watch::{Kind, Pumps, Reply, Stage, ValuePrint, WatchLog, WatchSpec, writers};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op};
use tokio::task::JoinHandle;

use super::{ANSWER_WITHIN, BUDGET, POLL, one_member, require, take_created, value};

const KEYS: usize = 50_000;
const FEWER_KEYS: usize = 5_000;
const PUTS_AT_ONCE: usize = 1_000;
const DELETE_WITHIN: Duration = Duration::from_secs(20);
/// How late an event of another key may be on a busy machine.
const UNDISTURBED: Duration = Duration::from_secs(2);

async fn fill(stage: &mut Stage, prefix: &str, keys: usize) -> Result<(), Failure> {
    for first in (0..keys).step_by(PUTS_AT_ONCE) {
        let put =
            |number: usize| (Bytes::from(format!("{prefix}{number:06}")), value(&number.to_string(), 40));
        let puts = (first..(first + PUTS_AT_ONCE).min(keys)).map(put).collect();
        let wrote = writers::put_all(stage.endpoint(0), puts).await;
        stage.made(wrote).await?;
    }
    Ok(())
}

fn all_under(prefix: &str) -> DeleteRangeRequest {
    let spec = WatchSpec::of_prefix(prefix.as_bytes());
    DeleteRangeRequest { key: spec.key, range_end: spec.range_end, prev_kv: false }
}

/// Deletes in one revision; which keys is for the history to say.
async fn delete_all(stage: &Stage, prefix: &str, keys: usize) -> Result<i64, Failure> {
    let answer = stage.endpoint(0).delete(all_under(prefix), DELETE_WITHIN).await?;
    require(answer.deleted == keys as i64, || format!("{} of {keys} deleted", answer.deleted))?;
    Ok(answer.header.map_or(0, |header| header.revision))
}

/// The same in a transaction that also puts a key.
async fn delete_all_and_put(stage: &mut Stage, prefix: &str) -> Result<i64, Failure> {
    let (key, value) = (Bytes::from_static(b"other/swept"), value("swept", 0));
    let effects = vec![Effect { key: key.clone(), put: Some(ValuePrint::of(&value)) }];
    let put = PutRequest { key, value, ..Default::default() };
    let ops =
        [request_op::Request::RequestDeleteRange(all_under(prefix)), request_op::Request::RequestPut(put)];
    let success = ops.into_iter().map(|request| RequestOp { request: Some(request) }).collect();
    let answer = stage.endpoint(0).txn(TxnRequest { success, ..Default::default() }, DELETE_WITHIN).await?;
    let outcome = Outcome::Ok(answer.header.map_or(0, |header| header.revision));
    stage.made(Wrote { effects, outcome }).await
}

/// Puts other keys one after the other until told to stop; when each was acknowledged.
struct Others {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    task: JoinHandle<Vec<(Wrote, Duration)>>,
}

impl Others {
    fn start(stage: &Stage) -> Others {
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let (stopped, counted) = (stop.clone(), count.clone());
        let (endpoint, began) = (stage.endpoint(0).clone(), stage.began);
        let task = tokio::spawn(async move {
            let mut all = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let name = format!("other/{:05}", all.len());
                let wrote = writers::put(&endpoint, Bytes::from(name.clone()), value(&name, 0)).await;
                all.push((wrote, began.elapsed()));
                counted.store(all.len(), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            all
        });
        Others { stop, count, task }
    }

    /// Waits until so many more are put.
    async fn go_on(&self, more: usize) -> Result<(), Failure> {
        let wanted = self.count.load(Ordering::Relaxed) + more;
        let are_there = || match self.count.load(Ordering::Relaxed) {
            all if wanted <= all => Ok(()),
            some => Err(format!("{some} of {wanted}")),
        };
        Patience::of(format!("{more} more puts"), ANSWER_WITHIN).until(POLL, are_there).await.map(drop)
    }

    /// Stops, and returns the revision of each put with the time of its acknowledgement.
    async fn finish(self, stage: &mut Stage) -> Result<Vec<(i64, Duration)>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.task.await.map_err(|error| Failure::harness(format!("the others ended: {error}")))?;
        let mut acknowledged = Vec::new();
        for (wrote, at) in all {
            acknowledged.push((stage.made(wrote).await?, at));
        }
        Ok(acknowledged)
    }
}

fn watchers() -> [(&'static str, WatchSpec); 4] {
    let many = |prev_kv, fragment| WatchSpec { prev_kv, fragment, ..WatchSpec::of_all() };
    [
        ("whole", many(false, false)),
        ("whole with previous values", many(true, false)),
        ("pieces with previous values", many(true, true)),
        ("others", WatchSpec::of_prefix(b"other/")),
    ]
}

#[test]
fn a_revision_of_many_keys_is_told_whole() {
    run_test("many keys in a revision", BUDGET, async {
        let flags = ["--max-txn-ops=1000", "--meerkat-watch-ring-bytes=1048576"];
        let mut stage = one_member(&flags).await?;
        fill(&mut stage, "big/", KEYS).await?;
        fill(&mut stage, "few/", FEWER_KEYS).await?;
        let mut pumps = Pumps::default();
        for (name, spec) in watchers() {
            let mut recorder = stage.recorder(0, &[])?;
            recorder.create(name, spec).await;
            take_created(&mut recorder).await?;
            pumps.add(recorder, None);
        }
        let others = Others::start(&stage);
        others.go_on(5).await?;
        let deleted = delete_all(&stage, "big/", KEYS).await?;
        let swept = delete_all_and_put(&mut stage, "few/").await?;
        // These find it in history, while the others are still told.
        for (name, spec) in watchers() {
            let mut recorder = stage.recorder(0, &[])?;
            recorder.create(format!("{name}, late"), spec.from(deleted)).await;
            pumps.add(recorder, None);
        }
        others.go_on(40).await?;
        let others = others.finish(&mut stage).await?;
        let (_, logs) = stage.judge(pumps, STRICT).await?;
        for log in &logs {
            judge_pieces(log, deleted, KEYS)?;
            judge_pieces(log, swept, FEWER_KEYS + 1)?;
        }
        let of_others = logs.iter().find(|log| log.name == "others");
        judge_delay(of_others.expect("a watcher of this name is created above"), &others)
    });
}

/// How the revision came: in one response, or in pieces that are marked as such.
fn judge_pieces(log: &WatchLog, revision: i64, events: usize) -> Result<(), Failure> {
    if !log.spec.wants(Kind::Delete, b"big/") {
        return Ok(());
    }
    let of_revision = |reply: &&Reply| reply.events.iter().any(|event| event.revision() == revision);
    let replies: Vec<&Reply> = log.replies().filter(of_revision).collect();
    let sizes: Vec<usize> = replies.iter().map(|reply| reply.events.len()).collect();
    println!("{}: revision {revision} in responses of {sizes:?}", log.name);
    let in_pieces = log.spec.fragment && events == KEYS;
    require((1 < replies.len()) == in_pieces, || format!("{}: responses of {sizes:?}", log.name))?;
    let marked = replies.iter().rev().skip(1).all(|reply| reply.fragment);
    require(marked && replies.last().is_some_and(|last| !last.fragment), || {
        format!("{}: pieces of {sizes:?} are not marked", log.name)
    })?;
    let alone = replies.iter().flat_map(|reply| &reply.events).all(|event| event.revision() == revision);
    require(alone && sizes.iter().sum::<usize>() == events, || format!("{}: {sizes:?}", log.name))
}

fn judge_delay(log: &WatchLog, acknowledged: &[(i64, Duration)]) -> Result<(), Failure> {
    let arrived = |revision: i64| {
        let has = |reply: &&Reply| reply.events.iter().any(|event| event.revision() == revision);
        log.replies().find(has).map(|reply| reply.at)
    };
    let delay = |(revision, at): &(i64, Duration)| arrived(*revision).map(|then| then.saturating_sub(*at));
    let longest = acknowledged.iter().filter_map(delay).max().unwrap_or_default();
    println!("{} other puts; the slowest event came {longest:?} after its answer", acknowledged.len());
    if UNDISTURBED <= longest {
        let puts = acknowledged.len();
        return Err(Failure::slow(format!("of {puts} other puts one was told {longest:?} late")));
    }
    Ok(())
}
