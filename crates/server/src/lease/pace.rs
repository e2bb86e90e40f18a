//! When renewals join a leadership round: at once, or together with more of them.
//!
//! A round is a heartbeat to every follower and costs Raft's one task some work. While nothing is
//! written that does not matter, and a renewal is answered as soon as can be. While writes flow, rounds
//! begin at fixed moments, so that thousands of renewals a second cost some fifty rounds, and as many
//! questions of each follower, and writers do not notice them. A renewal waits a little longer then; the
//! shortest lease lives for a hundred times that.

use meerkat_types::LogIndex;
use std::time::{Duration, Instant};

/// Between the moments at which rounds begin while writes flow.
const STEP: Duration = Duration::from_millis(20);
/// Writes flow if something was applied so recently.
const RECENT: Duration = Duration::from_millis(50);

pub(crate) struct Pace {
    began: Instant,
    applied: LogIndex,
    advanced: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace { began: now, applied: LogIndex(0), advanced: None }
    }

    /// How long to wait before a round, when the log is applied up to `applied`.
    pub(crate) fn wait(&mut self, applied: LogIndex, now: Instant) -> Duration {
        if self.applied != applied {
            self.applied = applied;
            self.advanced = Some(now);
        }
        if self.advanced.is_none_or(|at| RECENT <= now.duration_since(at)) {
            return Duration::ZERO;
        }
        let into_step = now.duration_since(self.began).as_nanos() % STEP.as_nanos();
        STEP - Duration::from_nanos(u64::try_from(into_step).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_at_once_while_nothing_is_written_and_at_fixed_moments_otherwise() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(start);
        assert_eq!(pace.wait(LogIndex(0), at(1)), Duration::ZERO);
        assert_eq!(pace.wait(LogIndex(0), at(2)), Duration::ZERO);
        let moments: Vec<Instant> =
            [11, 12, 19].map(|millis| at(millis) + pace.wait(LogIndex(7), at(millis))).to_vec();
        assert_eq!(moments, [at(20); 3], "all of them share one moment");
        assert_eq!(pace.wait(LogIndex(7), at(20)), STEP);
        assert_eq!(pace.wait(LogIndex(7), at(61)), Duration::ZERO, "the writes have stopped");
        assert_eq!(at(63) + pace.wait(LogIndex(8), at(63)), at(80));
    }
}
