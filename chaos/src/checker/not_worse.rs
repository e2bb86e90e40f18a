//! Whether times measured here are worse than those measured beside them on the control.
//!
//! Two samples of the same thing differ by chance, so what counts as worse has a stated tolerance,
//! wider for few measurements. A comparison of nothing proves nothing and is a finding.

use std::time::Duration;

/// A sample in a few numbers. Quantiles are measurements, never values between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The smallest.
    pub min: Duration,
    /// Half are no larger.
    pub p50: Duration,
    /// Nine in ten are no larger.
    pub p90: Duration,
    /// Ninety-nine in a hundred are no larger; of fewer than a hundred, the largest.
    pub p99: Duration,
    /// The largest.
    pub max: Duration,
}

/// By how much a quantile may exceed the control's: a share of it, and a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For the median.
    pub p50: (f64, Duration),
    /// For the p99.
    pub p99: (f64, Duration),
}

impl Tolerance {
    /// For a hundred measurements or more.
    pub const OF_HUNDREDS: Self =
        Self { p50: (0.05, Duration::from_millis(20)), p99: (0.10, Duration::from_millis(50)) };

    /// For a handful, whose median and largest are chance in good part.
    pub const OF_A_FEW: Self =
        Self { p50: (0.25, Duration::from_millis(100)), p99: (0.50, Duration::from_millis(200)) };

    /// That for so many.
    pub fn of(measurements: usize) -> Self {
        if measurements < 100 { Self::OF_A_FEW } else { Self::OF_HUNDREDS }
    }
}

impl Spread {
    /// Of these measurements, in any order; all zero if there are none.
    pub fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let rank = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        Self { min: rank(0), p50: rank(50), p90: rank(90), p99: rank(99), max: rank(100) }
    }
}

/// What is worse here than there.
pub fn check(ours: &[Duration], theirs: &[Duration], tolerance: Tolerance) -> Vec<String> {
    if ours.is_empty() || ours.len() != theirs.len() {
        return vec![format!(
            "{} measurements here and {} there are no comparison",
            ours.len(),
            theirs.len()
        )];
    }
    let (ours, theirs) = (Spread::of(ours), Spread::of(theirs));
    let pairs = [("p50", ours.p50, theirs.p50, tolerance.p50), ("p99", ours.p99, theirs.p99, tolerance.p99)];
    let worse = pairs.into_iter().filter_map(|(name, here, there, (share, constant))| {
        let bound = there.mul_f64(1.0 + share) + constant;
        (bound < here).then(|| {
            format!(
                "{name} is {} ms here and {} ms there; {} ms would do",
                here.as_millis(),
                there.as_millis(),
                bound.as_millis()
            )
        })
    });
    worse.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(millis: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        millis.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn quantiles_are_measurements_by_nearest_rank() {
        let spread = Spread::of(&times((1..=100).rev()));
        let millis =
            [spread.min, spread.p50, spread.p90, spread.p99, spread.max].map(|time| time.as_millis());
        assert_eq!(millis, [1, 50, 90, 99, 100]);
        assert_eq!(Spread::of(&times([7])).p99, Duration::from_millis(7));
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn equal_and_better_samples_are_not_worse() {
        let control = times(1_000..1_100);
        assert!(check(&control, &control, Tolerance::OF_HUNDREDS).is_empty());
        assert!(check(&times(500..600), &control, Tolerance::OF_HUNDREDS).is_empty());
    }

    #[test]
    fn a_slower_median_and_a_longer_tail_are_each_found() {
        let control = times(1_000..1_100);
        let slower = check(&times(1_150..1_250), &control, Tolerance::OF_HUNDREDS);
        assert_eq!(slower.len(), 1, "{slower:?}");
        assert!(slower[0].starts_with("p50 is 1199 ms here"), "{slower:?}");
        let mut tail = control.clone();
        tail[98] = Duration::from_secs(3);
        tail[99] = Duration::from_secs(3);
        let longer = check(&tail, &control, Tolerance::OF_HUNDREDS);
        assert!(longer.len() == 1 && longer[0].starts_with("p99 is 3000 ms"), "{longer:?}");
    }

    #[test]
    fn a_comparison_of_nothing_is_a_finding() {
        assert_eq!(check(&[], &[], Tolerance::OF_A_FEW).len(), 1);
        assert_eq!(check(&times([1]), &times([1, 2]), Tolerance::OF_A_FEW).len(), 1);
    }
}
