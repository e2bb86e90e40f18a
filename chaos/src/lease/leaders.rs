//! Who led when, by asking every member for a linearizable read all the time.
//!
//! A member's word that it leads proves nothing: one that has lost its majority says so for a while
//! longer, and can neither renew nor end a lease. An answered linearizable read does prove that
//! somebody led, in the term it names, at some moment between question and answer. A change of leader
//! lies between the last such question of the old term and the first such answer of the new: longer
//! than it was, never shorter. A long time without any answer in one term is an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::RangeRequest;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::endpoint::{Endpoint, Roster};
use crate::record::lease::Span;

const ASK_EVERY: Duration = Duration::from_millis(40);
const ANSWER_WITHIN: Duration = Duration::from_millis(1_000);
/// Less than this without proof of a leader is what a question and its answer may take.
const OUTAGE_MIN: Duration = Duration::from_millis(400);

/// What was seen of leaders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reign {
    /// Changes of leader.
    pub changes: Vec<Span>,
    /// Times without proof of a leader, in one term.
    pub outages: Vec<Span>,
}

/// Proof that somebody led.
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
        Self::start_on(&Roster::of(endpoints), endpoints.len(), ASK_EVERY, began)
    }

    /// The same among members that come and go: so many ask, each this often, and each goes to the
    /// next member when one does not answer.
    pub fn start_on(roster: &Roster, count: usize, every: Duration, began: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = |place| tokio::spawn(ask(roster.clone(), place, every, began, stop.clone()));
        Self { tasks: (0..count).map(task).collect(), stop }
    }

    /// Stops asking; what was seen.
    pub async fn finish(self) -> Result<Reign, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sightings = Vec::new();
        for task in self.tasks {
            sightings.extend(task.await.map_err(|error| Failure::harness(error.to_string()))?);
        }
        Ok(reign(sightings))
    }
}

async fn ask(
    roster: Roster,
    mut place: usize,
    every: Duration,
    began: Instant,
    stop: Arc<AtomicBool>,
) -> Vec<Sighting> {
    let mut sightings: Vec<Sighting> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let from = began.elapsed();
        let request = RangeRequest { key: Bytes::from_static(b"\0"), count_only: true, ..Default::default() };
        match roster.at(place).endpoint.range(request, ANSWER_WITHIN).await {
            Ok(answer) => {
                let span = Span { from, until: began.elapsed() };
                sightings.push(Sighting { span, term: answer.header.map_or(0, |header| header.raft_term) });
            }
            Err(_) => place += 1,
        }
        tokio::time::sleep(every).await;
    }
    sightings
}

impl Reign {
    /// Notes a stretch without proof in one term. No moment is counted twice: not one that a change
    /// of leader already covers, nor one that several answers were late for.
    fn note_unproved(&mut self, mut unproved: Span) {
        let changed = self.changes.last().map_or(Duration::ZERO, |change| change.until);
        unproved.from = unproved.from.max(changed);
        if unproved.length() <= OUTAGE_MIN {
            return;
        }
        match self.outages.last_mut() {
            Some(last) if unproved.from <= last.until => last.until = last.until.max(unproved.until),
            _ => self.outages.push(unproved),
        }
    }
}

/// What follows from proofs of leaders: one change for each term but the first that was seen.
pub fn reign(mut sightings: Vec<Sighting>) -> Reign {
    sightings.sort_by_key(|sighting| sighting.span.until);
    let mut reign = Reign::default();
    let mut last: Option<Sighting> = None;
    for sighting in sightings {
        let Some(known) = &mut last else {
            last = Some(sighting);
            continue;
        };
        let unproved = Span { from: known.span.from.min(sighting.span.until), until: sighting.span.until };
        if known.term < sighting.term {
            reign.changes.push(unproved);
            *known = sighting;
            continue;
        }
        if known.term == sighting.term {
            reign.note_unproved(unproved);
        }
        // An answer of an older term may arrive late; what it proves is older than what is known.
        if known.term == sighting.term && known.span.from < sighting.span.from {
            *known = sighting;
        }
    }
    reign
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(term: u64, from: u64, until: u64) -> Sighting {
        let (from, until) = (Duration::from_millis(from), Duration::from_millis(until));
        Sighting { span: Span { from, until }, term }
    }

    fn spans(spans: &[Span]) -> Vec<(u64, u64)> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("small");
        spans.iter().map(|span| (millis(span.from), millis(span.until))).collect()
    }

    fn changes(sightings: Vec<Sighting>) -> Vec<(u64, u64)> {
        spans(&reign(sightings).changes)
    }

    #[test]
    fn one_leader_all_the_time_is_no_change_and_no_outage() {
        assert_eq!(reign(vec![seen(1, 0, 5), seen(1, 50, 55), seen(1, 300, 310)]), Reign::default());
    }

    #[test]
    fn a_change_reaches_from_the_last_proof_of_the_old_to_the_first_of_the_new() {
        let all = vec![seen(4, 900, 905), seen(2, 0, 5), seen(2, 50, 55), seen(4, 950, 955)];
        assert_eq!(changes(all), [(50, 905)]);
    }

    #[test]
    fn an_answer_that_was_asked_for_early_proves_little() {
        assert_eq!(changes(vec![seen(1, 0, 5), seen(1, 3, 800), seen(2, 900, 905)]), [(3, 905)]);
    }

    #[test]
    fn an_answer_of_the_old_term_that_arrives_late_does_not_undo_a_change() {
        let all = vec![seen(1, 0, 5), seen(2, 100, 905), seen(1, 50, 950), seen(2, 940, 960)];
        assert_eq!(changes(all), [(0, 905)]);
    }

    #[test]
    fn every_term_that_was_seen_counts() {
        assert_eq!(
            changes(vec![seen(1, 0, 5), seen(2, 100, 105), seen(3, 300, 305)]),
            [(0, 105), (100, 305)]
        );
    }

    #[test]
    fn a_long_time_without_proof_in_one_term_is_an_outage() {
        let seen = reign(vec![seen(1, 0, 5), seen(1, 700, 705), seen(1, 750, 755)]);
        assert_eq!((spans(&seen.outages), seen.changes.len()), (vec![(0, 705)], 0));
    }

    #[test]
    fn no_moment_of_an_outage_is_counted_twice() {
        let late = reign(vec![seen(1, 0, 5), seen(1, 1, 705), seen(1, 2, 706), seen(1, 3, 707)]);
        assert_eq!(spans(&late.outages), [(0, 707)]);
        // Asked before the change of leader, answered after it.
        let changed = reign(vec![seen(1, 0, 5), seen(2, 1, 900), seen(2, 2, 905), seen(2, 3, 910)]);
        assert_eq!((spans(&changed.changes), changed.outages.len()), (vec![(0, 900)], 0));
    }
}
