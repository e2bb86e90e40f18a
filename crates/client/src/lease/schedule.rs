//! When each lease is to be renewed, and when it must be given up: pure, with time handed in.
//!
//! One lease's life on a line, all measured from when a renewal was *sent*, because that is the
//! latest moment from which the server can have begun to count:
//!
//! ```text
//! sent ............ sent + ttl/3 ............................ sent + ttl
//!  |  answered: acked   renewed again                           lost, if nothing newer was answered
//! ```
//!
//! Always true: a lease is never called alive at a time when the server may have ended it; each
//! lease has at most one renewal under way on a stream, besides those of earlier keepings that ended
//! before their answer, which are counted and passed over; each step costs the logarithm of the number
//! of leases, not the number.

use meerkat_types::LeaseId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A renewal that is not answered within a third of its TTL, but at least and at most these, makes
/// its stream suspect.
const ANSWER_MIN: Duration = Duration::from_millis(500);
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What is known of one lease.
#[derive(Clone, Copy, Debug)]
struct Kept {
    ttl: Duration,
    /// When the newest answered renewal (or the grant) was sent.
    alive_from: Instant,
    /// When the renewal that is under way was sent.
    under_way: Option<Instant>,
    /// It stands in the queue of those to be renewed.
    queued: bool,
    renew_at: Instant,
    /// The heap's item for this lease; older items are passed over.
    wake: Instant,
}

/// What a lease needs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send a renewal; it counts as sent.
    Renew(LeaseId),
    /// Its time is over without an answer. It is forgotten.
    Lost(LeaseId),
    /// The stream owes this lease an answer for too long.
    Stuck,
}

/// What an answer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Alive, counted from this moment, for this long.
    Alive { from: Instant, ttl: Duration },
    /// There is no such lease any more. It is forgotten.
    Gone,
    /// Nobody asked.
    Stray,
}

/// All leases that are kept alive.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    leases: HashMap<LeaseId, Kept>,
    wakes: BinaryHeap<Reverse<(Instant, LeaseId)>>,
    /// To be renewed as soon as there is a stream with room. At most one place for each lease.
    queue: VecDeque<LeaseId>,
    /// How many answers this stream still owes to keepings that have ended. Else the answer to an old
    /// renewal would be taken for that of a new one, which was sent later.
    owed: HashMap<LeaseId, u32>,
}

impl Schedule {
    /// Begins to keep a lease that was alive at `alive_from` for `ttl`. Renewed at once.
    pub(crate) fn add(&mut self, id: LeaseId, ttl: Duration, alive_from: Instant, now: Instant) {
        let kept = Kept { ttl, alive_from, under_way: None, queued: false, renew_at: now, wake: now };
        self.leases.insert(id, kept);
        self.wakes.push(Reverse((now, id)));
    }

    pub(crate) fn remove(&mut self, id: LeaseId) {
        let removed = self.leases.remove(&id);
        if removed.is_some_and(|kept| kept.under_way.is_some()) {
            *self.owed.entry(id).or_default() += 1;
        }
        // Otherwise the items of leases that come and go would pile up until they are due.
        if self.leases.len() * 4 + 64 < self.wakes.len() {
            let leases = &self.leases;
            self.wakes.retain(|Reverse((at, id))| leases.get(id).is_some_and(|kept| kept.wake == *at));
            self.queue.retain(|id| leases.get(id).is_some_and(|kept| kept.queued));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// When something is due next, but for renewals that only wait for a stream.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// The next thing that is due. `can_send`: there is a stream with room for a renewal.
    pub(crate) fn due(&mut self, now: Instant, can_send: bool) -> Option<Due> {
        self.urgent(now).or_else(|| if can_send { self.renewal(now) } else { None })
    }

    /// Looks at the leases whose moment has come: lost, stuck, or to be queued for renewal.
    fn urgent(&mut self, now: Instant) -> Option<Due> {
        while let Some(Reverse((at, id))) = self.wakes.peek().copied() {
            if now < at {
                return None;
            }
            self.wakes.pop();
            let Some(kept) = self.leases.get_mut(&id).filter(|kept| kept.wake == at) else { continue };
            let (need, wake) = look(kept, now);
            kept.wake = wake;
            self.wakes.push(Reverse((wake, id)));
            match need {
                Need::Nothing => {}
                Need::Renewal => {
                    kept.queued = true;
                    self.queue.push_back(id);
                }
                Need::Answer => return Some(Due::Stuck),
                Need::End => {
                    self.remove(id);
                    return Some(Due::Lost(id));
                }
            }
        }
        None
    }

    fn renewal(&mut self, now: Instant) -> Option<Due> {
        while let Some(id) = self.queue.pop_front() {
            let Some(kept) = self.leases.get_mut(&id).filter(|kept| kept.queued) else { continue };
            kept.queued = false;
            kept.under_way = Some(now);
            kept.wake = (now + kept.patience()).min(kept.end());
            self.wakes.push(Reverse((kept.wake, id)));
            return Some(Due::Renew(id));
        }
        None
    }

    /// Takes in an answer. `jitter` in 0..=1 spreads the next renewal.
    pub(crate) fn answered(
        &mut self,
        id: LeaseId,
        ttl: Option<Duration>,
        now: Instant,
        jitter: f64,
    ) -> Answer {
        if self.pay(id) {
            return Answer::Stray;
        }
        let Some(kept) = self.leases.get_mut(&id) else { return Answer::Stray };
        let Some(sent) = kept.under_way.take() else { return Answer::Stray };
        let Some(ttl) = ttl else {
            self.remove(id);
            return Answer::Gone;
        };
        kept.queued = false;
        kept.ttl = ttl;
        kept.alive_from = sent;
        // Between 0.27 and 0.33 of the TTL: those granted together drift apart.
        let third = ttl / 3;
        kept.renew_at = (sent + third.mul_f64(0.8 + 0.2 * jitter.clamp(0.0, 1.0))).max(now);
        kept.wake = kept.renew_at.min(kept.alive_from + ttl);
        self.wakes.push(Reverse((kept.wake, id)));
        Answer::Alive { from: sent, ttl }
    }

    /// Whether an answer was owed to an earlier keeping of this lease. Answers come in order.
    fn pay(&mut self, id: LeaseId) -> bool {
        let Some(owed) = self.owed.get_mut(&id) else { return false };
        *owed -= 1;
        if *owed == 0 {
            self.owed.remove(&id);
        }
        true
    }

    /// The stream is lost: what was under way is to be sent again on the next one.
    pub(crate) fn stream_lost(&mut self, now: Instant) {
        self.owed.clear();
        for (id, kept) in &mut self.leases {
            if kept.under_way.take().is_some() {
                kept.queued = false;
                kept.renew_at = now;
                kept.wake = now;
                self.wakes.push(Reverse((now, *id)));
            }
        }
    }
}

impl Kept {
    fn end(&self) -> Instant {
        self.alive_from + self.ttl
    }

    /// How long an answer may take.
    fn patience(&self) -> Duration {
        (self.ttl / 3).clamp(ANSWER_MIN, ANSWER_MAX)
    }
}

/// What one lease needs.
enum Need {
    Nothing,
    Renewal,
    Answer,
    End,
}

/// What a lease needs, and when it is to be looked at again.
fn look(kept: &Kept, now: Instant) -> (Need, Instant) {
    let end = kept.end();
    if end <= now {
        return (Need::End, end);
    }
    match kept.under_way {
        Some(sent) if sent + kept.patience() <= now => {
            // Once told, not told again before as much time has passed anew.
            (Need::Answer, (now + kept.patience()).min(end))
        }
        Some(sent) => (Need::Nothing, (sent + kept.patience()).min(end)),
        // What is queued waits for a stream; all that can still come due is its end.
        None if kept.queued => (Need::Nothing, end),
        None if kept.renew_at <= now => (Need::Renewal, end),
        None => (Need::Nothing, kept.renew_at.min(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> LeaseId {
        LeaseId::from_wire(number).expect("not zero")
    }

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    /// A schedule with one lease of 9 s, granted at the start.
    fn one() -> (Schedule, Instant) {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(id(1), seconds(9.0), start, start);
        (schedule, start)
    }

    #[test]
    fn a_lease_is_renewed_at_once_and_then_before_a_third_of_its_time() {
        let (mut schedule, start) = one();
        assert_eq!(schedule.due(start, true), Some(Due::Renew(id(1))));
        assert_eq!(schedule.due(start, true), None, "one renewal at a time");
        assert_eq!(schedule.next_wake(), Some(start + seconds(3.0)));
        let alive = schedule.answered(id(1), Some(seconds(9.0)), start + seconds(0.1), 1.0);
        assert_eq!(alive, Answer::Alive { from: start, ttl: seconds(9.0) });
        assert_eq!(schedule.due(start + seconds(2.9), true), None);
        assert_eq!(schedule.due(start + seconds(3.0), true), Some(Due::Renew(id(1))));
    }

    #[test]
    fn jitter_only_makes_renewals_earlier() {
        for (jitter, at) in [(0.0, 2.4), (0.5, 2.7), (1.0, 3.0)] {
            let (mut schedule, start) = one();
            schedule.due(start, true);
            schedule.answered(id(1), Some(seconds(9.0)), start, jitter);
            let wake = schedule.leases[&id(1)].wake - start;
            assert!((wake.as_secs_f64() - at).abs() < 1e-6, "{jitter}: {wake:?}");
        }
    }

    #[test]
    fn a_lease_is_lost_when_its_time_since_the_last_answered_sending_is_over() {
        let (mut schedule, start) = one();
        schedule.due(start, true);
        // Answered late: what counts is when it was sent.
        schedule.answered(id(1), Some(seconds(9.0)), start + seconds(2.9), 1.0);
        schedule.due(start + seconds(3.0), true);
        let mut lost_at = None;
        for tenth in 0..200 {
            let now = start + seconds(f64::from(tenth) / 10.0);
            while let Some(due) = schedule.due(now, true) {
                if due == Due::Lost(id(1)) {
                    lost_at = Some(tenth);
                }
            }
        }
        assert_eq!(lost_at, Some(90));
        assert!(schedule.is_empty());
    }

    #[test]
    fn a_lease_that_never_had_an_answer_is_lost_too() {
        let (mut schedule, start) = one();
        assert_eq!(schedule.due(start + seconds(8.9), false), None);
        assert_eq!(schedule.due(start + seconds(9.0), false), Some(Due::Lost(id(1))));
    }

    #[test]
    fn an_answer_without_time_ends_the_lease() {
        let (mut schedule, start) = one();
        schedule.due(start, true);
        assert_eq!(schedule.answered(id(1), None, start, 0.5), Answer::Gone);
        assert!(schedule.is_empty());
        assert_eq!(schedule.answered(id(1), Some(seconds(9.0)), start, 0.5), Answer::Stray);
    }

    #[test]
    fn an_answer_nobody_asked_for_renews_nothing() {
        let (mut schedule, start) = one();
        assert_eq!(schedule.answered(id(1), Some(seconds(90.0)), start, 0.5), Answer::Stray);
        assert_eq!(schedule.answered(id(2), Some(seconds(90.0)), start, 0.5), Answer::Stray);
        assert_eq!(schedule.due(start + seconds(9.0), false), Some(Due::Lost(id(1))));
    }

    #[test]
    fn an_answer_to_an_earlier_keeping_does_not_count_for_a_later_one() {
        let (mut schedule, start) = one();
        schedule.due(start, true);
        schedule.remove(id(1));
        let again = start + seconds(1.0);
        schedule.add(id(1), seconds(9.0), start, again);
        assert_eq!(schedule.due(again, true), Some(Due::Renew(id(1))));
        assert_eq!(schedule.answered(id(1), Some(seconds(9.0)), again, 0.5), Answer::Stray);
        let alive = schedule.answered(id(1), Some(seconds(9.0)), again, 0.5);
        assert_eq!(alive, Answer::Alive { from: again, ttl: seconds(9.0) });
        assert!(schedule.owed.is_empty());
    }

    #[test]
    fn a_new_stream_owes_nothing_to_earlier_keepings() {
        let (mut schedule, start) = one();
        schedule.due(start, true);
        schedule.remove(id(1));
        schedule.stream_lost(start);
        schedule.add(id(1), seconds(9.0), start, start);
        schedule.due(start, true);
        let alive = schedule.answered(id(1), Some(seconds(9.0)), start, 0.5);
        assert_eq!(alive, Answer::Alive { from: start, ttl: seconds(9.0) });
    }

    #[test]
    fn an_answer_that_does_not_come_makes_the_stream_suspect_and_is_asked_for_again_on_the_next() {
        let (mut schedule, start) = one();
        schedule.due(start, true);
        assert_eq!(schedule.due(start + seconds(2.9), true), None);
        let now = start + seconds(3.0);
        assert_eq!(schedule.due(now, true), Some(Due::Stuck));
        schedule.stream_lost(now);
        assert_eq!(schedule.due(now, false), None, "no stream yet");
        assert_eq!(schedule.due(now + seconds(0.1), true), Some(Due::Renew(id(1))));
    }

    #[test]
    fn short_leases_are_impatient() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.add(id(1), seconds(2.0), start, start);
        schedule.due(start, true);
        assert_eq!(schedule.due(start + seconds(0.67), true), Some(Due::Stuck));
    }

    #[test]
    fn leases_that_come_and_go_leave_nothing_behind() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        for number in 1..=10_000 {
            schedule.add(id(number), seconds(60.0), start, start);
            schedule.remove(id(number));
        }
        assert!(schedule.is_empty());
        assert!(schedule.wakes.len() < 100, "{}", schedule.wakes.len());
    }

    #[test]
    fn a_hundred_thousand_leases_are_each_renewed_once_in_a_round() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        for number in 1..=100_000 {
            schedule.add(id(number), seconds(60.0), start, start);
        }
        let mut sent = 0;
        while let Some(due) = schedule.due(start, true) {
            let Due::Renew(lease) = due else { panic!("only renewals are due: {due:?}") };
            schedule.answered(lease, Some(seconds(60.0)), start, 0.5);
            sent += 1;
        }
        assert_eq!(sent, 100_000);
    }
}
