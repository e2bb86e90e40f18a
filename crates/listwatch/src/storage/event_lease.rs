//! Events go by themselves: each is put with a lease, and many share one.
//!
//! A lease is used for up to a thousand keys and for a twentieth of the time to live, a minute at most, and
//! is granted for that much longer, so that none goes before its time.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use meerkat_kubernetes::registry::Kind;
use meerkat_watchcache::store::{Store, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const KEYS_MAX: u32 = 1_000;
const REUSE_S_MAX: u64 = 60;
const REUSE_PERCENT: u64 = 5;

type Grant = Shared<BoxFuture<'static, Result<i64, StoreError>>>;

struct Lease {
    /// Everybody who came while it was being granted waits for the one answer.
    grant: Grant,
    since: Instant,
    keys: u32,
    /// The number of the store's history: no lease outlives it.
    history: u64,
}

pub(super) struct EventLeases {
    store: Arc<dyn Store>,
    ttl_s: u64,
    newest: Mutex<Option<Lease>>,
}

/// Whether objects of this kind have a time to live.
pub(crate) fn expires(kind: &Kind) -> bool {
    kind.custom().is_none() && kind.storage.as_deref() == Some("events")
}

impl EventLeases {
    pub(super) fn new(store: Arc<dyn Store>, ttl_s: u64) -> EventLeases {
        EventLeases { store, ttl_s, newest: Mutex::new(None) }
    }

    /// A lease for one key.
    pub(super) async fn take(&self) -> Result<i64, StoreError> {
        let grant = self.join(Instant::now());
        let granted = grant.clone().await;
        if granted.is_err() {
            self.forget(&grant);
        }
        granted
    }

    fn reuse_s(&self) -> u64 {
        (self.ttl_s * REUSE_PERCENT / 100).min(REUSE_S_MAX)
    }

    fn join(&self, now: Instant) -> Grant {
        let (reuse_s, history) = (self.reuse_s(), self.store.history().number);
        let mut newest = self.newest.lock();
        if let Some(lease) = newest.as_mut()
            && lease.keys < KEYS_MAX
            && lease.history == history
            && now.duration_since(lease.since) < Duration::from_secs(reuse_s)
        {
            lease.keys += 1;
            return lease.grant.clone();
        }
        let (store, ttl_s) = (self.store.clone(), self.ttl_s + reuse_s);
        let grant = async move { store.grant(ttl_s).await }.boxed().shared();
        *newest = Some(Lease { grant: grant.clone(), since: now, keys: 1, history });
        grant
    }

    fn forget(&self, failed: &Grant) {
        let mut newest = self.newest.lock();
        if newest.as_ref().is_some_and(|lease| lease.grant.ptr_eq(failed)) {
            *newest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_watchcache::memory_store::MemoryStore;
    use std::collections::BTreeSet;

    async fn take(leases: &EventLeases, count: usize) -> BTreeSet<i64> {
        let taken = futures::future::join_all((0..count).map(|_| leases.take())).await;
        taken.into_iter().map(|lease| lease.expect("a lease")).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_keys_within_a_minute_share_one() {
        let leases = EventLeases::new(Arc::new(MemoryStore::new()), 3_600);
        let first = take(&leases, 1_000).await;
        assert_eq!(first.len(), 1, "even those who came at once");
        let second = take(&leases, 1).await;
        assert!(second.is_disjoint(&first), "a thousand are enough");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(take(&leases, 1).await, second);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(take(&leases, 1).await.is_disjoint(&second), "a minute is enough");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_life_is_shared_for_a_twentieth_and_a_failure_is_not_kept() {
        let store = MemoryStore::new();
        let leases = EventLeases::new(Arc::new(store.clone()), 100);
        let first = take(&leases, 2).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        store.set_available(false);
        assert!(leases.take().await.is_err());
        store.set_available(true);
        assert!(take(&leases, 1).await.is_disjoint(&first));
    }
}
