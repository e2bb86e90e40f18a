//! Durations counted into buckets that double, for metrics.
//!
//! Observing takes two atomic additions and no lock. Reading tears nothing worse than two counters apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bucket n counts what took up to `first` × 2^n; one more counts the rest.
#[derive(Debug)]
pub struct Histogram {
    first_nanos: u64,
    nanos: AtomicU64,
    counts: Box<[AtomicU64]>,
}

impl Histogram {
    pub fn new(first: Duration, buckets: usize) -> Histogram {
        let counts = (0..=buckets).map(|_| AtomicU64::new(0)).collect();
        Histogram { first_nanos: nanos(first).max(1), nanos: AtomicU64::new(0), counts }
    }

    pub fn observe(&self, took: Duration) {
        let took = nanos(took);
        self.nanos.fetch_add(took, Ordering::Relaxed);
        // How often the first bound has to be doubled until it is not below.
        let doublings = match took.div_ceil(self.first_nanos) {
            0 | 1 => 0,
            times => (times - 1).ilog2() as usize + 1,
        };
        let bucket = doublings.min(self.counts.len() - 1);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// All durations together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Upper bound in seconds and what is in this bucket alone. The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let last = self.counts.len() - 1;
        self.counts.iter().enumerate().map(move |(n, count)| {
            // In nanoseconds first, so that bounds are written without a tail of digits.
            let bound = (self.first_nanos << n.min(40)) as f64 / 1e9;
            (if n == last { f64::INFINITY } else { bound }, count.load(Ordering::Relaxed))
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(Duration::from_millis(1), 4);
        for micros in [0, 1_000, 1_001, 2_000, 2_001, 4_000, 8_000, 8_001, 1_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        assert_eq!(buckets, [(0.001, 2), (0.002, 2), (0.004, 2), (0.008, 1), (f64::INFINITY, 2)]);
        assert_eq!(histogram.total(), Duration::from_micros(1_026_003));
    }
}
