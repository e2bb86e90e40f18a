//! What watchers cost a member: each event is encoded once, and memory is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::checker::watch_history::Wrote;
use meerkat_chaos::checker::watch_properties::STRICT;
use meerkat_chaos::driver::usage::mib;
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::metrics::Metrics;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::watch::follower::{self, Following, Manner};
use meerkat_chaos::watch::{Pumps, Stage, WatchLog, WatchSpec, writers};
use tokio::task::JoinHandle;

use super::{BUDGET, POLL, metrics, metrics_until, one_member, require, take_created, value};

const ENCODED: &str = "meerkat_watch_events_encoded_total";
const SENT: &str = "etcd_debugging_mvcc_events_total";
const HISTORY_READS: &str = "meerkat_watch_history_reads_total";
const MEMORY: &str = "meerkat_watch_memory_bytes";
const SET_BACK: &str = "meerkat_watch_set_back_total";
const CUT: &str = "meerkat_watch_streams_cut_total";

const STREAMS: usize = 30;
const WATCHERS: usize = 10;
const LATE: usize = 50;

/// Half of each kind: two forms of every event are needed.
fn of_either_form(number: usize) -> WatchSpec {
    WatchSpec { prev_kv: number % 2 == 1, ..WatchSpec::of_prefix(b"a/") }
}

/// One write of a mix: creations, updates, transactions, deletions, and keys nobody watches.
async fn mixed_write(endpoint: &Endpoint, number: usize) -> Wrote {
    let key = |number: usize| Bytes::from(format!("a/{number:03}"));
    let value = |part: usize| value(&format!("{number}.{part}"), 64);
    match number % 5 {
        0 => writers::put(endpoint, key(number), value(0)).await,
        1 => writers::put(endpoint, key(number - 1), value(0)).await,
        2 => {
            let puts = (0..4).map(|part| (key(number - 2 + part), value(part))).collect();
            writers::put_all(endpoint, puts).await
        }
        3 => writers::delete(endpoint, key(number - 3)).await,
        _ => writers::put(endpoint, Bytes::from(format!("z/{number:03}")), value(0)).await,
    }
}

#[test]
fn an_event_is_encoded_once_for_all_streams_and_for_the_ring() {
    run_test("encoded once", BUDGET, async {
        let mut stage = one_member(&[]).await?;
        let endpoint = stage.endpoint(0).clone();
        let mut pumps = Pumps::default();
        for stream in 0..STREAMS {
            let mut recorder = stage.recorder(0, &[])?;
            for number in 0..WATCHERS {
                recorder.create(format!("{stream}.{number}"), of_either_form(number)).await;
            }
            take_created(&mut recorder).await?;
            pumps.add(recorder, None);
        }
        let first = stage.revision(0).await? + 1;
        let mut events = 0;
        for number in 0..200 {
            let wrote = mixed_write(&endpoint, number).await;
            events += wrote.effects.iter().filter(|effect| effect.key.starts_with(b"a/")).count();
            stage.made(wrote).await?;
        }
        let told = |watchers: usize| {
            let all = (events * watchers) as f64;
            move |now: &Metrics| Ok(all <= now.get(SENT)?)
        };
        let live = metrics_until(&endpoint, "delivery to all", told(STREAMS * WATCHERS)).await?;
        require_encoded(&live, events, STREAMS * WATCHERS)?;

        let mut late = stage.recorder(0, &[])?;
        for number in 0..LATE {
            late.create(format!("late {number}"), of_either_form(number).from(first)).await;
        }
        pumps.add(late, None);
        let all = STREAMS * WATCHERS + LATE;
        let after = metrics_until(&endpoint, "delivery to the late", told(all)).await?;
        require_encoded(&after, events, all)?;
        let reads = after.get(HISTORY_READS)?;
        require(reads == 0.0, || format!("{reads} reads of history for what the ring has"))?;
        stage.judge(pumps, STRICT).await.map(|_| ())
    });
}

fn require_encoded(now: &Metrics, events: usize, watchers: usize) -> Result<(), Failure> {
    let (encoded, sent) = (now.get(ENCODED)?, now.get(SENT)?);
    println!("{events} events, {watchers} watchers: {encoded} encoded, {sent} sent");
    let expected = ((2 * events) as f64, (watchers * events) as f64);
    require((encoded, sent) == expected, || {
        format!("{encoded} events encoded and {sent} sent, where it should be {expected:?}")
    })
}

const MIB: u64 = 1 << 20;
/// For the ring, and as much again beyond it.
const BOUND: u64 = 4 * MIB;
/// A revision with a large value, as the member counts it: as it came, and encoded.
const REVISION: u64 = 2 * MIB + MIB / 8;
const STALLED: i64 = 12;
const TOLD_WITHIN: Duration = Duration::from_secs(30);

async fn put_large(stage: &mut Stage, number: i64) -> Result<i64, Failure> {
    let key = Bytes::from(format!("large/{number:02}"));
    let wrote = writers::put(stage.endpoint(0), key, value(&number.to_string(), 1 << 20)).await;
    stage.made(wrote).await
}

/// The most that watchers held at any moment it looked.
struct HighWater {
    stop: Arc<AtomicBool>,
    highest: Arc<AtomicU64>,
    task: JoinHandle<Result<(), Failure>>,
}

impl HighWater {
    fn watch(endpoint: Endpoint) -> HighWater {
        let (stop, highest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, high) = (stop.clone(), highest.clone());
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let held = metrics(&endpoint).await?.get(MEMORY)?;
                high.fetch_max(held as u64, Ordering::Relaxed);
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        });
        HighWater { stop, highest, task }
    }

    async fn finish(self) -> Result<u64, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.map_err(|error| Failure::harness(format!("nobody looked at memory: {error}")))??;
        Ok(self.highest.load(Ordering::Relaxed))
    }
}

#[test]
fn a_stream_that_is_not_read_gives_its_memory_back_or_is_ended_loudly() {
    run_test("memory of stalled streams", BUDGET, async {
        let flags =
            [format!("--meerkat-watch-ring-bytes={BOUND}"), format!("--meerkat-watch-memory-bytes={BOUND}")];
        let mut stage = one_member(&flags.each_ref().map(String::as_str)).await?;
        let endpoint = stage.endpoint(0).clone();
        let first = put_large(&mut stage, 0).await?;
        for number in 1..STALLED {
            put_large(&mut stage, number).await?;
        }
        let high_water = HighWater::watch(endpoint.clone());
        // Each in the middle of another revision, so that nothing they hold is shared.
        let mut stalled = Vec::new();
        for number in 0..STALLED {
            let spec =
                WatchSpec { prev_kv: number % 2 == 0, fragment: number % 3 == 0, ..WatchSpec::of_all() };
            stalled.push(stage.stalled(format!("stalled {number}"), spec.from(first + number), &[])?);
        }
        // And one that reads all the time.
        let reading = WatchLog::new("reading", WatchSpec::of_all().from(first));
        let manner = Manner { patience: BUDGET, ..Manner::default() };
        stalled.push(follower::start(std::slice::from_ref(&endpoint), 0, stage.began, reading, manner)?);
        let short = |now: &Metrics| Ok(0.0 < now.get(SET_BACK)? + now.get(CUT)?);
        metrics_until(&endpoint, "shortage of memory", short).await?;
        for number in 0..8 {
            put_large(&mut stage, STALLED + number).await?;
        }
        let cut_while_stalled = metrics(&endpoint).await?.get(CUT)?;
        stalled.iter().for_each(|one| one.hurry());
        // All now read at once, through narrow windows; whoever is ended resumes.
        wait_until_told(&stalled, stage.revision(0).await?).await?;
        let (after, highest) = (metrics(&endpoint).await?, high_water.finish().await?);
        let (set_back, cut) = (after.get(SET_BACK)?, after.get(CUT)?);
        println!(
            "at most {} held; {set_back} set back, {cut} cut, {cut_while_stalled} of them before anybody read",
            mib(highest)
        );
        // Beyond the bounds: what one stream is writing and has next, and what was just published.
        let allowed = 2 * BOUND + 3 * REVISION;
        require(highest <= allowed, || format!("{} held, {} allowed", mib(highest), mib(allowed)))?;
        let (_, logs) = stage.judge_with(Pumps::default(), stalled, STRICT).await?;
        judge_ends(&logs, cut)
    });
}

async fn wait_until_told(followers: &[Following], last: i64) -> Result<(), Failure> {
    let deadline = Instant::now() + TOLD_WITHIN;
    while let Some(behind) = followers.iter().map(Following::next).min().filter(|next| *next <= last) {
        require(Instant::now() < deadline, || {
            format!("one who reads is at revision {behind} of {last} after {TOLD_WITHIN:?}")
        })?;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Streams were ended, all of them for memory, and all who were cut were told.
fn judge_ends(logs: &[WatchLog], cut: f64) -> Result<(), Failure> {
    let ended = logs.iter().flat_map(|log| &log.sessions).filter_map(|session| session.ended.as_deref());
    let ended: Vec<&str> = ended.filter(|why| *why != "the run is over").collect();
    let loudly = "Unavailable: meerkat: this stream was not read while others needed its memory; \
                  watch again from the last received revision";
    if let Some(other) = ended.iter().find(|why| **why != loudly) {
        return Err(Failure::broken(format!("a stream ended, but not for memory: {other}")));
    }
    require(ended.len() as f64 == cut, || format!("{} streams ended, {cut} were cut", ended.len()))?;
    require(cut > 0.0, || "no stream was in the middle of a revision and cut".to_owned())
}
