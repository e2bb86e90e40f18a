//! How long the machine did not let this process run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(20);

/// A thread that measures how late its short sleeps end, until this is dropped.
pub struct Stalls {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    longest_millis: AtomicU64,
}

impl Stalls {
    pub fn measure() -> Stalls {
        let shared = Arc::new(Shared::default());
        let ticker = Arc::clone(&shared);
        std::thread::spawn(move || {
            while !ticker.stop.load(Ordering::SeqCst) {
                let began = Instant::now();
                std::thread::sleep(NAP);
                let late = began.elapsed().saturating_sub(NAP).as_millis();
                ticker.longest_millis.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::SeqCst);
            }
        });
        Stalls { shared }
    }

    /// The longest so far.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.shared.longest_millis.load(Ordering::SeqCst))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}
