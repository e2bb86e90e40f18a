//! The one thread that changes the state.
//!
//! Steps for a batch, in this order and nowhere else: wait until the local log is durable up to
//! the batch's last entry; apply it in one engine write; let readers see it; publish the events;
//! raise the watermark; answer the proposers. So nobody hears "done" before it is visible, and the
//! state on disk is never ahead of the log, except by an installed snapshot.

use super::applied::AppliedMark;
use super::describe;
use crate::compaction::{CompactionPace, CompactionRunner};
use crate::log_store::DurableLog;
use crate::measured::StateTimes;
use crate::snapshot::StateSnapshot;
use crate::snapshot::pins::Pins;
use crate::snapshot::state_dir::StateDir;
use crate::tasks::spawn_part;
use crate::type_config::{Entry, LogId, SnapshotMeta, StoredMembership, TypeConfig, index_of};
use crate::waiters::Waiters;
use meerkat_engine::{Db, DbOptions};
use meerkat_fault as fault;
use meerkat_fault::Mutex;
use meerkat_state::{Compactor, LeaseChange, LogEntry, Machine, StateReader};
use meerkat_types::{AssignedToken, EventBatch, LogIndex, Outcome, RequestId, Revision};
use openraft::Snapshot;
use openraft::type_config::alias::SnapshotOf;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

pub(crate) enum Job {
    Apply { entries: Vec<Entry>, done: oneshot::Sender<io::Result<()>> },
    Install { meta: SnapshotMeta, snapshot: StateSnapshot, done: oneshot::Sender<io::Result<()>> },
}

/// Where applied revisions go, in order, each once. Must only note and return: it runs on the
/// apply thread.
pub trait EventSink: Send + 'static {
    fn publish(&mut self, batch: EventBatch);
    /// A lease came or went. Readers see it already.
    fn lease_changed(&mut self, change: LeaseChange);
    /// A token was given out. Readers see its user already.
    fn token_assigned(&mut self, _token: AssignedToken) {}
    /// The state was opened or replaced; revisions up to this one will not be published.
    fn jumped(&mut self, to: Revision);
}

/// What the apply thread shares with the rest of the member.
pub(crate) struct StateHandle {
    pub(crate) reader: StateReader,
    pub(crate) state_dir: StateDir,
    pub(crate) pins: Pins,
    pub(crate) compaction: CompactionRunner,
    /// Raft runs: from then on, a snapshot that is asked for will be sent.
    pub(crate) started: AtomicBool,
    /// Nanoseconds and batches spent applying, for metrics.
    pub(crate) apply_nanos: AtomicU64,
    pub(crate) apply_batches: AtomicU64,
    pub(crate) times: StateTimes,
    /// The database of the current state. Replaced by an install; held only to clone it.
    db: Mutex<Db>,
    applied: Mutex<(Option<LogId>, StoredMembership)>,
}

impl StateHandle {
    pub(crate) fn db(&self) -> Db {
        self.db.lock().clone()
    }

    pub(crate) fn applied_state(&self) -> (Option<LogId>, StoredMembership) {
        self.applied.lock().clone()
    }

    /// Where the state on disk ends, without forcing anything there.
    pub(crate) fn flushed(&self) -> io::Result<Option<SnapshotMeta>> {
        let info = meerkat_state::persisted_info(&self.db()).map_err(describe::fatal)?;
        if info.applied.is_none() {
            return Ok(None);
        }
        describe::snapshot_meta(&info).map(Some)
    }

    /// Brings all applied entries to the disk; says where the state on disk then ends.
    pub(crate) fn flush(&self) -> io::Result<SnapshotMeta> {
        let db = self.db();
        if let Err(error) = db.flush() {
            // An install may have replaced the database meanwhile; then that one counts.
            if db.path() == self.db().path() {
                return Err(io::Error::other(error));
            }
            self.db().flush().map_err(io::Error::other)?;
        }
        self.flushed()?.ok_or_else(|| io::Error::other("nothing was applied yet"))
    }

    /// Files for a follower, with the log behind them pinned.
    pub(crate) fn checkpoint(&self) -> io::Result<SnapshotOf<TypeConfig, StateSnapshot>> {
        let dir = self.state_dir.scratch("outgoing");
        // Before the checkpoint is taken, so that nothing after it can be purged meanwhile.
        let pin = self.pins.hold(index_of(self.applied_state().0.as_ref()));
        // Before the files are there: whatever happens next, they go with this value.
        let snapshot = StateSnapshot::files(dir.clone(), Some(pin));
        let began = Instant::now();
        self.db().checkpoint(&dir).map_err(io::Error::other)?;
        self.times.checkpoint.observe(began.elapsed());
        let info = meerkat_state::snapshot_info_at(&dir).map_err(describe::fatal)?;
        Ok(Snapshot { meta: describe::snapshot_meta(&info)?, snapshot })
    }
}

pub(crate) struct ApplyThread {
    machine: Machine,
    shared: Arc<StateHandle>,
    durable: DurableLog,
    waiters: Arc<Waiters>,
    mark: AppliedMark,
    events: Box<dyn EventSink>,
    db_options: DbOptions,
    expected: Duration,
}

/// What the thread needs from outside.
pub(crate) struct ApplyParts {
    pub(crate) durable: DurableLog,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) events: Box<dyn EventSink>,
    pub(crate) db_options: DbOptions,
    /// A batch that takes longer is told of.
    pub(crate) expected: Duration,
    pub(crate) compaction: CompactionPace,
}

impl ApplyThread {
    /// Opens the state and starts the thread; `jobs` ends it when all its senders are gone.
    pub(crate) fn start(
        state_dir: StateDir,
        reader: StateReader,
        mut parts: ApplyParts,
        jobs: mpsc::UnboundedReceiver<Job>,
    ) -> io::Result<(Arc<StateHandle>, super::AppliedIndex, Option<std::thread::JoinHandle<()>>)> {
        let (db, mut machine) = open(&state_dir.current()?, &parts.db_options, &reader)?;
        machine.set_publish_events(true);
        parts.events.jumped(reader.current_revision());
        let (mark, applied) = AppliedMark::new(machine.applied().map_or(LogIndex(0), |at| at.index));
        let compaction = CompactionRunner::start(Compactor::new(db.clone()), parts.compaction)?;
        let shared = Arc::new(StateHandle {
            reader,
            state_dir,
            pins: Pins::default(),
            compaction,
            started: AtomicBool::new(false),
            apply_nanos: AtomicU64::new(0),
            apply_batches: AtomicU64::new(0),
            times: StateTimes::default(),
            db: Mutex::new(db),
            applied: Mutex::new(applied_state(&machine)?),
        });
        let ApplyParts { durable, waiters, events, db_options, expected, .. } = parts;
        let shared_too = shared.clone();
        let thread =
            ApplyThread { machine, shared: shared_too, durable, waiters, mark, events, db_options, expected };
        Ok((shared, applied, thread.spawn(jobs)?))
    }

    /// The thread, if it is one.
    fn spawn(
        mut self,
        mut jobs: mpsc::UnboundedReceiver<Job>,
    ) -> io::Result<Option<std::thread::JoinHandle<()>>> {
        if crate::threads::are_tasks() {
            spawn_part("apply", self.run_as_task(jobs));
            return Ok(None);
        }
        let run = move || while jobs.blocking_recv().is_some_and(|job| self.take(job)) {};
        fault::spawn_thread("apply", run).map(Some)
    }

    async fn run_as_task(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = jobs.recv().await {
            if let Job::Apply { entries, .. } = &job
                && let Some(last) = entries.last()
            {
                self.durable.until_durable(&last.log_id).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(rand::random_range(0..3))).await;
            if !self.take(job) {
                return;
            }
        }
    }

    /// Does one job; `false` when there can be no other.
    fn take(&mut self, job: Job) -> bool {
        fault::pass_task("apply");
        let (done, result) = match job {
            Job::Apply { entries, done } => (done, self.apply(entries)),
            Job::Install { meta, snapshot, done } => (done, self.install(&meta, &snapshot)),
        };
        let failed = result.is_err();
        if let Err(error) = &result {
            tracing::error!(%error, "the state can not be changed any more; this member stops");
        }
        // openraft stops on the error; if it is gone already there is nobody to tell.
        let _ = done.send(result);
        !failed
    }

    fn apply(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let Some(last) = entries.last().map(|entry| entry.log_id) else { return Ok(()) };
        // Committed by others is not yet durable here. Without this the state could be flushed
        // with entries that the log loses in a crash.
        self.durable.wait_durable(&last)?;
        let began = Instant::now();
        let decode = |entry: Entry| {
            fault::at(Some(entry.log_id.index));
            describe::log_entry(entry)
        };
        let decoded = entries.into_iter().map(decode).collect::<io::Result<Vec<_>>>()?;
        let (entries, ids): (Vec<LogEntry>, Vec<Option<RequestId>>) = decoded.into_iter().unzip();
        let committing = Instant::now();
        let applied = self.machine.apply(&entries).map_err(describe::fatal)?;
        self.shared.times.commit.observe(committing.elapsed());
        self.note_applied()?;
        let mut outcomes: Vec<(RequestId, Outcome)> = Vec::with_capacity(applied.len());
        let mut compacted = false;
        for (applied, id) in applied.into_iter().zip(ids) {
            if let Some(batch) = applied.events {
                self.events.publish(batch);
            }
            if let Some(change) = applied.lease {
                self.events.lease_changed(change);
            }
            if let Some(token) = applied.token {
                self.events.token_assigned(token);
            }
            if let (Some(outcome), Some(id)) = (applied.outcome, id) {
                compacted |= matches!(outcome, Outcome::Compact(_));
                outcomes.push((id, outcome));
            }
        }
        self.mark.raise(LogIndex(last.index));
        self.waiters.deliver(outcomes.into_iter());
        if compacted {
            self.shared.compaction.wake();
        }
        let took = began.elapsed();
        if self.shared.times.applied(took, self.expected) {
            let request = format!("{} entries up to index {}", entries.len(), last.index);
            let expected_duration = self.expected;
            // In etcd's words; without what was written.
            tracing::warn!(?took, ?expected_duration, prefix = "", request, "apply request took too long");
        }
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.shared.apply_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.shared.apply_batches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn install(&mut self, meta: &SnapshotMeta, snapshot: &StateSnapshot) -> io::Result<()> {
        let Some(incoming) = snapshot.dir() else {
            return Err(io::Error::other("a state that is only described cannot be installed"));
        };
        tracing::info!(last = ?meta.last_log_id, "installing a snapshot");
        let shared = self.shared.clone();
        let _installing = shared.times.begin_install();
        let old = self.shared.state_dir.current()?;
        let dir = self.shared.state_dir.replace_with(incoming)?;
        let (db, mut machine) = open(&dir, &self.db_options, &self.shared.reader)?;
        machine.set_publish_events(true);
        self.shared.compaction.replace(Compactor::new(db.clone()));
        self.machine = machine;
        *self.shared.db.lock() = db;
        self.note_applied()?;
        self.events.jumped(self.shared.reader.current_revision());
        if let Some(last) = meta.last_log_id {
            self.durable.raise(last);
            self.mark.raise(LogIndex(last.index));
        }
        // Last: a flush of the old database that is still running may need its directory.
        self.shared.state_dir.remove_replaced(&old);
        Ok(())
    }

    fn note_applied(&self) -> io::Result<()> {
        *self.shared.applied.lock() = applied_state(&self.machine)?;
        Ok(())
    }
}

fn open(dir: &Path, options: &DbOptions, reader: &StateReader) -> io::Result<(Db, Machine)> {
    let db = Db::open(dir, options).map_err(io::Error::other)?;
    let mut machine = Machine::open(db.clone(), reader).map_err(describe::fatal)?;
    let (_, stored) = applied_state(&machine)?;
    machine.set_roster(stored.membership().nodes().map(|(id, _)| *id).collect());
    Ok((db, machine))
}

fn applied_state(machine: &Machine) -> io::Result<(Option<LogId>, StoredMembership)> {
    let applied = machine.applied().as_ref().map(describe::log_id);
    let membership = machine.membership();
    Ok((applied, describe::membership(membership.as_ref().map(|(_, bytes)| bytes.as_ref()))?))
}
