//! How long a dispatcher may wait for watchers that are blocked.
//!
//! All watchers of a resource share one budget, so that many slow ones delay the others no more than
//! one does. It fills with time and never beyond a bound; what a wait leaves over is handed back.

/// For each second that passes.
const REFILL_US_PER_S: u64 = 50_000;
const CEILING_US: u64 = 100_000;
/// So that a millisecond adds a whole number.
const REFILL_US_PER_MS: u64 = REFILL_US_PER_S / 1_000;

#[derive(Debug)]
pub struct TimeBudget {
    available_us: u64,
    counted_ms: u64,
}

impl TimeBudget {
    /// Empty: who starts has nobody to wait for yet.
    pub fn new(now_ms: u64) -> TimeBudget {
        TimeBudget { available_us: 0, counted_ms: now_ms }
    }

    /// All that there is, in microseconds.
    pub fn take(&mut self, now_ms: u64) -> u64 {
        let elapsed = now_ms.saturating_sub(self.counted_ms);
        self.counted_ms = self.counted_ms.max(now_ms);
        let refill = elapsed.saturating_mul(REFILL_US_PER_MS);
        let available = self.available_us.saturating_add(refill).min(CEILING_US);
        self.available_us = 0;
        available
    }

    pub fn hand_back(&mut self, unused_us: u64) {
        self.available_us = self.available_us.saturating_add(unused_us).min(CEILING_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_empty_and_fills_with_time_to_its_ceiling() {
        for (elapsed_ms, expected_us) in
            [(0, 0), (1, 50), (100, 5_000), (1_000, 50_000), (2_000, 100_000), (3_600_000, 100_000)]
        {
            assert_eq!(TimeBudget::new(500).take(500 + elapsed_ms), expected_us, "after {elapsed_ms} ms");
        }
    }

    #[test]
    fn what_is_taken_is_gone_and_what_is_handed_back_is_not() {
        let mut budget = TimeBudget::new(0);
        assert_eq!(budget.take(1_000), 50_000);
        assert_eq!(budget.take(1_000), 0);
        budget.hand_back(30_000);
        assert_eq!(budget.take(1_100), 35_000);
        budget.hand_back(u64::MAX);
        assert_eq!(budget.take(1_100), CEILING_US);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_twice() {
        let mut budget = TimeBudget::new(0);
        assert_eq!(budget.take(1_000), 50_000);
        assert_eq!(budget.take(200), 0);
        assert_eq!(budget.take(1_000), 0);
    }
}
