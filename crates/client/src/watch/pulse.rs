//! Whether a stream is alive: pure, by when something was heard on it.
//!
//! A connection may be half open: the member is frozen, or the network swallows everything, and no end
//! is ever told. So a stream on which nothing was heard for [`ASK_AFTER`] is asked a question that
//! every server answers at once (see `multiplex`), and given up [`SILENCE_MAX`] after the last word.
//! Anything that arrives counts as an answer.
//!
//! Two things keep a healthy member from being called dead:
//! * Time in which this process itself did not run (suspended, starved) is not counted.
//! * When short-lived streams are given up for silence one after another, it is not one bad member any
//!   more: from the fourth on each doubles the patience with the next, up to 8 times, until one has
//!   lived for [`TRUSTED_AFTER`]. An overloaded cluster is left alone more and more, rather than being
//!   made to create all watches again every few seconds.

use std::time::{Duration, Instant};

/// How often to look. Bounds what the look itself adds to a detection.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// Silence after which the member is asked for a sign of life, and again as often.
pub(crate) const ASK_AFTER: Duration = Duration::from_millis(800);
/// Silence after which a stream is given up. Three questions fit in, and with finding another member
/// it stays below the 5 s that a black hole may last.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(2_500);
/// A look this late means that this process was not running.
const OVERSLEPT: Duration = Duration::from_millis(1_000);
const TRUSTED_AFTER: Duration = Duration::from_secs(10);
/// Silent streams in a row that are put down to their members: a cluster may well have two bad ones.
const FREE: u32 = 3;
const DOUBLINGS_MAX: u32 = 3;

const _: () = assert!(3 * ASK_AFTER.as_millis() <= SILENCE_MAX.as_millis());
const _: () = assert!(TICK.as_millis() < OVERSLEPT.as_millis());

/// What to do at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    Fine,
    Ask,
    GiveUp,
}

/// How long to wait for a word, learnt from the streams before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    given_up: u32,
}

impl Patience {
    pub(crate) fn silence_max(self) -> Duration {
        SILENCE_MAX * (1 << self.given_up.saturating_sub(FREE))
    }

    /// A stream has ended after `lived`.
    pub(crate) fn learn(&mut self, lived: Duration, for_silence: bool) {
        if TRUSTED_AFTER <= lived {
            self.given_up = 0;
        } else if for_silence {
            self.given_up = (self.given_up + 1).min(FREE + DOUBLINGS_MAX);
        }
    }
}

/// One stream's pulse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    opened: Instant,
    heard: Instant,
    asked: Instant,
    ticked: Instant,
    silence_max: Duration,
}

impl Pulse {
    pub(crate) fn new(now: Instant, patience: Patience) -> Pulse {
        Pulse { opened: now, heard: now, asked: now, ticked: now, silence_max: patience.silence_max() }
    }

    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.asked = now;
    }

    /// How long the stream has been answering: from its opening to its last word.
    pub(crate) fn lived(&self) -> Duration {
        self.heard.saturating_duration_since(self.opened)
    }

    pub(crate) fn tick(&mut self, now: Instant) -> Beat {
        let slept = now.saturating_duration_since(self.ticked);
        self.ticked = now;
        if OVERSLEPT <= slept {
            self.heard += slept;
            // What was asked before may have been answered while nobody listened; ask anew.
            self.asked = now;
            return Beat::Ask;
        }
        if self.silence_max <= now.saturating_duration_since(self.heard) {
            return Beat::GiveUp;
        }
        if ASK_AFTER <= now.saturating_duration_since(self.asked) {
            self.asked = now;
            return Beat::Ask;
        }
        Beat::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    /// Ticks every `TICK` up to `millis` and returns when it asked and when it gave up.
    fn run(pulse: &mut Pulse, start: Instant, from: u64, to: u64) -> (Vec<u64>, Option<u64>) {
        let mut asked = Vec::new();
        let mut now = from;
        while now <= to {
            match pulse.tick(at(start, now)) {
                Beat::Fine => {}
                Beat::Ask => asked.push(now),
                Beat::GiveUp => return (asked, Some(now)),
            }
            now += TICK.as_millis() as u64;
        }
        (asked, None)
    }

    #[test]
    fn a_silent_stream_is_asked_three_times_and_given_up() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Patience::default());
        let (asked, given_up) = run(&mut pulse, start, 200, 10_000);
        assert_eq!(asked, [800, 1_600, 2_400]);
        assert_eq!(given_up, Some(2_600));
        assert_eq!(pulse.lived(), Duration::ZERO);
    }

    #[test]
    fn any_word_counts_as_an_answer() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Patience::default());
        for second in 0..20 {
            pulse.heard(at(start, second * 1_000));
            let (_, given_up) = run(&mut pulse, start, second * 1_000, second * 1_000 + 999);
            assert_eq!(given_up, None);
        }
        assert_eq!(pulse.lived(), Duration::from_secs(19));
    }

    #[test]
    fn time_in_which_this_process_did_not_run_is_not_silence() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, Patience::default());
        assert_eq!(pulse.tick(at(start, 200)), Beat::Fine);
        assert_eq!(pulse.tick(at(start, 60_000)), Beat::Ask);
        let (asked, given_up) = run(&mut pulse, start, 60_200, 70_000);
        assert_eq!(asked.first(), Some(&60_800));
        // 200 ms of silence before the pause, the rest after it.
        assert_eq!(given_up, Some(62_400));
    }

    #[test]
    fn patience_doubles_when_silent_streams_follow_each_other_up_to_a_bound() {
        let mut patience = Patience::default();
        let mut limits = Vec::new();
        for _ in 0..9 {
            limits.push(patience.silence_max().as_millis());
            patience.learn(Duration::from_secs(1), true);
        }
        assert_eq!(limits, [2_500, 2_500, 2_500, 2_500, 5_000, 10_000, 20_000, 20_000, 20_000]);
    }

    #[test]
    fn a_stream_that_lived_long_makes_up_for_those_before() {
        let mut patience = Patience::default();
        for _ in 0..=FREE {
            patience.learn(Duration::ZERO, true);
            patience.learn(Duration::ZERO, false);
        }
        assert_eq!(patience.silence_max(), 2 * SILENCE_MAX);
        patience.learn(TRUSTED_AFTER, true);
        assert_eq!(patience.silence_max(), SILENCE_MAX);
    }
}
