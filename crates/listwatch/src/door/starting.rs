//! A watch that is still told the objects it began with.
//!
//! It keeps all of them as they were, whatever becomes of them meanwhile. A client that takes none of them for
//! long does not keep them: its watch is given up, and ends when the client reads again. That is so for each
//! watch by itself, for one connection can carry many, and the others may go on.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Where a watch waits to be asked for more.
pub struct Starting<T>(Mutex<State<T>>);

enum State<T> {
    /// Since when nobody has asked.
    Waits { watch: T, since: Instant },
    /// Somebody has it, and brings it back or not.
    Taken,
    /// It was given up, or is past its beginning.
    Over,
}

impl<T: Send + 'static> Starting<T> {
    /// To be called inside a runtime.
    pub fn new(watch: T, patience: Duration) -> Arc<Starting<T>> {
        let starting = Arc::new(Starting(Mutex::new(State::Waits { watch, since: Instant::now() })));
        tokio::spawn(attend(Arc::downgrade(&starting), patience));
        starting
    }

    /// `None` if it was given up.
    pub fn take(&self) -> Option<T> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Waits { watch, .. } => Some(watch),
            other => {
                *state = other;
                None
            }
        }
    }

    /// After a [`take`](Self::take).
    pub fn put_back(&self, watch: T) {
        *self.0.lock() = State::Waits { watch, since: Instant::now() };
    }

    /// Nobody has to look after it any more.
    pub fn end(&self) {
        *self.0.lock() = State::Over;
    }

    /// When to look again; `None` if there is no reason to.
    fn look(&self, patience: Duration) -> Option<Instant> {
        let mut state = self.0.lock();
        let now = Instant::now();
        match &*state {
            State::Over => None,
            State::Taken => Some(now + patience),
            State::Waits { since, .. } if now < *since + patience => Some(*since + patience),
            State::Waits { .. } => {
                let given_up = std::mem::replace(&mut *state, State::Over);
                // What it drops may be long, and others may want to know its state.
                drop(state);
                drop(given_up);
                None
            }
        }
    }
}

/// Until it is past its beginning, given up or gone.
async fn attend<T: Send + 'static>(starting: Weak<Starting<T>>, patience: Duration) {
    while let Some(again) = starting.upgrade().and_then(|starting| starting.look(patience)) {
        tokio::time::sleep_until(again).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_long_keeps_nothing() {
        let pinned = Arc::new(());
        let starting = Starting::new(pinned.clone(), PATIENCE);
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            let watch = starting.take().expect("it is slow, and there");
            assert!(starting.take().is_none(), "one has it at a time");
            starting.put_back(watch);
        }
        assert_eq!(Arc::strong_count(&pinned), 2);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(Arc::strong_count(&pinned), 1, "it is given up");
        assert!(starting.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_news_or_is_past_the_beginning_is_left_alone() {
        let starting = Starting::new("a watch", PATIENCE);
        let watch = starting.take().expect("there");
        tokio::time::sleep(Duration::from_secs(300)).await;
        starting.put_back(watch);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(starting.take().is_some(), "it had asked, and nothing came");
        starting.end();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(Arc::weak_count(&starting), 0, "nobody looks after it");
    }
}
