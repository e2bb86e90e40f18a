//! What lists are answered from a feed.

use super::*;

fn names(version: &crate::cacher::store::Version) -> Vec<&str> {
    version.iter().map(Entry::name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_covers_what_was_written_before_it() {
    let setup = Setup::new();
    for number in 0..20 {
        let revision = put(&setup.store, &format!("a/{number:02}"), "web");
        setup.store.put("/elsewhere", "x");
        let version = setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
        assert_eq!((version.len(), version.revision()), (number + 1, revision + 1));
    }
    let exact = setup.feed.version(ReadAt::Exact(4)).await.expect("it is kept");
    assert_eq!((names(&exact), exact.revision()), (vec!["00", "01"], 4));
    let any = setup.feed.version(ReadAt::AnyCached).await.expect("it is ready");
    assert_eq!(any.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_does_not_come_is_too_large_and_one_that_does_is_waited_for() {
    let setup = Setup::new();
    let at = put(&setup.store, "a/1", "web");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    for ask in [ReadAt::NotOlderThan(at + 1), ReadAt::Exact(at + 1)] {
        let begun = tokio::time::Instant::now();
        let Err(Unserved::Refused(refusal)) = setup.feed.version(ask).await else {
            panic!("it is not there")
        };
        assert_eq!(refusal.code(), 504);
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
    let later = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        put(&setup.store, "a/2", "web");
    };
    let (version, ()) = futures::join!(setup.feed.version(ReadAt::NotOlderThan(at + 1)), later);
    assert_eq!(version.expect("it came").len(), 2);
}

/// The cache begins in the past, and shows nobody the past.
#[tokio::test(start_paused = true)]
async fn who_asks_while_the_cache_is_filled_is_shown_the_present() {
    let store = MemoryStore::new();
    for number in 0..50 {
        put(&store, &format!("a/{number}"), "web");
    }
    for number in 0..49 {
        delete(&store, &format!("a/{number}"));
    }
    let setup = Setup::with(store, FeedSettings::default());
    let version = setup.feed.version(ReadAt::AnyCached).await.expect("it is filled");
    assert_eq!(names(&version), ["49"]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_sends_fresh_reads_to_the_store() {
    let setup = Setup::new();
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    setup.store.hold_watches(true);
    put(&setup.store, "a/1", "web");
    assert_eq!(
        setup.feed.version(ReadAt::MostRecent).await.map(drop),
        Err(Unserved::AskStore { down_ms: None })
    );
    assert_eq!(setup.feed.version(ReadAt::AnyCached).await.expect("old is good enough").len(), 0);
    setup.store.hold_watches(false);
    assert_eq!(setup.feed.version(ReadAt::MostRecent).await.expect("it has come").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_store_there_is_no_answer_and_never_an_empty_one() {
    let store = MemoryStore::new();
    put(&store, "a/1", "web");
    store.set_available(false);
    let setup = Setup::with(store, FeedSettings::default());
    let Err(Unserved::AskStore { down_ms: Some(3_000..) }) = setup.feed.version(ReadAt::AnyCached).await
    else {
        panic!("it was never filled")
    };
    let refusal = setup.watch(state(ReadAt::AnyCached), Filter::default()).await.err().expect("refused");
    assert_eq!(refusal.code(), 429);
    let Err(Unserved::AskStore { .. }) = setup.feed.version(ReadAt::MostRecent).await else {
        panic!("it was never filled")
    };
    setup.store.set_available(true);
    assert_eq!(setup.feed.version(ReadAt::MostRecent).await.expect("it is ready").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_past_is_the_stores_or_nobodys() {
    let store = MemoryStore::new();
    for number in 0..5 {
        put(&store, &format!("a/{number}"), "web");
    }
    let setup = Setup::with(store, FeedSettings { past_revisions: 0, ..FeedSettings::default() });
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    assert_eq!(
        setup.feed.version(ReadAt::Exact(3)).await.map(drop),
        Err(Unserved::AskStore { down_ms: None })
    );
    setup.feed.compacted(4);
    assert_eq!(setup.feed.version(ReadAt::Exact(3)).await.map(drop), Err(Unserved::Expired));
    assert!(setup.feed.version(ReadAt::Exact(6)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_object_is_the_end_of_the_one_before_it() {
    let setup = Setup::new();
    put(&setup.store, "a/1", "web");
    put(&setup.store, "a/2", "web");
    let mut watcher = setup.changes(Filter::default()).await;
    let garbage = setup.store.put("/registry/pods/a/1", "k8s\0 something else");
    setup.store.put("/registry/pods/a/b/c", "{\"metadata\":{}}");
    setup.store.put("/registry/pods/x", "{\"metadata\":{}}");
    assert_eq!(read(&mut watcher).await, format!("-a/1@{garbage}"));
    let version = setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    assert_eq!(names(&version), ["2"]);
    assert_eq!(setup.feed.counters().tally.undecodable, 1);
    let again = put(&setup.store, "a/1", "web");
    assert_eq!(read(&mut watcher).await, format!("+a/1@{again}"));
}

#[tokio::test(start_paused = true)]
async fn kinds_of_one_place_share_a_feed_that_has_the_fields_of_both() {
    let setup = Setup::new();
    let registry = Registry::built_in();
    let core = registry.by_group_resource("", "events").expect("built in");
    let other = registry.by_group_resource("events.k8s.io", "events").expect("built in");
    let first = setup.feeds.of(core).expect("kept");
    let mut watcher = first
        .watch(
            &WatchPlan { begin: WatchBegin::Changes(ChangesAfter::Cached), bookmarks: false },
            Filter::default(),
            HOUR,
        )
        .await
        .expect("a watch");
    let both = setup.feeds.of(other).expect("kept");
    assert_eq!(read(&mut watcher).await, "over");
    assert!(Arc::ptr_eq(&both, &setup.feeds.of(core).expect("kept")));
    assert!(Arc::ptr_eq(&both, &setup.feeds.of(other).expect("kept")));
    assert!(!Arc::ptr_eq(&both, &first));
    let review = registry.by_group_resource("authorization.k8s.io", "selfsubjectaccessreviews");
    assert_eq!(setup.feeds.of(review.expect("built in")).err().expect("not kept").code(), 405);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_differs_from_the_store_is_found_out() {
    let store = MemoryStore::new();
    put(&store, "a/1", "web");
    put(&store, "a/3", "web");
    store.put("/registry/pods/a/2", "no object");
    let settings = FeedSettings { check_every: Duration::from_secs(10), ..FeedSettings::default() };
    let setup = Setup::with(store, settings);
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    put(&setup.store, "a/1", "db");
    let before = put(&setup.store, "a/1", "web");
    put(&setup.store, "a/1", "db");
    setup.feed.version(ReadAt::MostRecent).await.expect("it is ready");
    tokio::time::sleep(Duration::from_secs(100)).await;
    let tally = setup.feed.counters().tally;
    assert!(tally.checks >= 5 && tally.mismatches == 0, "{tally:?}");
    assert!(setup.feed.version(ReadAt::Exact(before)).await.is_ok());
    setup.feed.corrupt("a/3");
    // The store comes to the revision at which the cache has lost it.
    setup.store.put("/elsewhere", "x");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(setup.feed.counters().tally.mismatches >= 1);
    assert_eq!(
        setup.feed.version(ReadAt::Exact(before)).await.map(drop),
        Err(Unserved::AskStore { down_ms: None })
    );
}

#[tokio::test(start_paused = true)]
async fn who_drops_all_feeds_ends_their_tasks_and_watchers() {
    let setup = Setup::new();
    let mut watcher = setup.changes(Filter::default()).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(futures::FutureExt::now_or_never(watcher.next()).is_none());
    assert!(tasks() >= 3);
    drop(setup.feeds);
    assert_eq!(read(&mut watcher).await, "over");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tasks(), 0);
    let begin = WatchBegin::Changes(ChangesAfter::Cached);
    let refused = setup.feed.watch(&WatchPlan { begin, bookmarks: false }, Filter::default(), HOUR).await;
    assert_eq!(refused.err().expect("it is closed").code(), 429);
}
