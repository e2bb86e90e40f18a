//! Log positions that must not be purged yet, because a snapshot that ends there is on its way.
//!
//! Without a pin a busy leader would purge past the snapshot while it is being sent, and the
//! follower would need another one as soon as it had installed the first. The pin of a snapshot that
//! arrived outlives its transfer by a grace time, in which the follower fetches what came after.

use meerkat_fault::Mutex;
use meerkat_types::LogIndex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a finished transfer still holds the log behind it.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub(crate) struct Pins {
    shared: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    next: u64,
    /// Index, and the moment from which the pin no longer counts (none while the transfer runs).
    pins: BTreeMap<u64, (LogIndex, Option<Instant>)>,
}

/// Held while a snapshot is being sent.
pub(crate) struct Pin {
    number: u64,
    pins: Pins,
    delivered: Delivery,
}

/// Tells a pin whether its snapshot arrived.
#[derive(Clone, Default)]
pub(crate) struct Delivery(Arc<AtomicBool>);

impl Delivery {
    pub(crate) fn succeeded(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Pin {
    pub(crate) fn delivery(&self) -> Delivery {
        self.delivered.clone()
    }
}

impl Pins {
    pub(crate) fn hold(&self, index: LogIndex) -> Pin {
        let mut held = self.shared.lock();
        let number = held.next;
        held.next += 1;
        held.pins.insert(number, (index, None));
        Pin { number, pins: self.clone(), delivered: Delivery::default() }
    }

    /// The lowest pinned index, if any pin still counts at `now`.
    pub(crate) fn lowest(&self, now: Instant) -> Option<LogIndex> {
        let mut held = self.shared.lock();
        held.pins.retain(|_, (_, until)| until.is_none_or(|until| now < until));
        held.pins.values().map(|(index, _)| *index).min()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut held = self.pins.shared.lock();
        if !self.delivered.0.load(Ordering::SeqCst) {
            // A dead follower must not keep the log growing: the next try takes a newer snapshot.
            held.pins.remove(&self.number);
        } else if let Some((_, until)) = held.pins.get_mut(&self.number) {
            *until = Some(Instant::now() + GRACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_counts_until_its_grace_is_over() {
        let pins = Pins::default();
        let low = pins.hold(LogIndex(5));
        let high = pins.hold(LogIndex(9));
        assert_eq!(pins.lowest(Instant::now()), Some(LogIndex(5)));
        low.delivery().succeeded();
        drop(low);
        assert_eq!(pins.lowest(Instant::now()), Some(LogIndex(5)));
        assert_eq!(pins.lowest(Instant::now() + GRACE + Duration::from_secs(1)), Some(LogIndex(9)));
        drop(high);
        assert_eq!(pins.lowest(Instant::now() + GRACE + Duration::from_secs(1)), None);
    }

    #[test]
    fn a_snapshot_that_did_not_arrive_holds_nothing() {
        let pins = Pins::default();
        drop(pins.hold(LogIndex(5)));
        assert_eq!(pins.lowest(Instant::now()), None);
    }
}
