//! openraft's state machine, over ours.
//!
//! Entries are applied on an OS thread of their own (`apply_thread`), so that a stalled disk never
//! blocks the tasks that keep leadership alive. This file only hands work over and waits.
//!
//! A snapshot, as openraft counts them, is the state as last flushed: enough to purge the log
//! behind it. Files are made only when one has to be sent.

mod applied;
mod apply_thread;
pub(crate) mod describe;

pub use applied::AppliedIndex;
pub use apply_thread::EventSink;
pub(crate) use apply_thread::{ApplyParts, ApplyThread, Job, StateHandle};

use crate::log_store::LogStore;
use crate::snapshot::StateSnapshot;
use crate::type_config::{Entry, LogId, SnapshotMeta, StoredMembership, TypeConfig};

use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftSnapshotBuilder, Snapshot};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

pub(crate) type MeerkatRaft = openraft::Raft<TypeConfig, StateMachine>;

/// Entries per hand-over to the apply thread: one engine write each. Bytes are bounded too, since
/// one entry can be as large as 1.5 MiB.
const BATCH_ENTRIES: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;

#[derive(Clone)]
pub(crate) struct StateMachine {
    jobs: tokio::sync::mpsc::UnboundedSender<Job>,
    shared: Arc<StateHandle>,
    log: LogStore,
}

impl StateMachine {
    pub(crate) fn new(
        jobs: tokio::sync::mpsc::UnboundedSender<Job>,
        shared: Arc<StateHandle>,
        log: LogStore,
    ) -> StateMachine {
        StateMachine { jobs, shared, log }
    }

    async fn run(&self, job: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Job) -> io::Result<()> {
        let (done, finished) = oneshot::channel();
        let gone = || io::Error::other("the apply thread has ended");
        self.jobs.send(job(done)).map_err(|_| gone())?;
        finished.await.map_err(|_| gone())?
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = StateSnapshot;
    type SnapshotBuilder = FlushedState;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok(self.shared.applied_state())
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut batch: Vec<Entry> = Vec::new();
        let mut responders: Vec<ApplyResponder<TypeConfig>> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = entries.next().await.transpose()?;
            let ended = next.is_none();
            if let Some((entry, responder)) = next {
                bytes += describe::entry_bytes(&entry);
                batch.push(entry);
                responders.extend(responder);
            }
            if !batch.is_empty() && (ended || BATCH_ENTRIES <= batch.len() || BATCH_BYTES <= bytes) {
                let entries = std::mem::take(&mut batch);
                let last = entries.last().map(|entry| entry.log_id);
                assert!(last <= self.log.committed(), "only what is committed is applied: {last:?}");
                self.run(|done| Job::Apply { entries, done }).await?;
                bytes = 0;
                for responder in responders.drain(..) {
                    responder.send(());
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    async fn get_snapshot_builder(&mut self) -> FlushedState {
        FlushedState { shared: self.shared.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: StateSnapshot,
    ) -> Result<(), io::Error> {
        let meta = meta.clone();
        // A truncated tail must be gone for good before the state is replaced: a crash in between
        // would otherwise bring back entries that the new state contradicts.
        self.log.sync_barrier().await?;
        self.run(|done| Job::Install { meta, snapshot, done }).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, StateSnapshot>>, io::Error> {
        let shared = self.shared.clone();
        if shared.started.load(Ordering::SeqCst) {
            // Only a transfer asks for it once Raft runs.
            return blocking(move || shared.checkpoint().map(Some)).await;
        }
        Ok(shared.flushed()?.map(|meta| Snapshot { meta, snapshot: StateSnapshot::in_place() }))
    }
}

/// Builds what openraft calls a snapshot, by flushing the state.
pub(crate) struct FlushedState {
    shared: Arc<StateHandle>,
}

impl RaftSnapshotBuilder<TypeConfig> for FlushedState {
    type SnapshotData = StateSnapshot;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, StateSnapshot>, io::Error> {
        let shared = self.shared.clone();
        let meta = blocking(move || shared.flush()).await?;
        Ok(Snapshot { meta, snapshot: StateSnapshot::in_place() })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    crate::threads::spawn_blocking_part("raft", work).await.map_err(io::Error::other)?
}
