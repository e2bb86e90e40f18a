//! The store in memory keeps the promises that any store must.

use super::*;

fn span(prefix: &'static str, from: &'static str, limit: usize) -> Span {
    Span { prefix: prefix.into(), from: from.into(), limit }
}

fn keys(page: &Page) -> Vec<&str> {
    page.rows.iter().map(|row| std::str::from_utf8(&row.key).expect("text")).collect()
}

fn put(key: &'static str, expected: u64, lease: i64) -> Write {
    Write { key: key.into(), expected, change: Change::Put { value: "v".into(), lease }, by: By::Door }
}

#[tokio::test]
async fn the_past_reads_as_it_was_until_it_is_compacted() {
    let store = MemoryStore::new();
    store.transact(vec![("/a/1", Some("x".into())), ("/a/2", Some("x".into())), ("/b", Some("x".into()))]);
    store.put("/a/3", "y");
    store.delete("/a/1");
    let page = store.read(span("/a/", "", 2), Some(3)).await.expect("it is there");
    assert_eq!((keys(&page), page.more, page.revision), (vec!["/a/1", "/a/2"], true, 3));
    let page = store.read(span("/a/", "/a/2\0", 2), Some(3)).await.expect("it is there");
    assert_eq!((keys(&page), page.more), (vec!["/a/3"], false));
    let page = store.read(span("/a/", "", 9), None).await.expect("it is there");
    assert_eq!((keys(&page), page.revision), (vec!["/a/2", "/a/3"], 4));
    assert_eq!(store.read(span("/", "", 9), Some(5)).await, Err(StoreError::Future { asked: 5 }));
    store.compact(4);
    assert_eq!(store.read(span("/", "", 9), Some(3)).await, Err(StoreError::Compacted { oldest: 4 }));
    assert_eq!(keys(&store.read(span("/a/", "", 9), Some(4)).await.expect("kept")), ["/a/2", "/a/3"]);
}

#[tokio::test]
async fn a_write_is_done_only_if_the_key_is_as_expected() {
    let store = MemoryStore::new();
    assert_eq!(store.write(put("k", 0, 0)).await, Ok(Written::Done { revision: 2 }));
    let otherwise = store.write(put("k", 0, 0)).await.expect("an answer");
    assert!(matches!(otherwise, Written::Otherwise { found: Some(row), revision: 2 } if row.modified == 2));
    store.lose_answers(1);
    assert!(matches!(store.write(put("k", 2, 0)).await, Err(StoreError::Unknown(_))));
    assert_eq!(store.revision(), 3);
    store.refuse_writes(1);
    assert!(matches!(store.write(put("k", 3, 0)).await, Err(StoreError::Unavailable(_))));
    let gone = Write { key: "k".into(), expected: 3, change: Change::Delete, by: By::Door };
    assert_eq!(store.write(gone).await, Ok(Written::Done { revision: 4 }));
    assert_eq!(store.get("k".into()).await, Ok((None, 4)));
}

#[tokio::test]
async fn a_watch_tells_each_revision_whole_and_progress_to_those_who_ask() {
    let store = MemoryStore::new();
    let (wait, awaited) = watch::channel(0);
    let mut watch = store.watch("/a/".into(), 1, awaited.clone());
    store.transact(vec![("/a/1", Some("x".into())), ("/b", Some("x".into())), ("/a/2", Some("x".into()))]);
    store.put("/b", "y");
    let batch = watch.next().await.expect("more").expect("good");
    assert_eq!((batch.revision, batch.changes.len()), (2, 2));
    assert!(watch.next().now_or_never().is_none(), "nobody waits for more");
    wait.send_replace(9);
    let batch = watch.next().await.expect("more").expect("good");
    assert_eq!((batch.revision, batch.changes.len()), (3, 0));
    assert!(watch.next().now_or_never().is_none(), "there is no more");
    store.hold_watches(true);
    store.delete("/a/1");
    assert!(watch.next().now_or_never().is_none(), "it is held");
    store.hold_watches(false);
    let batch = watch.next().await.expect("more").expect("good");
    assert!(batch.changes[0].after.is_none());
    store.break_watches();
    assert!(matches!(watch.next().await, Some(Err(StoreError::Unavailable(_)))));
    assert!(watch.next().await.is_none());
    store.compact(4);
    let mut late = store.watch("/a/".into(), 3, awaited.clone());
    assert!(matches!(late.next().await, Some(Err(StoreError::Compacted { oldest: 4 }))));
    let mut watch = store.watch("/a/".into(), 4, awaited.clone());
    store.set_cut_off(true);
    assert!(matches!(watch.next().await, Some(Err(StoreError::CutOff(_)))));
    assert!(matches!(store.now().await, Err(StoreError::CutOff(_))));
    store.set_cut_off(false);
    let mut watch = store.watch("/a/".into(), 4, awaited);
    store.replace();
    assert!(matches!(watch.next().await, Some(Err(StoreError::OtherHistory))));
    assert_eq!((store.now().await, store.history()), (Ok(1), History { number: 1, lost: 4 }));
}

#[tokio::test(start_paused = true)]
async fn what_has_a_lease_goes_with_it() {
    let store = MemoryStore::new();
    let lease = store.grant(10).await.expect("a lease");
    store.write(put("k", 0, lease)).await.expect("written");
    let mut watch = store.watch("k".into(), 2, watch::channel(0).1);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(store.rows("k").len(), 1);
    let begun = Instant::now();
    let batch = watch.next().await.expect("more").expect("good");
    assert!(batch.changes[0].after.is_none());
    assert!(begun.elapsed() <= Duration::from_secs(2));
    assert_eq!(store.rows("k").len(), 0);
}
