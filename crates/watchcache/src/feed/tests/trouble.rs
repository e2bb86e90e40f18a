//! A store that is cut off, or replaced, and a task that panics.

use super::*;

fn after(revision: u64) -> WatchBegin {
    WatchBegin::Changes(ChangesAfter::Revision(revision))
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_sends_watchers_elsewhere_and_goes_on_without_a_list() {
    let setup = Setup::new();
    let first = put(&setup.store, "a/1", "web");
    let mut watcher = setup.watch(state(ReadAt::MostRecent), Filter::default()).await.expect("a watch");
    assert_eq!(read_items(&mut watcher, 2).await, format!("=a/1@{first} end@{first}"));
    let lists = setup.store.calls().read;
    setup.store.set_cut_off(true);
    // Written elsewhere.
    let second = put(&setup.store, "a/2", "web");
    assert_eq!(read(&mut watcher).await, "over");
    assert!(setup.feed.is_cut_off() && setup.feed.counters().ready);
    for begin in [after(first), state(ReadAt::AnyCached), state(ReadAt::MostRecent)] {
        let refusal = setup.watch(begin, Filter::default()).await.err().expect("nothing would come");
        assert_eq!((refusal.code(), refusal.retry_after_s), (429, Some(1)), "{begin:?}");
    }
    let Err(Unserved::Refused(refusal)) = setup.feed.version(ReadAt::MostRecent).await else {
        panic!("nobody knows what is newest")
    };
    assert_eq!((refusal.code(), refusal.retry_after_s), (503, Some(1)));
    let old = setup.feed.version(ReadAt::AnyCached).await.expect("what was asked for");
    assert_eq!(old.revision(), first);
    // Longer than any other trouble is tolerated.
    tokio::time::sleep(Duration::from_secs(300)).await;
    setup.store.set_cut_off(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!setup.feed.is_cut_off());
    let mut resumed = setup.watch(after(first), Filter::default()).await.expect("it is in the ring");
    assert_eq!(read(&mut resumed).await, format!("+a/2@{second}"));
    let counters = setup.feed.counters();
    assert_eq!((counters.tally.relists, counters.tally.cut_offs), (0, 1));
    assert_eq!(setup.store.calls().read, lists, "the store was not listed again");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_let_in_again_before_the_cache_has_caught_up() {
    let setup = Setup::new();
    let first = put(&setup.store, "a/1", "web");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    setup.store.set_cut_off(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = put(&setup.store, "a/2", "web");
    setup.store.hold_watches(true);
    setup.store.set_cut_off(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        setup.watch(after(first), Filter::default()).await.err().map(|refusal| refusal.code()),
        Some(429)
    );
    setup.store.hold_watches(false);
    let version = setup.feed.version(ReadAt::AnyCached).await.expect("waited for");
    assert_eq!(version.revision(), second);
    setup.watch(after(first), Filter::default()).await.expect("a watch");
}

#[tokio::test(start_paused = true)]
async fn what_was_before_the_store_was_replaced_is_told_to_nobody() {
    let setup = Setup::new();
    for number in 0..20 {
        put(&setup.store, &format!("a/{number}"), "web");
    }
    let known = setup.feed.version(ReadAt::MostRecent).await.expect("it is ready").revision();
    let mut watcher = setup.watch(after(known), Filter::default()).await.expect("a watch");
    assert!(futures::FutureExt::now_or_never(watcher.next()).is_none());
    setup.store.replace();
    // Not one more answer of what was, from the first moment on.
    for at in [ReadAt::AnyCached, ReadAt::MostRecent] {
        assert!(setup.feed.version(at).await.map(|version| version.revision() < known).unwrap_or(true));
    }
    let first = put(&setup.store, "a/new", "web");
    assert_eq!(read_items(&mut watcher, 2).await, "expired over");
    let version = setup.feed.version(ReadAt::MostRecent).await;
    let version = match version {
        Ok(version) => version,
        Err(_) => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            setup.feed.version(ReadAt::MostRecent).await.expect("it is filled anew")
        }
    };
    assert_eq!((version.len(), version.revision()), (1, first));
    // One that comes from before would wait for ever.
    let refusal = setup.watch(after(known), Filter::default()).await.err().expect("it is of another history");
    assert_eq!(refusal.code(), 410);
    assert_eq!(setup.feed.version(ReadAt::NotOlderThan(known)).await.map(drop), Err(Unserved::Expired));
    // And one from what no store ever told is in the future, as always.
    setup.watch(after(known + 1_000), Filter::default()).await.expect("silence until then");
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_panics_tells_its_watchers_and_another_takes_its_place() {
    let setup = Setup::new();
    let first = put(&setup.store, "a/1", "web");
    let mut watcher = setup.watch(state(ReadAt::MostRecent), Filter::default()).await.expect("a watch");
    assert_eq!(read_items(&mut watcher, 2).await, format!("=a/1@{first} end@{first}"));
    setup.store.panic_once("/registry/pods/");
    assert_eq!(read(&mut watcher).await, "over");
    let rests = setup.feeds.of(&pods()).expect("pods are kept");
    assert!(Arc::ptr_eq(&rests, &setup.feed), "it rests, so that nothing panics in a circle");
    let refusal = setup.watch(after(first), Filter::default()).await.err().expect("it has failed");
    assert_eq!(refusal.code(), 429);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let next = setup.feeds.of(&pods()).expect("pods are kept");
    assert!(!Arc::ptr_eq(&next, &setup.feed));
    let second = put(&setup.store, "a/2", "web");
    let plan = WatchPlan { begin: after(first), bookmarks: false };
    let mut watcher = next.watch(&plan, Filter::default(), HOUR).await.expect("it is ready");
    assert_eq!(read(&mut watcher).await, format!("+a/2@{second}"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_while_it_changes_the_cache_leaves_nobody_a_half_changed_one() {
    let setup = Setup::new();
    let first = put(&setup.store, "a/1", "web");
    let mut watcher = setup.watch(state(ReadAt::MostRecent), Filter::default()).await.expect("a watch");
    assert_eq!(read_items(&mut watcher, 2).await, format!("=a/1@{first} end@{first}"));
    let feed = setup.feed.clone();
    let request = tokio::spawn(async move { feed.locked(|_, _| panic!("a mistake")) });
    assert!(request.await.is_err_and(|error| error.is_panic()), "it is told");
    assert_eq!(read(&mut watcher).await, "over");
    let refusal = setup.watch(after(first), Filter::default()).await.err().expect("it has failed");
    assert_eq!(refusal.code(), 429);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let next = setup.feeds.of(&pods()).expect("pods are kept");
    assert!(!Arc::ptr_eq(&next, &setup.feed), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_hurried_only_while_somebody_waits() {
    let setup = Setup::new();
    put(&setup.store, "a/1", "web");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    let before = setup.feed.counters().revision;
    for _ in 0..100 {
        setup.store.put("/elsewhere", "x");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(setup.feed.counters().revision, before, "nobody asked how far it is");
    let now = setup.store.revision();
    assert_eq!(setup.feed.version(ReadAt::NotOlderThan(now)).await.expect("waited for").revision(), now);
}
