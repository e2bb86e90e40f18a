//! What is kept for a client until it asks for more of it: the rest of a list, or a watch.
//!
//! It keeps objects as they were, whatever becomes of them meanwhile. A client that takes nothing for long does
//! not keep them: they are given up, and it is told so when it asks again. That is so for each answer by
//! itself, for one connection can carry many, and the others may go on.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Where a thing waits to be asked for. Gone with its owner.
pub struct Untaken<T> {
    place: Arc<Mutex<Place<T>>>,
    attendant: AbortHandle,
}

struct Place<T> {
    state: State<T>,
    /// How long it may wait.
    patience: Duration,
}

enum State<T> {
    /// Since when nobody has asked.
    Waits {
        thing: T,
        since: Instant,
    },
    /// Somebody has it, and brings it back or not.
    Taken,
    GivenUp,
}

impl<T: Send + 'static> Untaken<T> {
    /// To be called inside a runtime.
    pub fn new(thing: T, patience: Duration) -> Untaken<T> {
        let state = State::Waits { thing, since: Instant::now() };
        let place = Arc::new(Mutex::new(Place { state, patience }));
        let attendant = tokio::spawn(attend(place.clone())).abort_handle();
        Untaken { place, attendant }
    }

    /// `None` if it was given up.
    pub fn take(&self) -> Option<T> {
        let mut place = self.place.lock();
        match std::mem::replace(&mut place.state, State::Taken) {
            State::Waits { thing, .. } => Some(thing),
            other => {
                place.state = other;
                None
            }
        }
    }

    /// After a [`take`](Self::take), to wait for so long at most.
    pub fn put_back(&self, thing: T, patience: Duration) {
        let state = State::Waits { thing, since: Instant::now() };
        *self.place.lock() = Place { state, patience };
    }
}

impl<T> Drop for Untaken<T> {
    fn drop(&mut self) {
        self.attendant.abort();
        // Now, and not when the attendant comes to it.
        let left = std::mem::replace(&mut self.place.lock().state, State::GivenUp);
        drop(left);
    }
}

impl<T> Place<T> {
    /// When to look again, or what is given up.
    fn look(&mut self, now: Instant) -> Result<Instant, State<T>> {
        match &self.state {
            State::Taken => Ok(now + self.patience),
            State::Waits { since, .. } if now < *since + self.patience => Ok(*since + self.patience),
            State::Waits { .. } | State::GivenUp => Err(std::mem::replace(&mut self.state, State::GivenUp)),
        }
    }
}

/// Until it is given up.
async fn attend<T: Send + 'static>(place: Arc<Mutex<Place<T>>>) {
    loop {
        let looked = place.lock().look(Instant::now());
        match looked {
            Ok(again) => tokio::time::sleep_until(again).await,
            // What is dropped with it may be long: the lock is free again.
            Err(_given_up) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_long_keeps_nothing() {
        let pinned = Arc::new(());
        let untaken = Untaken::new(pinned.clone(), PATIENCE);
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            let thing = untaken.take().expect("it is slow, and there");
            assert!(untaken.take().is_none(), "one has it at a time");
            untaken.put_back(thing, PATIENCE);
        }
        assert_eq!(Arc::strong_count(&pinned), 2);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(Arc::strong_count(&pinned), 1, "it is given up");
        assert!(untaken.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_news_is_left_alone_and_may_be_given_more_time() {
        let untaken = Untaken::new("a watch", PATIENCE);
        let watch = untaken.take().expect("there");
        tokio::time::sleep(Duration::from_secs(300)).await;
        untaken.put_back(watch, 3 * PATIENCE);
        tokio::time::sleep(Duration::from_secs(89)).await;
        let watch = untaken.take().expect("it had asked, and nothing came");
        untaken.put_back(watch, 3 * PATIENCE);
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert!(untaken.take().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_can_ask_for_any_more_is_gone_at_once() {
        let pinned = Arc::new(());
        drop(Untaken::new(pinned.clone(), PATIENCE));
        assert_eq!(Arc::strong_count(&pinned), 1);
    }
}
