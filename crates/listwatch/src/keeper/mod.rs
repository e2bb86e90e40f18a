//! What the door does by itself: it empties namespaces and definitions that go, and removes objects whose
//! owners are gone.
//!
//! ```text
//!   turn         whose turn it is, among all doors over one store. Pure
//!   work         one turn: all kinds followed, all that is named looked at
//!   follow       the changes of one kind
//!   owners       who belongs to whom, and what follows from it. Pure
//!   queue        what is to be looked at, and when. Pure
//!   collect      one object with owners, or with dependents, looked at
//!   namespaces, definitions      one of them emptied
//!   sweeps       namespaces that went, to be looked into once more by whoever has the turn then
//! ```

mod collect;
mod definitions;
mod follow;
mod namespaces;
mod owners;
mod queue;
mod sweeps;
mod tally;
#[cfg(test)]
mod tests;
mod turn;
mod work;

pub use tally::{Deed, Tally};

use crate::storage::Storage;
use bytes::Bytes;
use meerkat_watchcache::store::{By, Change, Row, Store, StoreError, Write, Written};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use turn::{PACE, Pace, Question, Reply, Seen, Turn};
use work::Work;

/// Runs until it is dropped. Of all doors over one store, one does the work at a time.
pub async fn keep(storage: Arc<Storage>, tally: Arc<Tally>) {
    let times = Times { pace: PACE, settle_ms: namespaces::SETTLE_MS, sweep_ms: namespaces::SWEEP_MS };
    take_turns(storage, tally, times).await;
}

#[derive(Clone, Copy, Debug)]
struct Times {
    pace: Pace,
    /// How long a namespace or definition that goes stays at least.
    settle_ms: u64,
    /// How long after it went a namespace is looked into once more.
    sweep_ms: u64,
}

/// Milliseconds since it was made.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Default for Clock {
    fn default() -> Clock {
        Clock(Instant::now())
    }
}

impl Clock {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Forever, for none.
    async fn sleep_until(&self, due_ms: Option<u64>) {
        match due_ms {
            Some(due) => tokio::time::sleep_until(self.0 + Duration::from_millis(due)).await,
            None => std::future::pending().await,
        }
    }
}

async fn take_turns(storage: Arc<Storage>, tally: Arc<Tally>, times: Times) {
    let clock = Clock::default();
    let mut turn = Turn::new(times.pace);
    // Ended when it is dropped.
    let mut work: JoinSet<()> = JoinSet::new();
    // The turn that the work is of.
    let mut worked = None;
    loop {
        let begun_ms = clock.now_ms();
        let patience_ms = turn.stop_ms(begun_ms).unwrap_or(begun_ms + times.pace.stop);
        tokio::select! {
            claimed = claim(&**storage.store(), &mut turn, &clock) => {
                if let Err(error) = claimed {
                    tracing::debug!(%error, "the keeper's turn is not known");
                }
            }
            () = clock.sleep_until(Some(patience_ms)) => {}
        }
        let now_ms = clock.now_ms();
        let (stop_ms, revision) = (turn.stop_ms(now_ms), turn.revision(now_ms));
        if worked != revision && !work.is_empty() {
            work.shutdown().await;
        }
        worked = revision;
        if revision.is_some() && work.is_empty() {
            tally.add(Deed::Turn);
            work.spawn(Work::new(storage.clone(), tally.clone(), times).run());
        }
        let wakes_ms = begun_ms + times.pace.renew;
        tokio::select! {
            () = clock.sleep_until(Some(stop_ms.map_or(wakes_ms, |stop| stop.min(wakes_ms)))) => {}
            Some(ended) = work.join_next(), if !work.is_empty() => {
                tracing::error!(?ended, "the keeper's work ended, and begins anew");
                // Whatever ended it shall not end it a thousand times a second.
                clock.sleep_until(Some(wakes_ms)).await;
            }
        }
    }
}

/// One try to have the turn, or to keep it.
async fn claim(store: &dyn Store, turn: &mut Turn, clock: &Clock) -> Result<(), StoreError> {
    let mut next = Some(turn.begin());
    while let Some(question) = next {
        let sent_ms = clock.now_ms();
        let reply = ask(store, question, turn.pace().lease_s).await?;
        next = turn.heard(question, reply, sent_ms, clock.now_ms());
    }
    Ok(())
}

async fn ask(store: &dyn Store, question: Question, lease_s: u64) -> Result<Reply, StoreError> {
    let key = Bytes::from_static(turn::KEY.as_bytes());
    Ok(match question {
        Question::Renew { lease } => {
            if store.renew(lease).await? {
                Reply::Renewed
            } else {
                Reply::Ended
            }
        }
        Question::Look => Reply::Key(store.get(key).await?.0.as_ref().map(seen)),
        Question::Grant => Reply::Granted { lease: store.grant(lease_s).await? },
        Question::Claim { expected, lease } => {
            let change = Change::Put { value: Bytes::from_static(b"{}"), lease };
            match store.write(Write { key, expected, change, by: By::Door }).await? {
                Written::Done { revision } => Reply::Claimed { revision },
                Written::Otherwise { found, .. } => Reply::Key(found.as_ref().map(seen)),
            }
        }
    })
}

fn seen(row: &Row) -> Seen {
    Seen { revision: row.modified, lease: row.lease }
}
