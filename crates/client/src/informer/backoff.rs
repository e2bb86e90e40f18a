//! How long to wait before a source is asked again: pure.
//!
//! The bound doubles from 0.8 s to 30 s, and each wait is drawn evenly from nothing up to the bound
//! ("full jitter"), so that a thousand informers that lost one member do not come back together.
//! Two quiet minutes forget the past.

use std::time::{Duration, Instant};

/// The first bound. The numbers are those controllers of this kind have settled on.
pub(crate) const FIRST: Duration = Duration::from_millis(800);
/// No bound is above this.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// A failure that comes this long after the one before counts as the first.
pub(crate) const QUIET: Duration = Duration::from_secs(120);

/// The memory of recent failures.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    last_failure: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { bound: FIRST, last_failure: None }
    }

    /// The wait after a failure at `now`. `chance` is the draw, from 0 to 1.
    pub(crate) fn after_failure(&mut self, now: Instant, chance: f64) -> Duration {
        if let Some(last) = self.last_failure
            && now.saturating_duration_since(last) >= QUIET
        {
            self.bound = FIRST;
        }
        self.last_failure = Some(now);
        let wait = self.bound.mul_f64(chance.clamp(0.0, 1.0));
        self.bound = (self.bound * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_half_a_minute() {
        let mut backoff = Backoff::new();
        let now = Instant::now();
        let waits: Vec<u128> = (0..8).map(|_| backoff.after_failure(now, 1.0).as_millis()).collect();
        assert_eq!(waits, [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn the_wait_is_anything_from_nothing_to_the_bound() {
        for (chance, expected) in [(0.0, 0), (0.25, 200), (1.0, 800), (7.0, 800), (-1.0, 0)] {
            assert_eq!(Backoff::new().after_failure(Instant::now(), chance).as_millis(), expected);
        }
    }

    #[test]
    fn two_quiet_minutes_forget_the_past() {
        let start = Instant::now();
        let mut backoff = Backoff::new();
        backoff.after_failure(start, 1.0);
        let just_before = start + QUIET - Duration::from_millis(1);
        assert_eq!(backoff.after_failure(just_before, 1.0), FIRST * 2);
        assert_eq!(backoff.after_failure(just_before + QUIET, 1.0), FIRST);
    }
}
