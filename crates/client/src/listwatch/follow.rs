//! How a watch goes on when its member, its connection or its time is over: pure.
//!
//! The shell around it opens watches and reads them, and reports what happens as an [`Input`]; the answer
//! says what to do next. Always true: whatever is opened is opened after the last resourceVersion that was
//! told, so nothing is left out, and nothing is told twice but what has this very version: a member tells
//! that again if it is of several objects. Only a member that says that this version is gone ends it for
//! good.

use std::time::{Duration, Instant};

use super::route::Route;
use crate::Revision;

/// A watch that ends sooner, without having told anything, has failed.
const SHORT: Duration = Duration::from_secs(1);
/// Watches end by themselves after a time drawn from this range, so that they spread over members
/// again after some were away.
const LIFETIME_S: (f64, f64) = (300.0, 600.0);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The member opened the watch.
    Opened,
    /// It answered with this status, and perhaps with a time to come back.
    Refused { code: u16, retry_after: Option<Duration> },
    /// No answer: not reached, lost, or too late.
    Unreachable,
    /// Something was told: changes up to this version, or a bookmark at it.
    Told(Revision),
    /// The stream ended in order.
    Ended,
    /// It broke, or said what nobody understands.
    Broken,
    /// Nothing was told for a while.
    Silent,
    /// Whether the silent member says that it serves.
    Probed(bool),
    /// The time given by [`Next::Wait`] is over.
    Waited,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Open a watch here, of what comes after this version, for so many seconds.
    Open { member: usize, after: Revision, lifetime_s: u64 },
    /// Read on.
    Read,
    /// Ask this member whether it serves.
    Probe { member: usize },
    /// Do nothing for so long.
    Wait(Duration),
    /// The history after the version is gone.
    Expired,
    /// The member refuses, and any other would.
    Refused { code: u16 },
}

#[derive(Debug)]
pub(crate) struct Follow {
    after: Revision,
    member: usize,
    opened: Option<Instant>,
    told: bool,
}

impl Follow {
    /// Of everything after this version.
    pub(crate) fn new(after: Revision) -> Follow {
        Follow { after, member: 0, opened: None, told: false }
    }

    /// The first thing to do.
    pub(crate) fn start(&mut self, route: &mut Route, now: Instant, chance: f64) -> Next {
        match route.choose(now) {
            Duration::ZERO => self.open(route, chance),
            wait => Next::Wait(wait),
        }
    }

    /// `chance` is a fresh draw from 0 to 1.
    pub(crate) fn step(&mut self, input: Input, route: &mut Route, now: Instant, chance: f64) -> Next {
        match input {
            Input::Opened => {
                self.opened = Some(now);
                Next::Read
            }
            Input::Told(version) => {
                self.after = self.after.max(version);
                self.told = true;
                route.worked(self.member);
                Next::Read
            }
            Input::Refused { code: 410, .. } => Next::Expired,
            Input::Refused { code: 429 | 500.., retry_after } => self.leave(retry_after, route, now, chance),
            Input::Refused { code, .. } => Next::Refused { code },
            Input::Ended if self.lived(now) => {
                route.worked(self.member);
                self.open(route, chance)
            }
            Input::Ended | Input::Broken | Input::Unreachable | Input::Probed(false) => {
                self.leave(None, route, now, chance)
            }
            Input::Silent => Next::Probe { member: self.member },
            Input::Probed(true) => Next::Read,
            Input::Waited => self.open(route, chance),
        }
    }

    fn lived(&self, now: Instant) -> bool {
        self.told || self.opened.is_some_and(|opened| now.saturating_duration_since(opened) >= SHORT)
    }

    fn open(&mut self, route: &Route, chance: f64) -> Next {
        (self.member, self.opened, self.told) = (route.at(), None, false);
        let (shortest, longest) = LIFETIME_S;
        let lifetime_s = (shortest + (longest - shortest) * chance.clamp(0.0, 1.0)) as u64;
        Next::Open { member: self.member, after: self.after, lifetime_s }
    }

    fn leave(&mut self, rest: Option<Duration>, route: &mut Route, now: Instant, chance: f64) -> Next {
        match route.failed(self.member, rest, now, chance) {
            Duration::ZERO => self.open(route, chance),
            wait => Next::Wait(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inputs with the seconds at which they come, and what they lead to; draws are all 1.
    fn check(members: usize, script: &[(f64, Input, &str)]) {
        let start = Instant::now();
        let mut route = Route::new(members, 0);
        let mut follow = Follow::new(Revision::new(10));
        assert_eq!(told(follow.start(&mut route, start, 1.0)), "open 0 after 10");
        for (number, (seconds, input, expected)) in script.iter().enumerate() {
            let now = start + Duration::from_secs_f64(*seconds);
            let next = follow.step(*input, &mut route, now, 1.0);
            assert_eq!(told(next), *expected, "step {number}: {input:?}");
        }
    }

    fn told(next: Next) -> String {
        match next {
            Next::Open { member, after, .. } => format!("open {member} after {after}"),
            Next::Wait(wait) => format!("wait {} ms", wait.as_millis()),
            other => format!("{other:?}"),
        }
    }

    fn at(version: i64) -> Input {
        Input::Told(Revision::new(version))
    }

    #[test]
    fn a_lost_member_is_left_for_the_next_from_the_last_version() {
        check(
            3,
            &[
                (0.0, Input::Opened, "Read"),
                (0.1, at(12), "Read"),
                (0.2, at(15), "Read"),
                (0.3, Input::Broken, "open 1 after 15"),
                (0.3, Input::Unreachable, "open 2 after 15"),
                (0.4, Input::Opened, "Read"),
                (0.5, at(16), "Read"),
                (0.6, Input::Ended, "open 2 after 16"),
            ],
        );
    }

    #[test]
    fn when_all_are_lost_it_waits_and_forgets_nothing() {
        check(
            2,
            &[
                (0.0, Input::Unreachable, "open 1 after 10"),
                (0.0, Input::Unreachable, "wait 800 ms"),
                (0.8, Input::Waited, "open 0 after 10"),
                (0.8, Input::Unreachable, "open 1 after 10"),
                (0.8, Input::Unreachable, "wait 1600 ms"),
                (2.4, Input::Waited, "open 0 after 10"),
            ],
        );
    }

    #[test]
    fn only_a_version_that_is_gone_ends_it() {
        check(1, &[(0.0, Input::Refused { code: 410, retry_after: None }, "Expired")]);
        check(
            1,
            &[
                (0.0, Input::Opened, "Read"),
                (0.1, Input::Refused { code: 410, retry_after: None }, "Expired"),
            ],
        );
        check(1, &[(0.0, Input::Refused { code: 403, retry_after: None }, "Refused { code: 403 }")]);
    }

    #[test]
    fn a_busy_member_is_given_the_time_it_asks_for() {
        let busy = Input::Refused { code: 429, retry_after: Some(Duration::from_secs(2)) };
        check(1, &[(0.0, busy, "wait 2000 ms"), (2.0, Input::Waited, "open 0 after 10")]);
        check(2, &[(0.0, busy, "open 1 after 10"), (0.0, busy, "wait 2000 ms")]);
    }

    #[test]
    fn a_watch_that_ends_at_once_does_not_spin() {
        check(1, &[(0.0, Input::Opened, "Read"), (0.1, Input::Ended, "wait 800 ms")]);
        check(1, &[(0.0, Input::Opened, "Read"), (1.1, Input::Ended, "open 0 after 10")]);
    }

    #[test]
    fn a_silent_member_is_asked_whether_it_serves() {
        check(
            2,
            &[
                (0.0, Input::Opened, "Read"),
                (5.0, Input::Silent, "Probe { member: 0 }"),
                (5.0, Input::Probed(true), "Read"),
                (10.0, Input::Silent, "Probe { member: 0 }"),
                (12.0, Input::Probed(false), "open 1 after 10"),
            ],
        );
    }

    #[test]
    fn a_version_never_goes_back() {
        check(
            1,
            &[(0.0, Input::Opened, "Read"), (0.1, at(9), "Read"), (0.2, Input::Ended, "open 0 after 10")],
        );
    }

    #[test]
    fn lifetimes_are_five_to_ten_minutes() {
        for (chance, expected) in [(0.0, 300), (0.5, 450), (1.0, 600)] {
            let next = Follow::new(Revision::new(1)).start(&mut Route::new(1, 0), Instant::now(), chance);
            assert!(matches!(next, Next::Open { lifetime_s, .. } if lifetime_s == expected), "{next:?}");
        }
    }
}
