//! How everything that happens reaches the one owner of the model.
//!
//! One queue, with a bound: whoever has news while it is full waits, and with them what they do
//! (reading a watch, sending the next write). Nothing is dropped.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::model::Input;

const QUEUE_MAX: usize = 1024;

/// An input, and when it happened.
pub type Told = (Duration, Input);

#[derive(Clone)]
pub struct Teller {
    start: Instant,
    queue: mpsc::Sender<Told>,
}

impl Teller {
    pub fn new() -> (Teller, mpsc::Receiver<Told>) {
        let (queue, told) = mpsc::channel(QUEUE_MAX);
        (Teller { start: Instant::now(), queue }, told)
    }

    /// The time on the demo's clock.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub async fn tell(&self, input: Input) {
        self.tell_of(self.now(), input).await;
    }

    /// For what is told a little later than it happened.
    pub async fn tell_of(&self, at: Duration, input: Input) {
        // Nobody listens any more when the demo is being stopped.
        drop(self.queue.send((at, input)).await);
    }

    pub async fn say(&self, text: impl Into<String>) {
        self.tell(Input::Said(text.into())).await;
    }
}
