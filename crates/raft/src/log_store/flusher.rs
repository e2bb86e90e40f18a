//! The flush thread: takes all that is queued, writes it, syncs once, then tells everybody in order.
//!
//! There is no wait for more to come: while one sync runs the next batch gathers, so batches grow
//! by themselves as the disk gets slower. One OS thread does all writing, therefore a batch's
//! completions are told after those of every earlier one, and a mark may say that everything
//! before it is synced.
//!
//! Any error is final. What a failed write or sync left on disk is unknown, so nothing is tried
//! again: the log is poisoned, everybody waiting is told, and the member is expected to stop.

use super::disk::{LogDisk, LogFile};
use super::failure::Failure;
use super::ledger::{Batch, Completion, Ledger};
use super::segment::file_name;
use super::stats::LogStats;
use super::writer::{Create, Step, Write};
use meerkat_fault as fault;
use meerkat_fault::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// What callers and the flush thread share.
pub struct LogShared {
    /// Guards all of the log's memory. Held for copies, never for I/O or across an await.
    pub ledger: Mutex<Ledger>,
    /// Signalled when there is something to flush, or when the log is closing.
    pub work: Condvar,
    /// The same, for a flusher that is a task.
    pub task_work: tokio::sync::Notify,
    pub failed: watch::Sender<Option<String>>,
    pub stats: Arc<LogStats>,
}

impl LogShared {
    /// There is something to flush, or the log is closing.
    pub fn wake(&self) {
        self.work.notify_one();
        self.task_work.notify_one();
    }
}

pub struct Flusher {
    pub shared: Arc<LogShared>,
    pub disk: Arc<dyn LogDisk>,
    pub no_fsync: bool,
    /// The segment being written, once there is one.
    pub file: Option<Arc<dyn LogFile>>,
    /// Sequence up to which all records are synced. In `no_fsync` mode it stays behind on purpose:
    /// a mark never claims a sync that did not happen.
    pub synced: u64,
    pub written: u64,
}

impl Flusher {
    /// Runs until the log is closed or has failed.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let _guard = PanicGuard { shared: &shared };
        while let Some(batch) = self.next_batch() {
            fault::pass_task("log-flush");
            if self.flush(batch).is_err() {
                return;
            }
        }
        if let Err(failure) = self.seal() {
            poison(&shared, &failure, Vec::new());
        }
    }

    /// As `run`, on a task, with the time a disk takes before each sync: a crash meets writes that
    /// are not synced yet.
    pub async fn run_as_task(mut self) {
        let shared = self.shared.clone();
        let _guard = PanicGuard { shared: &shared };
        loop {
            let (work, closing) = {
                let mut ledger = shared.ledger.lock();
                (ledger.has_work().then(|| ledger.take_batch()), ledger.closing)
            };
            match work {
                Some(mut batch) => {
                    let written = self.write_batch(&mut batch);
                    tokio::time::sleep(self.disk.sync_takes()).await;
                    if self.complete(batch, written).is_err() {
                        return;
                    }
                }
                None if closing => break,
                None => shared.task_work.notified().await,
            }
        }
        if let Err(failure) = self.seal() {
            poison(&shared, &failure, Vec::new());
        }
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut ledger = self.shared.ledger.lock();
        loop {
            if ledger.has_work() {
                return Some(ledger.take_batch());
            }
            if ledger.closing {
                return None;
            }
            self.shared.work.wait(&mut ledger);
        }
    }

    /// On an error the log is poisoned already.
    fn flush(&mut self, mut batch: Batch) -> Result<(), Failure> {
        let written = self.write_batch(&mut batch);
        self.complete(batch, written)
    }

    fn complete(&mut self, mut batch: Batch, written: Result<Created, Failure>) -> Result<(), Failure> {
        if let Err(failure) = written.and_then(|created| self.sync_and_note(&batch, created)) {
            poison(&self.shared, &failure, batch.completions);
            return Err(failure);
        }
        for completion in std::mem::take(&mut batch.completions) {
            completion.tell(Ok(()));
        }
        // Nobody waits for this, so it comes last.
        self.remove(&batch.removals).map_err(while_doing("removing purged segments")).inspect_err(|failure| {
            poison(&self.shared, failure, Vec::new());
        })
    }

    /// Writes, but for new segments, are not durable before `sync_and_note`.
    fn write_batch(&mut self, batch: &mut Batch) -> Result<Created, Failure> {
        let mut created = Vec::new();
        for step in std::mem::take(&mut batch.steps) {
            match step {
                Step::Create(create) => created.push(self.create(create)?),
                Step::Write(write) => self.write(write).map_err(while_doing("writing"))?,
            }
        }
        Ok(created)
    }

    fn sync_and_note(&mut self, batch: &Batch, created: Created) -> Result<(), Failure> {
        if batch.needs_sync {
            self.sync_batch(batch.has_vote).map_err(while_doing("syncing"))?;
        }
        let mut ledger = self.shared.ledger.lock();
        ledger.created(created);
        if batch.needs_sync {
            ledger.synced(batch);
        }
        Ok(())
    }

    fn create(&mut self, create: Create) -> Result<(u64, Arc<dyn LogFile>), Failure> {
        // The next segment's existence says that this one is complete.
        self.sync_segment().map_err(while_doing("syncing a full segment"))?;
        let (number, len, last_sequence) = (create.number, create.len, create.last_sequence());
        let made = self.disk.create(&file_name(number), len, &create.head(self.synced));
        let file = made.map_err(while_doing("making a segment"))?;
        self.file = Some(file.clone());
        self.written = last_sequence;
        self.synced = last_sequence;
        Ok((number, file))
    }

    fn write(&mut self, mut write: Write) -> io::Result<()> {
        fault::point("before_log_write")?;
        write.fill_mark(self.synced);
        let file = self.file.as_ref().expect("a segment is made before it is written to");
        let start = Instant::now();
        file.write_all_at(&write.bytes, write.at)?;
        self.shared.stats.count_write(write.bytes.len(), start.elapsed());
        self.written = write.last_sequence;
        Ok(())
    }

    fn sync_batch(&mut self, has_vote: bool) -> io::Result<()> {
        if has_vote {
            fault::point("before_vote_sync")?;
        }
        fault::point("before_log_sync")?;
        if !self.no_fsync {
            self.sync_segment()?;
        }
        fault::point("after_log_sync")?;
        if has_vote {
            fault::point("after_vote_sync")?;
        }
        Ok(())
    }

    fn sync_segment(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.synced < self.written) else {
            return Ok(());
        };
        let start = Instant::now();
        file.sync_data()?;
        self.shared.stats.count_sync(start.elapsed());
        self.synced = self.written;
        Ok(())
    }

    /// Oldest first, each removal durable before the next: what is left never has a gap.
    fn remove(&self, numbers: &[u64]) -> io::Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        fault::point("before_purge")?;
        for number in numbers {
            self.disk.remove(&file_name(*number))?;
        }
        fault::point("after_purge")
    }

    fn seal(&mut self) -> Result<(), Failure> {
        // Without this the last records may be written but not synced (a commit position), and the
        // mark below could not speak for them.
        self.sync_segment().map_err(while_doing("syncing at the end"))?;
        let mut batch = {
            let mut ledger = self.shared.ledger.lock();
            ledger.seal();
            ledger.take_batch()
        };
        let created = self.write_batch(&mut batch)?;
        self.sync_and_note(&batch, created)
    }
}

/// Segments made for a batch.
type Created = Vec<(u64, Arc<dyn LogFile>)>;

fn while_doing(doing: &'static str) -> impl Fn(io::Error) -> Failure {
    move |err| Failure::of_disk(doing, &err)
}

/// First closes the log to everybody, then tells those who wait: nobody who hears of the failure
/// can append after it.
fn poison(shared: &LogShared, failure: &Failure, waiting: Vec<Completion>) {
    let queued = shared.ledger.lock().fail(failure.clone());
    for completion in waiting.into_iter().chain(queued) {
        completion.tell(Err(failure));
    }
    shared.failed.send_if_modified(|current| {
        let first = current.is_none();
        if first {
            tracing::error!("{failure}; no further write is possible, this member must stop");
            *current = Some(failure.to_string());
        }
        first
    });
}

/// A panic on the flush thread must not leave callers waiting for ever.
struct PanicGuard<'a> {
    shared: &'a LogShared,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison(self.shared, &Failure::panicked(), Vec::new());
        }
    }
}
