//! Work that goes on for as long as the door is open, whatever happens in it.
//!
//! What panics is a mistake of ours. It is told in the log as one, and the work begins anew after a pause:
//! the door is worth more with it than without, and a door that ended with it could end all doors, one
//! after the other, by the same object.

use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;

const PAUSE: Duration = Duration::from_secs(1);

/// Never ends. Dropping it ends the work.
pub async fn keep_running<F>(what: &'static str, begin: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // Ends what is in it when it is dropped.
    let mut work = JoinSet::new();
    loop {
        work.spawn(begin());
        match work.join_next().await {
            Some(Err(error)) => tracing::error!(what, %error, "it failed and begins anew; report this"),
            Some(Ok(())) | None => tracing::error!(what, "it ended by itself and begins anew; report this"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn what_panics_or_ends_begins_anew_and_ends_with_its_keeper() {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let kept = tokio::spawn(keep_running("a test", move || {
            let count = count.clone();
            async move {
                match count.fetch_add(1, Ordering::Relaxed) {
                    0 => panic!("the first time"),
                    1 => {}
                    _ => {
                        // Held for as long as it runs.
                        let _held = count;
                        std::future::pending::<()>().await;
                    }
                }
            }
        }));
        tokio::time::sleep(10 * PAUSE).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3, "one that goes on is left alone");
        kept.abort();
        assert!(kept.await.is_err_and(|error| error.is_cancelled()));
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&begun), 1, "the work ended with it");
    }
}
