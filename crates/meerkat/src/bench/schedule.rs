//! When each request of a load begins.
//!
//! *Closed*: a worker asks again as soon as it was answered. *Open*: requests have intended moments
//! at a fixed rate, whatever the server does, and latency counts from the intended moment, so that
//! a stall shows in every request it delayed. Numbers are handed out once each, and none after
//! the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// How finely the pacer keeps time. Shorter costs CPU that belongs to the servers.
const PACE: Duration = Duration::from_micros(250);

/// How long the pacer sleeps at most, however far off the next request is, so that a stop is noticed.
const PACE_MAX: Duration = Duration::from_millis(20);

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Requests(u64),
    Time(Duration),
}

/// One request to make, and the moment from which its latency counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub number: u64,
    pub intended: Instant,
}

pub struct Schedule {
    start: Instant,
    length: Length,
    issued: AtomicU64,
    /// Requests a second, and the permits the pacer gives out. `None`: closed loop.
    open: Option<(f64, Semaphore)>,
}

impl Schedule {
    pub fn new(start: Instant, length: Length, rate: Option<f64>) -> Schedule {
        let open = rate.map(|rate| (rate, Semaphore::new(0)));
        Schedule { start, length, issued: AtomicU64::new(0), open }
    }

    /// The next request to make; waits for its moment if it is not yet due.
    pub async fn next(&self) -> Option<Ticket> {
        match &self.open {
            None => self.next_closed(Instant::now()),
            Some((rate, permits)) => {
                permits.acquire().await.ok()?.forget();
                let number = self.issued.fetch_add(1, Ordering::Relaxed);
                Some(Ticket { number, intended: self.start + moment(number, *rate) })
            }
        }
    }

    /// Gives out permits as they fall due, and returns when the load has ended. Only an open
    /// schedule needs it; it blocks, so it wants a thread of its own.
    pub fn pace(&self) {
        let Some((rate, permits)) = &self.open else { return };
        let total = due_in_total(self.length, *rate);
        let mut released = 0;
        while released < total && !permits.is_closed() {
            let due = due_by(self.start.elapsed(), *rate).min(total);
            permits.add_permits((due - released) as usize);
            released = due;
            let until_next = moment(released, *rate).saturating_sub(self.start.elapsed());
            std::thread::sleep(until_next.clamp(PACE, PACE_MAX));
        }
        // Closing would drop the permits still unused, also those that a worker was given and has not yet
        // taken: those requests were due and must be made.
        while self.issued.load(Ordering::Relaxed) < released && !permits.is_closed() {
            std::thread::sleep(PACE);
        }
        permits.close();
    }

    /// Ends the load now, whatever is still due.
    pub fn stop(&self) {
        match &self.open {
            Some((_, permits)) => permits.close(),
            None => self.issued.store(u64::MAX / 2, Ordering::Relaxed),
        }
    }

    /// Requests that were due and never begun, because the load was stopped.
    pub fn never_begun(&self) -> u64 {
        match &self.open {
            Some((rate, _)) => {
                let due = due_by(self.start.elapsed(), *rate).min(due_in_total(self.length, *rate));
                due.saturating_sub(self.issued.load(Ordering::Relaxed))
            }
            None => 0,
        }
    }

    fn next_closed(&self, now: Instant) -> Option<Ticket> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let over = match self.length {
            Length::Requests(total) => number >= total,
            Length::Time(length) => number >= u64::MAX / 2 || now - self.start >= length,
        };
        (!over).then_some(Ticket { number, intended: now })
    }
}

/// How long after the start a request is due.
fn moment(number: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate)
}

fn due_by(elapsed: Duration, rate: f64) -> u64 {
    (elapsed.as_secs_f64() * rate) as u64 + 1
}

fn due_in_total(length: Length, rate: f64) -> u64 {
    match length {
        Length::Requests(total) => total,
        Length::Time(length) => (length.as_secs_f64() * rate).ceil() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_load_hands_out_each_number_once_and_then_nothing() {
        let schedule = Schedule::new(Instant::now(), Length::Requests(3), None);
        let numbers: Vec<u64> =
            std::iter::from_fn(|| schedule.next_closed(Instant::now())).map(|ticket| ticket.number).collect();
        assert_eq!(numbers, [0, 1, 2]);
    }

    #[test]
    fn a_timed_load_ends_at_its_time() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Length::Time(Duration::from_secs(5)), None);
        assert!(schedule.next_closed(start + Duration::from_millis(4_999)).is_some());
        assert_eq!(schedule.next_closed(start + Duration::from_secs(5)), None);
    }

    #[test]
    fn a_stopped_load_hands_out_nothing() {
        let schedule = Schedule::new(Instant::now(), Length::Time(Duration::from_secs(5)), None);
        schedule.stop();
        assert_eq!(schedule.next_closed(Instant::now()), None);
    }

    #[test]
    fn intended_moments_keep_the_rate_however_late_they_are_asked_for() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Length::Requests(4), Some(1_000.0));
        std::thread::sleep(Duration::from_millis(20));
        let paced = std::thread::scope(|scope| {
            scope.spawn(|| schedule.pace());
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let mut intended = Vec::new();
                while let Some(ticket) = schedule.next().await {
                    intended.push((ticket.intended - start).as_millis());
                }
                intended
            })
        });
        assert_eq!(paced, [0, 1, 2, 3], "a late start does not move them");
    }
}
