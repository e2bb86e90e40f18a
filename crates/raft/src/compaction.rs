//! Compaction beside traffic: one thread that takes a bounded step, lets others work, and goes on.
//!
//! Woken by an applied compaction, by the start of the member (a crash in the middle resumes) and
//! by an installed snapshot. Costs nothing while there is nothing to remove.

use crate::measured::CompactionTimes;
use crate::tasks::spawn_part;
use meerkat_fault as fault;
use meerkat_fault::{Condvar, Mutex};
use meerkat_state::{Compactor, Progress, StateError};
use meerkat_types::{Revision, limits};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How compaction shares the disk and the processors with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPace {
    /// Events that one step looks at.
    pub batch: usize,
    /// Pause between two steps.
    pub pause: Duration,
}

impl Default for CompactionPace {
    fn default() -> CompactionPace {
        CompactionPace { batch: limits::COMPACTION_STEP_EVENTS, pause: Duration::from_millis(10) }
    }
}

pub struct CompactionRunner {
    shared: Arc<Shared>,
    finished: watch::Receiver<Option<Revision>>,
    failed: watch::Receiver<Option<String>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

struct Shared {
    work: Mutex<Work>,
    pace: CompactionPace,
    /// What the current compactor has removed since its database began.
    removed_bytes: AtomicU64,
    times: CompactionTimes,
    /// When the compaction under way began.
    began: Mutex<Option<Instant>>,
    /// When the last one ended.
    ended: Mutex<Option<Instant>>,
    /// Versions and deletions removed.
    removed: AtomicU64,
    woken: Condvar,
    /// Set once, when nothing can be compacted any more.
    failed: watch::Sender<Option<String>>,
    /// The same, for a runner that is a task.
    task_woken: tokio::sync::Notify,
}

impl Shared {
    fn wake(&self) {
        self.woken.notify_one();
        self.task_woken.notify_one();
    }

    /// In etcd's words.
    fn note_end(&self, revision: Revision) {
        let Some(began) = self.began.lock().take() else { return };
        let took = began.elapsed();
        self.times.whole.observe(took);
        *self.ended.lock() = Some(Instant::now());
        tracing::info!(compact_revision = revision.get(), ?took, "finished scheduled compaction");
    }

    /// A damaged row, or a database that a failed write has closed. A member that went on would never
    /// again free what is compacted, or would answer from what is damaged.
    fn fail(&self, error: &StateError) {
        tracing::error!(%error, "compaction has failed; this member must stop");
        self.failed.send_replace(Some(error.to_string()));
    }
}

struct Work {
    compactor: Arc<Compactor>,
    pending: bool,
    stopping: bool,
}

impl CompactionRunner {
    pub(crate) fn start(compactor: Compactor, pace: CompactionPace) -> io::Result<CompactionRunner> {
        let done = compactor.finished_revision().map_err(io::Error::other)?;
        let removed_bytes = compactor.removed_bytes().map_err(io::Error::other)?;
        let (sender, finished) = watch::channel(done);
        let (failing, failed) = watch::channel(None);
        let work = Work { compactor: Arc::new(compactor), pending: true, stopping: false };
        let shared = Arc::new(Shared {
            work: Mutex::new(work),
            pace,
            removed_bytes: AtomicU64::new(removed_bytes),
            times: CompactionTimes::default(),
            began: Mutex::new(None),
            ended: Mutex::new(None),
            removed: AtomicU64::new(0),
            failed: failing,
            woken: Condvar::new(),
            task_woken: tokio::sync::Notify::new(),
        });
        let running = shared.clone();
        let thread = spawn(running, sender)?;
        Ok(CompactionRunner { shared, finished, failed, thread: Mutex::new(thread) })
    }

    pub(crate) fn wake(&self) {
        self.shared.work.lock().pending = true;
        self.shared.wake();
    }

    pub(crate) fn replace(&self, compactor: Compactor) {
        let removed = compactor.removed_bytes().unwrap_or_default();
        self.shared.removed_bytes.store(removed, Ordering::Relaxed);
        let mut work = self.shared.work.lock();
        work.compactor = Arc::new(compactor);
        work.pending = true;
        self.shared.wake();
    }

    /// What was removed here so far, as the quota counts it.
    pub fn removed_bytes(&self) -> u64 {
        self.shared.removed_bytes.load(Ordering::Relaxed)
    }

    /// Resolves when everything below `revision` that can go is gone from this member; `false` when
    /// that will not happen because compaction has ended here.
    pub async fn finished(&self, revision: Revision) -> bool {
        self.finished.clone().wait_for(|finished| Some(revision) <= *finished).await.is_ok()
    }

    /// Resolves with the reason when this database can not be compacted any more.
    pub(crate) async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    pub fn times(&self) -> &CompactionTimes {
        &self.shared.times
    }

    /// How long ago one ended, if any did since the start.
    pub fn ended_ago(&self) -> Option<Duration> {
        self.shared.ended.lock().map(|ended| ended.elapsed())
    }

    /// Versions and deletions removed since the start.
    pub fn removed(&self) -> u64 {
        self.shared.removed.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.shared.work.lock().stopping = true;
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in it was logged where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread, if it is one.
fn spawn(
    shared: Arc<Shared>,
    finished: watch::Sender<Option<Revision>>,
) -> io::Result<Option<std::thread::JoinHandle<()>>> {
    if crate::threads::are_tasks() {
        spawn_part("compaction", run_as_task(shared, finished));
        return Ok(None);
    }
    fault::spawn_thread("compaction", move || run(&shared, &finished)).map(Some)
}

async fn run_as_task(shared: Arc<Shared>, finished: watch::Sender<Option<Revision>>) {
    loop {
        let compactor = {
            let mut work = shared.work.lock();
            if work.stopping {
                return;
            }
            std::mem::take(&mut work.pending).then(|| work.compactor.clone())
        };
        let Some(compactor) = compactor else {
            shared.task_woken.notified().await;
            continue;
        };
        match step(&shared, &compactor, &finished) {
            Next::Go => tokio::task::yield_now().await,
            Next::Pause => {
                shared.work.lock().pending = true;
                tokio::time::sleep(shared.pace.pause).await;
            }
            Next::End => return,
        }
    }
}

fn run(shared: &Shared, finished: &watch::Sender<Option<Revision>>) {
    loop {
        let compactor = {
            let mut work = shared.work.lock();
            while !work.pending && !work.stopping {
                shared.woken.wait(&mut work);
            }
            if work.stopping {
                return;
            }
            work.pending = false;
            work.compactor.clone()
        };
        match step(shared, &compactor, finished) {
            Next::Go => {}
            Next::Pause => {
                let mut work = shared.work.lock();
                work.pending = true;
                if !work.stopping {
                    shared.woken.wait_for(&mut work, shared.pace.pause);
                }
            }
            Next::End => return,
        }
    }
}

enum Next {
    Go,
    /// There is more to do, after a pause.
    Pause,
    End,
}

fn step(shared: &Shared, compactor: &Arc<Compactor>, finished: &watch::Sender<Option<Revision>>) -> Next {
    fault::pass_task("compaction");
    let failed = |error: &StateError| {
        if is_current(shared, compactor) {
            shared.fail(error);
            return Next::End;
        }
        // Of a database that a snapshot has replaced: its successor is waiting.
        Next::Go
    };
    let began = Instant::now();
    let stepped = compactor.step(shared.pace.batch);
    shared.removed.fetch_add(compactor.take_removed(), Ordering::Relaxed);
    if !matches!(stepped, Ok(Progress::Idle)) {
        shared.times.step.observe(began.elapsed());
        shared.began.lock().get_or_insert(began);
    }
    match compactor.removed_bytes() {
        // Unless a snapshot has replaced the database meanwhile.
        Ok(removed) if is_current(shared, compactor) => {
            shared.removed_bytes.store(removed, Ordering::Relaxed)
        }
        Ok(_) => {}
        Err(error) => return failed(&error),
    }
    match stepped {
        Ok(Progress::More) => return Next::Pause,
        Ok(Progress::Finished(revision)) => {
            shared.note_end(revision);
            finished.send_replace(Some(revision));
        }
        Ok(Progress::Idle) => match compactor.finished_revision() {
            Ok(revision) => drop(finished.send_replace(revision)),
            Err(error) => return failed(&error),
        },
        Err(error) => return failed(&error),
    }
    Next::Go
}

fn is_current(shared: &Shared, compactor: &Arc<Compactor>) -> bool {
    Arc::ptr_eq(&shared.work.lock().compactor, compactor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use meerkat_engine::{Batch, Column, Db, DbOptions};
    use meerkat_state::{LogEntry, Machine, Payload, StateReader};
    use meerkat_types::{
        Command, Compact, Key, LogIndex, LogPosition, MemberId, NewLease, NewValue, Proposal, Put, RequestId,
        Term,
    };

    fn entry(index: u64, command: Command) -> LogEntry {
        let proposal = Proposal { id: RequestId(index), stamp_ms: 0, asker: None, command };
        let payload = Payload::Command(proposal);
        LogEntry {
            position: LogPosition { term: Term(1), node: MemberId(1), index: LogIndex(index) },
            payload,
        }
    }

    fn put(index: u64) -> LogEntry {
        let key = Key::new(Bytes::from_static(b"k")).expect("not empty");
        let value = NewValue::Set(Bytes::from_static(b"v"));
        entry(index, Command::Put(Put { key, value, lease: NewLease::Set(None), want_previous: false }))
    }

    #[tokio::test]
    async fn compaction_that_meets_a_damaged_row_stops_the_member() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path(), &DbOptions::default()).expect("it opens");
        let mut machine = Machine::open(db.clone(), &StateReader::new()).expect("it opens");
        machine.apply(&[put(1), put(2), put(3)]).expect("it is applied");
        let first = db.view().scan_once(Column::Log, &[], None).row().expect("an event").0.to_vec();
        let mut batch = Batch::new(&db);
        batch.put(Column::Log, &first, b"");
        db.write(batch).expect("it is written");
        let runner =
            CompactionRunner::start(Compactor::new(db), CompactionPace::default()).expect("it starts");
        let failed = runner.failed();
        machine.apply(&[entry(4, Command::Compact(Compact { revision: Revision::new(4) }))]).expect("agreed");
        runner.wake();
        let reason = tokio::time::timeout(Duration::from_secs(60), failed).await.expect("it fails");
        assert!(reason.contains("log"), "{reason}");
        runner.stop();
    }
}
