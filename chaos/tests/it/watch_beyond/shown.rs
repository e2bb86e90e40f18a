//! What operators are shown of watchers, and what clients are told when they ask for nonsense.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use meerkat_chaos::checker::watch_properties::STRICT;
use meerkat_chaos::record::watch::SLOW;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::watch::stage::QUICK;
use meerkat_chaos::watch::writers::Shape;
use meerkat_chaos::watch::{Pumps, Stage, WatchSpec};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::pb::admin::{SlowPolicy, Watcher, WatcherState};

use super::{ANSWER_WITHIN, BUDGET, POLL, listed, listed_in_pages, one_member, require, take_created};

const INTERVAL: &str = "meerkat-watch-progress-interval";
/// So many marks are waited for.
const MARKS: usize = 4;
const MANY: usize = 2_500;
const PAGE: usize = 1_000;

/// Waits until the list satisfies the caller.
async fn listed_until(
    stage: &Stage,
    what: &str,
    satisfied: impl Fn(&[Watcher]) -> bool,
) -> Result<Vec<Watcher>, Failure> {
    let patience = Patience::of(format!("{what} is listed"), ANSWER_WITHIN);
    loop {
        let list = listed(stage).await?;
        if satisfied(&list) {
            return patience.came().map(|_| list);
        }
        patience.pause(POLL, format_args!("{list:?}")).await?;
    }
}

fn is_level(one: &Watcher) -> bool {
    one.state() == WatcherState::Synced && one.lag_revisions == 0 && one.lag_ms == 0
}

fn motley() -> Vec<WatchSpec> {
    vec![
        WatchSpec::of_all(),
        WatchSpec { prev_kv: true, ..WatchSpec::of_prefix(b"a/") },
        WatchSpec { no_put: true, fragment: true, ..WatchSpec::of_range(b"b/", b"\0") },
        WatchSpec { no_delete: true, progress_notify: true, ..WatchSpec::of_key(b"a/03") },
    ]
}

/// What was asked for, as the list should have it.
fn is_as_asked(one: &Watcher, spec: &WatchSpec) -> bool {
    let asked = (spec.prev_kv, spec.progress_notify, spec.fragment, spec.no_put, spec.no_delete);
    let shown = (one.prev_kv, one.progress_notify, one.fragment, one.no_put, one.no_delete);
    one.key == spec.key && one.range_end == spec.range_end && shown == asked
}

#[test]
fn watchers_are_listed_with_their_lag() {
    run_test("the list of watchers", BUDGET, async {
        let mut stage = one_member(&["--meerkat-watch-queue-items=8"]).await?;
        let mut reading = stage.recorder(0, &[(SLOW, "coalesce")])?;
        for spec in motley() {
            reading.create("reading", spec).await;
        }
        let far = stage.revision(0).await? + 1_000_000;
        reading.create("of the future", WatchSpec::of_all().from(far)).await;
        take_created(&mut reading).await?;
        let mut stalled = stage.narrow_recorder(0)?;
        for spec in motley() {
            stalled.create("stalled", spec).await;
        }
        take_created(&mut stalled).await?;
        require_as_asked(&listed(&stage).await?, far)?;

        let mut pumps = Pumps::default();
        pumps.add(reading, None);
        stage.write(Shape { small: 4 << 10, ..QUICK }, 500).await?;
        let others_level = |list: &[Watcher]| list.iter().take(5).all(is_level);
        let before = listed_until(&stage, "level readers beside a stalled one", others_level).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let after = listed(&stage).await?;
        require_lag(&before[5..], &after[5..])?;

        // It reads, and is level again.
        pumps.add(stalled, None);
        listed_until(&stage, "a level watcher that was stalled", |list| {
            list.len() == 9 && list.iter().all(|one| is_level(one) && one.stream_queued_items == 0)
        })
        .await?;
        list_many(&stage).await?;
        stage.judge(pumps, STRICT).await.map(|_| ())
    });
}

/// Two streams: one that reads, with a watcher of the future, and one that will not.
fn require_as_asked(list: &[Watcher], far: i64) -> Result<(), Failure> {
    let mut specs = motley();
    specs.push(WatchSpec::of_all());
    specs.extend(motley());
    require(list.len() == specs.len(), || format!("{} of {} are listed", list.len(), specs.len()))?;
    for (one, spec) in list.iter().zip(&specs) {
        require(is_as_asked(one, spec) && is_level(one), || format!("{one:?} for {spec:?}"))?;
        let address: Result<SocketAddr, _> = one.client_address.parse();
        let known = address.is_ok_and(|address| address.ip().is_loopback() && address.port() != 0);
        require(known, || format!("a client at {:?}", one.client_address))?;
    }
    let (reading, stalled) = list.split_at(5);
    let policies = |some: &[Watcher], policy| some.iter().all(|one| one.slow_policy() == policy);
    let right = policies(reading, SlowPolicy::Coalesce) && policies(stalled, SlowPolicy::Wait);
    require(right, || format!("policies are shown wrongly: {list:?}"))?;
    require(reading[4].next_revision == far, || format!("owed from {far} on: {:?}", reading[4]))?;
    let ids = |some: &[Watcher]| some.iter().map(|one| one.watch_id).collect::<Vec<i64>>();
    require((ids(reading), ids(stalled)) == ((0..5).collect(), (0..4).collect()), || format!("{list:?}"))?;
    let apart = reading[0].client_address != stalled[0].client_address
        && reading[0].stream_id != stalled[0].stream_id;
    require(apart, || "two streams of two connections are not told apart".to_owned())
}

/// Those of a stalled stream, and the same half a second later.
fn require_lag(before: &[Watcher], after: &[Watcher]) -> Result<(), Failure> {
    // The last of them has a single key, which may not have changed.
    for (one, later) in before.iter().zip(after).take(3) {
        let waits = one.state() == WatcherState::CatchingUp || 0 < one.stream_queued_items;
        let lags = 0 < one.lag_revisions && 0 < one.stream_queued_items && 0 < one.stream_queued_bytes;
        require(waits && lags, || format!("stalled, but shown as {one:?}"))?;
        require(one.lag_ms + 400 <= later.lag_ms, || {
            format!("behind for {} ms, and half a second later for {} ms", one.lag_ms, later.lag_ms)
        })?;
        require(one.next_revision == later.next_revision, || format!("{one:?}, and later {later:?}"))?;
    }
    println!("stalled: {:?}", after[0]);
    Ok(())
}

/// So many that they come in pages.
async fn list_many(stage: &Stage) -> Result<(), Failure> {
    let mut recorder = stage.recorder(0, &[])?;
    for number in 0..MANY {
        recorder.create(format!("{number}"), WatchSpec::of_key(format!("many/{number}").as_bytes())).await;
    }
    take_created(&mut recorder).await?;
    let pages = listed_in_pages(stage).await?;
    let of_many = |one: &&Watcher| one.key.starts_with(b"many/");
    let count = pages.iter().flat_map(|page| &page.watchers).filter(of_many).count();
    require(count == MANY, || format!("{count} of {MANY} are listed"))?;
    let sizes: Vec<usize> = pages.iter().map(|page| page.watchers.len()).collect();
    let in_pages = sizes.iter().all(|size| *size <= PAGE) && sizes.contains(&PAGE);
    require(in_pages, || format!("pages of {sizes:?}"))
}

#[test]
fn bad_watch_metadata_is_refused_by_name() {
    run_test("bad metadata", BUDGET, async {
        let stage = one_member(&[]).await?;
        for bad in ["drop", "", "WAIT", "wait, cancel"] {
            require_refused(&stage, SLOW, bad, "use wait, coalesce or cancel").await?;
        }
        for bad in ["10ms", "999ms", "0", "-1s", "soon", "1", ""] {
            require_refused(&stage, INTERVAL, bad, "use a duration of 1s or more").await?;
        }
        marks_every_second(&stage).await?;
        stage.judge(Pumps::default(), STRICT).await.map(|_| ())
    });
}

async fn require_refused(stage: &Stage, name: &'static str, bad: &str, remedy: &str) -> Result<(), Failure> {
    let mut recorder = stage.recorder(0, &[(name, bad)])?;
    recorder.create("refused", WatchSpec::of_all()).await;
    while recorder.take(ANSWER_WITHIN).await {
        let replies = recorder.logs()[0].replies().count();
        require(replies == 0, || format!("{name}: {bad:?} is taken: {:?}", recorder.logs()))?;
    }
    let expected = format!("InvalidArgument: meerkat: bad metadata: {name} is {bad:?}; {remedy}");
    require(recorder.ended() == Some(&expected), || {
        format!("{name}: {bad:?} is answered with {:?}, not {expected:?}", recorder.ended())
    })
}

/// One stream that asks for a mark every second, and one that does not.
async fn marks_every_second(stage: &Stage) -> Result<(), Failure> {
    let spec = WatchSpec { progress_notify: true, ..WatchSpec::of_all() };
    let mut often = stage.recorder(0, &[(INTERVAL, "1s")])?;
    let mut seldom = stage.recorder(0, &[])?;
    often.create("often", spec.clone()).await;
    seldom.create("seldom", spec).await;
    let marks = |log: &meerkat_chaos::watch::WatchLog| -> Vec<Duration> {
        log.replies().filter(|reply| reply.is_mark()).map(|reply| reply.at).collect()
    };
    let began = Instant::now();
    while marks(&often.logs()[0]).len() < MARKS && began.elapsed() < 3 * ANSWER_WITHIN {
        often.take(POLL).await;
        seldom.take(POLL).await;
    }
    let took = began.elapsed();
    let (often, seldom) = (marks(&often.logs()[0]), marks(&seldom.logs()[0]));
    println!("marks at {often:?}");
    require(MARKS <= often.len(), || format!("too few marks in {took:?}: {often:?}"))?;
    // A busy machine reads some of them late, and the next one then seems early: only all of them count.
    let least = Duration::from_millis(950) * (MARKS as u32 - 1);
    require(least < often[MARKS - 1] - often[0], || format!("marks in less than a second: {often:?}"))?;
    require(seldom.is_empty(), || format!("marks that nobody asked for: {seldom:?}"))
}
