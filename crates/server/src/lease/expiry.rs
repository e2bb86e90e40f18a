//! What the leader does by the clock: take over, let leases expire, note what is left of them.

use super::book::Expired;
use super::desk::Desk;
use meerkat_raft::ReadIndexError;
use meerkat_raft::tasks::spawn_part;
use meerkat_raft::threads::spawn_blocking_part;
use meerkat_types::{Command, Outcome, Refusal, Term, limits};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

/// How late a deadline may be noticed.
const TICK: Duration = Duration::from_millis(100);
/// Ends on their way to the log at once.
const ENDS_IN_FLIGHT: usize = 64;
/// Pause before an end that did not reach the log is tried again.
const END_PAUSE: Duration = Duration::from_secs(1);
/// The same while a member is known to be corrupt, which an operator has to see to.
const CORRUPT_PAUSE: Duration = Duration::from_secs(10);
/// Pause before a take-over that failed is tried again.
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(20);
/// An expiry's entry is a few numbers.
const ENTRY_BYTES_MAX: usize = 1_024;

pub(crate) struct Expiry {
    pub(crate) desk: Desk,
    /// What a lease gets beyond its time when a leader takes over: for clients that looked for it.
    pub(crate) grace: Duration,
}

/// Runs for ever, and does something while this member leads.
pub(crate) async fn run_expiry(expiry: Expiry) {
    let leadership = expiry.desk.raft.leadership().clone();
    loop {
        let Some(term) = leadership.own_term() else {
            leadership.own_term_changed(None).await;
            continue;
        };
        tokio::select! {
            () = expiry.lead(term) => {}
            () = leadership.own_term_changed(Some(term)) => {}
        }
        expiry.desk.open.send_replace(None);
        expiry.desk.book.lock().follow();
    }
}

impl Expiry {
    /// Until this member no longer leads.
    async fn lead(&self, term: Term) {
        self.take_over(term).await;
        let slots = Arc::new(Semaphore::new(ENDS_IN_FLIGHT));
        let mut ticks = tokio::time::interval(TICK);
        // A member that was paused has lost its leases to a successor, or lost nothing: no haste.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.end_expired(term, &slots).await;
            self.note_some(term);
        }
    }

    async fn take_over(&self, term: Term) {
        let desk = &self.desk;
        desk.book.lock().take_over(term);
        while let Err(error) = self.applied_everything().await {
            tracing::debug!(%error, "leases are not taken over yet");
            tokio::time::sleep(TAKE_OVER_PAUSE).await;
        }
        let leases = loop {
            // After `take_over` above: whatever changes from here on, the book is told.
            let reader = desk.raft.reader().clone();
            let read = spawn_blocking_part("lease expiry", move || reader.pin().leases()).await;
            match read {
                Ok(Ok(leases)) => break leases,
                Ok(Err(error)) => tracing::error!(%error, "leases cannot be read"),
                Err(error) => tracing::error!(%error, "leases cannot be read"),
            }
            tokio::time::sleep(END_PAUSE).await;
        };
        let count = leases.len();
        desk.book.lock().lead(term, leases, Instant::now(), self.grace);
        desk.open.send_replace(Some(term));
        tracing::info!(term = term.0, leases = count, "this member leads and keeps the deadlines of leases");
    }

    /// Returns when this member has applied all that was committed before its term.
    async fn applied_everything(&self) -> Result<(), ReadIndexError> {
        let raft = &self.desk.raft;
        let confirmed = raft.reads().confirm_lead().await?;
        raft.applied().reached(confirmed.index).await.map_err(|_| ReadIndexError::Stopped)
    }

    async fn end_expired(&self, term: Term, slots: &Arc<Semaphore>) {
        let per_tick = limits::LEASE_EXPIRIES_PER_SECOND as usize * TICK.as_millis() as usize / 1_000;
        let expired = self.desk.book.lock().expire(Instant::now(), per_tick);
        for expired in expired {
            // Never closed, so waiting cannot fail.
            let slot = slots.clone().acquire_owned().await;
            let desk = self.desk.clone();
            spawn_part("lease expiry", async move {
                end(&desk, term, expired).await;
                drop(slot);
            });
        }
    }

    /// The log takes them in its own time: deadlines do not wait for notes.
    fn note_some(&self, term: Term) {
        // Locked until the notes are handed in: a renewal that sees one in the book must come to the
        // scribe after it, or the log would keep the note and lose the taking back.
        let mut book = self.desk.book.lock();
        let notes = book.take_notes(Instant::now(), limits::LEASE_NOTES_MAX);
        if !notes.is_empty() && !self.desk.scribe.try_note(term, notes) {
            // Their leases stay marked, which costs each one's next renewal an entry and nothing else.
            tracing::debug!(
                term = term.0,
                "notes about leases wait for the next interval: the log is behind"
            );
        }
    }
}

async fn end(desk: &Desk, term: Term, expired: Expired) {
    let Expired { lease, granted } = expired;
    let command = Command::ExpireLease { lease, granted, term };
    let outcome = desk.raft.proposer().propose(command, ENTRY_BYTES_MAX).await;
    match outcome {
        Ok(Outcome::LeaseRevoked(_)) => {
            desk.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
        // A client was quicker, or another leader decides now.
        Ok(Outcome::Refused(Refusal::LeaseNotFound | Refusal::OtherTerm)) => {}
        // Nothing changes while an alarm says that a member is corrupt; the lease ends after it.
        Ok(Outcome::Refused(Refusal::Corrupt)) => {
            let mut book = desk.book.lock();
            if book.term() == Some(term) {
                book.end_failed(expired, Instant::now(), CORRUPT_PAUSE);
            }
        }
        outcome => {
            tracing::warn!(%lease, ?outcome, "an expired lease was not ended; it is tried again");
            let mut book = desk.book.lock();
            if book.term() == Some(term) {
                book.end_failed(expired, Instant::now(), END_PAUSE);
            }
        }
    }
}
