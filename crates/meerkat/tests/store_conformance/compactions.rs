//! What is gone is said to be gone.

use crate::stage::{Stage, bytes};
use meerkat_client::Revision;
use meerkat_watchcache::store::{Span, StoreError};

pub async fn what_is_compacted_is_neither_read_nor_watched(stage: &Stage) {
    let first = stage.done("compacted/a", 0, "1").await;
    let second = stage.done("compacted/a", first, "2").await;
    let third = stage.done("compacted/a", second, "3").await;
    let mut told_before = stage.watch("compacted/", third);
    let compacted = Revision::new(i64::try_from(third).expect("a revision"));
    stage.other.compact(compacted).await.expect("a compaction");
    let span = Span { prefix: bytes("compacted/"), from: bytes(""), limit: 10 };
    let read = stage.store.read(span.clone(), Some(first)).await;
    assert!(
        matches!(read, Err(StoreError::Compacted { oldest }) if first < oldest),
        "{}: {read:?}",
        stage.name
    );
    let page = stage.store.read(span, Some(third)).await.expect("the revision of the compaction is there");
    assert_eq!(page.rows.len(), 1);
    let mut watch = stage.watch("compacted/", first - 1);
    let told = watch.next().await;
    assert_eq!(told, Some(Err(StoreError::Compacted { oldest: third })), "{}", stage.name);
    assert_eq!(watch.next().await, None, "an error is the last word");
    // Who was beyond it notices nothing, and from the compaction on all is there.
    let mut told_after = stage.watch("compacted/", third);
    let fourth = stage.done("compacted/a", third, "4").await;
    assert_eq!(told_before.changes().await.revision, fourth);
    assert_eq!(told_after.changes().await.revision, fourth);
}
