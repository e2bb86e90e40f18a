//! Operations gathered into buckets of time, so that an hour is as small a picture as a minute.
//!
//! An operation counts where its outcome became known. Latencies are those of answered operations
//! only: how long a client waited for nothing says how long its patience is.

use crate::record::trace::{Ended, Op};

/// Bucket widths that make round labels.
const WIDTHS_MS: &[u64] = &[
    100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    3_600_000,
];

/// Equal buckets from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// How much time each holds.
    pub width_us: u64,
    /// How many there are; at least one.
    pub count: usize,
}

/// What ended in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Answered.
    pub ok: u32,
    /// Refused.
    pub failed: u32,
    /// Nobody knows.
    pub unknown: u32,
    /// How long the answered ones took, if there were any.
    pub latency: Option<Latency>,
}

/// Latencies of some operations, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half were no slower.
    pub p50: u64,
    /// Ninety-nine in a hundred were no slower.
    pub p99: u64,
    /// The slowest.
    pub max: u64,
}

impl Grid {
    /// The finest grid of round buckets over this time that has no more than so many.
    pub fn over(length_us: u64, at_most: usize) -> Self {
        let needed =
            |width_us: u64| usize::try_from(length_us.div_ceil(width_us)).unwrap_or(usize::MAX).max(1);
        let widths = WIDTHS_MS.iter().map(|millis| millis * 1_000);
        let width_us = widths
            .clone()
            .find(|width_us| needed(*width_us) <= at_most)
            .unwrap_or_else(|| length_us.div_ceil(at_most.max(1) as u64).max(1));
        Self { width_us, count: needed(width_us) }
    }

    /// The bucket of a moment; what comes after the end counts as the end.
    pub fn index(&self, at_us: u64) -> usize {
        usize::try_from(at_us / self.width_us).unwrap_or(usize::MAX).min(self.count - 1)
    }

    /// How many a second a count in one bucket is.
    pub fn per_second(&self, count: u32) -> f64 {
        f64::from(count) * 1e6 / self.width_us as f64
    }
}

/// Deals operations into the buckets of a grid.
pub fn deal<'a>(grid: Grid, ops: impl Iterator<Item = &'a Op>) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); grid.count];
    let mut took: Vec<Vec<u64>> = vec![Vec::new(); grid.count];
    for op in ops {
        let at = grid.index(op.returned_us);
        match op.ended {
            Ended::Ok => {
                buckets[at].ok += 1;
                took[at].push(op.returned_us.saturating_sub(op.invoked_us));
            }
            Ended::Failed => buckets[at].failed += 1,
            Ended::Unknown => buckets[at].unknown += 1,
        }
    }
    for (bucket, took) in buckets.iter_mut().zip(took) {
        bucket.latency = latency(took);
    }
    buckets
}

/// These latencies in three numbers.
pub fn latency(mut took: Vec<u64>) -> Option<Latency> {
    took.sort_unstable();
    let rank = |percent: usize| took.get((took.len() * percent).div_ceil(100).max(1) - 1).copied();
    Some(Latency { p50: rank(50)?, p99: rank(99)?, max: rank(100)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(invoked_us: u64, returned_us: u64, ended: Ended) -> Op {
        Op { client: 0, writes: true, invoked_us, returned_us, ended }
    }

    #[test]
    fn a_grid_is_as_fine_as_it_may_be_and_never_finer() {
        for (length_s, at_most, width_ms, count) in
            [(10, 600, 100, 100), (180, 600, 500, 360), (3_600, 600, 10_000, 360), (0, 600, 100, 1)]
        {
            let grid = Grid::over(length_s * 1_000_000, at_most);
            assert_eq!(grid, Grid { width_us: width_ms * 1_000, count }, "{length_s} s");
        }
        let month = Grid::over(30 * 24 * 3_600_000_000, 100);
        assert!(month.count <= 100, "{month:?}");
    }

    #[test]
    fn what_ends_at_or_after_the_end_is_in_the_last_bucket() {
        let grid = Grid { width_us: 10, count: 3 };
        assert_eq!([0, 9, 10, 29, 30, u64::MAX].map(|at| grid.index(at)), [0, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn operations_count_where_they_ended_and_only_answers_have_a_latency() {
        let grid = Grid { width_us: 1_000, count: 2 };
        let ops = [
            op(0, 10, Ended::Ok),
            op(0, 990, Ended::Ok),
            op(0, 1_500, Ended::Unknown),
            op(1_100, 1_200, Ended::Failed),
        ];
        let buckets = deal(grid, ops.iter());
        let first = Latency { p50: 10, p99: 990, max: 990 };
        assert_eq!(buckets[0], Bucket { ok: 2, latency: Some(first), ..Bucket::default() });
        assert_eq!(buckets[1], Bucket { failed: 1, unknown: 1, ..Bucket::default() });
        assert_eq!(grid.per_second(buckets[0].ok), 2_000.0);
    }

    #[test]
    fn no_answers_have_no_latency() {
        assert_eq!(latency(Vec::new()), None);
        assert_eq!(latency(vec![5]), Some(Latency { p50: 5, p99: 5, max: 5 }));
    }
}
