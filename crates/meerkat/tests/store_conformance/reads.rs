//! Rows of a prefix, in pages, now and in the past.

use crate::stage::{Stage, bytes, row};
use meerkat_watchcache::store::{Page, Row, Span, StoreError};

fn span(from: &str, limit: usize) -> Span {
    Span { prefix: bytes("page/"), from: bytes(from), limit }
}

pub async fn pages_are_of_one_revision_and_leave_nothing_out(stage: &Stage) {
    let mut rows: Vec<Row> = Vec::new();
    for name in ["page/a", "page/b", "page/c", "page/d", "page/e"] {
        rows.push(row(name, "1", stage.done(name, 0, "1").await));
    }
    // Neighbours of the prefix.
    stage.done("page.", 0, "").await;
    let revision = stage.done("page0", 0, "").await;
    let read = async |span, at| stage.store.read(span, at).await.expect("a read");
    let first = Page { rows: rows[..2].to_vec(), revision, more: true };
    assert_eq!(read(span("", 2), None).await, first, "{}", stage.name);
    // What is written meanwhile is not seen.
    stage.done("page/bb", 0, "new").await;
    stage.delete("page/d", rows[3].modified).await;
    let second = Page { rows: rows[2..4].to_vec(), revision, more: true };
    assert_eq!(read(span("page/b\0", 2), Some(revision)).await, second);
    let third = Page { rows: rows[4..].to_vec(), revision, more: false };
    assert_eq!(read(span("page/d\0", 2), Some(revision)).await, third);
    // A page that is just full has nothing behind it.
    let all = Page { rows: rows.clone(), revision, more: false };
    assert_eq!(read(span("", 5), Some(revision)).await, all);
    assert_eq!(read(span("a", 500), Some(revision)).await, all, "from before the prefix");
    let none = Page { rows: Vec::new(), revision, more: false };
    assert_eq!(read(span("page0", 5), Some(revision)).await, none, "from behind the prefix");
    let now = read(span("", 100), None).await;
    assert_eq!((now.rows.len(), now.revision), (5, stage.now().await));
}

pub async fn the_past_is_readable_and_the_future_is_not(stage: &Stage) {
    let first = stage.done("past/a", 0, "1").await;
    let second = stage.done("past/a", first, "2").await;
    let past = Span { prefix: bytes("past/"), from: bytes(""), limit: 10 };
    let read = |at| stage.store.read(past.clone(), at);
    let page = |value, modified| Page {
        rows: vec![row("past/a", value, modified)],
        revision: modified,
        more: false,
    };
    assert_eq!(read(Some(first)).await, Ok(page("1", first)), "{}", stage.name);
    assert_eq!(read(Some(second)).await, Ok(page("2", second)));
    let empty = Page { rows: Vec::new(), revision: first - 1, more: false };
    assert_eq!(read(Some(first - 1)).await, Ok(empty));
    let asked = second + 1_000;
    assert_eq!(read(Some(asked)).await, Err(StoreError::Future { asked }));
    let asked = u64::MAX;
    assert_eq!(read(Some(asked)).await, Err(StoreError::Future { asked }));
}
