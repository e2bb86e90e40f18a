//! What watchers are told.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_shows_the_state_says_so_and_goes_on() {
    let setup = Setup::new();
    put(&setup.store, "a/2", "web");
    put(&setup.store, "a/1", "web");
    let other = put(&setup.store, "a/3", "db");
    let mut watcher = setup.watch(state(ReadAt::MostRecent), app("web")).await.expect("a watch");
    let last = put(&setup.store, "a/2", "db");
    assert_eq!(read(&mut watcher).await, "=a/2@2 =a/1@3");
    let told = read_items(&mut watcher, 2).await;
    // The deletion may come before or after the end of the state, and the end is never below the state.
    assert!(
        told == format!("end@{other} -a/2@{last}") || told == format!("-a/2@{last} end@{last}"),
        "{told}"
    );
    let made = put(&setup.store, "b/1", "web");
    assert_eq!(read(&mut watcher).await, format!("+b/1@{made}"));
}

#[tokio::test(start_paused = true)]
async fn changes_begin_where_the_plan_says() {
    let settings = FeedSettings { past_revisions: 0, ..FeedSettings::default() };
    let setup = Setup::with(MemoryStore::new(), settings);
    let first = put(&setup.store, "a/1", "web");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    let second = put(&setup.store, "a/2", "web");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    let begin = |after| WatchBegin::Changes(after);
    let all = Filter::default;
    let mut resumed = setup.watch(begin(ChangesAfter::Revision(first)), all()).await.expect("kept");
    let mut cached = setup.watch(begin(ChangesAfter::Cached), all()).await.expect("a watch");
    let mut future = setup.watch(begin(ChangesAfter::Revision(second + 1)), all()).await.expect("legal");
    let mut recent = setup.changes(all()).await;
    let third = put(&setup.store, "a/3", "web");
    let fourth = put(&setup.store, "a/4", "web");
    assert_eq!(read_items(&mut resumed, 3).await, format!("+a/2@{second} +a/3@{third} +a/4@{fourth}"));
    assert_eq!(read_items(&mut cached, 2).await, format!("+a/3@{third} +a/4@{fourth}"));
    assert_eq!(read_items(&mut recent, 2).await, format!("+a/3@{third} +a/4@{fourth}"));
    assert_eq!(read(&mut future).await, format!("+a/4@{fourth}"), "silence until it is passed");
    let refusal = setup.watch(begin(ChangesAfter::Revision(first - 1)), all()).await.err().expect("too old");
    assert_eq!((refusal.code(), refusal.message.as_str()), (410, "too old resource version: 1 (2)"));
}

#[tokio::test(start_paused = true)]
async fn one_that_stalls_is_parked_and_comes_back_without_a_gap() {
    let setup = Setup::new();
    let mut slow = setup.changes(Filter::default()).await;
    let mut quick = setup.changes(Filter::default()).await;
    let mut owed = Vec::new();
    let (mut told_quick, mut told_slow) = (Vec::new(), Vec::new());
    assert!(futures::FutureExt::now_or_never(slow.next()).is_none());
    for number in 0..300 {
        owed.push(format!("+a/{number}@{}", put(&setup.store, &format!("a/{number}"), "web")));
        told_quick.push(read(&mut quick).await);
    }
    let counters = setup.feed.counters();
    assert_eq!((counters.watchers_parked, counters.watchers_live, counters.tally.parked), (1, 1, 1));
    assert_eq!(told_quick, owed);
    while told_slow.len() < owed.len() {
        told_slow.extend(read(&mut slow).await.split(' ').map(str::to_owned));
    }
    assert_eq!(told_slow, owed);
    let last = delete(&setup.store, "a/7");
    assert_eq!(read(&mut slow).await, format!("-a/7@{last}"));
    let counters = setup.feed.counters();
    assert_eq!((counters.watchers_parked, counters.watchers_live, counters.tally.forgotten), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn one_that_reads_soon_enough_is_waited_for() {
    let setup = Setup::new();
    let mut watcher = setup.changes(Filter::default()).await;
    assert!(futures::FutureExt::now_or_never(watcher.next()).is_none());
    // So that there is something in the budget.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for number in 0..11 {
        put(&setup.store, &format!("a/{number}"), "web");
    }
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert_eq!(read(&mut watcher).await.split(' ').count(), 10);
    assert_eq!(read(&mut watcher).await, "+a/10@12");
    assert_eq!(setup.feed.counters().tally.parked, 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_overtaken_or_never_reads_is_ended() {
    let ring = RingLimits { events_min: 20, events_max: 50, ..RingLimits::default() };
    let setup = Setup::with(MemoryStore::new(), FeedSettings { ring, ..FeedSettings::default() });
    let mut overtaken = setup.changes(Filter::default()).await;
    let mut stalled = setup.changes(Filter::default()).await;
    assert!(futures::FutureExt::now_or_never(overtaken.next()).is_none());
    assert!(futures::FutureExt::now_or_never(stalled.next()).is_none());
    for number in 0..200 {
        put(&setup.store, &format!("a/{number}"), "web");
    }
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    assert_eq!(read(&mut overtaken).await.split(' ').count(), 10, "what was queued is told");
    assert_eq!(read(&mut overtaken).await, "over");
    tokio::time::sleep(Duration::from_secs(80)).await;
    let counters = setup.feed.counters();
    assert_eq!((counters.watchers_parked, counters.tally.forgotten), (0, 2));
    assert_eq!(read(&mut stalled).await, "over");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_share_one_frame() {
    let setup = Setup::new();
    let mut watchers = Vec::new();
    for _ in 0..1_000 {
        let mut watcher = setup.changes(app("web")).await;
        assert!(futures::FutureExt::now_or_never(watcher.next()).is_none());
        watchers.push(watcher);
    }
    for number in 0..5 {
        put(&setup.store, &format!("a/{number}"), "web");
        put(&setup.store, &format!("b/{number}"), "db");
    }
    for watcher in &mut watchers {
        let mut told = 0;
        while told < 5 {
            for item in watcher.next().await.expect("it goes on") {
                let Item::Line(line) = item else { panic!("a line") };
                let frame = line.event.json_frame(line.kind).expect("it has this side");
                assert!(frame.starts_with(b"{\"type\":\"ADDED\""));
                told += 1;
            }
        }
    }
    let counters = setup.feed.counters();
    assert_eq!((counters.encodes, counters.tally.dispatched, counters.tally.events), (5, 5_000, 10));
    drop(watchers);
    assert_eq!(setup.feed.counters().watchers_live, 0);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_concerned_costs_a_write_nothing() {
    let setup = Setup::new();
    let write_some = async || {
        let before = setup.feed.counters().tally;
        for number in 0..100 {
            put(&setup.store, &format!("a/{number}"), "web");
        }
        setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
        let after = setup.feed.counters().tally;
        (after.visited - before.visited, after.woken - before.woken, after.dispatched - before.dispatched)
    };
    write_some().await;
    let alone = write_some().await;
    let mut watchers = Vec::new();
    for number in 0..5_000 {
        let mut watcher = setup.changes(app(&format!("nobody-{number}"))).await;
        assert!(futures::FutureExt::now_or_never(watcher.next()).is_none());
        watchers.push(watcher);
    }
    assert_eq!(setup.feed.counters().watchers_live, 5_000);
    assert_eq!(write_some().await, alone, "looked at, woken and told, whoever else is there");
    assert_eq!((alone.1, alone.2), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_told_how_far_the_store_is_each_minute_and_before_its_end() {
    let setup = Setup::new();
    let begun = tokio::time::Instant::now();
    let begin = state(ReadAt::MostRecent);
    let plan = WatchPlan { begin, bookmarks: true };
    let mut watcher =
        setup.feed.watch(&plan, Filter::default(), Duration::from_secs(100)).await.expect("a watch");
    let silent =
        WatchPlan { begin: WatchBegin::State { at: ReadAt::AnyCached, mark_end: false }, bookmarks: false };
    let mut without =
        setup.feed.watch(&silent, Filter::default(), Duration::from_secs(100)).await.expect("one");
    assert_eq!(read(&mut watcher).await, "end@1", "at once, of an empty state");
    let other = setup.store.put("/elsewhere", "x");
    setup.feed.version(ReadAt::MostRecent).await.expect("somebody asks how far it is");
    assert_eq!(read(&mut watcher).await, format!("mark@{other}"));
    assert!((59..63).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(read(&mut watcher).await, format!("mark@{other}"));
    assert!((97..100).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(read(&mut watcher).await, "over");
    assert_eq!(begun.elapsed().as_secs(), 100);
    assert_eq!(read(&mut without).await, "over", "who asked for none gets none");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_store_that_breaks_is_not_noticed() {
    let setup = Setup::new();
    let mut watcher = setup.changes(Filter::default()).await;
    for number in 0..10 {
        setup.store.break_watches();
        let at = put(&setup.store, &format!("a/{number}"), "web");
        assert_eq!(read(&mut watcher).await, format!("+a/{number}@{at}"));
    }
    setup.store.set_available(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let at = put(&setup.store, "a/0", "web");
    setup.store.set_available(true);
    assert_eq!(read(&mut watcher).await, format!("~a/0@{at}"));
    assert_eq!(setup.feed.counters().tally.relists, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_cannot_know_what_it_missed_begins_anew() {
    let setup = Setup::new();
    let mut watcher = setup.changes(Filter::default()).await;
    put(&setup.store, "a/1", "web");
    assert_eq!(read(&mut watcher).await, "+a/1@2");
    setup.store.hold_watches(true);
    put(&setup.store, "a/2", "web");
    put(&setup.store, "a/3", "web");
    setup.store.compact(4);
    assert_eq!(read(&mut watcher).await, "over");
    setup.store.hold_watches(false);
    let begin = || WatchBegin::Changes(ChangesAfter::Cached);
    let refusal = setup.watch(begin(), Filter::default()).await.err().expect("it is not ready");
    assert_eq!(refusal.code(), 429);
    assert_eq!(
        setup.feed.version(ReadAt::AnyCached).await.map(drop),
        Err(Unserved::AskStore { down_ms: Some(0) })
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(setup.feed.version(ReadAt::MostRecent).await.expect("it is back").len(), 3);
    assert_eq!(setup.feed.counters().tally.relists, 1);
    let mut watcher = setup.changes(Filter::default()).await;
    setup.store.set_available(false);
    let begun = tokio::time::Instant::now();
    assert_eq!(read(&mut watcher).await, "over");
    assert!((29..33).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_of_another_server_resumes_from_a_cache_that_is_younger_than_its_revision() {
    let store = MemoryStore::new();
    let known = put(&store, "a/1", "web");
    let missed = put(&store, "a/1", "db");
    let last = put(&store, "a/2", "web");
    let setup = Setup::with(store, FeedSettings::default());
    let begin = WatchBegin::Changes(ChangesAfter::Revision(known));
    let mut watcher = setup.watch(begin, Filter::new(Scope::all(), Vec::new())).await.expect("a watch");
    assert_eq!(read_items(&mut watcher, 2).await, format!("~a/1@{missed} +a/2@{last}"));
    // Nobody is shown the past as if it were now.
    let version = setup.feed.version(ReadAt::AnyCached).await.expect("it is filled");
    assert_eq!((version.revision(), version.len()), (last, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cache_begins_no_earlier_than_it_may_or_than_the_store_knows() {
    let store = MemoryStore::new();
    let first = put(&store, "a/1", "web");
    let second = put(&store, "a/2", "web");
    put(&store, "a/3", "web");
    let resume = |after| WatchBegin::Changes(ChangesAfter::Revision(after));
    let all = || Filter::new(Scope::all(), Vec::new());
    let settings = FeedSettings { past_revisions: 1, ..FeedSettings::default() };
    let setup = Setup::with(store.clone(), settings);
    assert!(setup.watch(resume(first), all()).await.is_err_and(|refusal| refusal.reason.code() == 410));
    assert!(setup.watch(resume(second), all()).await.is_ok());
    store.compact(second);
    let setup = Setup::with(store, FeedSettings::default());
    assert!(setup.watch(resume(first), all()).await.is_err_and(|refusal| refusal.reason.code() == 410));
    assert!(setup.watch(resume(second), all()).await.is_ok());
}
