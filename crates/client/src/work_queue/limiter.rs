//! When a key that failed may be tried again: pure.
//!
//! Two rules, and the later of the two times counts. Each key has its own wait, which doubles with
//! every failure from 5 ms to 1000 s; and all keys together draw from one bucket, so that ten thousand
//! keys which fail for one reason do not all come back within 5 ms.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How a [`WorkQueue`](super::WorkQueue) slows down keys that fail.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RateLimits {
    /// The wait after the first failure of a key. Doubled by each further one.
    pub backoff_first: Duration,
    /// No key waits longer than this for its own failures.
    pub backoff_longest: Duration,
    /// Retries of all keys together, each second, in the long run.
    pub retries_per_second: f64,
    /// Retries that may happen at once after a time of rest.
    pub burst: u32,
}

impl Default for RateLimits {
    /// 5 ms to 1000 s for each key; 10 a second with a burst of 100 for all. Controllers have run with
    /// these numbers for years.
    fn default() -> Self {
        RateLimits {
            backoff_first: Duration::from_millis(5),
            backoff_longest: Duration::from_secs(1000),
            retries_per_second: 10.0,
            burst: 100,
        }
    }
}

/// The longest wait that the bucket hands out. Reached only when ten times as many retries wait as can
/// be made in that time; it keeps the arithmetic finite whatever the limits say.
const BUCKET_WAIT_LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Failures by key, and the bucket.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    limits: RateLimits,
    failures: HashMap<K, u32>,
    /// What is in the bucket. Below nought: retries that have been promised but are not yet due.
    tokens: f64,
    filled: Instant,
}

impl<K: Clone + Eq + Hash> Limiter<K> {
    pub(crate) fn new(limits: RateLimits, now: Instant) -> Limiter<K> {
        Limiter { limits, failures: HashMap::new(), tokens: f64::from(limits.burst), filled: now }
    }

    /// Counts a failure of `key` and says how long it is to wait.
    pub(crate) fn failed(&mut self, key: &K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let own = doubled(self.limits.backoff_first, *failures).min(self.limits.backoff_longest);
        *failures = failures.saturating_add(1);
        own.max(self.draw(now))
    }

    /// How often `key` has failed since it was last forgotten.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// Starts `key` afresh.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Takes one token and says how long it takes until it is there.
    fn draw(&mut self, now: Instant) -> Duration {
        let rate = self.limits.retries_per_second;
        let rested = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + rested * rate).min(f64::from(self.limits.burst)) - 1.0;
        if 0.0 <= self.tokens {
            return Duration::ZERO;
        }
        let wait = Duration::try_from_secs_f64(-self.tokens / rate).unwrap_or(BUCKET_WAIT_LONGEST);
        wait.min(BUCKET_WAIT_LONGEST)
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1u32.checked_shl(times).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(wait: Duration) -> u128 {
        wait.as_millis()
    }

    #[test]
    fn each_failure_of_a_key_doubles_its_wait_up_to_a_thousand_seconds() {
        let now = Instant::now();
        let roomy = RateLimits { burst: 1000, ..RateLimits::default() };
        let mut limiter = Limiter::new(roomy, now);
        let waits: Vec<u128> = (0..20).map(|_| ms(limiter.failed(&"a", now))).collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 80]);
        assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000]);
        assert_eq!(ms(limiter.failed(&"b", now)), 5, "another key has its own count");
        for _ in 0..60 {
            assert_eq!(ms(limiter.failed(&"a", now)), 1_000_000, "also beyond the width of a number");
        }
    }

    #[test]
    fn forgetting_a_key_starts_it_afresh() {
        let now = Instant::now();
        let mut limiter = Limiter::new(RateLimits::default(), now);
        for _ in 0..4 {
            limiter.failed(&"a", now);
        }
        assert_eq!(limiter.failures(&"a"), 4);
        limiter.forget(&"a");
        assert_eq!((limiter.failures(&"a"), ms(limiter.failed(&"a", now))), (0, 5));
    }

    #[test]
    fn a_burst_of_a_hundred_and_then_ten_a_second() {
        let now = Instant::now();
        let mut limiter = Limiter::new(RateLimits::default(), now);
        let waits: Vec<u128> = (0..130).map(|key| ms(limiter.failed(&key, now))).collect();
        assert!(waits[..100].iter().all(|wait| *wait == 5));
        assert_eq!(waits[100..103], [100, 200, 300]);
        assert_eq!(waits[129], 3_000);
        let later = now + Duration::from_secs(2);
        assert_eq!(ms(limiter.failed(&999, later)), 1_100, "two seconds pay for twenty");
        let rested = now + Duration::from_secs(1_000);
        assert_eq!(ms(limiter.failed(&1_000, rested)), 5);
    }

    #[test]
    fn a_bucket_that_never_fills_waits_a_bounded_time() {
        let now = Instant::now();
        let closed = RateLimits { retries_per_second: 0.0, burst: 0, ..RateLimits::default() };
        assert_eq!(Limiter::new(closed, now).failed(&"a", now), BUCKET_WAIT_LONGEST);
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let start = Instant::now() + Duration::from_secs(60);
        let limits = RateLimits { burst: 1, ..RateLimits::default() };
        let mut limiter = Limiter::new(limits, start);
        limiter.failed(&"a", start);
        assert_eq!(ms(limiter.failed(&"b", start - Duration::from_secs(30))), 100);
        assert_eq!(ms(limiter.failed(&"c", start)), 200);
    }
}
