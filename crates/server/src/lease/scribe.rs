//! Writes notes about leases into the log, one after the other.
//!
//! Always true: notes reach the log in the order in which they were handed in. A note that is taken
//! back must not be overtaken by the note itself, so all go through this one task, and each waits for
//! the one before. A note that got lost on the way can not turn up later: in the same term nothing is
//! proposed again, and in another it has no effect. So notes go through this member's own Raft or
//! nowhere, and one that is lost does not hold up those behind it.

use meerkat_raft::RaftNode;
use meerkat_raft::tasks::Tasks;
use meerkat_types::{Command, LeaseNote, Outcome, Term, limits};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Notes handed in and not yet in the log; above it whoever hands one in waits.
const QUEUE: usize = 1_024;
/// A thousand notes, in any encoding.
const ENTRY_BYTES_MAX: usize = limits::REQUEST_BYTES_MAX;

struct Job {
    term: Term,
    notes: Vec<LeaseNote>,
    /// Whether the log took them.
    done: oneshot::Sender<bool>,
}

#[derive(Clone)]
pub(crate) struct Scribe {
    jobs: mpsc::Sender<Job>,
}

impl Scribe {
    pub(crate) fn start(raft: Arc<RaftNode>, tasks: &Tasks) -> Scribe {
        let (jobs, queue) = mpsc::channel(QUEUE);
        tasks.spawn_until_stop("lease notes", write(raft, queue));
        Scribe { jobs }
    }

    /// Hands notes in without waiting, and without hearing what became of them. False if there is no
    /// room. Called with the book locked, it is ahead of everyone who learns of the notes from the book.
    pub(crate) fn try_note(&self, term: Term, notes: Vec<LeaseNote>) -> bool {
        self.jobs.try_send(Job { term, notes, done: oneshot::channel().0 }).is_ok()
    }

    /// Whether the log has them, in this term.
    pub(crate) async fn note(&self, term: Term, notes: Vec<LeaseNote>) -> bool {
        let (done, taken) = oneshot::channel();
        if self.jobs.send(Job { term, notes, done }).await.is_err() {
            return false;
        }
        taken.await.unwrap_or(false)
    }
}

async fn write(raft: Arc<RaftNode>, mut queue: mpsc::Receiver<Job>) {
    let mut jobs = Vec::new();
    while queue.recv_many(&mut jobs, QUEUE).await > 0 {
        for batch in batches(std::mem::take(&mut jobs)) {
            let notes = batch.iter().flat_map(|job| job.notes.iter().copied()).collect();
            let term = batch.first().map_or(Term(0), |job| job.term);
            let command = Command::NoteLeases { term, notes };
            let outcome = raft.proposer().propose_as_leader(command, ENTRY_BYTES_MAX).await;
            let taken = matches!(outcome, Ok(Outcome::LeasesNoted(_)));
            if !taken {
                tracing::debug!(?outcome, "notes about leases did not reach the log");
            }
            for job in batch {
                // Whoever gave up meanwhile asks again.
                let _ = job.done.send(taken);
            }
        }
    }
}

/// Neighbours of one term together, as long as they are few enough for one entry.
fn batches(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut batches: Vec<Vec<Job>> = Vec::new();
    let mut notes = 0;
    for job in jobs {
        notes += job.notes.len();
        match batches.last_mut() {
            Some(batch)
                if notes <= limits::LEASE_NOTES_MAX
                    && batch.first().is_some_and(|first| first.term == job.term) =>
            {
                batch.push(job);
            }
            _ => {
                notes = job.notes.len();
                batches.push(vec![job]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{LeaseId, LogIndex};

    #[test]
    fn jobs_are_put_together_by_term_and_size_and_keep_their_order() {
        let job = |term, notes: usize| {
            let note = LeaseNote {
                id: LeaseId::from_wire(1).expect("not zero"),
                granted: LogIndex(1),
                remaining: None,
            };
            Job { term: Term(term), notes: vec![note; notes], done: oneshot::channel().0 }
        };
        let jobs = vec![job(1, 10), job(1, 990), job(1, 1), job(2, 1), job(2, 1_000), job(2, 2)];
        let shape: Vec<Vec<(u64, usize)>> = batches(jobs)
            .iter()
            .map(|batch| batch.iter().map(|job| (job.term.0, job.notes.len())).collect())
            .collect();
        let expected =
            vec![vec![(1, 10), (1, 990)], vec![(1, 1)], vec![(2, 1)], vec![(2, 1_000)], vec![(2, 2)]];
        assert_eq!(shape, expected);
    }
}
