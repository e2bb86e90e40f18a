//! A leader that no majority has answered for an election timeout stops its heartbeats for a while.
//!
//! It may be heard by members that it cannot hear, and as long as they hear it they elect nobody. So it is
//! silent for as long as an election takes at most, then tries again, by turns.
//!
//! A stall shorter than the election timeout, of this member or of all others, silences nobody.

use crate::leadership::Leadership;
use crate::state_machine::MeerkatRaft;
use meerkat_types::Term;
use std::time::Duration;
use tokio::time::Instant;

/// How often a leader looks.
const TICK: Duration = Duration::from_millis(50);

/// Runs until Raft stops.
pub(crate) async fn run(raft: MeerkatRaft, leadership: Leadership) {
    let timeout = leadership.election_timeout();
    // The term in which this member leads, and when it was first seen to.
    let mut led: Option<(Term, Instant)> = None;
    while !leadership.is_over() {
        led = leadership.own_term().map(|term| match led {
            Some((known, since)) if known == term => (term, since),
            _ => (term, Instant::now()),
        });
        let silence = led.map(|(_, since)| leadership.quorum_silence().unwrap_or_else(|| since.elapsed()));
        raft.runtime_config().heartbeat(silence.is_none_or(|silence| may_beat(silence, timeout)));
        tokio::time::sleep(TICK).await;
    }
}

/// Whether a leader sends heartbeats that no majority has answered for so long. Silent turns are half as
/// long again as others, so that an election begins in each.
fn may_beat(silence: Duration, election_timeout: Duration) -> bool {
    let half = (election_timeout / 2).as_nanos().max(1);
    match (silence.as_nanos() / half).checked_sub(2) {
        None => true,
        Some(halves) => 3 <= halves % 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_without_a_majority_is_silent_by_turns() {
        let timeout = Duration::from_secs(1);
        for (silence_ms, beats) in [
            (0, true),
            (700, true),
            (999, true),
            (1_000, false),
            (2_499, false),
            (2_500, true),
            (3_499, true),
            (3_500, false),
            (4_999, false),
            (5_000, true),
        ] {
            assert_eq!(may_beat(Duration::from_millis(silence_ms), timeout), beats, "{silence_ms} ms");
        }
    }
}
