//! What took longer than an operator allows, told in etcd's words.
//!
//! Always true: one line of a kind in a second, however many are slow; the next line says how many were left
//! out. What makes one request slow makes many slow at once.

use meerkat_proto::go_duration;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One kind of what may be slow.
#[derive(Debug)]
pub(crate) struct Slow {
    expected: Duration,
    began: Instant,
    /// The second in which a line was last written, counted from one; zero before the first.
    told: AtomicU64,
    left_out: AtomicU64,
}

impl Slow {
    pub(crate) fn new(expected: Duration) -> Slow {
        Slow { expected, began: Instant::now(), told: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Tells of a call with one answer, if it was slow.
    pub(crate) fn call(&self, took: Duration, path: impl FnOnce() -> String, from: Option<SocketAddr>) {
        let Some(left_out) = self.turn(took) else { return };
        let remote = from.map_or_else(|| "No remote client info.".to_owned(), |from| from.to_string());
        let (spent, path) = (go_duration::format(took), path());
        tracing::warn!("time spent" = spent, remote, "response type" = path, left_out, "request stats");
    }

    /// Tells of something that was read, or that failed to be, if that was slow; and says whether it was.
    pub(crate) fn read(
        &self,
        took: Duration,
        prefix: &'static str,
        request: impl FnOnce() -> String,
        error: Option<&str>,
    ) -> bool {
        let is_slow = self.expected < took;
        if let Some(left_out) = self.turn(took) {
            let (took, expected_duration) = (go_duration::format(took), go_duration::format(self.expected));
            let request = request();
            tracing::warn!(
                took,
                expected_duration,
                prefix,
                request,
                error,
                left_out,
                "apply request took too long"
            );
        }
        is_slow
    }

    #[cfg(test)]
    pub(crate) fn has_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// How many were left out before this one; none if it was not slow or is left out itself.
    fn turn(&self, took: Duration) -> Option<u64> {
        if took <= self.expected {
            return None;
        }
        let second = self.began.elapsed().as_secs() + 1;
        if self.told.swap(second, Ordering::Relaxed) == second {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_slow_ones_in_a_second_one_is_told_of_and_the_next_says_how_many_there_were() {
        let mut slow = Slow::new(Duration::from_millis(100));
        assert_eq!(slow.turn(Duration::from_millis(100)), None, "that is not longer");
        let late = Duration::from_millis(101);
        let told: Vec<Option<u64>> = (0..1_000).map(|_| slow.turn(late)).collect();
        let lines = told.iter().flatten().count();
        assert!((1..100).contains(&lines) && told[0] == Some(0), "{lines} lines");
        let before = slow.left_out.load(Ordering::Relaxed);
        slow.began -= Duration::from_secs(60);
        assert_eq!(slow.turn(late), Some(before));
    }
}
