//! Milliseconds since a feed began, by the clock that its timers run on.

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begun: Instant,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { begun: Instant::now() }
    }

    pub(super) fn now_ms(self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
