//! The tasks of a feed, and what becomes of it when one of them ends.
//!
//! None ends by itself. One that panics, or a request that does while it changes the cache, may have left
//! it half changed, so nothing of it is used any more: its watchers end and can resume, and the next who asks for the kind gets a feed that begins anew,
//! after a rest, so that what panics at once does not do so a thousand times a second. The member goes on:
//! a value that one feed cannot bear would otherwise end all members, one after the other.

use super::shared::Shared;
use super::{check, housekeeping, reflector};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const REST: Duration = Duration::from_secs(1);

/// When a feed came to its end, if it did.
#[derive(Debug, Default)]
pub(super) struct End(OnceLock<Instant>);

impl End {
    pub(super) fn is_past_rest(&self) -> bool {
        self.0.get().is_some_and(|at| REST <= at.elapsed())
    }
}

/// Until it is aborted, and all tasks with it; or until one of them has ended, or the cache is broken.
pub(super) async fn run(shared: Arc<Shared>, end: Arc<End>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(reflector::run(shared.clone()));
    tasks.spawn(housekeeping::run(shared.clone()));
    tasks.spawn(check::run(shared.clone()));
    let why = tokio::select! {
        ended = tasks.join_next() => match ended {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) | None => "it ended by itself".to_owned(),
        },
        () = shared.broken.notified() => "a panic has left it half changed".to_owned(),
    };
    tasks.shutdown().await;
    tracing::error!(
        place = shared.place(),
        %why,
        "the cache has failed: its watchers are ended, and it is filled anew; report this"
    );
    shared.abandon();
    // Only here is it set.
    let _ = end.0.set(Instant::now());
}
