//! What becomes of watchers whose clients read too slowly, as they asked for it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use meerkat_chaos::checker::watch_history::WatchHistory;
use meerkat_chaos::checker::watch_properties::{Demand, STRICT, check_all};
use meerkat_chaos::record::watch::{FELL_BEHIND, SLOW};
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::watch::stage::QUICK;
use meerkat_chaos::watch::writers::Shape;
use meerkat_chaos::watch::{Pumps, Recorder, Seen, Stage, WatchLog, WatchSpec, writers};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::admin::{Watcher, WatcherState};

use super::{ANSWER_WITHIN, BUDGET, POLL, listed, metrics, one_member, require, take_created, value};

/// Values of which few fit into a window that is not read.
const FILLING: Shape = Shape { small: 4 << 10, ..QUICK };
const QUIET: &[u8] = b"quiet";

fn all_kinds() -> [(&'static str, WatchSpec); 5] {
    [
        ("everything", WatchSpec::of_all()),
        ("prefix", WatchSpec::of_prefix(b"a/")),
        ("previous values", WatchSpec { prev_kv: true, ..WatchSpec::of_prefix(b"b/") }),
        ("no deletions", WatchSpec { no_delete: true, ..WatchSpec::of_range(b"b/", b"\0") }),
        ("pieces", WatchSpec { fragment: true, prev_kv: true, ..WatchSpec::of_all() }),
    ]
}

fn where_to_resume(log: &WatchLog) -> Option<i64> {
    log.replies().find_map(|reply| reply.cancel_reason.strip_prefix(FELL_BEHIND)?.parse().ok())
}

#[test]
fn a_watcher_that_asks_to_be_canceled_when_slow_is_told_where_to_resume() {
    run_test("canceled when slow", BUDGET, async {
        let mut stage = one_member(&["--meerkat-watch-queue-items=8"]).await?;
        stage.write(QUICK, 50).await?;
        // Each alone, and two on one stream of which only one has much to hear.
        let mut alone = Vec::new();
        for (name, spec) in all_kinds() {
            alone.push(stage.stalled(name, spec, &[(SLOW, "cancel")])?);
        }
        let mut shared = stage.narrow_recorder_with(0, &[(SLOW, "cancel")])?;
        shared.create("beside a quiet one", WatchSpec::of_all()).await;
        shared.create("quiet", WatchSpec::of_key(QUIET)).await;
        take_created(&mut shared).await?;
        while alone.iter().any(|one| one.next() == 0) {
            tokio::time::sleep(POLL).await;
        }
        stage.write(FILLING, 400).await?;

        let canceled = |logs: &[WatchLog]| where_to_resume(&logs[0]).is_some();
        shared.take_until("cancellation", ANSWER_WITHIN, canceled).await?;
        let wrote = writers::put(stage.endpoint(0), Bytes::from_static(QUIET), value("quiet", 0)).await;
        stage.made(wrote).await?;
        let quiet_is_told = |logs: &[WatchLog]| logs[1].events().next().is_some();
        shared.take_until("the event of a quiet key", ANSWER_WITHIN, quiet_is_told).await?;
        let resume = where_to_resume(&shared.logs()[0]).unwrap_or(0);
        shared.create("beside a quiet one, again", WatchSpec::of_all().from(resume)).await;
        let mut pumps = Pumps::default();
        pumps.add(shared, None);
        alone.iter().for_each(|one| one.hurry());
        stage.write(FILLING, 50).await?;
        let fell_behind = metrics(stage.endpoint(0)).await?.get("meerkat_watch_fell_behind_total")?;
        // Whether all is there is judged below: one of them ends and does not resume.
        let (history, logs) = stage.judge_with(pumps, alone, Demand { complete: false, ..STRICT }).await?;
        judge_canceled(&history, &logs, fell_behind)
    });
}

fn judge_canceled(history: &WatchHistory, logs: &[WatchLog], fell_behind: f64) -> Result<(), Failure> {
    for log in logs {
        // One that was canceled and did not resume is owed nothing more.
        let over = log.replies().last().is_some_and(|reply| reply.canceled);
        check_all(std::slice::from_ref(log), history, Demand { complete: !over, ..STRICT })?;
    }
    let resume = where_to_resume(&logs[0]).unwrap_or(0);
    let sent: Vec<&Seen> = logs[0].events().collect();
    let due = |event: &&Seen| sent[0].revision() <= event.revision() && event.revision() < resume;
    let due = history.events().iter().filter(due).count();
    println!("{} events before the cancellation, resumed at {resume}", sent.len());
    require(sent.len() == due, || format!("{} of {due} events before revision {resume}", sent.len()))?;
    require(where_to_resume(&logs[1]).is_none(), || "a quiet watcher was canceled".to_owned())?;
    for log in &logs[3..] {
        let told = where_to_resume(log);
        println!("{}: told to resume at {told:?}, {} connections", log.name, log.sessions.len());
        require(told.is_some(), || format!("{}: stalled, and was not canceled", log.name))?;
    }
    let canceled = logs.iter().flat_map(WatchLog::replies).filter(|reply| reply.canceled).count();
    require(6.0 <= fell_behind && fell_behind <= canceled as f64, || {
        format!("{canceled} were canceled, {fell_behind} fell behind")
    })
}

const LEVEL_WITHIN: Duration = Duration::from_secs(30);

/// Reads until the member says that nobody is owed anything.
async fn read_until_level(stage: &Stage, recorder: &mut Recorder) -> Result<(), Failure> {
    let patience = Patience::of("watchers become level", LEVEL_WITHIN);
    loop {
        recorder.take_until_quiet(Duration::from_millis(100), ANSWER_WITHIN).await;
        let level = |one: &Watcher| one.state() == WatcherState::Synced && one.lag_revisions == 0;
        let watchers = listed(stage).await?;
        if watchers.iter().all(level) {
            return patience.came().map(drop);
        }
        patience.lasts(format_args!("{watchers:?}"))?;
    }
}

/// The client reads all the time: nothing here is slow but history, of which there is much.
#[test]
fn a_watcher_is_not_called_slow_because_another_of_its_stream_starts_in_the_past() {
    run_test("catching up beside a live one", BUDGET, async {
        let mut stage = one_member(&[]).await?;
        stage.write(QUICK, 4_000).await?;
        let mut recorder = stage.recorder(0, &[(SLOW, "cancel")])?;
        recorder.create("live", WatchSpec::of_key(QUIET)).await;
        take_created(&mut recorder).await?;
        for number in 0..60 {
            // None of them is told of the live key.
            let spec = WatchSpec::of_prefix(writers::PREFIXES[number % 3].as_bytes());
            recorder.create(format!("from the past {number}"), spec.from(2)).await;
        }
        let mut pumps = Pumps::default();
        pumps.add(recorder, None);
        for number in 0..100 {
            let value = value(&format!("live {number}"), 0);
            let wrote = writers::put(stage.endpoint(0), Bytes::from_static(QUIET), value).await;
            stage.made(wrote).await?;
        }
        let (history, logs) = stage.judge(pumps, Demand { complete: false, ..STRICT }).await?;
        if let Some(log) = logs.iter().find(|log| where_to_resume(log).is_some()) {
            return Err(Failure::broken(format!(
                "watcher {:?} was canceled after {} events, though its client reads all the time",
                log.name,
                log.events().count()
            )));
        }
        check_all(&logs, &history, STRICT)
    });
}

#[test]
fn a_watcher_that_coalesces_gets_the_latest_of_each_key() {
    run_test("coalescing", BUDGET, async {
        let mut stage = one_member(&["--meerkat-watch-queue-items=8"]).await?;
        let mut recorder = stage.narrow_recorder_with(0, &[(SLOW, "coalesce")])?;
        for (name, spec) in all_kinds() {
            recorder.create(name, spec).await;
        }
        take_created(&mut recorder).await?;
        stage.write(FILLING, 1_500).await?;
        read_until_level(&stage, &mut recorder).await?;
        let level_at = stage.revision(0).await?;
        // One at a time, so that nobody falls behind again.
        let key = writers::key(1, 0);
        for number in 0..30 {
            let wrote =
                writers::put(stage.endpoint(0), key.clone(), value(&format!("later {number}"), 0)).await;
            let revision = stage.made(wrote).await?;
            let has = |log: &WatchLog| {
                !log.spec.wants(meerkat_chaos::watch::Kind::Put, &key)
                    || log.events().last().is_some_and(|event| event.revision() == revision)
            };
            recorder.take_until("a later event", ANSWER_WITHIN, |logs| logs.iter().all(has)).await?;
        }
        let mut pumps = Pumps::default();
        pumps.add(recorder, None);
        let (history, logs) = stage.judge(pumps, STRICT).await?;
        logs.iter().try_for_each(|log| judge_coalesced(&history, log, level_at))
    });
}

/// Beside what the checker says: few events, the last of each key among them, and all the later ones.
fn judge_coalesced(history: &WatchHistory, log: &WatchLog, level_at: i64) -> Result<(), Failure> {
    let wanted: Vec<&Seen> =
        history.events().iter().filter(|event| log.spec.wants(event.kind, &event.key)).collect();
    let sent: Vec<&Seen> = log.events().collect();
    println!("{}: {} events for {} that happened", log.name, sent.len(), wanted.len());
    require(sent.len() * 2 < wanted.len(), || {
        format!("{}: {} events for {} that happened", log.name, sent.len(), wanted.len())
    })?;
    let last_of_each = |events: &[&Seen]| -> HashMap<Bytes, i64> {
        events.iter().map(|event| (event.key.clone(), event.revision())).collect()
    };
    let last_sent = last_of_each(&sent);
    let all: Vec<&Seen> = history.events().iter().collect();
    for (key, revision) in last_of_each(&all) {
        let last = history.at(revision).iter().find(|event| event.key == key);
        if last.is_some_and(|event| log.spec.wants(event.kind, &key)) {
            require(last_sent.get(&key) == Some(&revision), || {
                format!("{}: the last event of {key:?} at {revision} was not sent", log.name)
            })?;
        }
    }
    let later = |events: &[&Seen]| -> Vec<i64> {
        events.iter().map(|event| event.revision()).filter(|revision| level_at < *revision).collect()
    };
    require(later(&sent) == later(&wanted), || format!("{}: level, but not told everything", log.name))
}

#[test]
fn a_slow_watcher_that_waits_gets_everything_from_history() {
    run_test("waiting", BUDGET, async {
        let flags = ["--meerkat-watch-ring-bytes=65536", "--meerkat-watch-queue-items=1"];
        let mut stage = one_member(&flags).await?;
        stage.write(QUICK, 50).await?;
        let mut stalled: Vec<Recorder> = Vec::new();
        let mut pumps = Pumps::default();
        for (number, metadata) in [&[(SLOW, "wait")][..], &[]].into_iter().enumerate() {
            let mut narrow = stage.narrow_recorder_with(0, metadata)?;
            let mut reading = stage.recorder(0, metadata)?;
            for (name, spec) in all_kinds() {
                narrow.create(format!("{number}, stalled, {name}"), spec.clone()).await;
                reading.create(format!("{number}, reading, {name}"), spec.from(2)).await;
            }
            take_created(&mut narrow).await?;
            stalled.push(narrow);
            pumps.add(reading, None);
        }
        stage.write(Shape { small: 1 << 10, ..QUICK }, 1_500).await?;
        let now = metrics(stage.endpoint(0)).await?;
        stalled.into_iter().for_each(|recorder| pumps.add(recorder, None));
        stage.write(QUICK, 50).await?;
        let catching_up = now.get("etcd_debugging_mvcc_slow_watcher_total")?;
        require(10.0 <= catching_up, || format!("{catching_up} catch up, but ten were stalled"))?;
        let fell_behind = now.get("meerkat_watch_fell_behind_total")?;
        require(0.0 < fell_behind, || "nobody fell behind, though queues are tiny".to_owned())?;
        let after = metrics(stage.endpoint(0)).await?.get("meerkat_watch_history_reads_total")?;
        require(0.0 < after, || "history was not read, though the ring is tiny".to_owned())?;
        let (_, logs) = stage.judge(pumps, STRICT).await?;
        println!("{fell_behind} fell behind; {} events", logs.iter().flat_map(WatchLog::events).count());
        Ok(())
    });
}
