//! Namespaces that went a short while ago, and may still get something by a create that was on its way.
//!
//! One is noted in the store before it goes, on a lease that outlives any such create. The keeper that let it
//! go looks into it once more; a keeper that comes after finds the note, and does the same. Nobody looks into
//! a namespace that was never let go: what somebody else put there is not ours to take away.

use bytes::Bytes;
use meerkat_watchcache::store::{By, Change, Span, Store, StoreError, Write, Written};
use std::sync::Arc;

/// Outside of the kinds' keys.
const PREFIX: &str = "/meerkat/listwatch/sweeps/";
/// Longer than it takes another keeper to come, many times.
const NOTED_S: u64 = 600;
const PAGE_ROWS: usize = 1_000;

/// To be called before the namespace goes.
pub async fn note(store: &dyn Store, namespace: &str) -> Result<(), StoreError> {
    let lease = store.grant(NOTED_S).await?;
    let key = Bytes::from(format!("{PREFIX}{namespace}"));
    let mut expected = 0;
    loop {
        let change = Change::Put { value: Bytes::from_static(b"{}"), lease };
        match store.write(Write { key: key.clone(), expected, change, by: By::Door }).await? {
            Written::Done { .. } => return Ok(()),
            // One from before, whose lease ends sooner.
            Written::Otherwise { found: Some(found), .. } if found.modified != expected => {
                expected = found.modified;
            }
            Written::Otherwise { .. } => expected = 0,
        }
    }
}

/// All that are noted.
pub async fn noted(store: &dyn Store) -> Result<Vec<Arc<str>>, StoreError> {
    let prefix = Bytes::from_static(PREFIX.as_bytes());
    let (mut from, mut names) = (Bytes::new(), Vec::new());
    loop {
        let span = Span { prefix: prefix.clone(), from, limit: PAGE_ROWS };
        let page = store.read(span, None).await?;
        let name = |key: &Bytes| Some(Arc::from(std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?));
        names.extend(page.rows.iter().filter_map(|row| name(&row.key)));
        match page.rows.last() {
            Some(last) if page.more => from = [&last.key[..], b"\0"].concat().into(),
            _ => return Ok(names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_watchcache::memory_store::MemoryStore;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_note_is_found_again_and_goes_by_itself() {
        let store = MemoryStore::new();
        assert_eq!(noted(&store).await, Ok(Vec::new()));
        note(&store, "b").await.expect("noted");
        tokio::time::advance(Duration::from_secs(NOTED_S - 1)).await;
        for name in ["a", "b"] {
            note(&store, name).await.expect("noted, or noted again");
        }
        tokio::time::advance(Duration::from_secs(NOTED_S - 1)).await;
        assert_eq!(noted(&store).await, Ok(vec!["a".into(), "b".into()]));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(noted(&store).await, Ok(Vec::new()));
    }
}
