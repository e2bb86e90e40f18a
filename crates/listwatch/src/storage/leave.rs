//! In whose name objects are written: the door's own, or somebody's who was let in.
//!
//! Who was let in is let in by the users and roles of then. The store looks at them again when it does the
//! write; if they are others by then, it does nothing, and whoever asks is judged anew.

use super::Storage;
use futures::future::BoxFuture;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::store::{By, Pass, StoreError, Write, Written};

/// How often somebody is let in anew for one write, because users or roles changed before it was done.
const ADMISSIONS_MAX: usize = 5;

/// Somebody's leave to do what a request asks for.
pub trait Leave: Send + Sync {
    fn pass(&self) -> Pass;

    /// Judges anew who asks, and whether they may.
    fn renew(&self) -> BoxFuture<'_, Result<Pass, Refusal>>;
}

/// Who writes.
#[derive(Clone, Copy)]
pub enum Writer<'a> {
    /// The door keeps house.
    Door,
    Somebody(&'a dyn Leave),
}

impl Writer<'_> {
    /// Before an answer that shows an object and writes nothing: no store looks at who asked for that.
    pub(super) async fn judge_again(self) -> Result<(), Refusal> {
        match self {
            Writer::Door => Ok(()),
            Writer::Somebody(leave) => leave.renew().await.map(drop),
        }
    }
}

impl Storage {
    /// Does a write in the name of who asks, as long as they may.
    pub(super) async fn write(
        &self,
        writer: Writer<'_>,
        write: Write,
    ) -> Result<Result<Written, StoreError>, Refusal> {
        let Writer::Somebody(leave) = writer else { return Ok(self.store.write(write).await) };
        let mut pass = leave.pass();
        for _ in 1..ADMISSIONS_MAX {
            let written = self.store.write(Write { by: By::Somebody(pass), ..write.clone() }).await;
            if written != Err(StoreError::OtherRules) {
                return Ok(written);
            }
            pass = leave.renew().await?;
        }
        Ok(self.store.write(Write { by: By::Somebody(pass), ..write }).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use meerkat_kubernetes::status::Reason;
    use meerkat_watchcache::feed::Feeds;
    use meerkat_watchcache::memory_store::MemoryStore;
    use meerkat_watchcache::store::Change;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Let in by revision 1 at first, and by one more each time it is judged, up to the last.
    struct Judged {
        now: AtomicU64,
        last: u64,
    }

    impl Leave for Judged {
        fn pass(&self) -> Pass {
            Pass { user: Some("anna".to_owned()), rules: self.now.load(Ordering::Acquire) }
        }

        fn renew(&self) -> BoxFuture<'_, Result<Pass, Refusal>> {
            let rules = self.now.fetch_add(1, Ordering::AcqRel) + 1;
            let pass = Pass { user: Some("anna".to_owned()), rules };
            let no = || Refusal::new(Reason::Forbidden, "not any more");
            async move { if rules <= self.last { Ok(pass) } else { Err(no()) } }.boxed()
        }
    }

    async fn check(rules: u64, last: u64) -> (Result<Result<Written, StoreError>, u16>, u64) {
        let store = MemoryStore::new();
        store.set_rules(rules);
        let shared: Arc<dyn meerkat_watchcache::store::Store> = Arc::new(store.clone());
        let storage = Storage::new(shared.clone(), Feeds::new(shared));
        let leave = Judged { now: AtomicU64::new(1), last };
        let change = Change::Put { value: "v".into(), lease: 0 };
        let write = Write { key: "k".into(), expected: 0, change, by: By::Door };
        let written = storage.write(Writer::Somebody(&leave), write).await;
        (written.map_err(|refusal| refusal.code()), store.calls().write)
    }

    #[tokio::test]
    async fn who_may_still_does_not_hear_that_others_rules_changed() {
        let done = Ok(Ok(Written::Done { revision: 2 }));
        assert_eq!(check(1, 9).await, (done.clone(), 1));
        assert_eq!(check(3, 9).await, (done, 3));
    }

    #[tokio::test]
    async fn who_may_not_any_more_is_refused_and_it_is_not_tried_for_ever() {
        assert_eq!(check(3, 2).await, (Err(403), 2));
        assert_eq!(check(99, 99).await, (Ok(Err(StoreError::OtherRules)), 5));
    }
}
