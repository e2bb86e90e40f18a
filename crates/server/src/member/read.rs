//! Reads: as fresh as they are asked to be, judged by the point of the state that they read, and long ones by
//! turns.

use super::Member;
use crate::auth::Caller;
use crate::spans::stage;
use meerkat_raft::ReadIndexError;
use meerkat_state::{Need, Pinned, ReadError, needs_of_txn};
use meerkat_types::{Access, Consistency, KeyRange, RangeAnswer, RangeQuery, Sort, Txn, TxnDone, TxnOp};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Long reads at once. More would only take the processors from everybody else.
const LONG_READS_MAX: usize = 8;

/// A page this short is read where the request is served; a longer one goes to a thread that may
/// block.
pub(crate) const INLINE_KEYS_MAX: usize = 64;

/// Long reads of all clients, whatever they speak.
pub(super) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LONG_READS_MAX))
}

/// Why a read was not done.
pub(crate) enum ReadFailure {
    /// A learner does not answer for the cluster.
    Learner,
    Index(ReadIndexError),
    State(ReadError),
    Worker(JoinError),
}

impl Member {
    /// Waits until this member knows what a read of that kind must see.
    pub(crate) async fn become_fresh(&self, consistency: Consistency) -> Result<(), ReadFailure> {
        match consistency {
            // Lets the requests that arrived with this one be read before any is answered, so that
            // their answers leave in one write to the socket instead of one each.
            Consistency::Serializable => {
                tokio::task::yield_now().await;
                Ok(())
            }
            Consistency::Linearizable if self.raft.leadership().is_learner() => Err(ReadFailure::Learner),
            Consistency::Linearizable => {
                let ready = stage("raft.read_index", self.raft.reads().ready_to_read());
                ready.await.map_err(ReadFailure::Index)
            }
        }
    }

    pub(crate) async fn range(&self, caller: Caller, query: RangeQuery) -> Result<RangeAnswer, ReadFailure> {
        self.become_fresh(query.consistency).await?;
        let short = is_short(&query);
        let read = move |pinned: &Pinned| {
            caller.may(pinned, [Need::Keys(Access::Read, &query.keys)])?;
            pinned.range(&query)
        };
        if short {
            read(&self.raft.reader().pin()).map_err(ReadFailure::State)
        } else {
            self.read_long(read).await
        }
    }

    /// A transaction that only reads.
    pub(crate) async fn read_txn(&self, caller: Caller, txn: Txn) -> Result<TxnDone, ReadFailure> {
        self.become_fresh(consistency(&txn)).await?;
        self.read_long(move |pinned| {
            caller.may(pinned, needs_of_txn(&txn))?;
            pinned.read_txn(&txn)
        })
        .await
    }

    /// A read that may take long, of the newest point when its turn has come.
    pub(crate) async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Pinned) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadFailure> {
        // Held until the work is done, also if its client goes away meanwhile. Never closed.
        let turn = self.turns.clone().acquire_owned().await;
        self.read_aside(move |pinned| {
            let _turn = turn;
            read(pinned)
        })
        .await
    }

    /// A read on a thread that may block, without a turn: what the renewal of a lease is judged by. A stream of renewals
    /// goes on only as fast as its client takes answers, and would keep the turns of all others.
    pub(crate) async fn read_aside<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Pinned) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let reader = self.raft.reader().clone();
        let read = meerkat_raft::threads::spawn_blocking(move || read(&reader.pin())).await;
        read.map_err(ReadFailure::Worker)?.map_err(ReadFailure::State)
    }
}

fn is_short(query: &RangeQuery) -> bool {
    let few =
        matches!(query.keys, KeyRange::One(_)) || query.limit.is_some_and(|limit| limit <= INLINE_KEYS_MAX);
    few && query.at.is_none() && query.bounds.is_unbounded() && query.sort == Sort::BY_KEY
}

/// A read-only transaction is as fresh as its freshest part; an empty one reads nothing.
fn consistency(txn: &Txn) -> Consistency {
    let linearizable = txn
        .operations()
        .any(|op| matches!(op, TxnOp::Range(query) if query.consistency == Consistency::Linearizable));
    if linearizable { Consistency::Linearizable } else { Consistency::Serializable }
}
