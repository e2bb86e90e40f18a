//! Who led when, by asking every member all the time.
//!
//! Only a member's own word that it leads counts, and only the highest term. A change of leader lies
//! between the last time the old one was asked and said so, and the first answer of the new one:
//! longer than it was, never shorter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::record::Span;
use crate::Failure;
use crate::endpoint::Endpoint;

const ASK_EVERY: Duration = Duration::from_millis(40);
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// A member said that it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// From the question to the answer.
    pub span: Span,
    /// In which term.
    pub term: u64,
}

/// Watches for changes of leader until told to stop.
#[derive(Debug)]
pub struct LeaderWatch {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<Sighting>>>,
}

impl LeaderWatch {
    /// Starts asking. Times are counted from `began`.
    pub fn start(endpoints: &[Endpoint], began: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = endpoints.iter().map(|endpoint| tokio::spawn(ask(endpoint.clone(), began, stop.clone())));
        Self { tasks: tasks.collect(), stop }
    }

    /// Stops asking; the changes there were.
    pub async fn finish(self) -> Result<Vec<Span>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sightings = Vec::new();
        for task in self.tasks {
            sightings.extend(task.await.map_err(|error| Failure::harness(error.to_string()))?);
        }
        Ok(changes(sightings))
    }
}

async fn ask(endpoint: Endpoint, began: Instant, stop: Arc<AtomicBool>) -> Vec<Sighting> {
    let mut sightings: Vec<Sighting> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let from = began.elapsed();
        if let Ok(status) = endpoint.status(ANSWER_WITHIN).await {
            let own = status.header.as_ref().map_or(0, |header| header.member_id);
            if own != 0 && status.leader == own {
                let span = Span { from, until: began.elapsed() };
                sightings.push(Sighting { span, term: status.raft_term });
            }
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    sightings
}

/// One change for each term but the first in which somebody was seen to lead.
pub fn changes(mut sightings: Vec<Sighting>) -> Vec<Span> {
    sightings.sort_by_key(|sighting| (sighting.term, sighting.span.until));
    let mut changes = Vec::new();
    for pair in sightings.windows(2) {
        if pair[0].term != pair[1].term {
            // A deposed leader may say for a while longer that it leads: then the two overlap.
            let from = last_before(&sightings, pair[1]).unwrap_or(pair[0].span.from);
            changes.push(Span { from: from.min(pair[1].span.until), until: pair[1].span.until });
        }
    }
    changes
}

/// When a lower term was last seen to be led before a higher one was.
fn last_before(sightings: &[Sighting], new: Sighting) -> Option<Duration> {
    let old = sightings.iter().filter(|old| old.term < new.term && old.span.from <= new.span.until);
    old.map(|old| old.span.from).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(term: u64, from: u64, until: u64) -> Sighting {
        let (from, until) = (Duration::from_millis(from), Duration::from_millis(until));
        Sighting { span: Span { from, until }, term }
    }

    fn spans(sightings: Vec<Sighting>) -> Vec<(u64, u64)> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("small");
        changes(sightings).iter().map(|change| (millis(change.from), millis(change.until))).collect()
    }

    #[test]
    fn one_leader_all_the_time_is_no_change() {
        assert!(spans(vec![seen(1, 0, 5), seen(1, 50, 55)]).is_empty());
    }

    #[test]
    fn a_change_reaches_from_the_last_sight_of_the_old_to_the_first_of_the_new() {
        assert_eq!(
            spans(vec![seen(4, 900, 905), seen(2, 0, 5), seen(2, 50, 55), seen(4, 950, 955)]),
            [(50, 905)]
        );
    }

    #[test]
    fn a_deposed_leader_that_wakes_later_does_not_undo_a_change() {
        assert_eq!(spans(vec![seen(1, 0, 5), seen(2, 900, 905), seen(1, 5_000, 5_005)]), [(0, 905)]);
    }

    #[test]
    fn every_term_that_was_led_counts() {
        assert_eq!(spans(vec![seen(1, 0, 5), seen(2, 100, 105), seen(3, 300, 305)]), [(0, 105), (100, 305)]);
    }
}
