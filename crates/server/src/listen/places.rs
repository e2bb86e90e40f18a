//! How many connections may be open at the ports of one kind.
//!
//! Who comes when there is no place left waits in the system's queue until one is free. That is told of in
//! the log, at most once a minute.

use meerkat_fault::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

const TOLD_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Places {
    whose: &'static str,
    count: usize,
    free: Arc<Semaphore>,
    /// When it was last said that there was none. Never held across an await.
    told: Mutex<Option<Instant>>,
}

impl Places {
    pub(crate) fn new(whose: &'static str, count: usize) -> Places {
        let count = count.min(Semaphore::MAX_PERMITS);
        Places { whose, count, free: Arc::new(Semaphore::new(count)), told: Mutex::new(None) }
    }

    /// A place, until it is dropped.
    pub(super) async fn take(&self) -> io::Result<OwnedSemaphorePermit> {
        match self.free.clone().try_acquire_owned() {
            Ok(place) => return Ok(place),
            Err(TryAcquireError::Closed) => return Err(io::ErrorKind::NotConnected.into()),
            Err(TryAcquireError::NoPermits) => self.tell(),
        }
        self.free.clone().acquire_owned().await.map_err(io::Error::other)
    }

    fn tell(&self) {
        let mut told = self.told.lock();
        if told.is_none_or(|told| TOLD_EVERY <= told.elapsed()) {
            *told = Some(Instant::now());
            tracing::warn!(
                open = self.count,
                "as many connections of {} are open as there may be; others wait until one ends",
                self.whose
            );
        }
    }
}
