//! Waiting for what is to happen, on a machine that may be busy with other tests.

use crate::server::{BOTH, Kind};
use std::time::{Duration, Instant};

/// No single wait lasts longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub async fn within<T>(what: &str, done: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, done).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// On both kinds side by side, where there is more to wait for than to do.
pub async fn on_both<F: Future<Output = ()>>(check: impl Fn(Kind) -> F) {
    futures::future::join_all(BOTH.map(check)).await;
}
