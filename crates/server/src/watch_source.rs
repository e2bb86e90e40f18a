//! What the watch hub needs of the rest of the member: published revisions, history, and the news
//! that no leader is known. The keeper of leases hears from the apply thread by the same way.

use crate::auth::SimpleTokens;
use crate::lease::{Book, LeaseCounters};
use crate::metrics::Changes;
use meerkat_fault::Mutex;
use meerkat_raft::{EventSink, Leadership};
use meerkat_state::{LeaseChange, ReadError, StateReader};
use meerkat_types::{AssignedToken, EventBatch, HistoryAnswer, HistoryQuery, Refusal, Revision};
use meerkat_watch::{History, HistoryError, Horizon, Hub};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The other end of the apply thread.
pub(crate) struct Published {
    hub: Hub,
    book: Arc<Mutex<Book>>,
    leases: Arc<LeaseCounters>,
    changes: Arc<Changes>,
    tokens: Arc<SimpleTokens>,
}

impl Published {
    pub(crate) fn new(
        hub: &Hub,
        book: &Arc<Mutex<Book>>,
        (leases, changes): (&Arc<LeaseCounters>, &Arc<Changes>),
        tokens: Arc<SimpleTokens>,
    ) -> Published {
        let (leases, changes) = (leases.clone(), changes.clone());
        Published { hub: hub.clone(), book: book.clone(), leases, changes, tokens }
    }
}

impl EventSink for Published {
    fn publish(&mut self, batch: EventBatch) {
        self.changes.note(&batch);
        self.hub.publish(batch);
    }

    fn lease_changed(&mut self, change: LeaseChange) {
        let counter = match change {
            LeaseChange::Granted(_) => &self.leases.granted,
            LeaseChange::Ended(_) => &self.leases.ended,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.book.lock().changed(change, Instant::now());
    }

    fn token_assigned(&mut self, token: AssignedToken) {
        self.tokens.assigned(token, Instant::now());
    }

    fn jumped(&mut self, to: Revision) {
        self.hub.jump(to);
    }
}

/// The store's own record of revisions.
pub(crate) struct StoreHistory(pub(crate) StateReader);

impl History for StoreHistory {
    fn horizon(&self) -> Horizon {
        let pinned = self.0.pin();
        Horizon { current: pinned.current_revision(), oldest: pinned.compacted_revision() }
    }

    fn read(&self, query: &HistoryQuery) -> Result<HistoryAnswer, HistoryError> {
        self.0.pin().history(query).map_err(|error| match error {
            ReadError::Refused(Refusal::Compacted { .. }) => HistoryError::Compacted,
            error => HistoryError::Failed(error.to_string()),
        })
    }
}

/// Ends the streams that asked for a leader once none has been known for a while, for ever.
///
/// Together with the time a leader counts as known after its last word, that is about three
/// election time-outs, as in etcd.
pub(crate) async fn watch_leader(hub: Hub, leadership: Leadership, election_timeout: Duration) {
    let mut without = 0;
    let mut ticks = tokio::time::interval(election_timeout / 2);
    // A member that was paused looks twice before it believes what it sees.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        without = if leadership.known().is_some() { 0 } else { without + 1 };
        if without == 2 {
            tracing::warn!("no leader is known; watch streams that asked for one are ended");
        }
        if without >= 2 {
            hub.lose_leader();
        }
    }
}
