//! Which member is asked next, and when: pure.
//!
//! One stays with a member that works. One that fails is left alone for a while: as long as it asked for,
//! and no shorter than a wait that doubles with each failure in a row. The next in turn that is not
//! left alone is asked at once; if there is none, the one whose time is over first is waited for.

use std::time::{Duration, Instant};

use crate::informer::Backoff;

/// A member that wants to be left alone for longer is asked after this anyway.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Route {
    seats: Vec<Seat>,
    at: usize,
}

#[derive(Debug)]
struct Seat {
    rests_until: Option<Instant>,
    backoff: Backoff,
}

impl Route {
    /// Over so many members (at least one), starting with `first`.
    pub(crate) fn new(members: usize, first: usize) -> Route {
        let members = members.max(1);
        let seat = |_| Seat { rests_until: None, backoff: Backoff::new() };
        Route { seats: (0..members).map(seat).collect(), at: first % members }
    }

    /// The member to ask.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn members(&self) -> usize {
        self.seats.len()
    }

    /// This member gave what it was asked for.
    pub(crate) fn worked(&mut self, member: usize) {
        if let Some(seat) = self.seats.get_mut(member) {
            *seat = Seat { rests_until: None, backoff: Backoff::new() };
        }
    }

    /// This member did not, and said when to come back or did not. Moves on if it is still the one to ask,
    /// and says how long to wait before asking.
    pub(crate) fn failed(
        &mut self,
        member: usize,
        retry_after: Option<Duration>,
        now: Instant,
        chance: f64,
    ) -> Duration {
        if let Some(seat) = self.seats.get_mut(member) {
            let asked_for = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
            let rest = seat.backoff.after_failure(now, chance).max(asked_for);
            seat.rests_until = Some(now + rest);
        }
        self.choose_from(if member == self.at { 1 } else { 0 }, now)
    }

    /// Makes sure that the one to ask is the best there is, and says how long to wait for it.
    pub(crate) fn choose(&mut self, now: Instant) -> Duration {
        self.choose_from(0, now)
    }

    /// Of equals the first in turn is chosen, from so many steps after the present one.
    fn choose_from(&mut self, steps: usize, now: Instant) -> Duration {
        let wait = |seat: &Seat| {
            seat.rests_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
        };
        let count = self.seats.len();
        let in_turn = (0..count).map(|step| (self.at + steps + step) % count);
        self.at = in_turn.min_by_key(|seat| wait(&self.seats[*seat])).unwrap_or(self.at);
        wait(&self.seats[self.at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    #[test]
    fn the_next_member_is_asked_at_once_and_then_kept() {
        let now = Instant::now();
        let mut route = Route::new(3, 2);
        assert_eq!(route.failed(2, None, now, 1.0), ZERO);
        assert_eq!(route.at(), 0);
        route.worked(0);
        // The first one has rested long ago: no reason to leave.
        assert_eq!(route.choose(now + Duration::from_secs(60)), ZERO);
        assert_eq!(route.at(), 0);
    }

    #[test]
    fn when_all_have_failed_the_first_to_be_rested_is_waited_for() {
        let now = Instant::now();
        let mut route = Route::new(3, 0);
        assert_eq!(route.failed(0, None, now, 1.0), ZERO);
        assert_eq!(route.failed(1, None, now, 0.5), ZERO);
        assert_eq!(route.failed(2, None, now, 1.0), Duration::from_millis(400));
        assert_eq!(route.at(), 1);
    }

    #[test]
    fn a_lonely_member_is_asked_again_after_waits_that_double() {
        let now = Instant::now();
        let mut route = Route::new(1, 0);
        let waits: Vec<u128> = (0..7).map(|_| route.failed(0, None, now, 1.0).as_millis()).collect();
        assert_eq!(waits, [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        route.worked(0);
        assert_eq!(route.failed(0, None, now, 1.0).as_millis(), 800);
    }

    #[test]
    fn a_member_that_asks_for_time_gets_it_while_others_are_asked() {
        let now = Instant::now();
        let mut route = Route::new(2, 0);
        assert_eq!(route.failed(0, Some(Duration::from_secs(5)), now, 0.0), ZERO);
        assert_eq!(route.failed(1, Some(Duration::from_secs(7)), now, 0.0), Duration::from_secs(5));
        assert_eq!(route.at(), 0);
        assert_eq!(route.failed(0, Some(Duration::from_secs(86_400)), now, 0.0), Duration::from_secs(7));
        assert_eq!(route.failed(1, Some(Duration::from_secs(86_400)), now, 0.0), RETRY_AFTER_MAX);
    }

    #[test]
    fn an_old_failure_of_another_member_does_not_move_one_that_works() {
        let now = Instant::now();
        let mut route = Route::new(3, 0);
        route.failed(0, None, now, 1.0);
        route.worked(1);
        // A request that was still on its way to the first.
        assert_eq!(route.failed(0, None, now, 1.0), ZERO);
        assert_eq!(route.at(), 1);
    }
}
