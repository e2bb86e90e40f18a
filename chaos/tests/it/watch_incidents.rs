//! What went wrong with watches elsewhere does not go wrong here: one test for each incident.
//!
//! Numbers are issues of etcd unless another project is named. `MEERKAT_PRODUCT=etcd` runs the same
//! on etcd, where some of them can still be seen.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::checker::watch_properties::{Demand, STRICT};
use meerkat_chaos::driver::{Product, usage};
use meerkat_chaos::scenario::{fault_points, run_test, settle, snapshot};
use meerkat_chaos::watch::stage::{QUICK, STEADY};
use meerkat_chaos::watch::writers::{self, Shape};
use meerkat_chaos::watch::{Kind, Pumps, Recorder, Stage, WatchLog, WatchSpec};
use meerkat_chaos::workload::latency;
use meerkat_proto::pb::etcdserver::RangeRequest;

const BUDGET: Duration = Duration::from_secs(240);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Of writes, until the members let go of their log.
const ROUNDS_MAX: usize = 60;

fn product() -> Product {
    match std::env::var("MEERKAT_PRODUCT").as_deref() {
        Ok("etcd") => Product::Etcd,
        _ => Product::Meerkat,
    }
}

/// Marks as often as they can be had.
fn every_second() -> &'static [(&'static str, &'static str)] {
    match product() {
        Product::Meerkat => &[("meerkat-watch-progress-interval", "1s")],
        Product::Etcd => &[],
    }
}

fn some_kinds() -> [WatchSpec; 6] {
    [
        WatchSpec::of_all(),
        WatchSpec { prev_kv: true, ..WatchSpec::of_prefix(b"a/") },
        WatchSpec { no_put: true, ..WatchSpec::of_prefix(b"b/") },
        WatchSpec { no_delete: true, progress_notify: true, ..WatchSpec::of_range(b"b/", b"\0") },
        WatchSpec { progress_notify: true, ..WatchSpec::of_key(&writers::key(0, 3)) },
        WatchSpec { fragment: true, ..WatchSpec::of_range(&writers::key(0, 6), &writers::key(1, 6)) },
    ]
}

fn events_of(logs: &[WatchLog]) -> usize {
    logs.iter().map(|log| log.events().count()).sum()
}

fn marks_of(logs: &[WatchLog]) -> usize {
    logs.iter().map(|log| log.replies().filter(|reply| reply.is_mark()).count()).sum()
}

/// 15220: a mark asked for was sent ahead of events it claimed to cover. Half the watchers of the
/// stream are catching up while marks are asked for all the time.
#[test]
fn no_event_at_or_below_a_progress_mark_follows_it() {
    run_test("marks and late watchers", BUDGET, async {
        let mut stage = Stage::start(product(), 1, &[]).await?;
        stage.write(QUICK, 4_000).await?;
        let writing = stage.start_writing(STEADY);
        let mut pumps = Pumps::default();
        for round in 0..6 {
            let now = stage.revision(0).await?;
            let mut recorder = stage.recorder(0, every_second())?;
            for (index, spec) in some_kinds().into_iter().enumerate() {
                let start = [0, 2, now / 2, now - 5][(index + round) % 4];
                recorder.create(format!("{round}.{index}"), spec.from(start)).await;
            }
            pumps.add(recorder, Some(Duration::from_millis(3)));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        stage.stop_writing(writing).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (_, logs) = stage.judge(pumps, STRICT).await?;
        println!("{} events, {} marks", events_of(&logs), marks_of(&logs));
        if marks_of(&logs) == 0 {
            return Err(Failure::broken("not one mark was sent, though all watchers were level at the end"));
        }
        Ok(())
    });
}

/// 20221: a watcher of a future revision was sent older events and marks.
#[test]
fn nothing_below_a_requested_future_revision_is_ever_sent() {
    run_test("watchers of the future", BUDGET, async {
        let mut stage = Stage::start(product(), 3, &[]).await?;
        stage.write(STEADY, 50).await?;
        let mut pumps = Pumps::default();
        for member in 0..3 {
            let now = stage.revision(member).await?;
            for ahead in [1, 2, 60, 200, 100_000] {
                // Alone on its stream: with others, marks for all would have to wait for it.
                let mut recorder = stage.recorder(member, every_second())?;
                let spec = WatchSpec { progress_notify: true, ..WatchSpec::of_all() }.from(now + ahead);
                recorder.create(format!("{member}, {ahead} ahead"), spec).await;
                pumps.add(recorder, Some(Duration::from_millis(20)));
            }
        }
        stage.write(Shape { rest: Duration::from_millis(40), ..STEADY }, 300).await?;
        let demand = Demand { marks: product() == Product::Meerkat, ..STRICT };
        stage.judge(pumps, demand).await.map(|_| ())
    });
}

/// 20655: of watchers created in quick succession some lost events.
#[test]
fn thousands_of_watchers_created_while_writes_go_on_lose_no_event() {
    run_test("thousands of creates", BUDGET, async {
        let mut stage = Stage::start(product(), 1, &[]).await?;
        stage.write(QUICK, 500).await?;
        let writing = stage.start_writing(STEADY);
        let mut pumps = Pumps::default();
        let began = Instant::now();
        for stream in 0..3 {
            let now = stage.revision(0).await?;
            let mut recorder = stage.recorder(0, &[])?;
            for number in 0..1_000 {
                let spec = match number % 100 {
                    0 => WatchSpec::of_prefix(b"b/"),
                    _ => WatchSpec::of_key(&writers::key(number / 12, number % 12)),
                };
                // From now on, from just before, and from well before.
                let start = [0, now, now - 100][number % 3];
                recorder.create(format!("{stream}.{number}"), spec.from(start)).await;
            }
            pumps.add(recorder, None);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.stop_writing(writing).await?;
        let (_, logs) = stage.judge(pumps, STRICT).await?;
        println!("{} watchers, {} events, {:?}", logs.len(), events_of(&logs), began.elapsed());
        Ok(())
    });
}

/// Xline 166, 677 and 848: events between the replay of history and the live stream were lost, or
/// came twice. Watchers are created around the newest revision, over and over, on all members.
#[test]
fn a_watcher_created_at_the_newest_revision_misses_and_repeats_nothing() {
    run_test("replay to live", BUDGET, async {
        let mut stage = Stage::start(product(), 3, &[]).await?;
        stage.write(QUICK, 200).await?;
        let writing = stage.start_writing(Shape { rest: Duration::from_millis(2), ..STEADY });
        let mut pumps = Pumps::default();
        for round in 0..60 {
            let member = round % 3;
            let now = stage.revision(member).await?;
            let mut recorder = stage.recorder(member, &[])?;
            let specs = [
                WatchSpec::of_prefix(b"a/").from(0),
                WatchSpec::of_prefix(b"c/").from(now),
                WatchSpec { prev_kv: true, ..WatchSpec::of_key(&writers::key(1, 4)) }.from(now - 2),
                WatchSpec::of_range(b"b/", b"\0").from(now + 1),
                WatchSpec::of_key(&writers::key(2, 5)).from(now + 3),
                WatchSpec::of_all().from((now - 40).max(1)),
            ];
            for (index, spec) in specs.into_iter().enumerate() {
                recorder.create(format!("{round}.{index}"), spec).await;
            }
            pumps.add(recorder, None);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.stop_writing(writing).await?;
        let (_, logs) = stage.judge(pumps, STRICT).await?;
        println!("{} watchers, {} events", logs.len(), events_of(&logs));
        Ok(())
    });
}

/// 17529: a stream that was not read for long lost the events that compaction took meanwhile.
#[test]
fn a_slow_watcher_overtaken_by_compaction_is_told_so_and_never_skips() {
    run_test("overtaken by compaction", BUDGET, async {
        let mut stage = Stage::start(product(), 1, &[]).await?;
        let mut stalled: Vec<Recorder> = Vec::new();
        for number in 0..4 {
            let mut recorder = stage.narrow_recorder(0)?;
            for (index, spec) in some_kinds().into_iter().enumerate() {
                recorder.create(format!("{number}.{index}"), spec.from(1)).await;
            }
            let created = |logs: &[WatchLog]| logs.iter().all(|log| log.replies().next().is_some());
            recorder.take_until("creation of all watchers", ANSWER_WITHIN, created).await?;
            stalled.push(recorder);
        }
        // More than what any queue holds for these streams.
        stage.write(Shape { small: 100 << 10, ..QUICK }, 700).await?;
        let now = stage.revision(0).await?;
        stage.compact(0, now).await?;
        stage.write(QUICK, 100).await?;
        let mut pumps = Pumps::default();
        stalled.into_iter().for_each(|recorder| pumps.add(recorder, None));
        // One that was told is owed nothing more, so the judge cannot demand the rest of everyone.
        let demand = Demand { complete: false, marks: product() == Product::Meerkat };
        let (history, logs) = stage.judge(pumps, demand).await?;
        let told = |log: &WatchLog| log.replies().any(|reply| reply.compact_revision != 0);
        println!("{} of {} watchers were told", logs.iter().filter(|log| told(log)).count(), logs.len());
        let silent = logs.iter().find(|log| !told(log) && !history.is_told_in(log));
        match (silent, logs.iter().any(told)) {
            (Some(log), _) => Err(Failure::broken(format!(
                "watcher {} was neither told of compaction nor sent everything",
                log.name
            ))),
            (None, false) => Err(Failure::harness("no watcher was slow enough to be overtaken")),
            (None, true) => Ok(()),
        }
    });
}

/// 18089 and 19179: a deletion exactly at the compacted revision was dropped, so later watchers
/// never heard of it. Seen on every member, before and after it starts again.
#[test]
fn a_deletion_at_the_compacted_revision_reaches_later_watchers_and_readers() {
    run_test("a deletion at the bound", BUDGET, async {
        let mut stage = Stage::start(product(), 3, &[]).await?;
        let key = Bytes::from_static(b"gone");
        let mut bound = 0;
        for round in 0..2 {
            for number in 0..3 {
                let value = format!("{round}.{number}").into_bytes().into();
                let wrote = writers::put(stage.endpoint(number), key.clone(), value).await;
                stage.made(wrote).await?;
            }
            let wrote = writers::delete(stage.endpoint(round), key.clone()).await;
            bound = stage.made(wrote).await?;
            stage.compact(round, bound).await?;
        }
        require_deletion(&stage, &key, bound).await?;
        for member in 0..3 {
            stage.cluster.member(member).kill()?;
            stage.cluster.revive(READY_WITHIN).await?;
        }
        require_deletion(&stage, &key, bound).await?;
        settle::agree(&stage.cluster, product()).await?;
        stage.judge(Pumps::default(), STRICT).await.map(|_| ())
    });
}

async fn require_deletion(stage: &Stage, key: &Bytes, bound: i64) -> Result<(), Failure> {
    for member in 0..3 {
        stage.revision(member).await?;
        let mut recorder = stage.recorder(member, &[])?;
        let spec = WatchSpec { prev_kv: true, ..WatchSpec::of_key(key) };
        recorder.create("at the bound", spec.clone().from(bound)).await;
        recorder.create("everything at the bound", WatchSpec::of_all().from(bound)).await;
        recorder.create("below the bound", spec.from(bound - 1)).await;
        let seen = |log: &WatchLog| {
            let only: Vec<_> = log.events().map(|event| (event.kind, event.revision())).collect();
            only == [(Kind::Delete, bound)]
        };
        let told = |log: &WatchLog| log.replies().any(|reply| reply.compact_revision == bound);
        let what = format!("the deletion at the compacted revision {bound}, on member {member},");
        recorder
            .take_until(&what, ANSWER_WITHIN, |logs| seen(&logs[0]) && seen(&logs[1]) && told(&logs[2]))
            .await?;
        let request = RangeRequest { key: key.clone(), revision: bound, ..Default::default() };
        let answer = stage.endpoint(member).range(request, ANSWER_WITHIN).await?;
        if !answer.kvs().is_empty() {
            return Err(Failure::broken(format!("member {member} still has the deleted key at {bound}")));
        }
    }
    Ok(())
}

/// How a member missed what happened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asleep {
    /// Its log still reaches back.
    Briefly,
    /// It has to be sent a snapshot.
    PastTheLog,
    /// The same, and part of what its watchers are owed is compacted.
    PastTheLogAndCompacted,
}

const SLEEPER: usize = 2;
const SLEEPS_MAX: usize = 2;

/// Watchers connected to a member that sleeps while the others go on. Their streams must not break.
async fn sleep_through(how: Asleep) -> Result<(), Failure> {
    let flags = match product() {
        Product::Meerkat => snapshot::short_log_flags(),
        Product::Etcd => vec!["--snapshot-count=1000".to_owned()],
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut stage = Stage::start(product(), 3, &flags).await?;
    stage.write(STEADY, 100).await?;
    let now = stage.revision(SLEEPER).await?;
    let mut pumps = Pumps::default();
    for (number, start) in [0, 2, now, now + 1, now + 300].into_iter().enumerate() {
        let mut recorder = stage.recorder(SLEEPER, every_second())?;
        for (index, spec) in some_kinds().into_iter().enumerate() {
            recorder.create(format!("{number}.{index}, from {start}"), spec.from(start)).await;
        }
        pumps.add(recorder, Some(Duration::from_millis(50)));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;

    let printed = stage.cluster.members()[SLEEPER].printed()?.len();
    let mut installed = false;
    // Purging the log is not hurried for anybody: who woke before it was done sleeps again.
    for _ in 0..SLEEPS_MAX {
        stage.put_to_sleep(SLEEPER)?;
        if how == Asleep::Briefly {
            stage.write(Shape { small: 300, writers: 32, ..QUICK }, 300).await?;
        } else {
            outlast_the_log(&mut stage).await?;
        }
        if how == Asleep::PastTheLogAndCompacted {
            let now = stage.revision(0).await?;
            stage.compact(0, now - 100).await?;
        }
        stage.wake(READY_WITHIN).await?;
        installed = installed_snapshot(&stage.cluster.members()[SLEEPER].printed()?[printed..]);
        if installed || how == Asleep::Briefly {
            break;
        }
    }
    stage.write(STEADY, 50).await?;
    if installed != (how != Asleep::Briefly) {
        return Err(Failure::harness(format!("whether a snapshot was installed: {installed}")));
    }
    judge_sleep(stage, pumps, how).await
}

/// Writes until the log is let go of. Not before the leader has given up the stream on which it was
/// sending to the sleeper, which may take ten seconds; and more than a socket holds, or the sleeper
/// would find it all there when it wakes.
async fn outlast_the_log(stage: &mut Stage) -> Result<(), Failure> {
    let segments = match product() {
        Product::Meerkat => fault_points::newest_segments(&stage.cluster, SLEEPER)?,
        Product::Etcd => Vec::new(),
    };
    for round in 0..ROUNDS_MAX {
        if 12 <= round && !segments.iter().any(|segment| segment.exists()) {
            return Ok(());
        }
        stage.write(Shape { small: 8_000, writers: 32, ..QUICK }, 400).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(Failure::harness(format!("after {ROUNDS_MAX} rounds of writes the members keep {segments:?}")))
}

async fn judge_sleep(stage: Stage, pumps: Pumps, how: Asleep) -> Result<(), Failure> {
    let compacted = how == Asleep::PastTheLogAndCompacted;
    let demand = Demand { complete: !compacted, marks: product() == Product::Meerkat };
    let (history, logs) = stage.judge(pumps, demand).await?;
    if let Some(log) = logs.iter().find(|log| log.sessions[0].ended.is_some()) {
        return Err(Failure::broken(format!("{}: the stream broke: {:?}", log.name, log.sessions[0].ended)));
    }
    if let Some(log) = logs.iter().find(|log| !history.is_told_in(log)) {
        return Err(Failure::broken(format!("watcher {} has neither everything nor a reason", log.name)));
    }
    let told = logs.iter().filter(|log| log.replies().any(|reply| reply.compact_revision != 0)).count();
    println!("{} watchers, {} events, {told} told of compaction", logs.len(), events_of(&logs));
    if (0 < told) != compacted {
        return Err(Failure::broken(format!("{told} watchers were told of compaction")));
    }
    Ok(())
}

fn installed_snapshot(printed: &str) -> bool {
    printed.contains("\"installing a snapshot\"") || printed.contains("\"applied snapshot\"")
}

/// 15271: after a partition a watcher was sent revisions that it had had.
#[test]
fn a_watcher_never_goes_back_in_time_when_its_member_was_cut_off() {
    run_test("cut off", BUDGET, async { sleep_through(Asleep::Briefly).await });
}

/// databend-meta: installing a snapshot changed the store under its watchers without telling them.
#[test]
fn watchers_survive_the_installation_of_a_snapshot() {
    run_test("snapshot under watchers", BUDGET, async { sleep_through(Asleep::PastTheLog).await });
}

/// databend-meta and 17529 together: the snapshot lacks what the watchers are owed.
#[test]
fn watchers_are_told_when_an_installed_snapshot_lacks_what_they_are_owed() {
    run_test("compacted snapshot under watchers", BUDGET, async {
        sleep_through(Asleep::PastTheLogAndCompacted).await
    });
}

/// 15402 and 18109: large or slow readers delayed everybody else on the member.
#[test]
fn stalled_readers_do_not_move_the_p99_of_puts() {
    run_test("stalled readers and puts", BUDGET, async {
        let stage = Stage::start(product(), 1, &[]).await?;
        let measured = [stage.endpoint(0).clone()];
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..6 {
            let mut stalled = Vec::new();
            if round % 2 == 1 {
                for number in 0..64 {
                    let mut recorder = stage.narrow_recorder(0)?;
                    recorder.create(format!("{number}"), WatchSpec::of_prefix(b"latency/")).await;
                    recorder.take(ANSWER_WITHIN).await;
                    stalled.push(recorder);
                }
            }
            let measuring = latency::start(&measured, 8, 1_024);
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let p99 = Duration::from_micros(measuring.finish().await?.value_at_quantile(0.99));
            if stalled.is_empty() { without.push(p99) } else { with.push(p99) }
        }
        without.sort_unstable();
        with.sort_unstable();
        println!("p99 of puts: without {without:?}, with {with:?}");
        // Generous: one machine, and a test beside others. A member that waits for stalled readers
        // is slower by whole seconds.
        let allowed = without[1] * 3 + Duration::from_millis(100);
        if allowed < with[1] {
            return Err(Failure::slow(format!(
                "p99 {:?} with stalled readers, {:?} without",
                with[1], without[1]
            )));
        }
        stage.cluster.finish()
    });
}

/// 16839: many watchers and large values ran the server out of memory.
#[test]
fn stalled_watchers_of_large_values_cost_bounded_memory_and_get_everything_on_waking() {
    run_test("stalled watchers and memory", BUDGET, async {
        let flags: &[&str] = match product() {
            Product::Meerkat => {
                &["--meerkat-watch-ring-bytes=33554432", "--meerkat-watch-memory-bytes=67108864"]
            }
            Product::Etcd => &[],
        };
        let mut stage = Stage::start(product(), 1, flags).await?;
        let mut stalled = Vec::new();
        for number in 0..60 {
            let mut recorder = stage.narrow_recorder(0)?;
            recorder.create(format!("{number}"), WatchSpec::of_all()).await;
            recorder.take(ANSWER_WITHIN).await;
            stalled.push(recorder);
        }
        let before = stage.cluster.members()[0].usage()?;
        // Each stalled stream is owed some 80 MB, all of them together nearly 5 GB; the member may hold
        // 96 MiB for its watchers, and what the store itself needs to take so much.
        stage.write(Shape { small: 200 << 10, writers: 4, ..QUICK }, 350).await?;
        let after = stage.cluster.members()[0].usage()?;
        println!("{} before, peak {}", usage::mib(before.rss_bytes), usage::mib(after.peak_rss_bytes));
        if before.rss_bytes + (256 << 20) < after.peak_rss_bytes {
            return Err(Failure::broken(format!(
                "memory grew from {} to {}",
                usage::mib(before.rss_bytes),
                usage::mib(after.peak_rss_bytes)
            )));
        }
        stalled.truncate(4);
        let mut pumps = Pumps::default();
        stalled.into_iter().for_each(|recorder| pumps.add(recorder, None));
        stage.judge(pumps, STRICT).await.map(|_| ())
    });
}
