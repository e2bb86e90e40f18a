//! Maintenance.Snapshot: this member's store as an etcd snapshot file, in pieces.
//!
//! The store is read from one pinned point and written to a file that has no name, on the disk of the
//! data directory: writers are not held up, memory is bounded, and nothing is left behind by whatever
//! ends the call. The pieces come from that file. A member works for at most [`BUILDS_MAX`] callers at
//! once, since each takes the room of a store on disk; others wait, [`TURN_WITHIN`] at most. Who takes
//! nothing for [`TAKEN_WITHIN`] loses their turn, and nothing is begun that the disk has no room for.

use super::status;
use crate::saved_rules;
use crate::space::free_bytes;
use crate::version::STORAGE_VERSION;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use meerkat_backup::snapshot::{CHECKSUM_BYTES, Checksum, Head, KeyRows, LeaseRow, write};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_raft::tasks::spawn_brief;
use meerkat_raft::{RaftNode, threads};
use meerkat_state::{Pinned, ReadError};
use meerkat_types::{Lease, Revision};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// What etcd sends at once, and what its clients are known to take.
const PIECE_BYTES: usize = 32 << 10;
/// Pieces read from disk in one go.
const READ_PIECES: usize = 32;
/// Pieces that wait for the caller.
const WAITING_PIECES: usize = 8;
const BUILDS_MAX: usize = 2;
/// For so long a caller waits while as many are served as can be.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// For so long a caller may leave the next piece where it is.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

static BUILDS: Semaphore = Semaphore::const_new(BUILDS_MAX);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("a file for it cannot be written in the data directory: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the caller has gone")]
    Gone,
    #[error("{BUILDS_MAX} others are being sent theirs")]
    Busy,
    #[error("the caller took nothing for {} s", TAKEN_WITHIN.as_secs())]
    NotTaken,
    #[error(
        "it needs about {needed} bytes on the disk of the data directory, of which {kept} are to stay free: \
         {free} are free"
    )]
    NoRoom { needed: u64, kept: u64, free: u64 },
}

pub(crate) type Pieces = BoxStream<'static, Result<pb::SnapshotResponse, Status>>;

/// The whole answer. Building begins when it is first polled, so that the caller hears at once that it
/// was accepted.
pub(crate) fn stream(raft: Arc<RaftNode>, free_bytes_min: u64) -> Pieces {
    let built = stream::once(async move {
        let turn = tokio::time::timeout(TURN_WITHIN, BUILDS.acquire()).await;
        let permit = turn.ok().and_then(Result::ok).ok_or_else(|| status::snapshot(&SnapshotError::Busy))?;
        let pinned = raft.reader().pin();
        let database = raft.database();
        let live_bytes = raft.live_bytes();
        let left = Left::default();
        let gone = left.0.clone();
        let building = threads::spawn_blocking(move || {
            let stored_bytes = database.approximate_size().map_or(0, |size| size.total_bytes);
            check_room(database.path(), live_bytes.max(stored_bytes), free_bytes_min)?;
            build(&pinned, database.path(), &gone)
        });
        let built = building.await.map_err(|error| status::worker_lost(&error))?;
        let (file, bytes) = built.map_err(|error| status::snapshot(&error))?;
        Ok::<_, Status>(pieces(file, bytes, permit))
    });
    built.try_flatten().boxed()
}

/// Tells the builder when the caller has gone: dropped with the answer.
#[derive(Default)]
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A disk that does not say how much room it has is taken to have enough.
fn check_room(dir: &Path, bytes: u64, kept: u64) -> Result<(), SnapshotError> {
    match free_bytes(dir) {
        Ok(free) if !threads::are_tasks() => has_room(free, bytes, kept),
        _ => Ok(()),
    }
}

fn has_room(free: u64, bytes: u64, kept: u64) -> Result<(), SnapshotError> {
    let needed = bytes.saturating_add(kept);
    if needed <= free { Ok(()) } else { Err(SnapshotError::NoRoom { needed, kept, free }) }
}

fn build(pinned: &Pinned, database: &Path, gone: &AtomicBool) -> Result<(File, u64), SnapshotError> {
    let applied = pinned.applied();
    let head = Head {
        compacted: pinned.compacted_revision().map(Revision::get).filter(|compacted| 0 < *compacted),
        applied_term: applied.map_or(0, |at| at.term.0),
        applied_index: applied.map_or(0, |at| at.index.0),
        storage_version: Some(STORAGE_VERSION),
        leases: pinned.leases()?.iter().map(lease_row).collect(),
        other: saved_rules::to_rows(pinned.auth(), pinned.alarms().map(|(alarm, _)| alarm)),
    };
    // Beside the state's directory, which is cleared of whatever is unknown at every start.
    let dir = database.parent().unwrap_or(database);
    let (mut file, bytes) = write(nameless(dir)?, &head, |keys| write_history(pinned, keys, gone))?;
    file.seek(SeekFrom::Start(0))?;
    Ok((file, bytes))
}

fn lease_row(lease: &Lease) -> LeaseRow {
    let remaining = lease.remaining.map_or(0, |left| left.as_secs() + u64::from(0 < left.subsec_nanos()));
    LeaseRow {
        id: lease.id.get(),
        ttl_seconds: lease.ttl.seconds(),
        remaining_seconds: i64::try_from(remaining).unwrap_or(i64::MAX),
    }
}

fn write_history(pinned: &Pinned, keys: &mut KeyRows<'_>, gone: &AtomicBool) -> Result<(), SnapshotError> {
    let mut failed = None;
    pinned.each_event(|event| {
        let put = match event.key_value {
            _ if gone.load(Ordering::Relaxed) => Err(SnapshotError::Gone),
            Some(bytes) => keys.put(event.revision.get(), event.sub, bytes).map_err(SnapshotError::from),
            None => keys.delete(event.revision.get(), event.sub, event.key).map_err(SnapshotError::from),
        };
        match put {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// A file that is gone when it is closed.
fn nameless(dir: &Path) -> io::Result<File> {
    let tag: u64 = rand::random();
    let path = dir.join(format!("backup-{tag:016x}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// What is left to send.
struct Sending<P> {
    file: File,
    left: u64,
    sum: Checksum,
    _permit: P,
}

/// The pieces, from a task of their own: it notices if nobody takes them, which a stream that nobody asks
/// does not. It ends with the stream, or then; the permit ends with it.
fn pieces<P: Send + 'static>(file: File, bytes: u64, permit: P) -> Pieces {
    let sending = Sending { file, left: bytes, sum: Checksum::default(), _permit: permit };
    let (give, taken) = mpsc::channel(WAITING_PIECES);
    let whole = Arc::new(AtomicBool::new(false));
    let was_whole = whole.clone();
    spawn_brief(async move {
        let gave = give_all(sending, &give).await;
        whole.store(gave.is_some(), Ordering::Release);
    });
    // What was given waits in the channel, so the end is after the last of it.
    let end = stream::once(async move {
        match was_whole.load(Ordering::Acquire) {
            true => None,
            false => Some(Err(status::snapshot(&SnapshotError::NotTaken))),
        }
    });
    ReceiverStream::new(taken).chain(end.filter_map(std::future::ready)).boxed()
}

/// `None` if not everything was taken.
async fn give_all<P: Send + 'static>(
    sending: Sending<P>,
    give: &mpsc::Sender<Result<pb::SnapshotResponse, Status>>,
) -> Option<()> {
    let mut next = Some(sending);
    while let Some(sending) = next {
        let read = match threads::spawn_blocking(move || sending.next_group()).await {
            Ok(read) => read.map_err(|error| status::snapshot(&SnapshotError::Io(error))),
            Err(error) => Err(status::worker_lost(&error)),
        };
        let (group, rest) = match read {
            Ok((group, rest)) => (group.into_iter().map(Ok).collect(), rest),
            Err(status) => (vec![Err(status)], None),
        };
        for piece in group {
            give.send_timeout(piece, TAKEN_WITHIN).await.ok()?;
        }
        next = rest;
    }
    Some(())
}

impl<P> Sending<P> {
    /// The next pieces, and what is left after them; with the last comes the checksum.
    fn next_group(mut self) -> io::Result<(Vec<pb::SnapshotResponse>, Option<Sending<P>>)> {
        let mut group = Vec::with_capacity(READ_PIECES + 1);
        while 0 < self.left && group.len() < READ_PIECES {
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let mut piece = vec![0; len];
            self.file.read_exact(&mut piece)?;
            self.sum.update(&piece);
            self.left -= len as u64;
            group.push(message(piece.into(), self.left));
        }
        if 0 < self.left {
            return Ok((group, Some(self)));
        }
        let sum: [u8; CHECKSUM_BYTES] = self.sum.of_all();
        group.push(message(Bytes::copy_from_slice(&sum), 0));
        Ok((group, None))
    }
}

fn message(blob: Bytes, remaining_bytes: u64) -> pb::SnapshotResponse {
    // Not with the header: it has the revision of now, and the file has its own.
    pb::SnapshotResponse { header: None, remaining_bytes, blob, version: STORAGE_VERSION.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: usize = 3 * READ_PIECES;

    /// A stream of [`PIECES`] pieces, and whether its permit is still held.
    fn sent() -> (Pieces, std::sync::Weak<()>) {
        let file = tempfile::tempfile().expect("a file");
        let bytes = (PIECES * PIECE_BYTES) as u64;
        file.set_len(bytes).expect("it grows");
        let permit = Arc::new(());
        let held = Arc::downgrade(&permit);
        (pieces(file, bytes, permit), held)
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_loses_its_turn_and_is_told() {
        let (mut pieces, held) = sent();
        for _ in 0..3 {
            assert!(pieces.next().await.expect("a piece").is_ok());
            tokio::time::sleep(TAKEN_WITHIN / 2).await;
        }
        assert!(held.upgrade().is_some(), "slow is not gone");
        tokio::time::sleep(2 * TAKEN_WITHIN).await;
        assert!(held.upgrade().is_none(), "another may have its turn");
        let rest: Vec<_> = pieces.collect().await;
        assert!(rest.len() < PIECES);
        assert!(rest.last().is_some_and(Result::is_err), "and the file is not taken for whole");
    }

    #[tokio::test]
    async fn a_caller_that_takes_everything_has_it_whole() {
        let (pieces, held) = sent();
        let all: Vec<_> = pieces.collect().await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(all.len(), PIECES + 1, "with the checksum");
        assert!(held.upgrade().is_none());
    }

    #[test]
    fn nothing_is_begun_that_would_leave_too_little_room() {
        assert!(has_room(100, 60, 40).is_ok());
        for (free, bytes, kept) in [(99, 60, 40), (0, 1, 0), (u64::MAX - 1, u64::MAX, 1)] {
            assert!(matches!(has_room(free, bytes, kept), Err(SnapshotError::NoRoom { .. })));
        }
    }
}
