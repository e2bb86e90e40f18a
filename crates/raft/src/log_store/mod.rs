//! The log: this member's durable copy of votes and entries, in a write-ahead log of its own.
//!
//! ```text
//!  openraft core ──append──► ledger (one lock) ──► flush thread ──write, one sync──► segments
//!                              │ tail in memory         │
//!  replication, apply ◄────────┘                        └──► callbacks, in order; durable mark
//! ```
//!
//! Always true:
//! * Everything goes through one queue, so the disk holds a prefix of what was asked for.
//! * A callback, a saved vote and a truncate are told only after a sync that covers them.
//! * After a failed write or sync nothing is accepted again; [`LogStore::failed`] says so.
//!
//! Never open one directory twice, never change the files by hand, and never call a log durable by
//! any other sign than [`DurableLog`] or a finished callback. The format is described in
//! `docs/on-disk-format.md`, the reasons in `docs/adr/0002-own-write-ahead-log.md`.

pub mod codec;
pub mod disk;
mod durable;
mod failure;
mod flusher;
mod ledger;
mod reader;
mod record;
mod recovery;
mod segment;
mod stats;
mod tail;
mod writer;

pub use durable::DurableLog;
pub use reader::LogReader;
pub use segment::FORMAT_VERSION;
pub use stats::LogStats;

use crate::tasks::spawn_part;
use crate::type_config::{Entry, LogId, TypeConfig, Vote};
use disk::{FsDisk, LogDisk};
use failure::Failure;
use flusher::{Flusher, LogShared};
use ledger::{Completion, Ledger};
use meerkat_fault as fault;
use meerkat_fault::{Condvar, Mutex};
use meerkat_types::{ClusterId, LogIndex, MemberId};
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// Bytes waiting for the disk before `append` makes openraft wait too: some seconds of a slow disk.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// Offsets in a segment are 32 bits wide; half of that leaves room for one record of any legal size.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;
const SEGMENT_BYTES_MIN: u64 = 512;
const _: () = assert!(SEGMENT_BYTES_MAX + (record::PAYLOAD_BYTES_MAX as u64) < u32::MAX as u64);

#[derive(Clone, Debug)]
pub struct LogOptions {
    pub dir: PathBuf,
    pub cluster_id: ClusterId,
    pub member_id: MemberId,
    /// Size of a new segment. One that must hold a larger record is made larger.
    pub segment_bytes: u64,
    /// Recent entries kept in memory. Entries that are not synced yet stay, whatever this says.
    pub cache_bytes: usize,
    /// Acknowledge without syncing. A power failure may then lose what was acknowledged.
    pub no_fsync: bool,
}

impl LogOptions {
    pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
    pub const CACHE_BYTES_DEFAULT: usize = 32 << 20;

    pub fn new(dir: impl Into<PathBuf>, cluster_id: ClusterId, member_id: MemberId) -> LogOptions {
        LogOptions {
            dir: dir.into(),
            cluster_id,
            member_id,
            segment_bytes: LogOptions::SEGMENT_BYTES_DEFAULT,
            cache_bytes: LogOptions::CACHE_BYTES_DEFAULT,
            no_fsync: false,
        }
    }
}

/// Handle to the log. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct LogStore {
    reader: LogReader,
    durable: DurableLog,
    thread: Arc<FlushThread>,
}

/// Owns the flush thread, and joins it.
struct FlushThread {
    shared: Arc<LogShared>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl LogStore {
    /// Opens the log in a directory, or begins one there. Recovers from a crash; refuses a log that
    /// is damaged, in use, or another member's.
    pub fn open(options: LogOptions) -> io::Result<LogStore> {
        let disk = Arc::new(FsDisk::open(&options.dir)?);
        LogStore::open_on(disk, options)
    }

    /// What this member has promised: known here before it is on disk, and so before anybody is told.
    /// A log that is closed or broken has none to tell: another process may have promised more since.
    pub(crate) fn promised(&self) -> io::Result<Option<Vote>> {
        let ledger = self.reader.shared.ledger.lock();
        ledger.check()?;
        Ok(ledger.tail.positions.vote)
    }

    /// Whether there is a promise or an entry in it, as openraft means it when it calls a log initialized.
    pub(crate) fn has_begun(&self) -> io::Result<bool> {
        let promised = self.promised()?.is_some();
        Ok(promised || self.reader.shared.ledger.lock().tail.last().is_some())
    }

    /// Whether `dir` holds a log. A member that ran before must have one: opening would begin an
    /// empty one, without the votes and entries that its peers count on.
    pub fn exists(dir: &std::path::Path) -> io::Result<bool> {
        match std::fs::read_dir(dir) {
            Ok(mut entries) => Ok(entries.any(|entry| {
                entry.is_ok_and(|entry| segment::number_of(&entry.file_name().to_string_lossy()).is_some())
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As `exists`, on a disk that is given.
    pub fn exists_on(disk: &dyn LogDisk) -> io::Result<bool> {
        Ok(disk.list()?.iter().any(|name| segment::number_of(name).is_some()))
    }

    /// As `open`, on a disk that is given.
    pub fn open_on(disk: Arc<dyn LogDisk>, options: LogOptions) -> io::Result<LogStore> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&options.segment_bytes) {
            let text = format!(
                "a log segment of {} bytes is outside {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}",
                options.segment_bytes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let recovered = recovery::recover(disk.as_ref(), &options)?;
        let durable = DurableLog::new(recovered.tail.last());
        let shared = Arc::new(LogShared {
            ledger: Mutex::new(Ledger::new(recovered.tail, recovered.writer, durable.clone())),
            work: Condvar::new(),
            task_work: tokio::sync::Notify::new(),
            failed: watch::channel(None).0,
            stats: Arc::new(LogStats::default()),
        });
        let flusher = Flusher {
            shared: shared.clone(),
            disk,
            no_fsync: options.no_fsync,
            file: recovered.file,
            synced: recovered.last_sequence,
            written: recovered.last_sequence,
        };
        let handle = start(flusher)?;
        let thread = Arc::new(FlushThread { shared: shared.clone(), handle: Mutex::new(handle) });
        Ok(LogStore { reader: LogReader { shared }, durable, thread })
    }

    /// How far the log is safe on disk.
    pub fn durable_log(&self) -> DurableLog {
        self.durable.clone()
    }

    /// Up to where entries are known to be agreed on; told before the first of them is applied.
    pub(crate) fn committed(&self) -> Option<LogId> {
        self.reader.shared.ledger.lock().tail.positions.committed
    }

    pub fn stats(&self) -> Arc<LogStats> {
        self.reader.shared.stats.clone()
    }

    /// Becomes the reason when the log has failed. The member must then stop, with an error.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.reader.shared.failed.subscribe()
    }

    /// Bytes of records in all segments.
    pub fn total_bytes(&self) -> u64 {
        self.reader.shared.ledger.lock().tail.total_bytes()
    }

    /// Bytes of records written after the entry at `index`.
    pub fn bytes_since(&self, index: LogIndex) -> u64 {
        self.reader.shared.ledger.lock().tail.bytes_since(index)
    }

    /// Makes a log that is new be there, though nothing is in it yet. Returns when it is on disk.
    pub async fn begin(&self) -> io::Result<()> {
        self.submit_and_wait(Ledger::begin).await
    }

    /// Returns when everything asked for before is on disk.
    pub async fn sync_barrier(&self) -> io::Result<()> {
        self.submit_and_wait(|_| Ok(())).await
    }

    /// Flushes what is queued and ends the flush thread. Later writes are refused; entries can
    /// still be read. Blocks for one last sync. Closing twice is harmless.
    pub fn close(&self) {
        self.thread.close();
    }

    /// Changes the ledger and wakes the flush thread.
    fn submit<T>(&self, change: impl FnOnce(&mut Ledger) -> io::Result<T>) -> io::Result<T> {
        let mut ledger = self.reader.shared.ledger.lock();
        ledger.check()?;
        let answer = change(&mut ledger)?;
        drop(ledger);
        self.reader.shared.wake();
        Ok(answer)
    }

    async fn submit_and_wait(&self, change: impl FnOnce(&mut Ledger) -> io::Result<()>) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.submit(|ledger| {
            change(ledger)?;
            ledger.when_synced(Completion::Waiter(sender));
            Ok(())
        })?;
        receiver.await.map_err(|_| Failure::closed().to_error())?
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let ledger = self.reader.shared.ledger.lock();
        Ok(LogState { last_purged_log_id: ledger.tail.positions.purged, last_log_id: ledger.tail.last() })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.submit_and_wait(|ledger| ledger.save_vote(vote)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.submit(|ledger| ledger.save_committed(committed))
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.committed())
    }

    /// Returns once the entries can be read. Waits only when the disk is far behind.
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let far_behind = self.submit(|ledger| {
            for entry in entries {
                ledger.append(entry)?;
                self.reader.shared.stats.count_append();
            }
            ledger.when_synced(Completion::Append(callback));
            Ok(ledger.queued_bytes() > QUEUED_BYTES_MAX)
        })?;
        if far_behind { self.sync_barrier().await } else { Ok(()) }
    }

    /// Durable on return. Truncates are rare, and a snapshot must never be put in place while one
    /// could still be undone by a crash.
    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        self.submit_and_wait(|ledger| ledger.truncate_after(last_log_id)).await
    }

    /// The entries are gone at once; their segments follow when the purge is on disk.
    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.submit(|ledger| ledger.purge(log_id))
    }
}

/// The thread, if it is one.
fn start(flusher: Flusher) -> io::Result<Option<JoinHandle<()>>> {
    if crate::threads::are_tasks() {
        spawn_part("log-flush", flusher.run_as_task());
        return Ok(None);
    }
    fault::spawn_thread("log-flush", move || flusher.run()).map(Some)
}

impl FlushThread {
    fn close(&self) {
        self.shared.ledger.lock().closing = true;
        self.shared.wake();
        if let Some(handle) = self.handle.lock().take() {
            // A panic there has been reported as a failure already.
            let _ = handle.join();
        }
        self.shared.ledger.lock().end();
    }
}

impl Drop for FlushThread {
    fn drop(&mut self) {
        self.close();
    }
}
